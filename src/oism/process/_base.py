"""The contract of a Markov noising process dX = b(X) dt + L(X) dW (Itô).

Notation: G = ½LLᵀ is the diffusion matrix, ρ_t(y|x) the transition density, π the invariant
measure. L is constant unless a subclass overrides `Process.noise_at`, as `Reversible` processes do.
Densities move with the velocity b - ∇·G - G∇log ρ_t, where (∇·G)_i = Σ_j ∂_jG_ij; the part
b - ∇·G without the score is `Process.flow_drift`, which is b if L is constant. Points are
``(n, *shape)``, with the batch first; to a process a point is the vector of its d entries. Times
are the process's own t ≥ 0, one number or one per row of the batch; noise schedules are in
``oism.process._clock``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from oism._core import checks
from oism._core.draws import normal
from oism._core.transforms import divergence, matmul
from oism.process._domain import Domain
from oism.process._measure import Measure, NotAProbabilityError

Nodes = tuple[Tensor, Tensor]
"""Points ``(m, n, *shape)`` and weights ``(m,)`` or ``(m, n)``."""


class Transition(ABC):
    """The distribution of X_t given X_0 = x, at fixed times.

    On the torus, mean and covariance are those of the path before it is wrapped. Expectations use
    `nodes`; the default is a rule of offsets from the mean, the same for all starts, as for every
    linear process.
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

    def nodes(self, x: Tensor, count: int) -> Nodes:
        """Return points ``(m, n, *shape)`` and weights: E[f(X_t) | x_i] ≈ Σ_j w_j f(wrap(y_ji)).

        One time only; weights are ``(m,)``, or ``(m, n)`` if they depend on the start.
        """
        blocks = list(self._node_blocks(checks.points(x), count, 2**62))
        return torch.cat([part[0] for part in blocks]), torch.cat([part[1] for part in blocks])

    def _node_blocks(self, x: Tensor, count: int, size: int) -> Iterator[Nodes]:
        """Yield the nodes for checked points, about ``size`` of them at a time."""
        offsets, weights = self.quadrature(x.shape[1:].numel(), count)
        yield from self._from_mean(x, offsets.reshape(-1, *x.shape[1:]), weights, size)

    def _sample_blocks(
        self, x: Tensor, samples: int, size: int, generator: torch.Generator | None
    ) -> Iterator[Nodes]:
        """Yield samples with equal weights for checked points, about ``size`` at a time.

        By default the same offsets from the mean for every point (common random numbers).
        """
        origin = x.new_zeros(samples, *x.shape[1:])
        offsets = self.sample(origin, generator=generator) - self.mean(origin)
        yield from self._from_mean(x, offsets, x.new_full((samples,), 1 / samples), size)

    def _from_mean(self, x: Tensor, offsets: Tensor, weights: Tensor, size: int) -> Iterator[Nodes]:
        mean, step = self.mean(x), max(1, size // max(1, len(x)))
        pieces = (torch.split(part.to(x), step) for part in (offsets, weights))
        for own, mass in zip(*pieces, strict=True):
            yield own[:, None] + mean, mass


class Process(ABC):
    """A Markov diffusion; a subclass defines its drift, noise, transition, domain and measure."""

    has_constant_noise: bool = True
    """Whether L does not depend on the point."""

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
        """Return the constant L for points of ``dim`` entries: ``(dim, k)``, float64."""

    def noise_at(self, x: Tensor) -> Tensor:
        """Return L(x) at points ``(n, *shape)`` of d entries: ``(n, d, k)``."""
        noise = self.noise(x.shape[1:].numel()).to(x)
        return noise.expand(len(x), *noise.shape)

    def flow_drift(self, x: Tensor) -> Tensor:
        """Return b - ∇·G, of the shape of ``x``: b if the noise is constant."""
        return self.drift(x)

    def symmetric_drift(self, x: Tensor) -> Tensor:
        """Return G∇log π + ∇·G, the drift of ½(L + L*), of the shape of ``x``."""
        return self.diffuse(self.invariant.score(x), x)

    @abstractmethod
    def _transition(self, t: Tensor) -> Transition:
        """Return the transition distribution for checked times of shape () or (n,)."""

    def transition(self, t: Tensor | float) -> Transition:
        """Return the distribution of X_t given X_0 for t ≥ 0, one number or one per row."""
        return self._transition(checks.time(t))

    def diffusion(self, dim: int) -> Tensor:
        """Return the constant diffusion matrix G = ½LLᵀ: ``(dim, dim)``, float64."""
        noise = self.noise(dim)
        return 0.5 * matmul(noise, noise.mT)

    def diffuse(self, v: Tensor, x: Tensor) -> Tensor:
        """Return G(x)v for vectors ``(n, *shape)``, each at its point of ``x``."""
        return self._diffuse(checks.points(v, "v"), x)

    def _diffuse(self, v: Tensor, x: Tensor) -> Tensor:
        """Return G(x)v without checking the values, for the inner loop of a flow."""
        flat = v.flatten(1)
        if self.has_constant_noise:
            return matmul(flat, self.diffusion(flat.shape[1]).to(flat)).view_as(v)
        noise = self.noise_at(x)
        return 0.5 * matmul(noise, matmul(noise.mT, flat[..., None])).view_as(v)

    def _sample_noise(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return L(x)Z with Z ~ N(0, I), the noise per unit time, of the shape of ``x``."""
        if not self.has_constant_noise:
            matrix = self.noise_at(x)
            draws = normal((len(x), matrix.shape[2], 1), generator, dtype=x.dtype, device=x.device)
            return matmul(matrix, draws).view_as(x)
        noise = self.noise(x.shape[1:].numel()).to(x)
        draws = normal((len(x), noise.shape[1]), generator, dtype=x.dtype, device=x.device)
        return matmul(draws, noise.mT).view_as(x)

    def _flow_drift_divergence(self, x: Tensor) -> Tensor | float:
        """Return ∇·(b - ∇·G): ``(n,)``, or one number; by default by differentiation."""
        return divergence(self.flow_drift, x)

    def _retract(self, x: Tensor) -> Tensor:
        """Return the points where coefficients and scores are evaluated, without checks.

        A solver may leave the domain by the error of a step. The default is ``x``: coefficients on
        ℝ^d and the torus are defined everywhere.
        """
        return x

    def start(self, t: Tensor) -> Measure:  # noqa: ARG002
        """Return the distribution that a flow from time t back to data starts from: π."""
        if not self.invariant.is_probability:
            raise NotAProbabilityError("process must have a stationary distribution to start from")
        return self.invariant

    def adjoint_drift(self, x: Tensor) -> Tensor:
        """Return b* = 2(G∇log π + ∇·G) - b, the drift of the time-reversed stationary process.

        It equals b if and only if the process is symmetric (reversible).
        """
        return 2 * self.symmetric_drift(x) - self.drift(x)

    def wrap(self, x: Tensor) -> Tensor:
        """Return the representative of each point inside the domain."""
        return self.domain.wrap(x)
