"""What a user declares about the columns of a table, and the chart to the torus.

A free column fills the box but for a margin. One outlier would compress all other rows into a
corner of the box, where no wave separates them. So the box extends beyond the range of the central
99% of the rows by at most half of the width of that range (all rows of a normal distribution, in
samples of fewer than ten million). Rows outside of it are left to the background.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from oism._core import checks
from oism.tables._chart import CONSTANT, BoxChart

MARGIN = 0.1
"""The share of the range of a free column that is empty, for many rows; see `margin`."""

CENTRAL = 0.99
REACH = 0.5
"""How far a box may extend beyond the range of the central rows, as a share of its width."""

FAR_TURNS = 2.0
"""A periodic column further than this many periods from zero, or from the box, gives a warning."""


def margin(n: float) -> float:
    """Return how much wider than the range of n rows the box is; more for few rows."""
    return MARGIN + 1 / math.sqrt(max(n, 1.0))


@dataclass(frozen=True)
class Columns:
    """Periods and bounds by the index of the column, out of ``count`` columns.

    ``starts`` are where the ranges of periodic columns begin, where that is given; ``names`` are
    the names of the columns in messages.
    """

    count: int
    periods: Mapping[int, float]
    bounds: Mapping[int, tuple[float, float]]
    starts: Mapping[int, float] = field(default_factory=dict)
    names: Sequence[str] | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        count: int,
        names: Sequence[str] | None,
        periodic: Mapping[Any, float] | float | None,
        bounds: Mapping[Any, tuple[float, float]] | None,
        box: Sequence[float] | None,
    ) -> Columns:
        """Return the declarations of a user, columns by name or by index.

        ``periodic`` may be one period for all columns. Raises where declarations are wrong.
        """
        if isinstance(periodic, int | float | Real):
            periodic = dict.fromkeys(range(count), checks.positive(periodic, "periodic"))
        if box is not None and (periodic or bounds):
            raise ValueError("box must be None where periodic or bounds are given: it sets both")
        if box is not None:
            low, high = _interval(box, "box")
            periods = dict.fromkeys(range(count), high - low)
            return cls(count, periods, {}, dict.fromkeys(range(count), low), names)
        periods, limits = {}, {}
        for column, key, period in by_index(periodic or {}, count, names, "periodic"):
            periods[column] = checks.positive(period, f"periodic[{key!r}]")
        for column, key, pair in by_index(bounds or {}, count, names, "bounds"):
            limits[column] = _interval(pair, f"bounds[{key!r}]")
        both = sorted(periods.keys() & limits.keys())
        if both:
            raise ValueError(f"a column is either periodic or bounded, but {both} are both")
        return cls(count, periods, limits, names=names)

    @property
    def are_free(self) -> bool:
        """Whether no column is periodic or bounded."""
        return not self.periods and not self.bounds

    def _name(self, column: int) -> str:
        return str(column) if self.names is None else repr(str(self.names[column]))

    def check_bounds(self, x: Tensor) -> None:
        """Raise unless rows ``(m, count)`` are within the bounds."""
        for column, (least, most) in self.bounds.items():
            low, high = (float(end) for end in x[:, column].aminmax())
            if low < least or high > most:
                raise ValueError(
                    f"bounds of column {self._name(column)} are ({least:g}, {most:g}), but the "
                    f"data reach from {low:g} to {high:g}"
                )

    def warn_of_constants(self, x: Tensor) -> None:
        """Warn of columns that have the same value in all rows: they have no density."""
        low, high = x.amin(dim=0), x.amax(dim=0)
        constant = (high - low <= CONSTANT * torch.maximum(low.abs(), high.abs())).tolist()
        names = [self._name(column) for column in range(self.count) if constant[column]]
        if names:
            words = "column" if len(names) == 1 else "columns"
            warnings.warn(
                f"{words} {', '.join(names)} constant in all rows: such a column has no density, "
                "and a narrow one is used; better leave it out",
                UserWarning,
                stacklevel=2,
            )

    def chart(self, x: Tensor, n: float, weights: Tensor | None = None) -> BoxChart:
        """Return the chart that maps rows ``(m, count)``, effectively n of them, into the box."""
        weights = x.new_ones(len(x)) if weights is None else weights
        self.check_bounds(x)
        low, high = x.amin(dim=0), x.amax(dim=0)
        least, most = _limits(x, weights)
        near, far = torch.maximum(low, least), torch.minimum(high, most)
        centre, half = 0.5 * (near + far), 0.5 * (far - near)
        # A constant column has no scale of its own: that of its value, or 1.
        floor = CONSTANT * torch.maximum(near.abs(), far.abs())
        half = torch.where(half > floor, half, torch.where(centre != 0, centre.abs(), 1.0))
        scale = math.pi / (half * (1 + margin(n)))
        start = torch.zeros_like(centre)
        periodic, bounded = (torch.zeros(self.count, dtype=torch.bool) for _ in range(2))
        for column, period in self.periods.items():
            periodic[column] = True
            centre[column], scale[column] = 0.0, 2 * math.pi / period
            start[column] = self.starts.get(column, 0.0 if low[column] >= 0 else -0.5 * period)
            ends = float(low[column]), float(high[column])
            _warn_of_turns(self._name(column), period, ends, self.starts.get(column, 0.0))
        for column, (first, last) in self.bounds.items():
            bounded[column] = True
            centre[column], scale[column] = first, math.pi / (last - first)
        return BoxChart(centre, scale, start, periodic, bounded)


def _limits(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return how far the box may extend in each column, by weighted quantiles."""
    values, order = x.sort(dim=0)
    share = weights[order].cumsum(dim=0)
    share = share / share[-1]
    tail = 0.5 * (1 - CENTRAL)
    low, high = (
        values.gather(0, (share < level).sum(dim=0, keepdim=True).clamp(max=len(x) - 1))[0]
        for level in (tail, 1 - tail)
    )
    return low - REACH * (high - low), high + REACH * (high - low)


