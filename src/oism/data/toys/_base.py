"""The contract of a distribution on the plane, and draws and sums that several of them use."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache

import scipy.special
import torch
from torch import Tensor

from oism._core import checks

REACH = 8.0  # standard deviations, beyond which a normal distribution has less than 2e-15


def uniform(n: int, generator: torch.Generator) -> Tensor:
    """Draw n numbers from [0, 1): ``(n,)``, float64."""
    return torch.rand(n, generator=generator, dtype=torch.float64)


def normal(n: int, generator: torch.Generator) -> Tensor:
    """Draw n points from N(0, I): ``(n, 2)``, float64."""
    return torch.randn(n, 2, generator=generator, dtype=torch.float64)


def choice(values: Sequence[object], n: int, generator: torch.Generator) -> Tensor:
    """Draw n of the values, all equally likely: ``(n, ...)``, float64."""
    which = torch.randint(len(values), (n,), generator=generator)
    return torch.tensor(values, dtype=torch.float64)[which]


def log_normal(step: Tensor, deviation: float) -> Tensor:
    """Return the log-density of N(0, deviation² I) at steps ``(..., 2)``."""
    exponent = step.square().sum(dim=-1) / (-2 * deviation**2)
    return exponent - math.log(2 * math.pi * deviation**2)


@cache
def gauss_legendre(nodes: int) -> tuple[Tensor, Tensor]:
    """Return the Gauss rule of the uniform distribution on [0, 1]: points and weights."""
    points, weights = scipy.special.roots_legendre(nodes)
    return torch.from_numpy((points + 1) / 2), torch.from_numpy(weights / 2)


class PlaneDistribution(ABC):
    """A distribution on the plane with a sampler and an exact density."""

    @abstractmethod
    def _draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n points."""

    @abstractmethod
    def _log_density(self, x: Tensor) -> Tensor:
        """Return log p at checked points."""

    @abstractmethod
    def entropy(self) -> float:
        """Return -E log p in nats."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n independent points ``(n, 2)``, float64."""
        checks.instance(generator, torch.Generator, "generator")
        return self._draw(checks.integer(n, "n", minimum=0), generator)

    def log_density(self, x: Tensor) -> Tensor:
        """Return log p at points ``(n, 2)``: ``(n,)``, float64."""
        return self._log_density(checks.points(x, dim=2).double())


class SmoothDistribution(PlaneDistribution):
    """A distribution with normal noise of variance σ², so that a grid integrates its density.

    Points at a distance of h integrate a normal density up to 2exp(-2π²σ²/h²): 2e-34 for h = σ/2.
    The logarithm in p log p costs most of these digits where clusters meet and leaves 1e-7.
    """

    @abstractmethod
    def _extent(self) -> tuple[float, float]:
        """Return the largest distance from the origin without the noise, and σ."""

    def entropy(self) -> float:
        """Return -∫ p log p over a grid."""
        radius, deviation = self._extent()
        step = deviation / 2
        cells = math.ceil((radius + REACH * deviation) / step)
        axis = step * torch.arange(-cells, cells + 1, dtype=torch.float64)
        log = self._log_density(torch.cartesian_prod(axis, axis))
        return -float(log.exp() @ log) * step**2
