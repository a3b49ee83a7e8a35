"""Means and second moments of rows, fold by fold, for principal directions.

Sums Σx and Σxxᵀ are taken about a centre c near the mean, to avoid cancellation in the covariance.
Integers of at most eight bits are summed *exactly*: after centring they are at most 2⁷, a product
2¹⁴, and a sum of 2¹⁰ products fits the 24 bits of a float32 in any order of summation. So blocks of
1,024 rows are multiplied in float32, at twice the speed, and added in float64.
"""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from oism._core import checks

EXACT_ROWS = 2**10
"""The number of products of eight-bit integers that float32 adds without rounding."""


class PairMoments:
    """Σ1, Σx and Σxxᵀ of each fold, on one device: ``(folds,)``, ``(folds, d)``, ``(folds, d, d)``.

    >>> moments = PairMoments(dim=2, folds=1).update(torch.tensor([[0, 2], [4, 6]]).byte())
    >>> moments.covariance()
    (tensor([2., 4.], dtype=torch.float64), tensor([[4., 4.],
            [4., 4.]], dtype=torch.float64))
    """

    def __init__(
        self, dim: int, folds: int = 5, *, device: torch.device | str | None = None
    ) -> None:
        self.dim = checks.integer(dim, "dim", minimum=1)
        self.folds = checks.integer(folds, "folds", minimum=1)
        self.second = torch.zeros(folds, dim, dim, dtype=torch.float64, device=device)
        self.first, self.count = self.second.new_zeros(folds, dim), self.second.new_zeros(folds)
        self.centre: Tensor | None = None

    def update(self, x: Tensor, fold: Tensor | None = None) -> Self:
        """Add rows ``(n, dim)``, uint8 or floating point, each in its fold ``(n,)``."""
        if not len(x):
            return self  # an empty batch has no mean to centre at
        device = self.first.device
        x = x.to(device)
        exact = x.dtype == torch.uint8
        if self.centre is None:
            middle = torch.full((self.dim,), 128.0, dtype=torch.float64, device=device)
            self.centre = middle if exact else x.double().mean(dim=0)
        shifted = x.float() - 128 if exact else x.double() - self.centre
        if exact and bool((self.centre != 128).any()):
            shifted, exact = x.double() - self.centre, False
        for f in range(self.folds):
            own = shifted if fold is None else shifted[fold.to(device) == f]
            for block in torch.split(own, EXACT_ROWS):
                self.second[f] += block.mT @ block
                self.first[f] += block.sum(dim=0)
                self.count[f] += len(block)
            if fold is None:
                break
        return self

    def merge(self, other: Self) -> Self:
        """Return a new accumulator: the same as one pass over the rows of both."""
        checks.instance(other, type(self), "other")
        if (self.dim, self.folds) != (other.dim, other.folds):
            raise ValueError("other must have the dim and folds of this accumulator")
        if self.centre is None or other.centre is None:
            return copy.deepcopy(self if other.centre is None else other)
        result, theirs = copy.deepcopy(self), other
        if not torch.equal(self.centre, other.centre.to(self.centre)):  # bytes have one centre
            theirs = copy.deepcopy(other)
            theirs._move(self.centre)
        result.count += theirs.count.to(result.count)
        result.first += theirs.first.to(result.first)
        result.second += theirs.second.to(result.second)
        return result

    def _move(self, centre: Tensor) -> None:
        """Transform the sums to another centre."""
        assert self.centre is not None
        step = self.centre - centre.to(self.centre)
        cross = self.first[:, :, None] * step
        inner = self.count[:, None, None] * torch.outer(step, step)
        self.second += cross + cross.mT + inner
        self.first += self.count[:, None] * step
        self.centre = centre.to(self.centre)

    def mirrored(self, mirror: Tensor) -> Self:
        """Return the moments of the rows together with their mirror images x[mirror], exactly."""
        assert self.centre is not None
        result = copy.deepcopy(self)
        result._move(0.5 * (self.centre + self.centre[mirror]))
        result.count *= 2
        result.first += result.first[:, mirror]
        for fold in range(self.folds):  # one at a time, to save memory
            result.second[fold] += result.second[fold][mirror][:, mirror]
        return result

    def used(self) -> list[int]:
        """Return the folds that hold rows; none if there is only one."""
        some = self.count.nonzero()[:, 0].tolist()
        return some if len(some) > 1 else []

    def covariance(self, *, without: int | None = None) -> tuple[Tensor, Tensor]:
        """Return mean ``(d,)`` and covariance ``(d, d)`` of all rows, or of all but one fold's."""
        if self.centre is None or not float(self.count.sum()):
            raise ValueError("data must hold at least one row, got none")
        count, first, second = (
            part.sum(dim=0) - (0 if without is None else part[without])
            for part in (self.count, self.first, self.second)
        )
        mean = first / count
        return self.centre + mean, second.div_(count).sub_(torch.outer(mean, mean))

    def spread(self, fold: int, mean: Tensor, directions: Tensor) -> Tensor:
        """Return E⟨v, x - mean⟩² over a fold's rows for directions v ``(k, d)``: ``(k,)``."""
        assert self.centre is not None
        offset = mean - self.centre
        count = self.count[fold]
        along: Tensor = directions @ self.first[fold] / count
        square = ((directions @ self.second[fold]) * directions).sum(dim=1) / count
        away: Tensor = directions @ offset
        return square - 2 * along * away + away.square()
