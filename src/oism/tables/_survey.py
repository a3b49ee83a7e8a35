"""What the first pass over batches finds out about the rows, in bounded memory.

Their number and weights, the rows with the ends of each column, and a random subsample.
"""

from __future__ import annotations

import copy
import math
from typing import Self

import numpy as np
import torch
from torch import Tensor

from oism.estimation import across_processes
from oism.tables._background import effective_count
from oism.tables._reservoir import Reservoir

PILOT = 2**17
"""The largest number of rows in the random subsample."""


class Edges:
    """The rows in which a column has its least or its largest value: ``(2d, d)``; mergeable.

    Of equal values the one at the first position counts, so that the order of the batches does not
    matter. Gaps, which are NaN, are passed over.
    """

    def __init__(self, dim: int) -> None:
        self.rows = torch.full((2 * dim, dim), math.nan, dtype=torch.float64)
        self.weights = torch.zeros(2 * dim, dtype=torch.float64)
        self.positions = torch.full((2 * dim,), -1)
        self._values = torch.full((2 * dim,), math.inf, dtype=torch.float64)

    def update(self, x: Tensor, weights: Tensor, positions: Tensor) -> Self:
        """Return self after rows ``(n, d)`` with weights and ascending positions, ``(n,)``."""
        if len(x):
            signed = torch.cat((x, -x), dim=1).nan_to_num_(math.inf, math.inf, -math.inf)
            values, index = signed.min(dim=0)
            first = (signed == values).byte().argmax(dim=0)  # `min` returns any of equal ones
            index = torch.where(values.isfinite(), first, index)
            self._keep(values, x[index], weights[index], positions[index])
        return self

    def merge(self, other: Self) -> Self:
        """Return the edges of the rows of both."""
        result = copy.copy(self)
        result._keep(other._values, other.rows, other.weights, other.positions)
        return result

    def _keep(self, values: Tensor, rows: Tensor, weights: Tensor, positions: Tensor) -> None:
        earlier = (positions >= 0) & (positions < self.positions)
        better = (values < self._values) | ((values == self._values) & earlier)
        self._values = torch.where(better, values, self._values)
        self.rows = torch.where(better[:, None], rows, self.rows)
        self.weights = torch.where(better, weights, self.weights)
        self.positions = torch.where(better, positions, self.positions)


class Totals:
    """The number of rows, and the sums of their weights and of the squares; mergeable."""

    def __init__(self) -> None:
        self.rows = 0
        self.sums = torch.zeros(2, dtype=torch.float64)

    def update(self, weights: Tensor) -> Self:
        """Return self after rows of these weights, ``(n,)``."""
        self.rows += len(weights)
        self.sums = self.sums + torch.stack((weights.sum(), weights.square().sum()))
        return self

    def merge(self, other: Self) -> Self:
        """Return the totals of the rows of both."""
        result = copy.copy(self)
        result.rows += other.rows
        result.sums = self.sums + other.sums
        return result

    @property
    def count(self) -> float:
        """The effective number of rows, 0 without any."""
        first, second = self.sums.tolist()
        return effective_count(first, second) if first > 0 else 0.0


class Survey:
    """What pass 1 finds out about rows of ``dim`` columns."""

    def __init__(self, dim: int, size: int = PILOT) -> None:
        self.dim = dim
        self.totals, self.edges, self.reservoir = Totals(), Edges(dim), Reservoir(size, dim)

    def update(self, x: Tensor, weights: Tensor, positions: Tensor) -> Self:
        """Return self after rows; those of weight 0 count for nothing."""
        used = weights > 0
        x, weights, positions = x[used], weights[used], positions[used]
        self.totals.update(weights)
        self.edges.update(x, weights, positions)
        self.reservoir.update(x, weights, positions)
        return self

    def across_processes(self) -> Self:
        """Return the survey of the rows of all processes."""
        result = copy.copy(self)
        result.totals = across_processes(self.totals)
        result.edges = across_processes(self.edges)
        result.reservoir = self.reservoir.across_processes()
        return result

    def pilot(self) -> tuple[Tensor, Tensor]:
        """Return rows that represent all of them, and weights that sum to their number."""
        rows, weights, positions = (
            part() for part in (self.reservoir.rows, self.reservoir.weights,
                                self.reservoir.positions)
        )  # fmt: skip
        if self.totals.rows <= len(self.reservoir):  # the table: as it was read
            order = positions.argsort()
            return rows[order], weights[order]
        edges, index = np.unique(self.edges.positions.numpy(), return_index=True)
        index = index[(edges >= 0) & ~np.isin(edges, positions.numpy())]
        more, least = self.edges.rows[index], self.edges.weights[index]
        total, _ = self.totals.sums.tolist()
        unit = self.totals.count / total  # weights may have any sum, an effective number has not
        share = (total - float(least.sum())) / float(weights.sum())
        return torch.cat((rows, more)), unit * torch.cat((share * weights, least))
