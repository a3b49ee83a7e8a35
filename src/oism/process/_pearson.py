"""Reversible diffusions of one coordinate with polynomial eigenfunctions (Pearson diffusions).

    L f = g(x) f'' + b(x) f',    g of degree ≤ 2, b of degree 1,

maps polynomials of degree n to such, so its eigenfunctions are the orthonormal polynomials φ_n of
the invariant distribution π. The transition density has the spectral form

    ρ_t(y|x) = π(y) k_t(x, y),    k_t(x, y) = Σ_n e^{λ_n t} φ_n(x) φ_n(y).

With the Gauss rule (y_j, w_j) of N points for π and the terms n < N, the weights w_j k_t(x, y_j)
give E[f(X_t)|x] exactly for polynomials f of degree < N, at every t ≥ 0, also t = 0. Some weights
are negative. Points of several coordinates have independent coordinates.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from oism._core import checks, quadrature
from oism._core.draws import normal_like
from oism._core.orthogonal import Recurrence
from oism._core.transforms import matmul, per_row
from oism.process._base import Nodes
from oism.process._domain import Domain
from oism.process._measure import Measure
from oism.process._reversible import Reversible, ReversibleTransition


@dataclass(frozen=True)
class Interval(Domain):
    """The numbers from 0 to ``high`` in every coordinate, both ends included.

    Data may lie on the ends. `wrap`, which solvers use, returns numbers inside: at an end scores
    and log-densities may be infinite.
    """

    high: float

    def wrap(self, x: Tensor) -> Tensor:
        """Return the nearest numbers inside of the ends."""
        return self._wrap(checks.points(x))

    def _wrap(self, x: Tensor) -> Tensor:
        about = torch.finfo(x.dtype)
        return x.clamp(about.tiny, self.high * (1 - about.eps))

    def contains(self, x: Tensor) -> Tensor:
        """Return whether every coordinate is within the ends."""
        return ((x >= 0) & (x <= self.high)).flatten(1).all(dim=1)

    def admit(self, x: Tensor, name: str = "x") -> Tensor:
        """Return data as they are; raise if a value is outside."""
        x = checks.points(x, name)
        inside = self.contains(x)
        if not checks.holds(inside):
            row = int((~inside).nonzero()[0])
            raise ValueError(
                f"{name} must be in [0, {self.high:g}], but {name}[{row}] = "
                f"{x[row].tolist()}: rescale the data to the domain of the process"
            )
        return x


class PolynomialMeasure(Measure):
    """A probability on the line with orthonormal polynomials, the same in every coordinate."""

    @abstractmethod
    def recurrence(self, degree: int) -> Recurrence:
        """Return the recurrence of the orthonormal polynomials up to a degree."""

    @abstractmethod
    def weighted(self) -> tuple[Self, float]:
        """Return the probability proportional to gπ, and ∫ g dπ, for the g of the process."""

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return the product Gauss rule: exact for degree ≤ 2 nodes - 1 per coordinate."""
        rule = self.recurrence(checks.integer(nodes, "nodes", minimum=1)).gauss()
        return quadrature.product(*rule, dim)


class Pearson(Reversible):
    """A diffusion with polynomial eigenfunctions."""

    @property
    @abstractmethod
    def invariant(self) -> PolynomialMeasure:
        """The invariant distribution."""

    @abstractmethod
    def diffusion_at(self, x: Tensor) -> Tensor:
        """Return g(x), of the shape of ``x``; 0 at the boundary."""

    @abstractmethod
    def eigenvalues(self, degree: int) -> Tensor:
        """Return λ_1, …, λ_degree: ``(degree,)``, float64."""

    def noise_at(self, x: Tensor) -> Tensor:
        """Return √(2g) on the diagonal: ``(n, d, d)``."""
        return torch.diag_embed((2 * self.diffusion_at(x)).sqrt().flatten(1))

    def _diffuse(self, v: Tensor, x: Tensor) -> Tensor:
        return self.diffusion_at(x) * v

    def _sample_noise(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        normals = normal_like(x, generator)
        return normals * (2 * self.diffusion_at(self._retract(x))).sqrt()


@dataclass(frozen=True, eq=False)
class SpectralTransition(ReversibleTransition):
    """The distribution of X_t given X_0 = x for times of shape () or (n,)."""

    process: Pearson
    time: Tensor

    def mean(self, x: Tensor) -> Tensor:
        """Return E[X_t | x] = m + e^{λ₁t}(x - m), with the mean m of π."""
        centre = float(self.process.invariant.recurrence(1).diagonal[0])
        decay = torch.exp(self.process.eigenvalues(1)[0] * self.time)
        return centre + per_row(decay, checks.points(x)) * (x - centre)

    def nodes(self, x: Tensor, count: int) -> Nodes:
        """Return the points of the Gauss rule and weights w_j k_t(x_i, y_j), for one coordinate.

        Exact for polynomials of degree < count at every t.
        """
        if checks.points(x).shape[1:].numel() != 1:
            raise ValueError(
                f"x must have one entry per point, got shape {tuple(x.shape)}: for more use "
                "MonteCarlo(samples, generator)"
            )
        if self.time.ndim:
            raise ValueError(f"t must be one number for a rule, got {len(self.time)} of them")
        polynomials = self.process.invariant.recurrence(count)
        points, weights = polynomials.gauss()
        rates = self.process.eigenvalues(count)[: count - 1]
        decay = torch.cat((torch.ones(1).double(), torch.exp(rates * self.time)))
        there = decay * polynomials(points)[:, :-1] * weights[:, None]
        here = polynomials(x.double().reshape(len(x)))[:, :-1]
        mass = matmul(there.to(x.device), here.mT)
        return points.to(x).reshape(-1, *[1] * x.ndim).expand(-1, *x.shape), mass.to(x)
