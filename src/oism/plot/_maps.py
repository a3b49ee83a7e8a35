"""Densities, scores and points in the units of the data."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from oism.basis import ScatteredSeries, product_lattice
from oism.plot._frame import (
    DENSITY,
    GREY,
    INK,
    PALE,
    SPECTRUM,
    Array,
    Limits,
    axes_or_new,
    column_names,
    fitted,
    frame,
    grid,
    limits_for,
    limits_of,
    middles,
    periods_of,
)
from oism.score import FourierScore
from oism.tables import OISM

FLOOR = 10.0
"""How many nats below the mode a map of log-densities ends."""
FINE, COARSE = 161, 21


class Density(Protocol):
    """What a map needs of a model."""

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return log-densities at rows."""


def log_densities(model: Density, points: Array) -> Array:
    """Return log-densities at points of a grid, which have no column names to be checked."""
    if isinstance(model, OISM):
        return fitted(model).log_density(torch.from_numpy(points)).numpy()
    return np.asarray(model.score_samples(points))


def _scores(model: OISM, points: Array, t: float) -> Array:
    return fitted(model).score_at(torch.from_numpy(points), t).numpy()


def _noised(model: OISM, points: Array, t: float) -> Array:
    """Return the law of the data with noise at points, over its largest value.

    On the torus it is the series of the moments, Σ e^{-‖ζ‖²t} E[e^{-iζ·X}] e^{iζ·x}. The fitted
    score says the same, but where regions are all but separate, not how much lies in each.
    """
    found = fitted(model)
    score, u = found.score, found.chart.to(torch.from_numpy(points))
    if isinstance(score, FourierScore):
        waves = product_lattice(score.basis)
        means = torch.view_as_complex(score.means.cpu().double())
        decayed = means * torch.exp(-t * waves.square().sum(dim=1))
        density = (1 + ScatteredSeries(waves)(u, decayed[None])[0]).clamp(min=0)
    else:
        log = score.log_ratio(u.to(found.device), t).cpu()
        log = log + score.basis.process.invariant.log_density(u)
        density = (log - log.max()).exp()
    return (density / density.max()).numpy()


def density_curve(
    model: Density,
    ax: Axes | None = None,
    *,
    limits: Limits | None = None,
    points: int = 801,
    **style: Any,  # noqa: ANN401
) -> Axes:
    """Draw the density of one column."""
    ax, limits = axes_or_new(ax), limits_for(model, limits, 1)
    x = np.linspace(*limits[0], points)
    ax.plot(x, np.exp(log_densities(model, x[:, None])), **{"color": INK, **style})
    ax.set(xlim=limits[0], ylim=(0, None), xlabel=column_names(model, 1)[0], ylabel="density")
    return ax


def density_map(
    model: Density,
    ax: Axes | None = None,
    *,
    limits: Limits | None = None,
    side: int = FINE,
    log: bool = False,
    ceiling: float | None = None,
) -> Axes:
    """Draw the density of two columns as a map, or with ``log`` the nats below its mode.

    ``ceiling`` is the density that is drawn darkest: the same for maps that are compared.
    """
    limits = limits_for(model, limits, 2)
    values = log_densities(model, grid(limits, side)[2]).reshape(side, side)
    ax = density_image(values, limits, ax, log=log, ceiling=ceiling)
    frame(ax, model, limits)
    return ax


def density_image(
    values: Array,
    limits: Limits,
    ax: Axes | None = None,
    *,
    log: bool = False,
    ceiling: float | None = None,
) -> Axes:
    """Draw log-densities that are known on the cells of a window: ``(rows, columns)``.

    The first row is the lowest; see `density_map`.
    """
    ax = axes_or_new(ax)
    if log:
        top = float(values.max()) if ceiling is None else math.log(ceiling)
        x, y = (middles(*ends, n) for ends, n in zip(limits, values.shape[::-1], strict=True))
        shown = np.clip(values - top, -2 * FLOOR, 0)
        ax.contourf(x, y, shown, levels=np.linspace(-FLOOR, 0, 11), cmap=DENSITY)
    else:
        ax.imshow(
            np.exp(values),
            origin="lower",
            extent=(*limits[0], *limits[1]),
            vmin=0.0,
            vmax=float(np.exp(values.max())) if ceiling is None else ceiling,
            cmap=DENSITY,
            aspect="auto",
            interpolation="bilinear",
        )
    ax.set(xlim=limits[0], ylim=limits[1])
    return ax


