"""The contract of a Markov noising process dX = b(X) dt + L dW with a constant noise matrix L.

Notation: G = ½LLᵀ is the diffusion matrix, ρ_t(y|x) the transition density, π the invariant
measure. Points are ``(n, *shape)``, with the batch first; to a process a point is the vector of its
d entries. Times are the process's own t ≥ 0, one number or one per row of the batch; noise
schedules are in ``oism.process._clock``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import divergence, matmul
from oism.process._domain import Domain
from oism.process._measure import Measure, NotAProbabilityError


class Transition(ABC):
    """The distribution of X_t given X_0 = x, at fixed times.

    On the torus, mean and covariance are those of the path before it is wrapped.
    """

    @abstractmethod
    def mean(self, x: Tensor) -> Tensor:
        """Return E[X_t | X_0 = x], of the shape of ``x``."""

    @abstractmethod
    def covariance(self, dim: int) -> Tensor:
        """Return Cov[X_t | X_0] for points of ``dim`` entries: ``(dim, dim)``, or one per time."""

    @abstractmethod
    def sample(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return one sample of X_t given X_0 = x per row."""

    @abstractmethod
    def log_density(self, y: Tensor, x: Tensor) -> Tensor:
        """Return log ρ_t(y|x) row by row, ``(n,)``; every time must be positive."""

    @abstractmethod
    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return offsets ``(m, dim)`` and weights: E[f(X_t) | x] ≈ Σ wⱼ f(wrap(mean(x) + offsetⱼ)).

        One time only; ``nodes`` per dimension.
        """


class Process(ABC):
    """A Markov diffusion; a subclass defines its drift, noise, transition, domain and measure."""

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The state space."""

    @property
    @abstractmethod
    def invariant(self) -> Measure:
        """The invariant measure π; see `Measure.is_probability`."""

    @abstractmethod
    def drift(self, x: Tensor) -> Tensor:
        """Return b(x), of the shape of ``x``."""

    @property
    def diffusivity(self) -> float | None:
        """The number g if G = gI in every dimension, otherwise None."""
        return None

    @abstractmethod
    def noise(self, dim: int) -> Tensor:
        """Return L for points of ``dim`` entries: ``(dim, k)``, float64."""

    @abstractmethod
    def _transition(self, t: Tensor) -> Transition:
        """Return the transition distribution for checked times of shape () or (n,)."""

    def transition(self, t: Tensor | float) -> Transition:
        """Return the distribution of X_t given X_0 for t ≥ 0, one number or one per row."""
        return self._transition(checks.time(t))

    def diffusion(self, dim: int) -> Tensor:
        """Return the diffusion matrix G = ½LLᵀ: ``(dim, dim)``, float64."""
        noise = self.noise(dim)
        return 0.5 * matmul(noise, noise.mT)

    def diffuse(self, v: Tensor) -> Tensor:
        """Return Gv for a batch of vectors ``(n, *shape)``."""
        return self._diffuse(checks.points(v, "v"))

    def _diffuse(self, v: Tensor) -> Tensor:
        """Return Gv without checking the values, for the inner loop of a flow."""
        flat = v.flatten(1)
        return matmul(flat, self.diffusion(flat.shape[1]).to(flat)).view_as(v)

    def _sample_noise(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return samples of LZ with Z ~ N(0, I), the noise per unit time, of the shape of ``x``."""
        noise = self.noise(x.shape[1:].numel()).to(x)
        draws = x.new_empty(len(x), noise.shape[1]).normal_(generator=generator)
        return matmul(draws, noise.mT).view_as(x)

    def _drift_divergence(self, x: Tensor) -> Tensor | float:
        """Return ∇·b at points: ``(n,)``, or one number; by default by differentiation."""
        return divergence(self.drift, x)

    def start(self, t: Tensor) -> Measure:  # noqa: ARG002
        """Return the distribution that a flow from time t back to data starts from: π."""
        if not self.invariant.is_probability:
            raise NotAProbabilityError("process must have a stationary distribution to start from")
        return self.invariant

    def adjoint_drift(self, x: Tensor) -> Tensor:
        """Return b*(x) = 2G∇log π(x) - b(x), the drift of the time-reversed stationary process.

        It equals b if and only if the process is symmetric (reversible).
        """
        return 2 * self.diffuse(self.invariant.score(x)) - self.drift(x)

    def wrap(self, x: Tensor) -> Tensor:
        """Return the representative of each point inside the domain."""
        return self.domain.wrap(x)
