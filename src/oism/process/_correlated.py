"""Correlated Gaussians: N(0, Σ ⊗ I), and the transition N(S_t x, Σ_t) of a linear SDE.

A point of m·copies entries is a matrix ``(m, copies)`` whose columns are independent, see
``oism.process._covariance``. Distributions may be degenerate: at t = 0 a transition is a point
mass, and noise may not act in every direction. Then they have samples and quadrature rules, but no
density.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from oism._core import checks, quadrature
from oism._core.draws import normal_like
from oism._core.transforms import is_differentiated
from oism.process._base import Transition
from oism.process._covariance import act, entries, log_normal, root, spread, whitener
from oism.process._measure import Measure

DEFECT = 1e-10
"""The largest deviation from symmetric and semidefinite, relative to the variances."""


@dataclass(frozen=True, eq=False)
class CorrelatedGaussian(Measure):
    """N(0, Σ ⊗ I) on points of m·copies entries; Σ ``(m, m)`` semidefinite, copied in float64.

    >>> law = CorrelatedGaussian(torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    >>> law.score(torch.tensor([[3.0, 0.0]]))
    tensor([[-2.,  1.]])
    """

    covariance: Tensor
    copies: int = 1

    def __post_init__(self) -> None:
        sigma = checks.floating(self.covariance, "covariance").detach().cpu().double().clone()
        if sigma.ndim != 2 or sigma.shape[0] != sigma.shape[1] or not len(sigma):
            raise ValueError(f"covariance must be square, got shape {tuple(sigma.shape)}")
        defect = (root(sigma) @ root(sigma).mT - sigma).abs()
        scale = sigma.diagonal().abs().sqrt()
        if bool((defect > DEFECT * scale[:, None] * scale).any()):
            raise ValueError(f"covariance must be symmetric and semidefinite, got {sigma.tolist()}")
        checks.assign(
            self, covariance=sigma, copies=checks.integer(self.copies, "copies", minimum=1)
        )

    @cached_property
    def whitener(self) -> tuple[Tensor, Tensor]:
        """A lower triangular W with WΣWᵀ = I, and log det W; an error if Σ is singular."""
        inverse, log_det, definite = whitener(self.covariance)
        if not bool(definite):
            rank = int(root(self.covariance).any(dim=0).sum())
            raise ValueError(
                f"covariance must be positive definite for a density, got one of rank {rank}, not "
                f"{len(self.covariance)} (of a stationary distribution: noise does not act in "
                "every direction, (F, L) is not controllable)"
            )
        return inverse, log_det

    @cached_property
    def precision(self) -> Tensor:
        """The inverse Σ⁻¹, ``(m, m)``."""
        inverse = self.whitener[0]
        return inverse.mT @ inverse

    def score(self, x: Tensor) -> Tensor:
        """Return -Σ⁻¹x."""
        return -act(self.precision, checks.points(x), self.copies)

    def log_density(self, x: Tensor) -> Tensor:
        """Return log N(x; 0, Σ), summed over the copies."""
        inverse, log_det = self.whitener
        return log_normal(act(inverse, checks.points(x), self.copies), self.copies * log_det)

    def _fill(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        return act(root(self.covariance), x.normal_(generator=generator), self.copies, "shape")

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return a factor of Σ times the product Gauss-Hermite rule."""
        entries(dim, len(self.covariance), self.copies)
        points, weights = quadrature.product(*quadrature.gauss_hermite(nodes), dim)
        return act(root(self.covariance), points, self.copies), weights


@dataclass(frozen=True, eq=False)
class LinearTransition(Transition):
    """N((S_t ⊗ I)x, Σ_t ⊗ I), with S and Σ of shape (m, m) or (n, m, m), float64."""

    time: Tensor
    means: Tensor
    covariances: Tensor
    copies: int

    def mean(self, x: Tensor) -> Tensor:
        """Return S_t x."""
        return act(self.means, checks.points(x), self.copies)

    def covariance(self, dim: int) -> Tensor:
        """Return Σ_t ⊗ I: ``(dim, dim)``, or ``(n, dim, dim)`` for one time per row; float64."""
        entries(dim, self.covariances.shape[-1], self.copies)
        return spread(self.covariances, self.copies)

    def sample(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return S_t x + Aε with AAᵀ = Σ_t and ε ~ N(0, I) drawn from ``generator``."""
        mean = self.mean(x)
        return mean + act(root(self.covariances), normal_like(x, generator), self.copies)

    def log_density(self, y: Tensor, x: Tensor) -> Tensor:
        """Return log N(y; S_t x, Σ_t), summed over the copies."""
        checks.like(y, checks.points(x))
        inverse, log_det, definite = whitener(self.covariances)
        if not checks.holds(definite):
            if checks.holds(self.time > 0):
                raise ValueError(
                    "(F, L) must be controllable for a transition density: noise does not act in "
                    f"every direction, and Σ_t is singular at t {self._range()}"
                )
            raise ValueError(
                "t must be positive for a transition density (at t = 0 X_t is a point mass), "
                f"got t {self._range()}"
            )
        if not checks.holds(inverse.to(x.dtype).isfinite()):
            raise ValueError(
                f"t must be such that Σ_t^(-1/2) is finite in {x.dtype}, got t {self._range()}"
            )
        return log_normal(act(inverse, y - self.mean(x), self.copies), self.copies * log_det)

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return a factor of Σ_t times the product Gauss-Hermite rule; at t = 0, one point."""
        entries(dim, self.covariances.shape[-1], self.copies)
        checks.integer(nodes, "nodes", minimum=1)
        if self.time.ndim:
            raise ValueError(f"t must be one number for a rule, got {len(self.time)} of them")
        if checks.holds(self.time > 0):
            points, weights = quadrature.product(*quadrature.gauss_hermite(nodes), dim)
            return act(root(self.covariances), points.to(self.time), self.copies), weights.to(
                self.time
            )
        if is_differentiated(self.time):
            raise ValueError(
                "t must be positive if a rule is differentiated in t (dP_t/dt at t = 0 is L)"
            )
        return self.time.new_zeros(1, dim), self.time.new_ones(1)

    def _range(self) -> str:
        low, high = (float(end) for end in self.time.detach().aminmax())
        return f"from {low!r} to {high!r}"
