"""Invariant measures π of the processes.

A process converges to its invariant measure if that is a probability: the Gaussian of the
Ornstein-Uhlenbeck process, the uniform distribution on the torus. Brownian motion leaves Lebesgue
measure invariant, which has infinite mass: it has no normalised density and no sampler, and these
methods raise an error. The *score* ∇ log π exists for every measure; generators and flows need only
the score.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from oism._core import checks, draws, quadrature
from oism._core.transforms import divergence


class NotAProbabilityError(ValueError):
    """Raised by methods of an infinite measure that are defined for probabilities only."""


class Measure(ABC):
    """An invariant measure on points of any shape, the same in every dimension."""

    is_probability: bool = True

    @abstractmethod
    def score(self, x: Tensor) -> Tensor:
        """Return ∇ log π(x), of the shape of ``x``."""

    def score_divergence(self, x: Tensor) -> Tensor:
        """Return ∇·∇ log π(x), ``(n,)``; by default by differentiation."""
        return divergence(self.score, x)

    @abstractmethod
    def log_density(self, x: Tensor) -> Tensor:
        """Return log π(x) for each point of a batch ``(n, *shape)``: ``(n,)``."""

    @abstractmethod
    def _fill(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return samples of the shape, dtype and device of ``x``; may overwrite it."""

    def sample(
        self,
        shape: Sequence[int],
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Return independent samples; ``shape`` is that of the whole batch, ``(n, *shape)``."""
        size, kind = checks.shape(shape), checks.dtype(dtype or torch.get_default_dtype())

        def fill(x: Tensor) -> Tensor:
            return self._fill(x, generator)

        return draws.filled(fill, size, generator, dtype=kind, device=device)

    @abstractmethod
    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return points ``(m, dim)`` and weights ``(m,)`` of a rule, ``nodes`` per dimension."""


@dataclass(frozen=True)
class Gaussian(Measure):
    """N(0, variance · I).

    >>> Gaussian(variance=1.0).log_density(torch.zeros(1, 2, dtype=torch.float64))
    tensor([-1.8379], dtype=torch.float64)
    """

    variance: float

    def __post_init__(self) -> None:
        checks.assign(self, variance=checks.positive(self.variance, "variance"))

    def score(self, x: Tensor) -> Tensor:
        """Return -x / variance."""
        return -checks.points(x) / self.variance

    def log_density(self, x: Tensor) -> Tensor:
        """Return -‖x‖² / 2v - (d/2) log 2πv."""
        flat = checks.points(x).flatten(1)
        normaliser = 0.5 * flat.shape[1] * math.log(2 * math.pi * self.variance)
        return -flat.square().sum(dim=1) / (2 * self.variance) - normaliser

    def _fill(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        return x.normal_(std=math.sqrt(self.variance), generator=generator)

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return the product Gauss-Hermite rule: exact for degree ≤ 2 nodes - 1 per coordinate."""
        points, weights = quadrature.gauss_hermite(nodes)
        return quadrature.product(math.sqrt(self.variance) * points, weights, dim)


@dataclass(frozen=True)
class Uniform(Measure):
    """The uniform distribution on the torus [-π, π)^d."""

    def score(self, x: Tensor) -> Tensor:
        """Return zero."""
        return torch.zeros_like(checks.points(x))

    def log_density(self, x: Tensor) -> Tensor:
        """Return -d log 2π; points may be given modulo 2π."""
        flat = checks.points(x).flatten(1)
        return flat.new_full((len(flat),), -flat.shape[1] * math.log(2 * math.pi))

    def _fill(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        # u < 1 gives 2u - 1 < 1 and never π itself, which uniform_(-π, π) may round to.
        return math.pi * (2 * x.uniform_(generator=generator) - 1)

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return the product trapezoidal rule: exact for frequencies below ``nodes``."""
        return quadrature.product(*quadrature.equispaced(nodes), dim)


@dataclass(frozen=True)
class Lebesgue(Measure):
    """Lebesgue measure on ℝ^d: invariant under Brownian motion, not a probability.

    >>> Lebesgue().sample((1, 2))
    Traceback (most recent call last):
        ...
    oism.process._measure.NotAProbabilityError: Lebesgue measure has infinite mass, ...
    """

    is_probability = False

    def score(self, x: Tensor) -> Tensor:
        """Return zero: the density is constant."""
        return torch.zeros_like(checks.points(x))

    def log_density(self, x: Tensor) -> NoReturn:
        """Raise: a constant density on ℝ^d cannot be normalised."""
        self._refuse("normalised density")

    def _fill(self, x: Tensor, generator: torch.Generator | None) -> NoReturn:
        self._refuse("sampler")

    def quadrature(self, dim: int, nodes: int) -> NoReturn:
        """Raise: there is no finite rule for an infinite measure."""
        self._refuse("quadrature rule")

    @staticmethod
    def _refuse(what: str) -> NoReturn:
        raise NotAProbabilityError(
            "Lebesgue measure has infinite mass, so Brownian motion has no invariant distribution "
            f"and no {what}: Torus and OrnsteinUhlenbeck have"
        )
