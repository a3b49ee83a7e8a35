"""Circles, normal clusters and uniform cells: mixtures whose density is a finite sum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism.data.toys import _base as base

RADIAL_NODES = 1000


@dataclass(frozen=True)
class Circles(base.SmoothDistribution):
    """Normal noise around circles, all equally likely: X = R(cos θ, sin θ) + N(0, σ² I).

    p(x) is the mean over R of exp(-(‖x‖ - R)²/2σ²) I(R‖x‖/σ²)/2πσ², where I(z) = e^{-z} I₀(z).
    """

    radii: tuple[float, ...]
    deviation: float

    def _extent(self) -> tuple[float, float]:
        return max(self.radii), self.deviation

    def _draw(self, n: int, generator: torch.Generator) -> Tensor:
        angle = 2 * math.pi * base.uniform(n, generator)
        circle = torch.stack([angle.cos(), angle.sin()], dim=1)
        radius = base.choice(self.radii, n, generator)[:, None]
        return radius * circle + self.deviation * base.normal(n, generator)

    def _log_density(self, x: Tensor) -> Tensor:
        radii, variance = torch.tensor(self.radii, dtype=torch.float64), self.deviation**2
        r = x.norm(dim=1, keepdim=True)
        bessel: Tensor = torch.special.i0e(r * radii / variance)
        terms = bessel.log() - (r - radii).square() / (2 * variance)
        total: Tensor = terms.logsumexp(dim=1)
        return total - math.log(2 * math.pi * variance * len(radii))

    def entropy(self) -> float:
        """Return -2π ∫ r p log p dr by a Gauss rule."""
        s, weights = base.gauss_legendre(RADIAL_NODES)
        radius, deviation = self._extent()
        end = radius + base.REACH * deviation
        log = self._log_density(torch.stack([end * s, torch.zeros_like(s)], dim=1))
        return -2 * math.pi * end**2 * float((weights * s * log.exp()) @ log)


@dataclass(frozen=True)
class Normals(base.SmoothDistribution):
    """A mixture of N(c, σ² I) with centres c, all equally likely."""

    centres: tuple[tuple[float, float], ...]
    deviation: float

    def _extent(self) -> tuple[float, float]:
        return max(math.hypot(*centre) for centre in self.centres), self.deviation

    def _draw(self, n: int, generator: torch.Generator) -> Tensor:
        return base.choice(self.centres, n, generator) + self.deviation * base.normal(n, generator)

    def _log_density(self, x: Tensor) -> Tensor:
        step = x[:, None] - torch.tensor(self.centres, dtype=torch.float64)
        return base.log_normal(step, self.deviation).logsumexp(dim=1) - math.log(len(self.centres))


def ring_of_normals(count: int, *, radius: float, deviation: float) -> Normals:
    """Return normal distributions around ``count`` centres, equally spaced on a circle."""
    angles = [2 * math.pi * i / count for i in range(count)]
    return Normals(tuple((radius * math.cos(a), radius * math.sin(a)) for a in angles), deviation)


@dataclass(frozen=True)
class Checkerboard(base.PlaneDistribution):
    """Uniform on the black cells of a board of 4 × 4 cells, with sides of 2, around the origin."""

    def _draw(self, n: int, generator: torch.Generator) -> Tensor:
        across = 4 * base.uniform(n, generator) - 2
        up = base.uniform(n, generator) + base.choice((0, -2), n, generator) + across.floor() % 2
        return 2 * torch.stack([across, up], dim=1)

    def _log_density(self, x: Tensor) -> Tensor:
        cell = (x / 2).floor()
        black = (cell.sum(dim=1) % 2 == 0) & (cell >= -2).all(dim=1) & (cell < 2).all(dim=1)
        return torch.full_like(x[:, 0], -math.inf).masked_fill_(black, -self.entropy())

    def entropy(self) -> float:
        """Return the logarithm of the area, 32."""
        return math.log(32)
