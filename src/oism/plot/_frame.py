"""Shared by all figures: colours, names of columns, limits, the ticks of angles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from oism.tables import OISM, StackedTable, TableModel

Array = NDArray[np.float64]
Limits = Sequence[tuple[float, float]]
"""The least and the greatest value shown, for each column."""

INK = "#1f3b73"
"""The colour of curves and points."""

ACCENT = "#d1495b"
"""The colour of a second curve."""

GREY = "#8a8f98"
"""The colour of lines of reference."""

PALE = "#c9d3e6"
"""The colour of histograms."""
DENSITY = "magma_r"
SPECTRUM = "viridis"


def column_names(model: object, count: int) -> list[str]:
    """Return the names of the columns, or "column 0" and so on."""
    names = getattr(model, "feature_names_in_", None)
    return [f"column {j}" for j in range(count)] if names is None else [str(n) for n in names]


def table_model(model: Any) -> TableModel | StackedTable | None:  # noqa: ANN401
    """Return the fitted density of an `OISM` in a chart; None for other estimators."""
    # Of an estimator that is not fitted, the property raises the error of scikit-learn.
    found = model.model_ if hasattr(type(model), "model_") else model
    return found if isinstance(found, TableModel | StackedTable) else None


def fitted(model: object) -> TableModel | StackedTable:
    """Return the fitted density of a model."""
    found = table_model(model)
    if found is None:
        own = type(getattr(model, "model_", model)).__name__
        raise TypeError(
            f"model must have a chart of its columns, as those with process='torus' have, got "
            f"{type(model).__name__}" + ("" if own == type(model).__name__ else f" with a {own}")
        )
    return found


def limits_of(model: OISM | TableModel | StackedTable) -> list[tuple[float, float]]:
    """Return the range of every column: period, bounds, box, or 3.5 standard deviations."""
    chart = fitted(model).chart
    return list(zip(chart.low.tolist(), (chart.low + chart.width).tolist(), strict=True))


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
    """Return the period of every column, 0 where it has none; nothing for other estimators."""
    found = table_model(model)
    return [] if found is None else found.chart.periods.tolist()


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
        found = table_model(model)
        if found is None:
            raise TypeError(
                "limits must be given unless the model is a TableModel, as that of "
                "OISM(process='torus')"
            )
        limits = limits_of(found)
        if len(limits) != count:
            raise ValueError(
                f"model must have {count} columns for this figure, got {len(limits)}; "
                "oism.plot.overview draws models with any number of columns"
            )
    if len(limits) != count:
        raise ValueError(f"limits must be given for {count} columns, got {len(limits)}")
    return limits
