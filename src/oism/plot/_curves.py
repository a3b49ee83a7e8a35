"""Coefficients and losses of a fit against the noise level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from oism.basis import Basis
from oism.plot._frame import GREY, INK, SPECTRUM, Array, axes_or_new
from oism.score import OperatorScore


def coefficient_traces(score: OperatorScore, ax: Axes | None = None, *, count: int = 60) -> Axes:
    """Draw the largest coefficients against the noise, coloured by their eigenvalue.

    A coefficient is multiplied by √-λ_k, the size of its gradient. Dark lines are slow waves.
    """
    basis = score.basis
    if not isinstance(basis, Basis):
        raise TypeError(f"score must have a basis of eigenfunctions, got {type(basis).__name__}")
    ax = axes_or_new(ax)
    tau = torch.linspace(0, score.clock.horizon, 201, dtype=torch.float64)
    alpha = score.coefficients(score.clock.time(tau))
    alpha = (alpha.mT if alpha.ndim == 3 else alpha).flatten(1)  # a basis goes degree by degree
    rates = -basis.eigenvalues.cpu()
    if len(rates) != alpha.shape[1]:
        raise TypeError("traces need one coefficient for every eigenfunction of the basis")
    scaled = (alpha * rates.sqrt()).cpu().numpy()
    largest = np.argsort(-np.abs(scaled).max(axis=0))[:count][::-1]
    noise, colours = noise_of(score, score.clock.time(tau)), plt.get_cmap(SPECTRUM)
    place = np.sqrt(rates.numpy() / float(rates[largest.tolist()].max()))
    for k in largest:
        ax.plot(noise, scaled[:, k], color=colours(place[k]), lw=0.8)
    ax.axhline(0, color=GREY, lw=0.5)
    ax.set(xscale="log", xlabel="noise σ", ylabel="√-λ α(t)", xlim=(noise[0], noise[-1]))
    return ax


def noise_of(score: OperatorScore, t: torch.Tensor) -> Array:
    """Return σ_t at times of the process: the root mean square of the noise over coordinates."""
    covariance = score.process.transition(t).covariance(score.dim)
    variance = covariance.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    noise: Array = variance.sqrt().clamp(min=1e-8).numpy()
    return noise


def validation_loss(score: OperatorScore, ax: Axes | None = None, **style: Any) -> Axes:  # noqa: ANN401
    """Draw the cross-validated loss against the noise.

    On the torus it is shown as the loss that diffusion models are trained with: the mean square
    error of the predicted noise per column, 1 + σ²(E‖ŝ‖² - 2E⟨ŝ, s⟩)/d on held-out rows. It is 1
    for a score of zero. For polynomials it is the loss itself, up to a constant, averaged over
    directions.
    """
    ax, found = axes_or_new(ax), score.diagnostics
    noise = noise_of(score, found.t)
    look = {"color": INK, "marker": "o", "ms": 3, **style}
    error = score.noise_error()
    if error is not None:
        ax.plot(noise, error.numpy(), **look)
        ax.set(ylabel="held-out noise error", ylim=(0, 1.05))
    else:
        loss = found.loss.flatten(1).mean(dim=1) if found.loss.ndim > 1 else found.loss
        ax.plot(noise, loss.numpy(), **look)
        ax.set(ylabel="held-out loss")
    ax.set(xscale="log", xlabel="noise σ")
    return ax


def loss_curves(
    x: ArrayLike,
    curves: Mapping[str, ArrayLike],
    ax: Axes | None = None,
    *,
    errors: Mapping[str, ArrayLike] | None = None,
    colours: Mapping[str, str] | None = None,
) -> Axes:
    """Draw losses on logarithmic axes, by name, with error bars where they are given."""
    ax, x = axes_or_new(ax), np.asarray(x)
    for name, values in curves.items():
        colour = (colours or {}).get(name)
        error = (errors or {}).get(name)
        mean = np.asarray(values)
        if error is None:
            ax.plot(x, mean, label=name, color=colour)
            continue
        spread = np.asarray(error)
        below = np.minimum(spread, 0.9 * mean)  # an error bar beyond zero has no logarithm
        ax.errorbar(x, mean, (below, spread), label=name, color=colour, capsize=2, marker="o", ms=3)
    ax.set(xscale="log", yscale="log")
    return ax
