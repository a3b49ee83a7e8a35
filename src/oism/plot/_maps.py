"""Densities, scores and points in the units of the data."""

from __future__ import annotations

import math
from typing import Any, Protocol, cast

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

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
    table_model,
)
from oism.tables import OISM, TableModel

FLOOR = 10.0
"""The number of nats below the mode at which a map of log-densities ends."""
FINE, COARSE = 161, 21


class Density(Protocol):
    """An estimator whose density can be drawn."""

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return log-densities at rows."""


def log_densities(model: Density | TableModel, points: Array) -> Array:
    """Return log-densities at points of a grid, which have no column names to be checked."""
    found, estimator = table_model(model), cast(Density, model)
    if found is None:
        return np.asarray(estimator.score_samples(points))
    return found.log_density(torch.from_numpy(points)).numpy()


def _scores(model: OISM | TableModel, points: Array, t: float) -> Array:
    return fitted(model).score(torch.from_numpy(points), t).numpy()


def _noised(model: OISM | TableModel, points: Array, t: float) -> Array:
    """Return the density of the noised data at points, divided by its largest value."""
    found = cast("TableModel", fitted(model))  # of two columns, so that it has one process
    u = found.chart.to_process(torch.from_numpy(points)).to(found.device)
    return found.operator_score.relative_density(u, t).cpu().numpy()


def density_curve(
    model: Density | TableModel,
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
    model: Density | TableModel,
    ax: Axes | None = None,
    *,
    limits: Limits | None = None,
    side: int = FINE,
    log: bool = False,
    ceiling: float | None = None,
) -> Axes:
    """Draw the density of two columns as a map, or with ``log`` the nats below its mode.

    ``ceiling`` is the density with the darkest colour; use the same for maps to be compared.
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
    """Draw log-densities that were computed on the cells of a window: ``(rows, columns)``.

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


def ramachandran(model: OISM | TableModel, ax: Axes | None = None, *, side: int = 181) -> Axes:
    """Draw the log-density of two angles over one period each, as structural biologists do."""
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
    model: OISM | TableModel | None = None,
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
    model: OISM | TableModel,
    t: float,
    ax: Axes | None = None,
    *,
    limits: Limits | None = None,
    side: int = COARSE,
) -> Axes:
    """Draw ∇ log ρ_t of two columns as arrows over a shade of ρ_t, of one column as a curve.

    The length of an arrow is the square root of the score's length, so that small and large scores
    are both visible; its colour is the score's length.
    """
    ax = axes_or_new(ax)
    if fitted(model).dim == 1:
        limits = limits_for(model, limits, 1)
        x = np.linspace(*limits[0], 801)
        ax.plot(x, _scores(model, x[:, None], t)[:, 0], color=INK)
        ax.set(xlim=limits[0], xlabel=column_names(model, 1)[0], ylabel="score")
        return ax
    limits = limits_for(model, limits, 2)
    x, y, points = grid(limits, FINE)
    shade = (_noised(model, points, t) ** 0.3).reshape(FINE, FINE)  # so that tails are visible
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