def ramachandran(model: OISM, ax: Axes | None = None, *, side: int = 181) -> Axes:
    """Draw the log-density of two angles, once round each, as structural biologists do."""
    if not all(periods_of(model)) or len(periods_of(model)) != 2:
        raise ValueError("a Ramachandran plot needs a model of two periodic columns")
    ax = density_map(model, ax, side=side, log=True)
    low, high = limits_of(model)
    ax.axhline(sum(high) / 2, color=GREY, lw=0.5)
    ax.axvline(sum(low) / 2, color=GREY, lw=0.5)
    return ax


def cloud(
    points: ArrayLike,
    ax: Axes | None = None,
    *,
    model: OISM | None = None,
    limits: Limits | None = None,
    **style: Any,  # noqa: ANN401
) -> Axes:
    """Draw points of two columns as dots, fainter where they are many; of one, as a histogram."""
    rows = np.asarray(points, dtype=np.float64)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.shape[1] > 2:
        raise ValueError(f"points must have one or two columns, got {rows.shape[1]}")
    ax = axes_or_new(ax)
    if limits is None and model is not None:
        limits = limits_of(model)
    if rows.shape[1] == 1:
        reach = None if limits is None else limits[0]
        bins = min(120, max(20, int(len(rows) ** 0.5)))
        ax.hist(rows[:, 0], bins=bins, range=reach, density=True, **{"color": PALE, **style})
        return ax
    faint = float(np.clip(60 / math.sqrt(max(1, len(rows))), 0.15, 0.8))
    size = float(np.clip(3e4 / max(1, len(rows)), 0.6, 12))
    look = {"color": INK, "alpha": faint, "s": size, "linewidths": 0, "rasterized": True}
    ax.scatter(rows[:, 0], rows[:, 1], **{**look, **style})
    if limits is not None:
        frame(ax, model, limits)
    return ax


def score_field(
    model: OISM,
    t: float,
    ax: Axes | None = None,
    *,
    limits: Limits | None = None,
    side: int = COARSE,
) -> Axes:
    """Draw ∇ log ρ_t of two columns as arrows over a shade of ρ_t, of one column as a curve.

    Arrows have the length of the score's square root, so that small ones are seen beside large;
    their colour is the score's length.
    """
    ax = axes_or_new(ax)
    if model.n_features_in_ == 1:
        limits = limits_for(model, limits, 1)
        x = np.linspace(*limits[0], 801)
        ax.plot(x, _scores(model, x[:, None], t)[:, 0], color=INK)
        ax.set(xlim=limits[0], xlabel=column_names(model, 1)[0], ylabel="score")
        return ax
    limits = limits_for(model, limits, 2)
    x, y, points = grid(limits, FINE)
    shade = (_noised(model, points, t) ** 0.3).reshape(FINE, FINE)  # so that flanks are seen
    ax.contourf(x, y, shade, levels=np.linspace(0.2, 1.001, 9), cmap="Greys", alpha=0.45)
    points = grid(limits, side)[2]
    field = _scores(model, points, t)
    length = np.linalg.norm(field, axis=1)
    arrows = field / np.sqrt(length + 1e-300)[:, None]
    cell = min(high - low for low, high in limits) / side
    longest = math.sqrt(float(length.max()) + 1e-300) / (1.1 * cell)
    ax.quiver(
        *points.T,
        *arrows.T,
        length,
        cmap=SPECTRUM,
        angles="xy",
        scale_units="xy",
        scale=longest,
        pivot="mid",
        width=0.005,
    )
    frame(ax, model, limits)
    return ax
