"""What all pictures share: colours, names of columns, limits, the ticks of angles."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray

from oism.process import OrnsteinUhlenbeck
from oism.tables import OISM, BoxChart, DensityModel, WhiteChart

Array = NDArray[np.float64]
Limits = Sequence[tuple[float, float]]

INK = "#1f3b73"
ACCENT = "#d1495b"
GREY = "#8a8f98"
PALE = "#c9d3e6"
DENSITY = "magma_r"
SPECTRUM = "viridis"

SPREAD = 3.5
"""How many deviations a picture reaches where the model has no box."""


def column_names(model: object, count: int) -> list[str]:
    """Return the names of the columns, or their numbers in words."""
    names = getattr(model, "feature_names_in_", None)
    return [f"column {j}" for j in range(count)] if names is None else [str(n) for n in names]


def fitted(model: OISM) -> DensityModel:
    """Return what was fitted, to all rows that `OISM.partial_fit` has seen."""
    return model._fitted()


def limits_of(model: OISM) -> list[tuple[float, float]]:
    """Return the range of every column that is worth a picture: the box, or 3.5 deviations."""
    found = fitted(model)
    chart = found.chart
    if isinstance(chart, WhiteChart):
        process = found.score.basis.process
        assert isinstance(process, OrnsteinUhlenbeck)
        unit = math.sqrt(process.stationary_variance)  # the deviation of whitened data
        spread = SPREAD * unit * chart.units
        low, high = chart.centre - spread, chart.centre + spread
    else:
        assert isinstance(chart, BoxChart)
        half = math.pi * chart.units
        low = torch.where(chart.periodic, chart.start, chart.centre - half)
        low = torch.where(chart.bounded, chart.centre, low)
        high = torch.where(chart.bounded, chart.centre + half, low + 2 * half)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes, or one of a new figure."""
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def frame(ax: Axes, model: object, limits: Limits) -> None:
    """Give an axes of two columns its limits, names, and the ticks of angles."""
    names, periods = column_names(model, 2), periods_of(model)
    ax.set(xlim=limits[0], ylim=limits[1], xlabel=names[0], ylabel=names[1])
    for axis, period, (low, high) in zip((ax.xaxis, ax.yaxis), periods, limits, strict=False):
        if period:
            axis.set_ticks(np.linspace(low, high, 5))
            if math.isclose(period, 2 * math.pi):
                axis.set_major_formatter(
                    lambda v, _: f"{v / math.pi:.3g}π" if abs(v) > 1e-9 else "0"
                )
            elif math.isclose(period, 360.0):
                axis.set_major_formatter(lambda v, _: f"{v:g}°")
    if all(periods) and len(set(periods)) == 1:
        ax.set_aspect("equal")


def periods_of(model: object) -> list[float]:
    """Return the period of every column, 0 where it has none."""
    chart = fitted(model).chart if isinstance(model, OISM) else None
    if not isinstance(chart, BoxChart):
        return []
    periods: list[float] = torch.where(chart.periodic, 2 * math.pi * chart.units, 0.0).tolist()
    return periods


def middles(low: float, high: float, count: int) -> Array:
    """Return the middles of the cells of an interval."""
    return low + (high - low) * (np.arange(count) + 0.5) / count


def grid(limits: Limits, side: int) -> tuple[Array, Array, Array]:
    """Return the middles of cells on both axes, and all points ``(side², 2)``."""
    x, y = (middles(low, high, side) for low, high in limits)
    return x, y, np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


def limits_for(model: object, limits: Limits | None, count: int) -> Limits:
    """Return the limits of ``count`` columns: those given, or those of the model."""
    if limits is None:
        if not isinstance(model, OISM):
            raise TypeError("limits must be given unless the model is an OISM")
        limits = limits_of(model)
        if len(limits) != count:
            raise ValueError(
                f"model must have {count} columns for this picture, got {len(limits)}; "
                "oism.plot._overview draws models of any number"
            )
    if len(limits) != count:
        raise ValueError(f"limits must be given for {count} columns, got {len(limits)}")
    return limits
