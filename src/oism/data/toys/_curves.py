"""Noise around a curve c: X = c(S) + noise, where S = U^{1/k} for a uniform U.

So S has the density k s^{k-1} on [0, 1], and with q the density of the noise

    p(x) = ∫₀¹ k s^{k-1} q(x - c(s)) ds.

A Gauss rule of ``NODES`` points takes the integral. Along the curves they lie closer than half a
standard deviation of the noise; more of them change no log-density above -100 by 1e-9.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from oism.data.toys import _base as base

NODES = 500
ROWS = 2000  # points at a time, so that a table of points and nodes takes tens of megabytes


class NoisyCurve(base.SmoothDistribution):
    """A distribution around a curve, which declares c, ``power`` k, and its normal noise."""

    power: int = 1
    deviation: float

    @abstractmethod
    def path(self, s: Tensor) -> Tensor:
        """Return c at parameters ``(n,)`` in [0, 1]: ``(n, 2)``."""

    def _noise(self, n: int, generator: torch.Generator) -> Tensor:
        return self.deviation * base.normal(n, generator)

    def _log_noise(self, step: Tensor) -> Tensor:
        """Return log q."""
        return base.log_normal(step, self.deviation)

    def _draw(self, n: int, generator: torch.Generator) -> Tensor:
        s = base.uniform(n, generator) ** (1 / self.power)
        return self.path(s) + self._noise(n, generator)

    def _log_density(self, x: Tensor) -> Tensor:
        s, weights = base.gauss_legendre(NODES)
        path, log = self.path(s), (weights * self.power * s ** (self.power - 1)).log()
        sums = [
            (log + self._log_noise(rows[:, None] - path)).logsumexp(dim=1)
            for rows in torch.split(x, ROWS)
        ]
        return torch.cat(sums)


@dataclass(frozen=True)
class SwissRoll(NoisyCurve):
    """The spiral (t cos t, t sin t)/5 with t uniform on [3π/2, 9π/2], and noise of 0.2."""

    deviation: float = 0.2

    def _extent(self) -> tuple[float, float]:
        return 0.9 * math.pi, self.deviation

    def path(self, s: Tensor) -> Tensor:
        """Return the spiral from its inner end."""
        t = 1.5 * math.pi * (1 + 2 * s)
        return torch.stack([t * t.cos(), t * t.sin()], dim=-1) / 5


@dataclass(frozen=True)
class Moon(NoisyCurve):
    """The upper half of the circle of radius 2 around (-1, -0.2), and noise of 0.2."""

    deviation: float = 0.2

    def _extent(self) -> tuple[float, float]:
        return math.hypot(3.0, 0.2), self.deviation

    def path(self, s: Tensor) -> Tensor:
        """Return the half circle from the right to the left."""
        angle = math.pi * s
        return torch.stack([2 * angle.cos() - 1, 2 * angle.sin() - 0.2], dim=-1)


@dataclass(frozen=True)
class Spiral(NoisyCurve):
    """The spiral t(-cos t, sin t)/3 with t = 3π√U; noise uniform on [0, 1/6]², and normal of 0.1.

    In each coordinate the noise has the density (Φ(z/σ) - Φ((z - w)/σ))/w.
    """

    deviation: float = 0.1
    width: float = 1 / 6
    power = 2

    def _extent(self) -> tuple[float, float]:
        return math.pi + math.sqrt(2) * self.width, self.deviation

    def path(self, s: Tensor) -> Tensor:
        """Return the spiral from the origin."""
        t = 3 * math.pi * s
        return torch.stack([-t * t.cos(), t * t.sin()], dim=-1) / 3

    def _noise(self, n: int, generator: torch.Generator) -> Tensor:
        square = torch.rand(n, 2, generator=generator, dtype=torch.float64)
        return self.width * square + super()._noise(n, generator)

    def _log_noise(self, step: Tensor) -> Tensor:
        far = (step - self.width / 2).abs()
        # log q is -d²/2σ², d the distance from the square, up to a few units. Φ is slow: it
        # is left out where nearer nodes of the same point have e⁶⁰ times the weight.
        beyond = (far - self.width / 2).clamp_(min=0).square().sum(dim=-1)
        near = beyond < beyond.amin(dim=-1, keepdim=True) + 120 * self.deviation**2
        log = torch.full_like(beyond, -math.inf)
        log[near] = self._log_box(far[near]).sum(dim=-1)
        return log

    def _log_box(self, far: Tensor) -> Tensor:
        """Return the log-density of a coordinate of the noise at a distance from its middle."""
        # The density is even; left of the middle both values of Φ are small where their difference
        # is, and it keeps its digits.
        half = self.width / 2
        high: Tensor = torch.special.log_ndtr((half - far) / self.deviation)
        low = torch.special.log_ndtr((-half - far) / self.deviation)
        return high + torch.log1p(-torch.exp(low - high)) - math.log(self.width)


@dataclass(frozen=True)
class Reflected(base.SmoothDistribution):
    """A distribution p mixed with its reflection through a centre c: ½p(x) + ½p(2c - x)."""

    half: base.SmoothDistribution
    centre: tuple[float, float] = (0.0, 0.0)

    def _extent(self) -> tuple[float, float]:
        radius, deviation = self.half._extent()
        return radius + 2 * math.hypot(*self.centre), deviation

    def _middle(self) -> Tensor:
        return torch.tensor(self.centre, dtype=torch.float64)

    def _draw(self, n: int, generator: torch.Generator) -> Tensor:
        sign = base.choice((1, -1), n, generator)[:, None]
        return self._middle() + sign * (self.half._draw(n, generator) - self._middle())

    def _log_density(self, x: Tensor) -> Tensor:
        mirrored = 2 * self._middle() - x
        both = torch.stack([self.half._log_density(y) for y in (x, mirrored)])
        return both.logsumexp(dim=0) - math.log(2)
