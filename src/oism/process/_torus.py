"""Brownian motion on the flat torus [-π, π)^d, called truncated Brownian motion in the paper.

Paths of dX = √2 dW are wrapped modulo 2π. Coordinates are independent, and the transition density
of one, with δ = y - x, is both a sum over images and a Fourier series (Poisson summation):

    ρ_t(y|x) = Σ_z N(δ + 2πz; 0, 2t) = (1/2π) (1 + 2 Σ_k e^{-k²t} cos kδ).

The terms decay like e^{-π²z²/t} and e^{-k²t}: the first series is better for small t, the second
for large t. With the crossing at t = 1.5, five images and four frequencies have relative truncation
errors below 1e-15 for every t > 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks, quadrature
from oism.process._brownian import Brownian
from oism.process._domain import FlatTorus, wrapped
from oism.process._isotropic import IsotropicTransition
from oism.process._measure import Uniform
from oism.storage import storable

CROSSING = 1.5
IMAGES = 2
FREQUENCIES = 4


def wrapped_log_density(delta: Tensor, t: Tensor) -> Tensor:
    """Return log ρ_t of one coordinate, for δ = y - x in [-π, π) and t > 0 that broadcast."""
    # Each series is evaluated at its own times only, so that gradients of both are finite.
    early, late = t.clamp(max=CROSSING), t.clamp(min=CROSSING)
    z = _leading(range(-IMAGES, IMAGES + 1), delta)
    exponents = -(delta + 2 * math.pi * z).square() / (4 * early)
    images = torch.logsumexp(exponents, dim=0) - 0.5 * torch.log(4 * math.pi * early)
    k = _leading(range(1, FREQUENCIES + 1), delta)
    waves = torch.exp(-k.square() * late) * torch.cos(k * delta)
    fourier = torch.log1p(2 * waves.sum(dim=0)) - math.log(2 * math.pi)
    return torch.where(t < CROSSING, images, fourier)


def _leading(terms: range, delta: Tensor) -> Tensor:
    """Return the indices of a series on an axis before those of ``delta``."""
    index = torch.arange(terms.start, terms.stop, device=delta.device, dtype=delta.dtype)
    return index.reshape(-1, *[1] * delta.ndim)


@dataclass(frozen=True, eq=False)
class WrappedTransition(IsotropicTransition):
    """N(x, 2t I) wrapped onto the torus; mean and covariance are those before wrapping."""

    def sample(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return x + √(2t) ε modulo 2π, in [-π, π)."""
        return wrapped(super().sample(x, generator=generator))

    def log_density(self, y: Tensor, x: Tensor) -> Tensor:
        """Return log ρ_t(y|x), summed over coordinates; points may be given modulo 2π."""
        variance = self._positive_variance(checks.like(y, checks.points(x)))
        delta = wrapped(y - x)
        return wrapped_log_density(delta, 0.5 * variance).flatten(1).sum(dim=1)

    def _rule(self, nodes: int) -> tuple[Tensor, Tensor]:
        """Return equally spaced points: on the line for small σ, otherwise on the circle."""
        if checks.holds(quadrature.REACH * self.sigma < math.pi):
            points, weights = quadrature.normal_trapezoid(nodes)
            return self.sigma * points.to(self.sigma), weights.to(self.sigma)
        points = quadrature.equispaced(nodes)[0].to(self.sigma)
        return points, torch.softmax(wrapped_log_density(points, 0.5 * self.variance), dim=0)


@storable
@dataclass(frozen=True)
class Torus(Brownian):
    """Brownian motion modulo 2π: L = Δ, π uniform, λ_ξ = -‖ξ‖² for integer ξ only.

    >>> Torus().wrap(torch.tensor([[3.5]]))
    tensor([[-2.7832]])
    """

    domain = FlatTorus()
    invariant = Uniform()

    def _transition(self, t: Tensor) -> WrappedTransition:
        return WrappedTransition(self._alpha(t), self._variance(t))
