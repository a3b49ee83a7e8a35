"""The coordinate in which the margin of a column is fitted, and its box on the torus.

Where tails are heavy the coordinate is z = asinh((x - c)/s), with p(x) = p(z) dz/dx: the box of
such a column would be too wide for the waves. Elsewhere it is the column itself. Central rows
determine the box, so an outlier does not stretch it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism.tables._box import margin
from oism.tables._chart import BoxChart

TAIL = 0.005
"""The share of the rows on either side that may lie beyond the box."""

FEW_ROWS_REACH = 5.0
"""How much further than the central rows the box of few rows may extend, times √n."""

HEAVY = 4.5
"""Tails are heavy if the central 99% are so many times as wide as the central half: 3.8 times for
a normal distribution, 4.7 for a Laplace distribution."""

LEAST_SCALE = 0.05
"""The least scale of an `AsinhMap` at a bound, as a fraction of the width of the central half."""


@dataclass(frozen=True)
class AsinhMap:
    """z = asinh((x - centre)/scale) where tails are heavy, z = x where ``scale`` is None."""

    centre: float = 0.0
    scale: float | None = None

    @classmethod
    def of(cls, x: Tensor, w: Tensor, low: float | None, high: float | None) -> AsinhMap:
        """Return the map for rows: logarithmic beyond the quartiles if the range is far wider."""
        if low is not None and high is not None:
            return cls()
        tail = _tail_share(len(x))
        least, first, middle, third, most = quantiles(x, w, (tail, 0.25, 0.5, 0.75, 1 - tail))
        if not most - least > HEAVY * (third - first) > 0:
            return cls()
        if low is not None:
            return cls(low, max(first - low, LEAST_SCALE * (third - first)))
        if high is not None:
            return cls(high, max(high - third, LEAST_SCALE * (third - first)))
        return cls(middle, 0.5 * (third - first))

    def __call__(self, x: Tensor) -> Tensor:
        """Return z."""
        return x if self.scale is None else ((x - self.centre) / self.scale).asinh()

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return x, and log dz/dx."""
        if self.scale is None:
            return z, torch.zeros_like(z)
        return self.centre + self.scale * z.sinh(), -(self.scale * z.cosh()).log()


def _tail_share(n: int) -> float:
    """Return the share of the rows on either side of the central ones: at least one row."""
    return max(TAIL, min(1.001 / n, 0.49))


def quantiles(x: Tensor, w: Tensor, shares: tuple[float, ...]) -> list[float]:
    """Return weighted quantiles."""
    values, order = x.sort()
    total = w[order].cumsum(dim=0)
    wanted = torch.tensor(shares, dtype=torch.float64) * total[-1]
    return values[torch.searchsorted(total, wanted).clamp(max=len(x) - 1)].tolist()


def box_of(z: Tensor, w: Tensor, low: float | None, high: float | None, count: float) -> BoxChart:
    """Return the chart to the torus; a column with one bound is reflected at both ends.

    The box holds the rows that are not further from the central 99%, all but at least one row on
    either side, than a half of its width, or more for few rows: ``count`` is their effective
    number.
    """
    tail = _tail_share(len(z))
    near, far = quantiles(z, w, (tail, 1 - tail))
    reach = (0.5 + FEW_ROWS_REACH / math.sqrt(count)) * (far - near)
    if reach > 0:
        near, far = max(float(z.min()), near - reach), min(float(z.max()), far + reach)
    else:  # nearly all rows are equal
        near, far = float(z.min()), float(z.max())
    empty = 0.5 * margin(count) * (far - near)
    first = near - empty if low is None else low
    last = far + empty if high is None else high
    flag = torch.tensor([low is not None or high is not None])
    one = torch.ones(1, dtype=torch.float64)
    if bool(flag):
        return BoxChart(first * one, math.pi / (last - first) * one, 0 * one, ~flag & flag, flag)
    centre, scale = 0.5 * (first + last), 2 * math.pi / (last - first)
    return BoxChart(centre * one, scale * one, 0 * one, flag, flag)
