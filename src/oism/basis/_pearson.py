"""Orthonormal polynomials as eigenfunctions of a diffusion of one coordinate.

For a `Pearson` process with L f = gf'' + bf', Γ(φ_m, φ_n) = gφ_m'φ_n', and ∫ Γ(φ_m, φ_n) dπ is
-λ_n if m = n and 0 otherwise. So the derivatives φ_n' are orthogonal for gπ: they are the
orthonormal polynomials φ̃ of the probability gπ/∫g dπ,

    φ_n' = (-λ_n/∫g dπ)^½ φ̃_{n-1},

both from stable recurrences. The product of two polynomials of degree ≤ K has degree ≤ 2K, and the
Gauss rule of 2K + 1 points is exact for degree 4K + 1.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from oism._core.orthogonal import Recurrence
from oism._core.transforms import matmul
from oism.basis._base import Basis
from oism.process import Pearson


class PolynomialEigenfunctions(Basis):
    """φ_1, …, φ_degree of a `Pearson` process on points ``(n, 1)``, computed in float64."""

    process: Pearson
    degree: int
    dim = 1

    @abstractmethod
    def _of_degree(self, degree: int) -> Self:
        """Return the basis of another degree."""

    def facts(self) -> dict[str, Any]:
        """Return kind, degree and number of the functions as JSON values."""
        return {"kind": "polynomials", "degree": self.degree, "count": self.size}

    @property
    def eigenvalues(self) -> Tensor:
        """λ_1, …, λ_degree."""
        return self.process.eigenvalues(self.degree)

    @cached_property
    def _polynomials(self) -> Recurrence:
        return self.process.invariant.recurrence(self.degree)

    @cached_property
    def _slopes(self) -> tuple[Recurrence, Tensor]:
        """The recurrence of the derivatives, and their factors ``(degree,)``."""
        measure, mass = self.process.invariant.weighted()
        return measure.recurrence(max(1, self.degree - 1)), (-self.eigenvalues / mass).sqrt()

    def _value_table(self, x: Tensor) -> Tensor:
        return self._polynomials(x.double()[:, 0])[:, 1:].to(x.dtype)

    def _slope_table(self, x: Tensor) -> Tensor:
        recurrence, factors = self._slopes
        found = factors.to(x.device) * recurrence(x.double()[:, 0])[:, : self.degree]
        return found.to(x.dtype)

    def _table(self, x: Tensor) -> Tensor:
        return torch.stack((self._value_table(x), self._slope_table(x)))

    def _values(self, table: Tensor) -> Tensor:
        return table[0]

    def _gradients(self, table: Tensor) -> Tensor:
        return table[1][..., None]

    def _series(self, x: Tensor, alpha: Tensor, derivative: int) -> Tensor:
        if derivative == 2:
            return super()._series(x, alpha, derivative)
        terms = self._slope_table(x) if derivative else self._value_table(x)
        total = matmul(terms, alpha) if alpha.ndim == 1 else (terms * alpha).sum(dim=1)
        return total[:, None] if derivative else total

    def doubled(self) -> Self:
        """Return the basis of twice the degree."""
        return self._of_degree(2 * self.degree)

    def rule(self) -> tuple[Tensor, Tensor]:
        """Return the Gauss rule of π with 2·degree + 1 points."""
        return self.process.invariant.quadrature(1, 2 * self.degree + 1)
