"""Marginal densities of one and two columns, from many samples, on the cells of a figure.

A column is drawn along an `Axis`: an interval, a period, or the places 0, 1, … of its levels. The
density of an interval is a histogram on fine cells, smoothed by a Gaussian. At a bound the
histogram is continued by reflection, and around a period by itself. The widths h are those of a
normal distribution with correlation r (Scott 1992), times 0.8, because marginals often have several
modes:

    one column   h = 0.8 · 1.06 s n^(-1/5),
    two columns  h_k = 0.8 s_k n^(-1/6) (1 - r²)^(5/12) (1 + r²/2)^(-1/6),

with s the smaller one of standard deviation and interquartile range / 1.35.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter1d

from oism.tables import Column

Array = NDArray[np.float64]

FINE, COARSE = 240, 90
"""The number of cells of an interval, for one column and for two."""

MOST_LEVELS = 12
"""A discrete column with more levels is drawn as an interval."""

TAIL = 0.004
"""The share of the values on either side that may lie outside of the figure."""

MARGIN = 0.12
"""How far the figure extends beyond the others, as a share of their range."""

SHARPER = 0.8


@dataclass(frozen=True)
class Axis:
    """The range of a column: an interval, or with ``levels`` one place for each of these.

    ``bounded`` says whether the lower and the upper end are bounds of the column.
    """

    name: str
    low: float
    high: float
    period: float | None = None
    bounded: tuple[bool, bool] = (False, False)
    levels: tuple[Any, ...] = ()

    @classmethod
    def of(cls, column: Column, name: str, values: Sequence[Array]) -> Axis:
        """Return the axis of a column that shows nearly all of some values of it."""
        if column.categorical or 0 < len(column.levels) <= MOST_LEVELS:
            return cls(name, -0.5, len(column.levels) - 0.5, levels=column.levels)
        if column.period is not None:
            start = column.start
            if start is None:
                start = 0.0 if min(float(v.min()) for v in values) >= 0 else -0.5 * column.period
            return cls(name, start, start + column.period, period=column.period)
        ends = [np.quantile(v, [TAIL, 1 - TAIL]) for v in values]
        low, high = float(min(low for low, _ in ends)), float(max(high for _, high in ends))
        reach = MARGIN * (high - low) or MARGIN * abs(low) or 1.0
        bounded = (low - reach <= column.low, high + reach >= column.high)
        return cls(
            name,
            column.low if bounded[0] else low - reach,
            column.high if bounded[1] else high + reach,
            bounded=bounded,
        )

    def places(self, values: ArrayLike) -> Array:
        """Return where values are along the axis; NaN for missing values and unknown levels."""
        if self.levels:
            index = {level: place for place, level in enumerate(self.levels)}
            found = [index.get(_plain(v), math.nan) for v in np.asarray(values)]
            return np.array(found, dtype=np.float64)
        places = np.asarray(values, dtype=np.float64)
        if self.period is None:
            return places
        inside: Array = self.low + np.remainder(places - self.low, self.period)
        return inside

    def edges(self, cells: int) -> Array:
        """Return the edges of the cells."""
        return np.linspace(self.low, self.high, (len(self.levels) or cells) + 1)

    def width(self, places: Array) -> float:
        """Return the spread of places: the smaller one of two estimates."""
        inside = places[(places >= self.low) & (places <= self.high)]
        if len(inside) < 2:
            return 0.0
        quarter, three = np.quantile(inside, [0.25, 0.75])
        deviation = float(inside.std())
        return min(deviation, float(three - quarter) / 1.35) or deviation

    def smoothed(self, table: Array, along: int, width: float) -> Array:
        """Return a table of densities smoothed along one of its axes; levels stay as they are."""
        if self.levels:
            return table
        count = table.shape[along]
        sigma = max(width / (self.high - self.low) * count, 0.5)
        pad = min(count, math.ceil(4 * sigma))
        front, back = np.take(table, range(pad), along), np.take(table, range(-pad, 0), along)
        if self.period is not None:
            before, after = back, front
        else:
            before = np.flip(front, along) * self.bounded[0]
            after = np.flip(back, along) * self.bounded[1]
        whole = np.concatenate((before, table, after), axis=along)
        smooth = gaussian_filter1d(whole, sigma, axis=along, mode="constant")
        result: Array = np.take(smooth, range(pad, pad + count), along)
        return result


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a value of a table as a level is stored: a Python number, text or boolean."""
    return value.item() if isinstance(value, np.generic) else value


def marginal_density(axis: Axis, places: Array) -> tuple[Array, Array]:
    """Return the edges of cells and the density in each; of levels, their probabilities."""
    kept = places[np.isfinite(places)]
    edges = axis.edges(FINE)
    counts, _ = np.histogram(kept, edges)
    density = counts / max(1, len(kept)) / np.diff(edges)
    width = SHARPER * 1.06 * axis.width(kept) * max(1, len(kept)) ** -0.2
    return edges, axis.smoothed(density, 0, width)


def pair_density(first: Axis, second: Axis, x: Array, y: Array) -> Array:
    """Return the density of two columns on cells: ``(cells of second, cells of first)``."""
    kept = np.isfinite(x) & np.isfinite(y)
    x, y = x[kept], y[kept]
    edges = first.edges(COARSE), second.edges(COARSE)
    table, _, _ = np.histogram2d(y, x, (edges[1], edges[0]))
    areas = np.outer(np.diff(edges[1]), np.diff(edges[0]))
    table = table / max(1, len(x)) / areas
    factor = SHARPER * max(1, len(x)) ** (-1 / 6)
    if not (first.levels or second.levels or first.period or second.period) and len(x) > 2:
        r2 = _squared_correlation(x, y)
        factor *= (1 - r2) ** (5 / 12) * (1 + r2 / 2) ** (-1 / 6)
    table = first.smoothed(table, 1, factor * first.width(x))
    return second.smoothed(table, 0, factor * second.width(y))


def _squared_correlation(x: Array, y: Array) -> float:
    deviations = float(x.std()), float(y.std())
    if min(deviations) == 0:
        return 0.0
    covariance = float(((x - x.mean()) * (y - y.mean())).mean())
    return min(0.999, (covariance / deviations[0] / deviations[1]) ** 2)


def density_levels(table: Array, shares: Sequence[float]) -> list[float]:
    """Return the densities above which the densest cells hold these shares of the mass.

    >>> density_levels(np.array([4.0, 3.0, 2.0, 1.0]), [0.4, 0.7])
    [4.0, 3.0]
    """
    ordered = np.sort(table, axis=None)[::-1]
    mass = np.cumsum(ordered)
    total = mass[-1]
    at = np.searchsorted(mass, np.asarray(shares) * total - 1e-12 * total)
    return [float(ordered[min(k, len(ordered) - 1)]) for k in at]
