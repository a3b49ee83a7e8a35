"""Noise prediction: x_τ = α x + σ ε, the error of a predicted ε, and the score that follows.

A noise predictor is a function ε̂(x, τ) of noised tensors and clock times. Its error at τ is
‖ε̂(x_τ, τ) - ε‖²/d, and its score ∇ log ρ_t(x) = -ε̂(x, τ(t))/σ_t.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from oism._core.transforms import one_per_row, per_row
from oism.process import Noising


class NoisePredictor(Protocol):
    """ε̂: a network, a fitted model, or any other function."""

    def __call__(self, x: Tensor, tau: Tensor, /) -> Tensor:
        """Return the noise to expect in tensors ``(n, *shape)`` at clock times ``(n,)``."""


class NoiseScore:
    """The score -ε̂/σ of a noise predictor, as `Flow` takes it."""

    def __init__(self, predictor: NoisePredictor, noising: Noising) -> None:
        self.predictor, self.noising = predictor, noising

    def __call__(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return the score, in the dtype of ``x``; t is one number or one per row."""
        t = torch.as_tensor(t, dtype=torch.float64, device=x.device)
        clock = self.noising.clock
        if t.device.type == "cpu":
            tau = clock.inverse(t)
        else:  # reading values would wait for the device; a rounded time must stay in the range
            tau = clock._inverse(t).clamp(0.0, clock.horizon)
        sigma = self.noising.process._variance(t).sqrt()
        noise = self.predictor(x, one_per_row(tau, x))
        return noise.to(x.dtype) / per_row(-sigma, x)


def noised(noising: Noising, x: Tensor, tau: Tensor, noise: Tensor) -> Tensor:
    """Return x_τ = α x + σ ε at clock times () or ``(n,)``, inside the domain of the process."""
    if noise.shape != x.shape:
        raise ValueError(
            f"noise must have the shape {tuple(x.shape)} of x, got {tuple(noise.shape)}"
        )
    process, t = noising.process, noising.clock._time(tau.double())
    alpha, sigma = process._alpha(t), process._variance(t).sqrt()
    return process.domain._wrap(per_row(alpha, x, "tau") * x + per_row(sigma, x, "tau") * noise)


def noise_residual(
    predictor: NoisePredictor, x: Tensor, tau: Tensor, noise: Tensor, what: str = ""
) -> Tensor:
    """Return ε̂(x, τ) - ε for noised tensors x and the noise ε that is to be predicted.

    ``what`` is added to the shape in the message of the error for predictions of another shape.
    """
    predicted = predictor(x, tau)
    if predicted.shape != noise.shape:  # or the difference would be that of other rows
        raise ValueError(
            f"predictor must return noise of shape {tuple(noise.shape)}{what}, got "
            f"{tuple(predicted.shape)}"
        )
    return predicted - noise


def noise_errors(
    predictor: NoisePredictor, noising: Noising, x: Tensor, tau: Tensor, noise: Tensor
) -> Tensor:
    """Return ‖ε̂(x_τ, τ) - ε‖²/d for clean tensors ``(n, *shape)`` and their noise: ``(n,)``."""
    residual = noise_residual(predictor, noised(noising, x, tau, noise), tau, noise)
    return residual.flatten(1).square().mean(dim=1)
