"""The contract of an accumulator: one pass over the data, in float64, mergeable.

For weights w and folds f, an accumulator holds Σ_{i in fold f} wᵢ g(xᵢ) for the functions g whose
averages the equations need: those of the basis and of all products of its gradients. Sums over
disjoint sets of rows add up: accumulators can be merged, and a fold is left out by subtraction.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor

from oism._core import checks
from oism.basis import Averages, Basis
from oism.estimation._knots import Knots, PlacedKnots
from oism.estimation._moments.rows import Scratch, check_finite, fold_of, rows, weights_of
from oism.estimation._shrinkage import Shrinkage
from oism.score import System

DEVICE_BLOCK = 2**24
"""The number of entries per block on a GPU, which small blocks would leave idle."""


class Moments(ABC):
    """Weighted sums over rows, fold by fold.

    ``weight`` holds Σw of each fold, ``count`` the number of rows, ``basis`` the functions.
    ``squares`` adds the sums that the variances of the means need.
    """

    basis: Basis
    block = 2**17
    """The number of entries per block of rows; a block should fit into the cache."""

    def __init__(self, basis: Basis, folds: int = 5, *, squares: bool = False) -> None:
        self.basis = basis
        self.folds = checks.integer(folds, "folds", minimum=1)
        self.squares = bool(squares)
        self.count = 0
        self.weight = torch.zeros(self.folds, dtype=torch.float64)
        self.weight_squared = torch.zeros(self.folds, dtype=torch.float64)
        self.quantum = 0.0

    @abstractmethod
    def _add(self, x: Tensor, weights: Tensor, scratch: Scratch) -> None:
        """Add checked rows ``(n, dim)`` in float64, with weights ``(folds, n)``, 0 outside a fold.

        The rows may be overwritten.
        """

    @abstractmethod
    def _absorb(self, other: Self) -> None:
        """Add the sums of another accumulator; both still hold their own weights."""

    @abstractmethod
    def system(self, shrinkage: Shrinkage) -> System:
        """Return the equations of all times, with averages estimated by ``shrinkage``."""

    def reflected(self, columns: Tensor) -> Self:
        """Return the moments of the data together with their mirror images in some columns.

        ``columns`` ``(dim,)`` is boolean. Only accumulators on the torus support this.
        """
        if bool(columns.any()):
            raise TypeError(f"{type(self).__name__} does not reflect columns: `Fourier` waves do")
        return self

    def round_blocks(self, weight: float) -> None:
        """Round the sums of each block of rows, for rows of at most this weight in total.

        Sums of numbers that are multiples of a quantum q and stay below 2⁵² q are exact in float64.
        With q = 2^⌈log₂ weight⌉ 2⁻⁵² the total of the blocks depends neither on their order nor on
        how they are distributed over accumulators: solutions for nearly equal losses are sensitive
        to the last digit. Rounding changes an average by at most 2⁻⁵² per block. Weights are
        rounded for every basis, functions only on the torus, where they are bounded by 1.
        """
        self.quantum = 2.0 ** (math.ceil(math.log2(weight)) - 52)

    def _rounded(self, sums: Tensor) -> Tensor:
        """Return the sums of a block as they are added."""
        if not self.quantum:
            return sums
        if sums.is_complex():
            return torch.view_as_complex(self._rounded(torch.view_as_real(sums)))
        return (sums / self.quantum).round() * self.quantum

    def default_knots(self) -> Knots:
        """Return the default knots of a fit."""
        return PlacedKnots()

    @abstractmethod
    def _key(self) -> object:
        """Return a value that is equal for accumulators that can be merged."""

    def update(
        self, x: object, sample_weight: object = None, *, fold: Tensor | None = None
    ) -> Self:
        """Return self after adding a batch of rows with their weights, by default 1.

        ``fold`` ``(n,)`` holds the fold of each row; by default a hash of its content.
        """
        batch = rows(x, self.basis.dim)
        weights = weights_of(sample_weight, len(batch))
        check_finite(batch, self.count)  # before anything is added: all or nothing
        count = len(batch)
        if fold is not None:
            self._check_folds(fold, count)
        if weights is not None:  # rows of weight 0 must not influence the coordinates
            fold = None if fold is None else fold[weights > 0]
            batch, weights = batch[(weights > 0).to(batch.device)], weights[weights > 0]
        entries = self.block if batch.device.type == "cpu" else DEVICE_BLOCK
        step, scratch = max(1, entries // self.basis.dim), Scratch()
        for start in range(0, len(batch), step):
            part = batch[start : start + step]
            block = scratch.like("block", part).copy_(part)
            own = block.new_ones(len(block)) if weights is None else weights[start : start + step]
            spread = block.new_zeros(self.folds, len(block))
            if fold is None:
                place = fold_of(block, self.folds, scratch)
            else:
                place = fold[start : start + step].to(block.device)
            spread.scatter_(0, place[None], own.to(block)[None])
            self._add(block, spread, scratch)
            self.weight += self._rounded(spread.sum(dim=1).cpu())
            self.weight_squared += spread.square().sum(dim=1).cpu()
        self.count += count
        return self

    def _check_folds(self, fold: Tensor, count: int) -> None:
        known = fold.dtype == torch.int64 and fold.shape == (count,)
        if not known or not bool(((fold >= 0) & (fold < self.folds)).all()):
            raise ValueError(
                f"fold must hold one int64 in [0, {self.folds}) per row, ({count},), got "
                f"{fold.dtype} {tuple(fold.shape)}"
            )

    def merge(self, other: Self) -> Self:
        """Return a new accumulator: the same as one pass over the rows of both."""
        checks.instance(other, type(self), "other")
        if (self.folds, self._key()) != (other.folds, other._key()):
            raise ValueError("other must have the basis, folds and squares of this accumulator")
        result = copy.deepcopy(self)
        result._absorb(other)
        result.count += other.count
        result.weight += other.weight
        result.weight_squared += other.weight_squared
        return result

    def check(self, *, folds: bool = False) -> None:
        """Raise unless there are data, and with ``folds`` at least two folds with data."""
        if not self.count:
            raise ValueError("data must hold at least one row, got none")
        if not float(self.weight.sum()) > 0:
            raise ValueError("sample_weight must have a positive sum")
        used = int((self.weight > 0).sum())
        if folds and used < 2:
            raise ValueError(
                f"data must fall into at least two folds for cross-validation, but {self.count} "
                f"row(s) are in {used} of folds = {self.folds} (equal rows share a fold): give "
                "more rows, or a fixed ridge"
            )

    def _averages(self, sums: Tensor) -> Averages:
        """Return averages from sums ``(folds, *shape)``."""
        self.check()
        return averages(sums, self.weight, self.weight_squared)


def averages(sums: Tensor, weight: Tensor, weight_squared: Tensor) -> Averages:
    """Return averages from sums ``(folds, *shape)`` and the folds' Σw and Σw², ``(folds,)``."""
    used = weight.nonzero()[:, 0]
    some = used if len(used) > 1 else used[:0]  # a single fold cannot be left out

    def without(full: Tensor) -> Tensor:
        return full.sum(dim=0) - full[some]

    def per(full: Tensor, weight: Tensor) -> Tensor:
        return full / weight.reshape(-1, *[1] * (full.ndim - 1))

    rest, total = without(weight), weight.sum()
    if not bool((rest > 0).all()):
        raise ValueError("sample_weight must not lie in one fold up to rounding")
    if not bool(sums.isfinite().all()):
        raise ValueError("data must be scaled down: their moments overflow float64")
    counts = torch.cat((total.reshape(1), rest)).square() / torch.cat(
        (weight_squared.sum().reshape(1), without(weight_squared))
    )
    return Averages(
        total=sums.sum(dim=0) / total,
        training=per(without(sums), rest),
        heldout=per(sums[some], weight[some]),
        shares=weight[some] / total,
        counts=counts,
    )
