"""Isotropic processes, X_t | x ~ N(α_t x, σ_t² I), wrapped or not.

They have no fixed dimension: the same object is used for points of any shape, also images. A
subclass defines two functions of time, α and σ², the diffusivity g in G = gI, and its drift.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks, quadrature
from oism._core.draws import normal_like
from oism._core.transforms import as_given, is_differentiated, per_row
from oism.process._base import Process, Transition
from oism.process._measure import Gaussian, Measure


@dataclass(frozen=True, eq=False)
class IsotropicTransition(Transition):
    """N(αx, σ² I), with α and σ² of shape () or (n,), float64."""

    alpha: Tensor
    variance: Tensor

    @property
    def sigma(self) -> Tensor:
        """The standard deviation σ of each coordinate."""
        return self.variance.sqrt()

    def mean(self, x: Tensor) -> Tensor:
        """Return αx."""
        return self._mean(checks.points(x))

    def _mean(self, x: Tensor) -> Tensor:
        """Return αx for checked points; `mean`, `sample` and `log_density` use it."""
        return per_row(self.alpha, x) * x

    def covariance(self, dim: int) -> Tensor:
        """Return σ² I: ``(dim, dim)``, or ``(n, dim, dim)`` for one time per row; float64."""
        eye = torch.eye(checks.integer(dim, "dim", minimum=1)).to(self.variance)
        return self.variance[..., None, None] * eye

    def sample(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return αx + σε with ε ~ N(0, I) drawn from ``generator``."""
        noise = normal_like(checks.points(x), generator)
        return self._mean(x) + per_row(self.sigma, x) * noise

    def log_density(self, y: Tensor, x: Tensor) -> Tensor:
        """Return log N(y; αx, σ² I), summed over the entries of a point."""
        variance = self._positive_variance(checks.like(y, checks.points(x)))
        step = y - self._mean(x)
        terms = -step.square() / (2 * variance) - 0.5 * torch.log(2 * math.pi * variance)
        return terms.flatten(1).sum(dim=1)

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return a product rule of ``nodes`` points per dimension; at t = 0, one point."""
        checks.integer(nodes, "nodes", minimum=1)
        if self.variance.ndim:
            raise ValueError(f"t must be one number for a rule, got {len(self.variance)} of them")
        if checks.holds(self.variance > 0):
            return quadrature.product(*self._rule(nodes), dim)
        if is_differentiated(self.variance):
            raise ValueError(
                "t must be positive if a rule is differentiated in t (dP_t/dt at t = 0 is L)"
            )
        return quadrature.product(self.variance.new_zeros(1), self.variance.new_ones(1), dim)

    def _rule(self, nodes: int) -> tuple[Tensor, Tensor]:
        """Return offsets and weights for one coordinate: Gauss-Hermite, scaled by σ."""
        points, weights = quadrature.gauss_hermite(nodes)
        return self.sigma * points.to(self.sigma), weights.to(self.sigma)

    def _positive_variance(self, x: Tensor) -> Tensor:
        """Return σ² in the dtype of ``x``, checked to be positive and finite there."""
        variance = per_row(self.variance, x)
        if not checks.holds((variance > 0) & variance.isfinite()):
            low, high = (float(end) for end in self.variance.aminmax())
            raise ValueError(
                f"t must be positive for a transition density and σ² finite in {x.dtype} (at t = 0 "
                f"X_t is a point mass), got σ² from {low!r} to {high!r}"
            )
        return variance


class Isotropic(Process):
    """A process with G = gI whose transition has mean α_t x and covariance σ_t² I."""

    @property
    @abstractmethod
    def diffusivity(self) -> float:
        """The number g in G = gI."""

    @abstractmethod
    def drift_divergence(self, dim: int) -> float:
        """Return ∇·b for points of ``dim`` entries: a number, because the drift is linear."""

    def _flow_drift_divergence(self, x: Tensor) -> float:
        return self.drift_divergence(x.shape[1:].numel())

    def start(self, t: Tensor) -> Measure:
        """Return π, or N(0, σ_t² I) if there is none, as for `Brownian` motion."""
        return (
            self.invariant if self.invariant.is_probability else Gaussian(float(self.variance(t)))
        )

    @abstractmethod
    def _alpha(self, t: Tensor) -> Tensor:
        """Return α_t for checked times."""

    @abstractmethod
    def _variance(self, t: Tensor) -> Tensor:
        """Return σ_t² for checked times."""

    @abstractmethod
    def _time_of_log_snr(self, log_snr: Tensor) -> Tensor:
        """Return the t with a given log(α_t²/σ_t²)."""

    def alpha(self, t: Tensor | float) -> Tensor:
        """Return α_t, the factor of the mean; of the shape of t."""
        return as_given(self._alpha(checks.time(t)), t)

    def variance(self, t: Tensor | float) -> Tensor:
        """Return σ_t², the variance of each coordinate given the start; of the shape of t."""
        return as_given(self._variance(checks.time(t)), t)

    def noise(self, dim: int) -> Tensor:
        """Return √(2g) I."""
        eye = torch.eye(checks.integer(dim, "dim", minimum=1), dtype=torch.float64)
        return math.sqrt(2 * self.diffusivity) * eye

    def _diffuse(self, v: Tensor, x: Tensor) -> Tensor:  # noqa: ARG002
        return self.diffusivity * v

    def _sample_noise(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        return normal_like(x, generator).mul_(math.sqrt(2 * self.diffusivity))

    def _transition(self, t: Tensor) -> IsotropicTransition:
        return IsotropicTransition(self._alpha(t), self._variance(t))

    def transition(self, t: Tensor | float) -> IsotropicTransition:
        """Return the distribution N(α_t x, σ_t² I) of X_t given X_0 = x."""
        return self._transition(checks.time(t))
