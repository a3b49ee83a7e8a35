"""Mixtures of normal laws on the line, wrapped onto the circle, noised for a time t: all exact.

With weights p_j, means μ_j and deviations s_j, Brownian motion (variance 2t) turns N(μ_j, s_j²)
into N(μ_j, s_j² + 2t); wrapping sums over the images 2πz. So density, score and moments are known
at every t. The *Bart Simpson* density, a wide normal with five narrow claws, is the paper's
example.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

IMAGES = 4


@dataclass(frozen=True)
class WrappedMixture:
    """Σ p_j N(μ_j, s_j²), modulo 2π.

    >>> x = torch.linspace(-math.pi, math.pi, 1001, dtype=torch.float64)[:-1, None]
    >>> float(BART_SIMPSON.density(x, 0.01).mean() * 2 * math.pi)
    1.0
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        parts = (self.weights, self.means, self.deviations)
        return tuple(torch.tensor(part, dtype=torch.float64) for part in parts)  # type: ignore[return-value]

    def _terms(self, x: Tensor, t: float) -> tuple[Tensor, Tensor]:
        """Return the weighted densities of all components and images at x, and their scores."""
        weights, means, deviations = self._parts()
        shifts = 2 * math.pi * torch.arange(-IMAGES, IMAGES + 1, dtype=torch.float64)
        variance = deviations.square() + 2 * t
        step = x.double() + shifts[:, None, None] - means
        scale = weights / (2 * math.pi * variance).sqrt()
        return scale * torch.exp(-step.square() / (2 * variance)), -step / variance

    def density(self, x: Tensor, t: float) -> Tensor:
        """Return ρ_t at points ``(n, 1)``: ``(n,)``."""
        return self._terms(x, t)[0].sum(dim=(0, 2))

    def score(self, x: Tensor, t: float) -> Tensor:
        """Return ∇ log ρ_t at points ``(n, 1)``: ``(n, 1)``."""
        terms, scores = self._terms(x, t)
        return ((terms * scores).sum(dim=(0, 2)) / terms.sum(dim=(0, 2)))[:, None]

    def characteristic(self, frequencies: Tensor) -> Tensor:
        """Return E[e^{-iξx}] for integer frequencies ``(m, 1)``: ``(m,)``, complex128."""
        weights, means, deviations = self._parts()
        exponent = torch.complex(-0.5 * (frequencies * deviations).square(), -frequencies * means)
        return (weights * exponent.exp()).sum(dim=1)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n points ``(n, 1)``, float64, wrapped into [-π, π)."""
        weights, means, deviations = self._parts()
        which = torch.multinomial(weights, n, replacement=True, generator=generator)
        noise = torch.randn(n, generator=generator, dtype=torch.float64)
        line = means[which] + deviations[which] * noise
        return torch.remainder(line + math.pi, 2 * math.pi)[:, None] - math.pi


BART_SIMPSON = WrappedMixture(
    weights=(0.5, 0.1, 0.1, 0.1, 0.1, 0.1),
    means=(0.0, -1.0, -0.5, 0.0, 0.5, 1.0),
    deviations=(1.0, 0.1, 0.1, 0.1, 0.1, 0.1),
)
