"""Averages of the wider basis that spans all products of two functions of a basis.

The equations of a symmetric process need no others (``oism.estimation._equations.products``). This
is the accumulator of every basis that has ``doubled()`` and ``rule()`` and no accumulator of its
own.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from oism.basis import Averages, Basis
from oism.estimation._moments.base import Moments
from oism.estimation._moments.rows import Scratch
from oism.estimation._shrinkage import Shrinkage
from oism.estimation._systems.products import ProductSystem

BLOCK = 2**22
"""The number of values of the wider basis per block of rows."""


class ProductMoments(Moments):
    """Sums of the functions of ``basis.doubled()``, and of their squares: ``(folds, wide)``."""

    def __init__(self, basis: Basis, folds: int = 5, *, squares: bool = False) -> None:
        super().__init__(basis, folds, squares=squares)
        self.wide = basis.doubled()
        self.block = max(1, BLOCK // self.wide.size) * basis.dim
        self._sums = torch.zeros(1 + self.squares, folds, self.wide.size, dtype=torch.float64)
        ends = torch.tensor([math.inf, -math.inf], dtype=torch.float64)
        self._range = ends[:, None].expand(2, basis.dim).clone()

    def _add(self, x: Tensor, weights: Tensor, scratch: Scratch) -> None:  # noqa: ARG002
        x = self.basis.process.domain.admit(x.cpu(), "data")
        values = self.wide.values(x)
        low = torch.minimum(self._range[0], x.amin(dim=0))
        self._range = torch.stack((low, torch.maximum(self._range[1], x.amax(dim=0))))
        for power, sums in enumerate(self._sums, start=1):
            sums.add_(weights.cpu() @ values**power)

    def _absorb(self, other: Self) -> None:
        self._sums += other._sums
        low = torch.minimum(self._range[0], other._range[0])
        self._range = torch.stack((low, torch.maximum(self._range[1], other._range[1])))

    def _key(self) -> object:
        return self.squares, type(self.basis), self.wide.eigenvalues.numpy().tobytes()

    def averages(self) -> Averages:
        """Return the averages of the functions of the wider basis: ``(wide,)``."""
        return self._averages(self._sums[0])

    def shrunk(self, shrinkage: Shrinkage) -> Averages:
        """Return averages; those used in fits are shrunk, held-out ones are not."""
        averages = self.averages()
        if not shrinkage.needs_variances:
            return averages
        if not self.squares:
            raise ValueError("squares must be True for the variances of the means")
        if shrinkage.project and not shrinkage.keeps_positivity:
            raise ValueError(
                f"shrinkage must give moments of a density for {type(self.basis).__name__}, which "
                "has no projection: use JamesStein(), SampleMeans(), or project=False"
            )
        fits, squares = averages.fitting(), self._averages(self._sums[1]).fitting()
        variances = (squares - fits.square()).clamp(min=0) / averages.counts[:, None]
        shrunk = shrinkage(fits, variances, self.wide.eigenvalues)
        return replace(averages, total=shrunk[0], training=shrunk[1:])

    def system(self, shrinkage: Shrinkage) -> ProductSystem:
        """Return the equations from the products of the functions."""
        return ProductSystem(self.basis.within(*self._range), self.shrunk(shrinkage))
