"""One figure of a prior: its expected error at every noise level, and samples."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oism.images import Prior, as_images, image_shape
from oism.plot._frame import ACCENT, GREY, INK, axes_or_new
from oism.plot._images import image_grid

FIRST = 1e-3
"""The smallest noise level that is drawn, as a fraction of the horizon."""

POINTS = 201
NOISES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.9)
"""The ticks of the upper axis."""

SIDE = 8
"""The number of samples along an edge of the grid."""


def noise_error(prior: Prior, ax: Axes | None = None) -> Axes:
    """Draw the expected error of the predicted noise over τ, with the gate and output scale.

    The gate is the factor of the prior beside a network, the output scale the size of the network's
    own output: see `Prior.gate`. The upper axis has the standard deviation σ of the noise.
    """
    ax, last = axes_or_new(ax), prior.clock.horizon
    tau = torch.logspace(0, np.log10(FIRST), POINTS, dtype=torch.float64).flip(0) * last
    tau[-1] = last  # rounding must not lead past it
    for values, colour, style, name in (
        (prior.expected_error(tau), INK, "-", "expected noise error"),
        (prior.output_scale(tau), ACCENT, "--", "output scale c"),
        (prior.gate(tau), GREY, "-.", "gate g"),
    ):
        ax.plot(tau.numpy(), values.cpu().numpy(), color=colour, ls=style, label=name)
    ax.set(xscale="log", xlim=(float(tau[0]), last), ylim=(0, 1.03))
    ax.set(xlabel="noise level τ", ylabel="error per dimension, scale, gate")
    # The curves cross the whole panel: no corner of it is free.
    ax.legend(
        frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3
    )
    _noise_axis(prior, ax, tau)
    return ax


def _noise_axis(prior: Prior, ax: Axes, tau: torch.Tensor) -> None:
    """Give the upper edge ticks at round deviations of the noise."""
    sigma = prior.noising.sigma(tau).numpy()
    shown = [noise for noise in NOISES if sigma[0] <= noise <= sigma[-1]]
    places = np.exp(np.interp(shown, sigma, np.log(tau.numpy())))
    upper = ax.secondary_xaxis("top")
    upper.set_xticks(places, [f"{noise:g}" for noise in shown])
    upper.set_xticks([], minor=True)
    upper.set_xlabel("noise σ")


def prior_overview(prior: Prior, *, random_state: int = 0) -> Figure:
    """Return a figure that shows a prior: its expected error, and samples where they are images."""
    pictured = image_shape(prior.spec) is not None
    width, ratios = (8.2, (1.2, 1.0)) if pictured else (4.5, (1.0,))
    figure, panels = plt.subplots(
        1,
        len(ratios),
        figsize=(width, 3.8),
        layout="constrained",
        squeeze=False,
        width_ratios=ratios,
    )
    noise_error(prior, panels[0, 0])
    if pictured:
        generator = torch.Generator(prior.device).manual_seed(random_state)
        sample_grid(prior, generator, panels[0, 1])
    return figure


def sample_grid(prior: Prior, generator: torch.Generator, ax: Axes | None = None) -> Axes:
    """Draw 64 samples of a prior of images, side by side."""
    ax = axes_or_new(ax)
    images = as_images(prior.spec, prior.sample(SIDE**2, generator)).numpy()
    # Of colour images matplotlib ignores the colour map and its range.
    ax.imshow(image_grid(images, SIDE), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    ax.set_axis_off()
    ax.set_title(f"{SIDE**2} samples", fontsize="medium")
    return ax
