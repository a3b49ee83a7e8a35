"""Averages of products of Hermite polynomials of a total degree, in one pass; of a Gaussian's too.

See `oism.estimation._moments.hermite` for provisional coordinates and their changes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from oism._core import checks, quadrature
from oism._core.user_warnings import warn
from oism.basis import Standardised, TensorHermite
from oism.basis._hermite import TensorGram, products, with_constant
from oism.estimation._moments.hermite import CONSTANT, HermiteFamilyMoments, PolynomialMoments
from oism.estimation._moments.rows import Scratch
from oism.estimation._moments.spectrum import principal_axes
from oism.estimation._shrinkage import Shrinkage
from oism.estimation._systems.hermite import TensorHermiteSystem

MOST_VALUES = 2**29
"""The largest number of values of products at nodes for a change of coordinates: some minutes."""

NODE_ENTRIES = 2**22
"""The number of entries of this table that are computed at a time."""


class TensorHermiteMoments(PolynomialMoments):
    """Sums of all products φ_{m₁}(u₁) ⋯ φ_{m_d}(u_d) of total degree ≤ degree: ``(folds, size)``.

    Standardised coordinates are the principal ones of the data: polynomials of a total degree are
    the same in every rotated frame, and in this one the Gaussian part is all of degree two.
    """

    basis: TensorHermite

    def __init__(self, basis: TensorHermite, folds: int = 5, *, squares: bool = False) -> None:
        checks.instance(basis, TensorHermite, "basis")
        super().__init__(basis, folds, squares=squares)
        self._check_size()
        self.indices = with_constant(basis.dim, self.degree)
        self._sums = torch.zeros(folds, len(self.indices), dtype=torch.float64)
        self.block = max(1, self.block // len(self.indices)) * basis.dim

    def _check_size(self) -> None:
        """Raise, before any row is read, if the change of coordinates would take too long.

        It computes all products at the nodes of a quadrature rule.
        """
        dim, degree = self.basis.dim, self.degree
        values = (degree + 1) ** dim * math.comb(dim + degree, dim)
        if values > MOST_VALUES:
            squares = " with the variances that this shrinkage needs" if self.squares else ""
            raise ValueError(
                f"order must be smaller in {dim} dimensions, got {self.basis.order}: averages of "
                f"degree {degree}{squares} need {values:.2g} values of polynomials for a change of "
                f"coordinates, allowed {MOST_VALUES:.2g} (order 2 is possible in any dimension)"
            )

    def _accumulate(self, u: Tensor, weights: Tensor, scratch: Scratch) -> None:  # noqa: ARG002
        self._sums += (weights @ products(u, self.indices)).cpu()

    def _pairs(self) -> tuple[Tensor, Tensor]:
        """Return mean ``(dim,)`` and covariance ``(dim, dim)`` in provisional coordinates."""
        sums, dim = self._sums.sum(dim=0), self.basis.dim
        mean = sums[1 : dim + 1] / sums[0]
        second = torch.zeros(dim, dim, dtype=torch.float64)
        rows = self.indices.sum(dim=1) == 2
        first = self.indices[rows].argmax(dim=1)
        rest = self.indices[rows] - torch.nn.functional.one_hot(first, dim)
        # E[uᵢuⱼ] is the average of φ₁φ₁ off the diagonal and 1 + √2 φ₂ on it.
        values = sums[rows] / sums[0]
        last = rest.argmax(dim=1)
        values = torch.where(first == last, 1 + math.sqrt(2) * values, values)
        second[first, last] = second[last, first] = values
        return mean, second - torch.outer(mean, mean)

    def _location(self) -> tuple[Tensor, Tensor]:
        mean, covariance = self._pairs()
        return mean, covariance.diagonal()

    def _move(self, change: Tensor) -> None:
        matrix = torch.ones(len(self.indices), len(self.indices), dtype=torch.float64)
        for column, one in zip(self.indices.mT, change, strict=True):
            matrix *= one[column[:, None], column]
        self._sums = self._sums @ matrix.mT

    def standardised(self) -> Standardised:
        """Return the averages in principal coordinates, ``(size,)``."""
        self.check()
        mean, covariance = self._pairs()
        standard = principal(self, mean, covariance)
        spread, rotation = standard.scale > 0, standard.rotation
        assert rotation is not None
        inverse = 1 / torch.where(spread, standard.scale, 1.0)
        matrix = inverse[:, None] * rotation * self.scale
        offset = -inverse * (rotation @ (self.scale * mean))
        # φ_m(Bu + c) = Σ_j T[m, j] φ_j(u) with T = E[φ_m(BU + c) φ_j(U)], U ~ N(0, I).
        rule = quadrature.product(*quadrature.gauss_hermite(self.degree + 1), self.basis.dim)
        change = torch.zeros(len(self.indices), len(self.indices), dtype=torch.float64)
        step = max(1, NODE_ENTRIES // len(self.indices))
        for points, weights in zip(*(torch.split(part, step) for part in rule), strict=True):
            moved = products(points @ matrix.mT + offset, self.indices, self.degree)
            known = products(points, self.indices, self.degree)
            change.addmm_(moved.mT, known.mul_(weights[:, None]))
        self._warn_of_collinearity(covariance)
        sums = self._sums @ change.mT
        flat = (self.indices[:, ~spread] > 0).any(dim=1)
        return replace(standard, averages=self._averages(torch.where(flat, 0.0, sums)))

    def _functions_last(self, means: Tensor) -> Tensor:
        return means

    def _degrees(self, degree: int) -> Tensor:
        return with_constant(self.basis.dim, degree).sum(dim=1)

    def _gram(self, means: Tensor, order: int, degree: int) -> Tensor:
        return TensorGram(self.basis.dim, order, degree)(means)

    def system(self, shrinkage: Shrinkage) -> TensorHermiteSystem:
        """Return the equations of all products."""
        return TensorHermiteSystem(self.basis, self.shrunk(shrinkage))

    def _warn_of_collinearity(self, covariance: Tensor) -> None:
        """Warn if the rotation to principal coordinates lost most digits."""
        inner = covariance.diagonal() > CONSTANT**2
        if int(inner.sum()) < 2:
            return
        roots = covariance.diagonal()[inner].rsqrt()
        least = torch.linalg.eigvalsh(roots[:, None] * covariance[inner][:, inner] * roots)[0]
        lost = 1e-16 * float(least.clamp(min=1e-16)) ** (-self.degree / 2)
        if lost > 1e-4 and float(least) > 1e-12:
            warn(
                f"columns are nearly collinear: averages of degree {self.degree} are accurate to "
                f"about {lost:.0e} only; give the basis frame=principal_frame(data, dim)",
                RuntimeWarning,
            )


class GaussianMoments(HermiteFamilyMoments):
    """Mean and covariance, in any dimension, for products of total degree two.

    In principal coordinates their averages vanish, so the estimate is one eigendecomposition. There
    is nothing to cross-validate, so sums are not kept by fold.
    """

    basis: TensorHermite
    block = 2**22

    def __init__(self, basis: TensorHermite, folds: int = 1, *, squares: bool = False) -> None:
        checks.instance(basis, TensorHermite, "basis")
        super().__init__(basis, folds, squares=squares)
        self._first = torch.zeros(basis.dim, dtype=torch.float64)
        self._second = torch.zeros(basis.dim, basis.dim, dtype=torch.float64)
        self._mass = 0.0

    def _provisional(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return z.mean(dim=0), torch.ones_like(self.scale)

    def _recentre(self) -> None:
        """Keep the first coordinates: sums of squares need no scale, and the centre suffices."""

    def _accumulate(self, u: Tensor, weights: Tensor, scratch: Scratch) -> None:  # noqa: ARG002
        own = weights.sum(dim=0)
        self._first += (own @ u).cpu()
        self._second += ((own[:, None] * u).mT @ u).cpu()
        self._mass += float(own.sum())

    def _pairs(self) -> tuple[Tensor, Tensor]:
        mean = self._first / self._mass
        return mean, self._second / self._mass - torch.outer(mean, mean)

    def _location(self) -> tuple[Tensor, Tensor]:
        mean, covariance = self._pairs()
        return mean, covariance.diagonal()

    def _rebase(self, shift: Tensor, scale: Tensor) -> None:  # noqa: ARG002 (it remains 1)
        step = self.shift - shift
        cross = torch.outer(self._first, step)
        self._second += cross + cross.mT + self._mass * torch.outer(step, step)
        self._first += self._mass * step
        self.shift = shift.clone()

    def _plus(self, other: Self) -> None:
        self._first += other._first
        self._second += other._second
        self._mass += other._mass

    def standardised(self) -> Standardised:
        """Return the principal coordinates, without averages."""
        self.check()
        return principal(self, *self._pairs())

    def shrunk(self, shrinkage: Shrinkage) -> Standardised:  # noqa: ARG002
        """Return the principal coordinates: a Gaussian has no averages to shrink."""
        return self.standardised()

    def system(self, shrinkage: Shrinkage) -> TensorHermiteSystem:
        """Return the system of the Gaussian, which has no equations."""
        return TensorHermiteSystem(self.basis, self.shrunk(shrinkage))


def tensor_moments(
    basis: TensorHermite, folds: int, *, squares: bool
) -> TensorHermiteMoments | GaussianMoments:
    """Return an empty accumulator for products; for order two mean and covariance only."""
    kind = GaussianMoments if basis.order == 2 else TensorHermiteMoments
    return kind(basis, folds, squares=squares)


def principal(moments: HermiteFamilyMoments, mean: Tensor, covariance: Tensor) -> Standardised:
    """Return principal coordinates from mean and covariance in provisional ones, largest first.

    Directions along which the data are constant have s = 0.
    """
    scaled = moments.scale[:, None] * covariance * moments.scale
    constant = moments.high <= moments.low
    scaled[constant], scaled[:, constant] = 0.0, 0.0
    values, rotation = principal_axes(scaled)
    floor = len(values) * torch.finfo(torch.float64).eps * values.max()
    scale = torch.where(values > floor, values, 0.0).sqrt()
    shift = rotation @ (moments.shift + moments.scale * mean)
    if moments.basis.order == 1:
        scale = torch.ones_like(scale)
    nothing = moments._averages(torch.zeros(moments.folds, 0, dtype=torch.float64))
    return Standardised(shift, scale, moments.low, moments.high, nothing, rotation)
