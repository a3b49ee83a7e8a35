"""Averages of all B-splines of a Langevin diffusion: a histogram, from which all others follow.

They determine the average of every spline, and so of every function that the equations of
numerical eigenfunctions may need (``oism.estimation._equations.evolved``).
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from oism.basis import Eigenfunctions
from oism.estimation._equations.evolved import reduced
from oism.estimation._moments.base import Moments
from oism.estimation._moments.rows import Scratch
from oism.estimation._shrinkage import Shrinkage
from oism.estimation._systems.eigenfunctions import EigenfunctionSystem


class SplineMoments(Moments):
    """Sums of the B-splines: ``(folds, splines)``."""

    basis: Eigenfunctions

    def __init__(self, basis: Eigenfunctions, folds: int = 5) -> None:
        super().__init__(basis, folds)
        self._sums = torch.zeros(folds, basis.process.splines.size, dtype=torch.float64)

    def _add(self, x: Tensor, weights: Tensor, scratch: Scratch) -> None:  # noqa: ARG002
        process = self.basis.process
        inside = process.domain.admit(x.cpu(), "data")
        self._sums += process.splines.histogram(inside, weights.cpu())

    def _absorb(self, other: Self) -> None:
        self._sums += other._sums

    def _key(self) -> object:
        process = self.basis.process
        parts = (process.box, process.potential, self.basis.rates)
        return process.cells, *(part.numpy().tobytes() for part in parts)

    def system(self, shrinkage: Shrinkage) -> EigenfunctionSystem:
        """Return the equations of all times of the default clock and later ones."""
        if shrinkage.needs_variances:
            raise ValueError(
                "shrinkage must be SampleMeans() for Eigenfunctions: all averages come from one "
                "histogram of the data"
            )
        self.check()
        used = self._sums[self.weight > 0] / self.weight[self.weight > 0, None]
        first = 0.5 * self.basis.default_clock().sigma_min ** 2
        rates, coefficients = reduced(self.basis, used, first)
        # Ritz values may coincide with the last of the basis only by rounding: they are sorted.
        wide = self.basis.widened(rates, coefficients)
        return EigenfunctionSystem(wide, self._averages(self._sums @ coefficients))
