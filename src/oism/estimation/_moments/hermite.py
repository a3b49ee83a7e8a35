"""Averages of Hermite polynomials in standardised coordinates, in one pass.

Products of gradients have degrees up to 2·order - 2. In raw coordinates the equations have
condition numbers up to 1e11 at order 9; in u = (z - m)/s, with the mean m and the deviation s of
each frame coordinate z (in units of the invariant distribution), they are well conditioned. But m
and s are known only after the pass. So sums are kept in provisional coordinates and *rebased*:
φ_k(γu + δ) is a combination of φ_0(u), …, φ_k(u) (`oism.basis._hermite.affine`), hence a change of
coordinates is an exact linear map of the sums. An accumulator rebases itself when its running mean
or deviation differs from the provisional one, by a factor of at most two, for which that map is
well conditioned. Two accumulators are merged in the coordinates of the one with more weight.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from oism._core import checks, quadrature
from oism._core.user_warnings import warn
from oism.basis import Hermite, HermiteFamily, Standardised, TensorHermite, recurrence
from oism.basis._hermite import TensorGram, affine, gram, products, with_constant
from oism.estimation._knots import EvenKnots
from oism.estimation._moments.base import Moments
from oism.estimation._moments.rows import Scratch
from oism.estimation._moments.spectrum import principal_axes
from oism.estimation._shrinkage import Shrinkage
from oism.estimation._systems.hermite import HermiteSystem, TensorHermiteSystem

FIRST_ROWS = 2**10
"""The number of rows that determine the first provisional coordinates."""

MOST_VALUES = 2**29
"""The largest number of values of products at nodes for a change of coordinates: some minutes."""

NODE_ENTRIES = 2**22
"""The number of entries of this table that are computed at a time."""

CONSTANT = 1e-7
"""A deviation below this fraction of the provisional one is attributed to rounding."""


class HermiteFamilyMoments(Moments):
    """Base class of the Hermite accumulators: provisional coordinates and their changes."""

    basis: HermiteFamily

    def __init__(self, basis: HermiteFamily, folds: int = 5, *, squares: bool = False) -> None:
        checks.instance(basis, HermiteFamily, "basis")
        super().__init__(basis, folds, squares=squares)
        self.low = torch.full((basis.dim,), math.inf, dtype=torch.float64)
        self.high = -self.low
        self.shift = torch.zeros(basis.dim, dtype=torch.float64)
        self.scale = torch.ones(basis.dim, dtype=torch.float64)

    @property
    def degree(self) -> int:
        """The highest degree of the averages: order or 2·order - 2, and twice that for squares."""
        return max(self.basis.order, 2 * self.basis.order - 2) * (1 + self.squares)

    @abstractmethod
    def _accumulate(self, u: Tensor, weights: Tensor, scratch: Scratch) -> None:
        """Add rows in provisional coordinates; may overwrite them."""

    @abstractmethod
    def _location(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance of all rows in provisional coordinates: ``(dim,)`` each."""

    @abstractmethod
    def _rebase(self, shift: Tensor, scale: Tensor) -> None:
        """Transform the sums to new provisional coordinates."""

    @abstractmethod
    def _plus(self, other: Self) -> None:
        """Add sums in the same coordinates."""

    @abstractmethod
    def standardised(self) -> Standardised:
        """Return the averages in standardised coordinates."""

    @abstractmethod
    def shrunk(self, shrinkage: Shrinkage) -> Standardised:
        """Return the averages in standardised coordinates, estimated by a shrinkage."""

    def _key(self) -> object:
        basis = self.basis
        frame = basis.frame.directions(basis.dim).numpy().tobytes() if basis.frame.dim else None
        return (self.squares, basis.dim, basis.order, basis.process, frame)

    def _add(self, x: Tensor, weights: Tensor, scratch: Scratch) -> None:
        z = self.basis.frame._analyse(x).mul_(self.basis.scale)
        low, high = z.amin(dim=0).cpu(), z.amax(dim=0).cpu()
        first = ~self.low.isfinite()
        # A column that was constant so far has no scale yet: it gets one when its values differ.
        fresh = first | ((self.low == self.high) & ((low < self.low) | (high > self.high)))
        if bool(fresh.any()):
            shift, scale = self._provisional(z[:FIRST_ROWS].cpu())
            self._rebase(
                torch.where(fresh, shift, self.shift), torch.where(fresh, scale, self.scale)
            )
        self.low, self.high = torch.minimum(self.low, low), torch.maximum(self.high, high)
        self._accumulate(z.sub_(self.shift.to(z)).div_(self.scale.to(z)), weights, scratch)
        self._recentre()

    def _provisional(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return shift and scale of provisional coordinates from some rows."""
        same = z.amin(dim=0) == z.amax(dim=0)
        spread = z.std(dim=0, correction=0)
        return torch.where(same, z[0], z.mean(dim=0)), spread.where(~same & (spread > 0), 1.0)

    def _recentre(self) -> None:
        """Rebase columns whose running mean or deviation differs from the provisional one."""
        mean, variance = self._location()
        deviation = variance.clamp(min=0).sqrt()
        known = deviation > CONSTANT
        drift = min(2.0, 10 ** (3 / self.degree))  # a change by γ multiplies rounding by γ^degree
        off = (mean.abs() > drift - 1) | (deviation > drift) | ((deviation * drift < 1) & known)
        if bool(off.any()):
            shift = torch.where(off, self.shift + self.scale * mean, self.shift)
            scale = torch.where(off & known, self.scale * deviation, self.scale)
            self._rebase(shift, scale)

    def _absorb(self, other: Self) -> None:
        if not bool(other.low.isfinite().any()):
            return
        other = copy.deepcopy(other)
        # For each column the coordinates of the accumulator in which it varies, then of the
        # heavier one.
        spread, also = self.low < self.high, other.low < other.high
        heavier = float(other.weight.sum()) > float(self.weight.sum())
        theirs = (also & ~spread) | ((also == spread) & heavier) | ~self.low.isfinite()
        shift = torch.where(theirs, other.shift, self.shift)
        scale = torch.where(theirs, other.scale, self.scale)
        self._rebase(shift, scale)
        other._rebase(shift, scale)
        self._plus(other)
        self.low = torch.minimum(self.low, other.low)
        self.high = torch.maximum(self.high, other.high)
        self._recentre()

    def _standard(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return shift and scale of the standardised coordinates; s = 0 for constant columns."""
        if self.basis.order == 1:  # only the mean is fitted; the deviation is that of π
            return self.shift + self.scale * mean, torch.ones_like(self.scale)
        constant = (self.high <= self.low) | (variance <= CONSTANT**2)
        scale = torch.where(constant, 0.0, self.scale * variance.clamp(min=0).sqrt())
        return self.shift + self.scale * mean, scale


class PolynomialMoments(HermiteFamilyMoments):
    """Sums of polynomials, on which a change of coordinates acts linearly."""

    _sums: Tensor

    def _plus(self, other: Self) -> None:
        self._sums += other._sums

    @abstractmethod
    def _move(self, change: Tensor) -> None:
        """Apply a change of coordinates ``(dim, degree + 1, degree + 1)`` to the sums."""

    def _rebase(self, shift: Tensor, scale: Tensor) -> None:
        """Transform the sums to new provisional coordinates."""
        if torch.equal(shift, self.shift) and torch.equal(scale, self.scale):
            return
        if bool(self.low.isfinite().any()):
            self._move(self._change(shift, scale))
        self.shift, self.scale = shift.clone(), scale.clone()

    def _change(self, shift: Tensor, scale: Tensor) -> Tensor:
        """Return the change of coordinates, T with φ_k(new u) = Σ_j T[k, j] φ_j(u).

        For a column that is constant so far, the new values are exactly φ_k at the constant, as
        multiples of φ₀ = 1.
        """
        constant = self.low == self.high
        change = affine(self.scale / scale, (self.shift - shift) / scale, self.degree)
        place = torch.where(constant, (self.low - shift) / scale, 0.0)
        fixed = torch.zeros_like(change)
        fixed[..., 0] = torch.stack(list(recurrence(place, self.degree)), dim=-1)
        return torch.where(constant[:, None, None], fixed, change)

    @abstractmethod
    def _functions_last(self, means: Tensor) -> Tensor:
        """Return averages with the axis of functions last, or the inverse of this."""

    @abstractmethod
    def _degrees(self, degree: int) -> Tensor:
        """Return the degrees of the functions up to a degree: ``(functions,)``."""

    @abstractmethod
    def _gram(self, means: Tensor, order: int, degree: int) -> Tensor:
        """Return E[φ_kφ_ℓ] to an order from averages to a degree, functions last."""

    def shrunk(self, shrinkage: Shrinkage) -> Standardised:
        """Return standardised averages; those of degree three and more are shrunk towards 0."""
        standard = self.standardised()
        averages = standard.averages
        if not shrinkage.needs_variances or self.basis.order < 3:
            return standard
        if not self.squares:
            raise ValueError("squares must be True for the variances of the means")
        fits, degree = self._functions_last(averages.fitting()), self.degree // 2
        degrees, products = self._degrees(degree), self._gram(fits, degree, self.degree)
        fits = fits[..., : len(degrees)]
        counts = averages.counts.reshape(-1, *[1] * (fits.ndim - 1))
        spread = products.diagonal(dim1=-2, dim2=-1) - fits.square()
        high = degrees > 2
        shrunk = fits.clone()
        shrunk[..., high] = shrinkage(
            fits[..., high], spread[..., high].clamp(min=0) / counts, -degrees[high].double()
        )
        if shrinkage.project:  # also for one γ: degrees one and two of a fold are not shrunk
            shrunk = self.projected(shrunk)
        shrunk = self._functions_last(shrunk)
        return replace(standard, averages=replace(averages, total=shrunk[0], training=shrunk[1:]))

    def projected(self, means: Tensor) -> Tensor:
        """Return means mixed with those of N(0, 1) until E[φ_kφ_ℓ] is positive semidefinite."""
        order = self.basis.order - 1
        lowest = torch.linalg.eigvalsh(self._gram(means, order, 2 * order))[..., :1]
        keep = torch.where(lowest < 0, 1 / (1 - lowest), 1.0)
        mixed = keep * means
        mixed[..., 0] = 1.0
        return mixed


class HermiteMoments(PolynomialMoments):
    """Sums of φ₀, …, φ_degree of each frame coordinate: ``(folds, degree + 1, dim)``.

    >>> x = torch.tensor([[1.0], [3.0], [5.0]])
    >>> standard = HermiteMoments(Hermite(dim=1, order=3)).update(x).standardised()
    >>> standard.shift, standard.scale
    (tensor([3.], dtype=torch.float64), tensor([1.6330], dtype=torch.float64))
    """

    basis: Hermite

    def __init__(self, basis: Hermite, folds: int = 5, *, squares: bool = False) -> None:
        checks.instance(basis, Hermite, "basis")
        super().__init__(basis, folds, squares=squares)
        self._sums = torch.zeros(folds, self.degree + 1, basis.dim, dtype=torch.float64)

    def _accumulate(self, u: Tensor, weights: Tensor, scratch: Scratch) -> None:
        # The recurrence needs the last three degrees only: three buffers, which fit into the cache.
        buffers = [scratch.like(f"degree {n}", u) for n in range(3)]
        table = [buffers[n % 3] for n in range(self.degree + 1)]
        for n, phi in enumerate(recurrence(u, self.degree, table)):
            self._sums[:, n] += (weights @ phi).cpu()

    def _location(self) -> tuple[Tensor, Tensor]:
        sums = self._sums.sum(dim=0)
        mean = sums[1] / sums[0]
        if self.degree == 1:
            return mean, torch.ones_like(mean)
        return mean, math.sqrt(2) * sums[2] / sums[0] + 1 - mean.square()

    def _move(self, change: Tensor) -> None:
        self._sums = torch.einsum("dkj,fjd->fkd", change, self._sums)

    def standardised(self) -> Standardised:
        """Return the averages in u = (z - m)/s, ``(degree + 1, dim)``."""
        self.check()
        shift, scale = self._standard(*self._location())
        spread = scale > 0
        safe = torch.where(spread, scale, 1.0)
        sums = torch.einsum("dkj,fjd->fkd", self._change(shift, safe), self._sums)
        sums[:, 1:] = torch.where(spread, sums[:, 1:], 0.0)
        return Standardised(shift, scale, self.low, self.high, self._averages(sums))

    def _functions_last(self, means: Tensor) -> Tensor:
        return means.mT

    def _degrees(self, degree: int) -> Tensor:
        return torch.arange(degree + 1)

    def _gram(self, means: Tensor, order: int, degree: int) -> Tensor:  # noqa: ARG002
        return gram(means, order)

    def system(self, shrinkage: Shrinkage) -> HermiteSystem:
        """Return the equations, one direction at a time."""
        return HermiteSystem(self.basis, self.shrunk(shrinkage))

    def default_knots(self) -> EvenKnots:
        """Return even knots: solves are small and can be batched over all times."""
        return EvenKnots()


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
