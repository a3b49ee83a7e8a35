"""Charts: between the units of the data and the coordinates in which a process lives.

A chart is an affine map u = A(x - c), with wrapping or reflection where the process lives on the
torus. Densities change by its Jacobian, log p(x) = log ρ(u) + log|det A|, and scores by the chain
rule, ∇_x log p = Aᵀ ∇_u log ρ.

`BoxChart` leads to the torus [-π, π)^d, column by column. A *periodic* column goes once round. A
*bounded* column goes half round, from 0 to π, and the law on the torus is the even one, so that
nothing leaks through the bounds; its density is 2 times that on the half. A *free* column, without
known bounds, is scaled so that the range of the data fills the box but for a margin: what is near
one end of it must not be near the other by wrapping.

`WhiteChart` leads to ℝ^d with mean zero and unit variances: in the columns themselves, or along the
principal directions of the columns in units of their deviations.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from oism.process import wrapped

FAR = 100.0

CONSTANT = 1e-13
"""A deviation below this share of the mean is rounding."""

RANK = 1e-6
"""Deviations below this share of the columns' count as this share: flat data have no density."""


class Chart(ABC):
    """A map from the data's units to the process's coordinates, and back; all in float64."""

    @property
    @abstractmethod
    def log_jacobian(self) -> float:
        """The logarithm of the volume of u per volume of x."""

    @property
    @abstractmethod
    def units(self) -> Tensor:
        """The length of one unit of the process along each column, in data units: ``(d,)``."""

    @abstractmethod
    def to(self, x: Tensor) -> Tensor:
        """Return u for data ``(n, d)``."""

    @abstractmethod
    def back(self, u: Tensor) -> Tensor:
        """Return x for points of the process."""

    @abstractmethod
    def pull_score(self, score: Tensor) -> Tensor:
        """Return the score in the data's units."""

    @abstractmethod
    def covers(self, x: Tensor) -> Tensor:
        """Tell which rows lie where the chart maps one to one: ``(n,)``."""

    def allows(self, x: Tensor) -> Tensor:
        """Tell which rows are possible at all: ``(n,)``."""
        return torch.ones(len(x), dtype=torch.bool)


@dataclass(frozen=True, eq=False)
class BoxChart(Chart):
    """u = scale · (x - centre) modulo 2π, column by column.

    ``periodic`` and ``bounded`` are boolean, ``(d,)``; the other columns are free. ``start`` is
    where the range of a periodic column begins when it is given back.
    """

    centre: Tensor
    scale: Tensor
    start: Tensor
    periodic: Tensor
    bounded: Tensor

    @property
    def free(self) -> Tensor:
        """The columns that are neither periodic nor bounded."""
        return ~(self.periodic | self.bounded)

    @property
    def log_jacobian(self) -> float:
        """Σ log scale, and log 2 for every reflected column."""
        return float(self.scale.log().sum()) + math.log(2) * int(self.bounded.sum())

    @property
    def units(self) -> Tensor:
        """1/scale."""
        return 1 / self.scale

    def to(self, x: Tensor) -> Tensor:
        """Return the point on the torus."""
        return wrapped((x - self.centre) * self.scale)

    def back(self, u: Tensor) -> Tensor:
        """Return the representative in the range of the data."""
        x = self.centre + torch.where(self.bounded, u.abs(), u) / self.scale
        period = 2 * math.pi / self.scale
        inside = self.start + (x - self.start).remainder(period)
        inside = torch.where(inside < self.start + period, inside, self.start)  # rounded up
        return torch.where(self.periodic, inside, x)

    def pull_score(self, score: Tensor) -> Tensor:
        """Return scale · score."""
        return self.scale * score

    def covers(self, x: Tensor) -> Tensor:
        """Tell whether free columns are in the box, and bounded ones within their bounds."""
        u = (x - self.centre) * self.scale
        inside = (u >= -math.pi) & (u < math.pi)
        return (inside | ~self.free).all(dim=1) & self.allows(x)

    def allows(self, x: Tensor) -> Tensor:
        """Tell whether bounded columns are within their bounds, which may have rounded."""
        u = (x - self.centre) * self.scale
        inside = (u >= -1e-12) & (u <= math.pi + 1e-12)
        return (inside | ~self.bounded).all(dim=1)


@dataclass(frozen=True, eq=False)
class WhiteChart(Chart):
    """u = matrix (x - centre), with the inverse of the matrix."""

    centre: Tensor
    matrix: Tensor
    inverse: Tensor

    @classmethod
    def of(cls, mean: Tensor, covariance: Tensor, *, rotate: bool) -> WhiteChart:
        """Return the chart that gives data of these moments mean 0 and unit variances.

        >>> mean, covariance = torch.zeros(2), torch.tensor([[4.0, 0.0], [0.0, 9.0]])
        >>> WhiteChart.of(mean, covariance, rotate=False).to(torch.tensor([[2.0, 3.0]]))
        tensor([[1., 1.]], dtype=torch.float64)
        """
        mean, covariance = mean.double(), covariance.double()
        # Columns first, each in its own unit; a constant one has the scale of its value, or 1.
        unit = covariance.diagonal().clamp(min=0).sqrt()
        constant = unit <= CONSTANT * mean.abs()
        unit = torch.where(constant, torch.where(mean != 0, mean.abs(), 1.0), unit)
        matrix, inverse = torch.diag(1 / unit), torch.diag(unit)
        if rotate:
            variances, vectors = torch.linalg.eigh(covariance / torch.outer(unit, unit))
            # A direction counts with either sign: the first of its large entries is positive.
            large = vectors.abs() >= 0.5 * vectors.abs().amax(dim=0)
            first = vectors.gather(0, large.int().argmax(dim=0, keepdim=True))
            directions = (vectors * first.sign()).mT
            deviations = variances.clamp(min=0).sqrt().clamp(min=RANK)
            matrix = directions / deviations[:, None] / unit
            inverse = unit[:, None] * directions.mT * deviations
        # Laid out as they are read from a file: products must agree to the last bit.
        return cls(mean.double(), matrix.contiguous(), inverse.contiguous())

    def scaled(self, factor: float) -> WhiteChart:
        """Return the chart to deviations of ``factor`` instead of 1."""
        return WhiteChart(self.centre, factor * self.matrix, self.inverse / factor)

    @property
    def log_jacobian(self) -> float:
        """log|det matrix|."""
        return float(torch.linalg.slogdet(self.matrix)[1])

    @property
    def units(self) -> Tensor:
        """The deviations that unit noise in all directions has along the columns."""
        lengths: Tensor = self.inverse.norm(dim=1)
        return lengths

    def to(self, x: Tensor) -> Tensor:
        """Return the whitened point."""
        return (x - self.centre) @ self.matrix.mT

    def back(self, u: Tensor) -> Tensor:
        """Return the point in the data's units."""
        return u @ self.inverse.mT + self.centre

    def pull_score(self, score: Tensor) -> Tensor:
        """Return matrixᵀ score."""
        return score @ self.matrix

    def covers(self, x: Tensor) -> Tensor:
        """Tell whether a row is within 100 deviations; beyond, a density like a Gaussian's is 0."""
        return (self.to(x).abs() <= FAR).all(dim=1)
