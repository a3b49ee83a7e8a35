"""One column of a table: its kind, and what is known about its values.

    free         any number
    bounded      numbers of an interval, of which one end may be infinite
    periodic     numbers modulo a period
    discrete     numbers of a list of *levels*, which may have bounds or a period as well
    categorical  one of some levels of any type; a row holds the index of its level

A discrete column is modelled as a continuous one. Each level has a *cell* around it, whose edges
are the midpoints between neighbouring levels; the outer cells are symmetric about their level. A
value is spread uniformly over its cell, and the probability of a level is that of its cell. Where
the column has a bound, the bound moves to the outer edge of the outer cell if that lies beyond it:
a cell that is cut in half would have twice the density. An end is *closed* if several rows have the
outer level, as for ratings or a sex: then further levels are unlikely, and the outer edge is a
bound of the spread values. Otherwise, as for large counts, there may be further levels.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism.storage import storable

WHOLE = re.compile(r"(?P<word>u?int)(?P<bits>\d+)\b", re.IGNORECASE)
"""How the text of a dtype of integers begins, in every library."""


def turn_start(low: float, high: float, period: float) -> float:
    """Return where one turn begins in which values from ``low`` to ``high`` are given back.

    It is 0, or half a turn before where values are negative. Values that leave this turn and fit
    into another one are in the middle of that: hours from 18 to 35 are given back as such.
    """
    usual = 0.0 if low >= 0 else -0.5 * period
    if usual <= low and high <= usual + period:
        return usual
    return 0.5 * (low + high - period) if high - low < period else usual


@storable
@dataclass(frozen=True)
class Column:
    """What is known about one column; `kind` follows from it.

    ``name`` is any hashable object, as in a frame of pandas, or None for a column without a name.
    ``start`` is where the range of a periodic column begins, if that is given. ``levels`` are
    sorted; those of a discrete column are numbers, and ``closed`` says which of the two ends are.
    ``dtype`` is the type of the column in the table
    that was fitted, as text, and ``categories`` are those of the dtype "category".
    """

    name: Any = field(default=None, compare=False)
    period: float | None = None
    start: float | None = None
    low: float = -math.inf
    high: float = math.inf
    levels: tuple[Any, ...] = ()
    closed: tuple[bool, bool] = (False, False)
    categorical: bool = False
    dtype: str = "float64"
    categories: tuple[Any, ...] = ()

    @property
    def kind(self) -> str:
        """One of "categorical", "discrete", "periodic", "bounded", "free"."""
        if self.categorical:
            return "categorical"
        if self.levels:
            return "discrete"
        if self.period is not None:
            return "periodic"
        return "bounded" if self.is_bounded else "free"

    def within_turn(self, values: Tensor) -> Tensor:
        """Return numbers modulo the period, from `start` on."""
        assert self.period is not None
        start = self.start or 0.0
        turned = start + (values - start).remainder(self.period)
        return torch.where(turned < start + self.period, turned, start)  # rounded up

    def facts(self) -> dict[str, Any]:
        """Return the kind and what belongs to it, as JSON values."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.period is not None:
            found["period"] = self.period
        if math.isfinite(self.low):
            found["low"] = self.low
        if math.isfinite(self.high):
            found["high"] = self.high
        if self.levels:
            found["levels"] = len(self.levels)
        return found

    @property
    def is_bounded(self) -> bool:
        """Whether one end or both are finite."""
        return math.isfinite(self.low) or math.isfinite(self.high)

    @property
    def is_numeric(self) -> bool:
        """Whether the values are numbers, and no levels of a category."""
        return not self.categorical

    @property
    def is_integer(self) -> bool:
        """Whether the table that was fitted has a dtype of integers here."""
        return self.is_numeric and WHOLE.match(self.dtype) is not None

    def whole(self, values: NDArray[np.float64]) -> NDArray[Any]:
        """Return values of a column of integers, rounded and in its dtype; 0 for gaps.

        Values beyond the range of the dtype become its ends.
        """
        found = WHOLE.match(self.dtype)
        assert found is not None
        bits = min(int(found["bits"]), 64)  # polars has 128, and a float64 no more digits
        dtype = np.dtype(f"{found['word'].lower()}{bits}")
        limits = np.iinfo(dtype)
        rounded = np.rint(np.where(np.isnan(values), 0.0, values))
        # The largest integers are no float64: the nearest one is beyond the range.
        low, high = rounded <= float(limits.min), rounded >= float(limits.max)
        result = np.where(low | high, 0.0, rounded).astype(dtype)
        result[low], result[high] = limits.min, limits.max
        return result

    @property
    def continuous(self) -> Column:
        """The column that values of a discrete one have when they are spread over their cells."""
        if self.kind != "discrete":
            return self
        first, last = float(self.edges[0]), float(self.edges[-1])
        if self.period is not None:
            return replace(self, levels=(), closed=(False, False), start=first)
        low = min(self.low, first) if math.isfinite(self.low) else self.low
        high = max(self.high, last) if math.isfinite(self.high) else self.high
        return replace(
            self,
            levels=(),
            closed=(False, False),
            low=first if self.closed[0] else low,
            high=last if self.closed[1] else high,
        )

    @cached_property
    def edges(self) -> Tensor:
        """The edges of the cells of L levels of a discrete column: ``(L + 1,)``."""
        levels = torch.tensor(self.levels, dtype=torch.float64)
        if self.period is not None:
            seam = 0.5 * (levels[:1] + levels[-1:] + self.period)
            return torch.cat((seam - self.period, 0.5 * (levels[1:] + levels[:-1]), seam))
        if len(levels) == 1:  # there is no neighbour to set the width
            return torch.cat((levels - 0.5, levels + 0.5))
        inner = 0.5 * (levels[1:] + levels[:-1])
        return torch.cat((2 * levels[:1] - inner[:1], inner, 2 * levels[-1:] - inner[-1:]))

    def level_index(self, values: Tensor) -> Tensor:
        """Return the index of the level of the cell that each number is in, or nearest to."""
        values = self.reduced(values).contiguous()
        index = torch.bucketize(values, self.edges[1:-1], right=True)
        return index.clamp(max=len(self.levels) - 1)  # NaN is above all

    def reduced(self, values: Tensor) -> Tensor:
        """Return numbers modulo the period, within the cells; as they are without a period."""
        if self.period is None:
            return values
        return self.edges[0] + (values - self.edges[0]).remainder(self.period)