def _warn_of_turns(column: str, period: float, ends: tuple[float, float], origin: float) -> None:
    low, high = ends
    if max(origin - low, high - origin) > FAR_TURNS * period:
        warnings.warn(
            f"column {column} is periodic with period {period:g}, but reaches from {low:g} to "
            f"{high:g}: it is wrapped; check the unit of the period",
            UserWarning,
            stacklevel=2,
        )


def _interval(pair: object, name: str) -> tuple[float, float]:
    ends = [] if isinstance(pair, str) or not isinstance(pair, Iterable) else list(pair)
    if len(ends) != 2:
        raise TypeError(f"{name} must be a pair (low, high), got {pair!r}")
    low, high = (checks.number(end, f"{name}[{i}]") for i, end in enumerate(ends))
    if not low < high:
        raise ValueError(f"{name} must have low < high, got {pair!r}")
    return low, high


def by_index(
    values: Mapping[Any, Any], count: int, names: Sequence[str] | None, what: str
) -> list[tuple[int, object, Any]]:
    """Return index, key and value for each column in a mapping."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{what} must be a mapping from columns, got {type(values).__name__}")
    found = [(index_of(key, count, names, what), key, value) for key, value in values.items()]
    columns = [column for column, _, _ in found]
    if len(set(columns)) < len(columns):
        raise ValueError(f"{what} must name every column once, got {list(values)}")
    return found


def index_of(key: object, count: int, names: Sequence[str] | None, what: str) -> int:
    """Return the index of a column that is given by name or by index."""
    if isinstance(key, str):
        if names is None:
            raise ValueError(f"{what} names column {key!r}, but the data have no column names")
        if key not in list(names):
            raise ValueError(f"{what} names column {key!r}; the columns are {list(names)}")
        return list(names).index(key)
    column = checks.integer(key, f"a column of {what}", minimum=-count)
    if column >= count:
        raise ValueError(f"{what} has column {column}, but the data have {count} columns")
    return column % count
