"""Estimates of E[φ] that beat the sample mean, and the way back to the moments of a true density.

Given sample means θ̂_k with variances σ̂_k², a linear estimate γ_kθ̂_k has the risk
Σ γ_k²σ_k² + (1 - γ_k)²θ_k². The estimates differ in what γ may be:

- `SampleMeans`: γ = 1;
- `JamesStein`: one γ for all, (1 - Σσ̂²/Σθ̂²)₊;
- `Modulation`: each its own (the paper's), m/(σ̂² + m) with m = (θ̂² - σ̂²)₊;
- `Monotone`: not increasing in -λ (Beran and Dümbgen's monotone modulation): the isotonic
  regression of 1 - σ̂²/θ̂² with weights θ̂², within [0, 1].

One γ for all is a mixture with the invariant law (for Hermite: with the Gaussian of the data),
hence still a probability. Several are not: shrinking each mean by itself gives moments that no
density has, A_t becomes indefinite, and single runs explode. So moments are then projected back:

- on the torus the density is rebuilt on a grid, clipped from below, normalised, and its moments are
  taken again;
- Hermite moments are mixed with those of the Gaussian until E[φ_kφ_ℓ] is positive. P_t of a square
  is a sum of squares, so a functional that is positive on squares at t = 0 stays so at every t.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import scipy.optimize
import torch
from torch import Tensor

from oism.basis.grid import TorusGrid
from oism.basis.hermite import TensorGram, gram, with_constant
from oism.moments import (
    Averages,
    FourierMoments,
    HermiteFamilyMoments,
    HermiteMoments,
    Standardised,
)

FLOOR = 1e-3
"""What a projected density is clipped at, relative to the uniform one."""


class Shrinkage(ABC):
    """An estimate γθ̂ of means; ``project`` follows it by a projection where it can break them."""

    needs_variances: ClassVar[bool] = True
    keeps_positivity: ClassVar[bool] = False
    project: bool = True

    @abstractmethod
    def factors(self, means: Tensor, variances: Tensor, eigenvalues: Tensor) -> Tensor:
        """Return γ for means and their variances ``(*batch, size)``: the same shape."""

    def __call__(self, means: Tensor, variances: Tensor, eigenvalues: Tensor) -> Tensor:
        """Return γθ̂."""
        return self.factors(means, variances, eigenvalues) * means


@dataclass(frozen=True)
class SampleMeans(Shrinkage):
    """γ = 1."""

    needs_variances: ClassVar[bool] = False
    keeps_positivity: ClassVar[bool] = True

    def factors(self, means: Tensor, variances: Tensor, eigenvalues: Tensor) -> Tensor:  # noqa: ARG002
        """Return ones."""
        return torch.ones_like(means)


@dataclass(frozen=True)
class JamesStein(Shrinkage):
    """γ = (1 - Σσ̂²/Σθ̂²)₊, the same for all functions; unbiased estimation of the risk gives it.

    >>> means, variances = torch.tensor([3.0, 0.5]), torch.tensor([1.0, 1.0])
    >>> JamesStein().factors(means, variances, torch.tensor([-1.0, -4.0]))
    tensor([0.7838, 0.7838])
    """

    keeps_positivity: ClassVar[bool] = True

    def factors(self, means: Tensor, variances: Tensor, eigenvalues: Tensor) -> Tensor:  # noqa: ARG002
        """Return one γ, repeated."""
        size = means.square().sum(dim=-1, keepdim=True)
        noise = variances.sum(dim=-1, keepdim=True)
        return (1 - noise / size.where(size > 0, 1.0)).clamp(min=0).expand_as(means)


@dataclass(frozen=True)
class Modulation(Shrinkage):
    """γ_k = m/(σ̂² + m) with m = (θ̂² - σ̂²)₊, the minimum of the paper's estimate of the risk.

    >>> means, variances = torch.tensor([3.0, 0.5]), torch.tensor([1.0, 1.0])
    >>> Modulation().factors(means, variances, torch.tensor([-1.0, -4.0]))
    tensor([0.8889, 0.0000])
    """

    project: bool = True

    def factors(self, means: Tensor, variances: Tensor, eigenvalues: Tensor) -> Tensor:  # noqa: ARG002
        """Return each its own γ; 1 where nothing varies."""
        signal = (means.square() - variances).clamp(min=0)
        total = variances + signal
        return torch.where(total > 0, signal / total.where(total > 0, 1.0), 1.0)


@dataclass(frozen=True)
class Monotone(Shrinkage):
    """The best γ that does not increase with -λ; equal eigenvalues share one γ.

    >>> means, variances = torch.tensor([1.0, 2.0, 0.5]), torch.tensor([0.5, 0.5, 0.5])
    >>> Monotone().factors(means, variances, torch.tensor([-1.0, -4.0, -9.0]))
    tensor([0.8000, 0.8000, 0.0000])
    """

    project: bool = True

    def factors(self, means: Tensor, variances: Tensor, eigenvalues: Tensor) -> Tensor:
        """Return the isotonic regression of 1 - σ̂²/θ̂² on -λ with weights θ̂²."""
        rates, group = torch.unique(-eigenvalues, return_inverse=True)
        index = group.expand_as(means)
        zero = means.new_zeros(*means.shape[:-1], len(rates))
        tiny = torch.finfo(means.dtype).tiny
        weights = zero.scatter_add(-1, index, means.square()).clamp(min=tiny)
        targets = 1 - zero.scatter_add(-1, index, variances) / weights
        fitted = [
            scipy.optimize.isotonic_regression(y, weights=w, increasing=False).x
            for y, w in zip(
                targets.reshape(-1, len(rates)).double().numpy(),
                weights.reshape(-1, len(rates)).double().numpy(),
                strict=True,
            )
        ]
        gamma = torch.stack([torch.from_numpy(one.copy()) for one in fitted]).reshape(targets.shape)
        return gamma.clamp(0, 1).to(means).gather(-1, index)


def shrink_fourier(moments: FourierMoments, shrinkage: Shrinkage) -> Averages:
    """Return the averages of a torus, those of the fits shrunk; held-out ones stay as they are."""
    averages = moments.averages()
    if not shrinkage.needs_variances:
        return averages
    fits, doubled = averages.fitting(), moments.doubled().fitting()
    waves = math.sqrt(2) * torch.view_as_real(fits)
    # The squares of √2 cos ζ·x and √2 sin ζ·x are 1 ± cos 2ζ·x; sin is minus the imaginary part.
    squares = 1 + torch.stack((doubled.real, -doubled.real), dim=-1)
    variances = (squares - waves.square()).clamp(min=0) / averages.counts[:, None, None]
    rates = -moments.frequencies.square().sum(dim=1)
    gamma = shrinkage.factors(
        waves.flatten(-2), variances.flatten(-2), rates.repeat_interleave(2)
    ).reshape(waves.shape)
    shrunk = torch.view_as_complex(gamma * torch.view_as_real(fits))
    if shrinkage.project and not shrinkage.keeps_positivity:
        shrunk = project_fourier(moments.frequencies, shrunk)
    return replace(averages, total=shrunk[0], training=shrunk[1:])


def project_fourier(lattice: Tensor, means: Tensor, floor: float = FLOOR) -> Tensor:
    """Return the moments of the density that means ``(*batch, m)`` describe, clipped from below.

    The result is the moments of a positive measure on the points of a grid, so every Gram matrix
    built from it is positive semidefinite.
    """
    reach = int(lattice.abs().max())
    grid = TorusGrid(lattice.shape[1], 4 * reach + 1, reach)
    placed = grid.place(lattice)
    density = grid.density(means, placed).clamp(min=floor)
    waves = grid.analyse(density)
    return waves[..., placed[0]] / waves[..., :1]


def shrink_hermite(moments: HermiteFamilyMoments, shrinkage: Shrinkage) -> Standardised:
    """Return standardised averages with those of degree three and more shrunk towards 0."""
    standard = moments.standardised()
    averages, order = standard.averages, moments.basis.order
    if not shrinkage.needs_variances or order < 3:
        return standard
    if not moments.squares:
        raise ValueError("squares must be True for the variances of the means")
    single = isinstance(moments, HermiteMoments)
    fits = averages.fitting()
    fits = fits.mT if single else fits  # functions last
    degree = moments.degree // 2
    if single:
        degrees = torch.arange(degree + 1)
        products = gram(fits, degree)
    else:
        degrees = with_constant(moments.basis.dim, degree).sum(dim=1)
        products = TensorGram(moments.basis.dim, degree, moments.degree)(fits)
    fits = fits[..., : len(degrees)]
    counts = averages.counts.reshape(-1, *[1] * (fits.ndim - 1))
    spread = products.diagonal(dim1=-2, dim2=-1) - fits.square()
    high = degrees > 2
    shrunk = fits.clone()
    shrunk[..., high] = shrinkage(
        fits[..., high], spread[..., high].clamp(min=0) / counts, -degrees[high].double()
    )
    if shrinkage.project:  # also one γ for all: degrees one and two of a fold are not shrunk
        shrunk = project_hermite(shrunk, moments)
    shrunk = shrunk.mT if single else shrunk
    return replace(standard, averages=replace(averages, total=shrunk[0], training=shrunk[1:]))


def project_hermite(means: Tensor, moments: HermiteFamilyMoments) -> Tensor:
    """Return means mixed with those of N(0, 1) so far that E[φ_kφ_ℓ] is positive semidefinite."""
    order = moments.basis.order - 1
    if isinstance(moments, HermiteMoments):
        products = gram(means, order)
    else:
        products = TensorGram(moments.basis.dim, order, 2 * order)(means)
    lowest = torch.linalg.eigvalsh(products)[..., :1]
    keep = torch.where(lowest < 0, 1 / (1 - lowest), 1.0)
    mixed = keep * means
    mixed[..., 0] = 1.0
    return mixed
