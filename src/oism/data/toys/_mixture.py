"""Mixtures of normal distributions, wrapped onto the circle and noised for a time t: all exact.

With weights p_j, means μ_j and deviations s_j, Brownian motion (variance 2t) turns N(μ_j, s_j²)
into N(μ_j, s_j² + 2t); wrapping sums over the images 2πz. So density, score and moments are known
at every t. For large t the Fourier series of the same density is the shorter sum,

    ρ_t(x) = (1/2π) (1 + 2 Σ_k Re c_k e^{ikx}),   c_k = E[e^{-ikX_t}] = e^{-k²t} E[e^{-ikX_0}].

The *Bart Simpson* density, a wide normal with five narrow claws, is the paper's example.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks

CROSSING = 1.5
IMAGES = 4
"""For t below the crossing: of a deviation of 2 the fourth image is twelve deviations away."""
FREQUENCIES = 5
"""For t above it: what follows is below e^{-36t}."""


@dataclass(frozen=True)
class WrappedMixture:
    """Σ p_j N(μ_j, s_j²), modulo 2π, for deviations of at most one.

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

    def _density_and_slope(self, x: Tensor, t: float) -> tuple[Tensor, Tensor]:
        """Return ρ_t and its derivative."""
        x = checks.points(x, dim=1).double()
        return self._images(x, t) if t < CROSSING else self._waves(x, t)

    def _images(self, x: Tensor, t: float) -> tuple[Tensor, Tensor]:
        weights, means, deviations = self._parts()
        shifts = 2 * math.pi * torch.arange(-IMAGES, IMAGES + 1, dtype=torch.float64)
        variance = deviations.square() + 2 * t
        step = x + shifts[:, None, None] - means
        scale = weights / (2 * math.pi * variance).sqrt()
        terms = scale * torch.exp(-step.square() / (2 * variance))
        return terms.sum(dim=(0, 2)), (-terms * step / variance).sum(dim=(0, 2))

    def _waves(self, x: Tensor, t: float) -> tuple[Tensor, Tensor]:
        k = torch.arange(1, FREQUENCIES + 1, dtype=torch.float64)
        waves = self.characteristic(k[:, None], t) * torch.exp(1j * x * k) / math.pi
        return 0.5 / math.pi + waves.real.sum(dim=1), (1j * k * waves).real.sum(dim=1)

    def density(self, x: Tensor, t: float) -> Tensor:
        """Return ρ_t at points ``(n, 1)``: ``(n,)``."""
        return self._density_and_slope(x, t)[0]

    def score(self, x: Tensor, t: float) -> Tensor:
        """Return ∇ log ρ_t at points ``(n, 1)``: ``(n, 1)``."""
        density, slope = self._density_and_slope(x, t)
        return (slope / density)[:, None]

    def characteristic(self, frequencies: Tensor, t: float = 0.0) -> Tensor:
        """Return E[e^{-iξX_t}] for integer frequencies ``(m, 1)``: ``(m,)``, complex128."""
        weights, means, deviations = self._parts()
        decay = frequencies.square() * (0.5 * deviations.square() + t)
        exponent = torch.complex(-decay, -frequencies * means)
        return (weights * exponent.exp()).sum(dim=1)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n points ``(n, 1)``, float64, wrapped into [-π, π)."""
        checks.instance(generator, torch.Generator, "generator")
        n = checks.integer(n, "n", minimum=0)
        weights, means, deviations = self._parts()
        uniform = torch.rand(n, generator=generator, dtype=torch.float64)
        which = torch.searchsorted(weights.cumsum(dim=0)[:-1], uniform, right=True)
        noise = torch.randn(n, generator=generator, dtype=torch.float64)
        line = means[which] + deviations[which] * noise
        return torch.remainder(line + math.pi, 2 * math.pi)[:, None] - math.pi


BART_SIMPSON = WrappedMixture(
    weights=(0.5, 0.1, 0.1, 0.1, 0.1, 0.1),
    means=(0.0, -1.0, -0.5, 0.0, 0.5, 1.0),
    deviations=(1.0, 0.1, 0.1, 0.1, 0.1, 0.1),
)
"""The paper's example: a wide normal and five narrow ones, on the circle."""
