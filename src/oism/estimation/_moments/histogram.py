"""Histograms: all moments of each pixel, exactly, from one pass over integers.

The distribution of a coordinate with few values is given by the counts of these values. Counts are
integers, so sums over rows are exact and can be merged, and they depend neither on an order nor on
coordinates: averages of any polynomial follow from them, Σ_v count_v φ_k((x_v - m)/s)/Σ_v count_v.
"""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from oism._core import checks
from oism.basis import Standardised, recurrence
from oism.estimation._moments.base import averages

LEVELS = 256
ENTRIES = 2**22
"""The number of values per block."""


class HistogramMoments:
    """Counts of each of 256 values in each column, fold by fold: ``(folds, dim, 256)``, int64.

    ``values`` ``(256,)`` are the numbers that bytes stand for.

    >>> moments = HistogramMoments(dim=1, folds=1).update(torch.tensor([[0], [4]]).byte())
    >>> standard = moments.standardised(order=2, values=torch.arange(256).double())
    >>> standard.shift, standard.scale
    (tensor([2.], dtype=torch.float64), tensor([2.], dtype=torch.float64))
    """

    def __init__(
        self, dim: int, folds: int = 5, *, device: torch.device | str | None = None
    ) -> None:
        self.dim = checks.integer(dim, "dim", minimum=1)
        self.folds = checks.integer(folds, "folds", minimum=1)
        self.counts = torch.zeros(
            folds, dim, LEVELS, dtype=torch.int64, device=torch.device(device or "cpu")
        )

    def update(self, x: Tensor, fold: Tensor | None = None) -> Self:
        """Add rows of bytes ``(n, dim)``, each in its fold ``(n,)``."""
        if x.dtype != torch.uint8 or x.shape[1:] != (self.dim,):
            raise ValueError(
                f"x must be uint8 of shape (n, {self.dim}), got {x.dtype} {tuple(x.shape)}"
            )
        x = x.to(self.counts.device)
        bins = LEVELS * torch.arange(self.dim, device=x.device)
        step = max(1, ENTRIES // self.dim)
        for start in range(0, len(x), step):
            place = x[start : start + step] + bins
            if fold is not None:
                own = fold[start : start + step].to(x.device)
                place += (LEVELS * self.dim) * own[:, None]
            found = torch.bincount(place.flatten(), minlength=self.counts.numel())
            self.counts += found.reshape(self.counts.shape)
        return self

    def merge(self, other: Self) -> Self:
        """Return a new accumulator: the same as one pass over the rows of both."""
        checks.instance(other, type(self), "other")
        if self.counts.shape != other.counts.shape:
            raise ValueError("other must have the dim and folds of this accumulator")
        result = copy.deepcopy(self)
        result.counts += other.counts.to(result.counts)
        return result

    def mirrored(self, mirror: Tensor) -> Self:
        """Return the counts of the rows together with their mirror images x[mirror]."""
        result = copy.deepcopy(self)
        result.counts += self.counts[:, mirror]
        return result

    def standardised(self, order: int, values: Tensor) -> Standardised:
        """Return the averages for an order in standardised coordinates, on the device."""
        weight = self.counts[:, 0].sum(dim=1).double()
        if not float(weight.sum()):
            raise ValueError("data must hold at least one row, got none")
        values = values.to(self.counts.device, torch.float64)
        share = self.counts.sum(dim=0) / weight.sum()
        shift = share @ values
        variance = (share * (values - shift[:, None]).square()).sum(dim=1)
        present = share > 0
        low = values[present.long().argmax(dim=1)]
        high = values[LEVELS - 1 - present.flip(1).long().argmax(dim=1)]
        # Order one fits the mean only; the deviation is that of the invariant distribution.
        scale = torch.ones_like(shift) if order == 1 else variance.sqrt().where(high > low, 0.0)
        u = (values - shift[:, None]) / scale.where(scale > 0, 1.0)[:, None]
        degree = max(order, 2 * order - 2)
        sums = torch.stack([(self.counts * phi).sum(dim=2) for phi in recurrence(u, degree)], dim=1)
        sums[:, 1:] = torch.where(scale > 0, sums[:, 1:], 0.0)
        return Standardised(shift, scale, low, high, averages(sums, weight, weight))
