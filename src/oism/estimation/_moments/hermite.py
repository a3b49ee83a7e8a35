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

from oism._core import checks
from oism.basis import Hermite, HermiteFamily, Standardised, recurrence
from oism.basis._hermite import affine, gram
from oism.estimation._knots import EvenKnots
from oism.estimation._moments.base import Moments
from oism.estimation._moments.rows import Scratch
from oism.estimation._shrinkage import Shrinkage
from oism.estimation._systems.hermite import HermiteSystem

FIRST_ROWS = 2**10
"""The number of rows that determine the first provisional coordinates."""

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
