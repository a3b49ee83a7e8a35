"""The background: a Student distribution of small weight that keeps every log-density finite.

A density that was fitted in a box is zero outside of it, and one test point there makes a
likelihood infinite. So a background component has a small part of the mass: 1/(n + 1), and the
share of the rows outside of the box. On the k free columns it is a multivariate Student
distribution with ν = 3 degrees of freedom, the data's mean m and four times their covariance S, so
with the scale matrix Σ = 4S (ν - 2)/ν:

    log p(x) = -½ (ν + k) log(1 + δ/ν) - ½ log|Σ| + log Γ(½(ν + k)) - log Γ(½ν) - ½ k log(νπ),
    δ = (x - m)ᵀ Σ⁻¹ (x - m).

The tails are powers: new rows of a distribution with heavy tails lie far outside of the box, and a
Gaussian would have them at -δ/2 nats, tens of thousands. Marginals are of the same form. Given c
columns, at the distance δ₂ in these, the others are Student with ν + c degrees of freedom, the
conditional mean of a Gaussian, and as scale matrix (ν + δ₂)/(ν + c) times its conditional
covariance for Σ.

On periodic and bounded columns the background is uniform. On a column with one bound b it is the
distribution of b ± |z|, with z Student and E z² = 4 E(x - b)², independent of the others. The
background is twice as wide as the data, because rows outside of the box are unlike most of them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from oism._core import checks, draws
from oism.storage import storable
from oism.tables._tensors import check_tensor

WIDENING = 2.0
"""The standard deviations of the background, in those of the data."""

LEAST_SHARE = 1 / 16
"""The least standard deviation of a column, as a fraction of the width of its box."""

FAR = 1e150
"""Distances are cut off here, so that their squares stay finite."""

LEAST_SQUARE = 1e-300
"""The least sum of squared weights; the largest is its inverse."""

DEGREES = 3.0
"""The degrees of freedom: the smallest integer for which the covariance is finite."""


def effective_count(weight: float, weight_squared: float) -> float:
    """Return the effective number of rows: Σw, or (Σw)²/Σw² where that is more.

    Raises where the squares leave the range of floating-point numbers.
    """
    if not LEAST_SQUARE <= weight_squared <= 1 / LEAST_SQUARE:
        raise ValueError(
            f"sample_weight must have a sum of squares between {LEAST_SQUARE:g} and "
            f"{1 / LEAST_SQUARE:g}, got {weight_squared:g} for weights with the sum {weight:g}: "
            "divide the weights by their mean"
        )
    return max(weight, weight**2 / weight_squared)


class Spread:
    """Weighted mean and covariance, batch by batch, about a fixed point near the data."""

    def __init__(self, origin: Tensor) -> None:
        self.origin = origin
        self.weight = 0.0
        self.weight_squared = 0.0
        self._first = torch.zeros_like(origin)
        self._second = origin.new_zeros(len(origin), len(origin))

    def update(self, x: Tensor, weights: Tensor) -> None:
        """Add rows ``(n, d)``."""
        centred = x - self.origin
        self.weight += float(weights.sum())
        self.weight_squared += float(weights.square().sum())
        self._first += weights @ centred
        self._second += (weights[:, None] * centred).mT @ centred

    def merge(self, other: Self) -> Self:
        """Return the spread of the rows of both, which have the same origin."""
        if not torch.equal(self.origin, other.origin):
            raise ValueError("other must have the origin of this spread")
        result = copy.copy(self)
        result.weight += other.weight
        result.weight_squared += other.weight_squared
        result._first = self._first + other._first
        result._second = self._second + other._second
        return result

    @property
    def count(self) -> float:
        """The effective number of rows."""
        return effective_count(self.weight, self.weight_squared)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.origin + self._first / self.weight

    @property
    def covariance(self) -> Tensor:
        """The covariance."""
        mean = self._first / self.weight
        return self._second / self.weight - torch.outer(mean, mean)


@storable
@dataclass(frozen=True, eq=False)
class Background:
    """With probability ``share``: a Student distribution on ``free`` columns, uniform on others.

    ``free`` ``(d,)`` is boolean; ``mean`` ``(k,)`` and ``factor`` ``(k, k)`` belong to the k free
    columns, and Σ = factor factorᵀ. ``low`` and ``width``, ``(d,)``, are the ranges of the columns
    that are not free. Where ``opening`` is 1 or -1, a column has only a lower or an upper bound,
    which is ``low``; then ``width`` is the scale of z. None is 0 for all columns. ``degrees`` are
    the degrees of freedom; with infinitely many, as in models that were saved by earlier versions,
    the distribution is Gaussian.
    """

    share: float
    free: Tensor
    mean: Tensor
    factor: Tensor
    low: Tensor
    width: Tensor
    opening: Tensor = None  # type: ignore[assignment]  # a tensor, once checked
    degrees: float = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share must be in (0, 1), got {self.share!r}")
        if not self.degrees > 0:
            raise ValueError(f"degrees must be positive, got {self.degrees!r}")
        dim, count = len(self.free), int(self.free.sum())
        check_tensor(self.free, "free", (dim,), torch.bool)
        for name, shape in (
            ("mean", (count,)),
            ("factor", (count, count)),
            ("low", (dim,)),
            ("width", (dim,)),
        ):
            check_tensor(getattr(self, name), name, shape)
        if self.opening is None:
            checks.assign(self, opening=torch.zeros_like(self.low))
        check_tensor(self.opening, "opening", (dim,))

    @classmethod
    def of(
        cls,
        spread: Spread,
        free: Tensor,
        low: Tensor,
        width: Tensor,
        *,
        opening: Tensor | None = None,
        outside: float = 0.0,
    ) -> Background:
        """Return the background for data of this spread, over ranges that a chart has.

        Its share is (1 + m)/(n + 1) where m of the n rows, by weight, lie outside of the box.
        """
        opening = torch.zeros_like(low) if opening is None else opening
        low = torch.where(opening < 0, low + width, low)  # the bound
        second = spread.covariance.diagonal() + (spread.mean - low).square()
        second = torch.where(second > 0, second, width.square())
        scale = math.sqrt((DEGREES - 2) / DEGREES)  # of a standard deviation of 1
        width = torch.where(opening == 0, width, scale * WIDENING * second.sqrt())
        index = free.nonzero()[:, 0]
        covariance = WIDENING**2 * spread.covariance[index[:, None], index]
        mean = spread.mean[index]
        # Columns that are constant, or sums of others, have no density of their own.
        # The former have a box nevertheless, and beyond it a density that is finite.
        size, box = covariance.diagonal(), (LEAST_SHARE * width[index]).square()
        box = torch.where((size > 0) | (box > 0), box, 1.0)
        covariance = covariance + torch.diag(torch.maximum(1e-6 * size, box - size))
        share = (1 + outside / spread.weight * spread.count) / (spread.count + 1)
        factor = scale * torch.linalg.cholesky(covariance)
        return cls(share, free, mean, factor, low, width, opening, DEGREES)

    def marginal(self, columns: Sequence[int]) -> Background:
        """Return the background of some columns alone, in the order given."""
        index = list(columns)
        place = (self.free.long().cumsum(dim=0) - 1)[index][self.free[index]]
        covariance = (self.factor @ self.factor.mT)[place[:, None], place]
        return Background(
            self.share,
            self.free[index],
            self.mean[place],
            torch.linalg.cholesky(covariance),
            self.low[index],
            self.width[index],
            self.opening[index],
            self.degrees,
        )

    @property
    def _half(self) -> Tensor:
        """Which columns have one bound: ``(d,)``."""
        return self.opening != 0

    def log_density(self, x: Tensor) -> Tensor:
        """Return the log-density at rows ``(n, d)`` that are within their bounds."""
        gap = (x[:, self.free] - self.mean).clamp(-FAR, FAR)
        z = torch.linalg.solve_triangular(self.factor, gap.mT, upper=False).clamp(-FAR, FAR)
        volume = float(self.factor.diagonal().log().sum() + self.width[~self.free].log().sum())
        result: Tensor = self._log_standard(z.square().sum(dim=0), len(z)) - volume
        half = self._half
        far = ((x[:, half] - self.low[half]) / self.width[half]).clamp(-FAR, FAR)
        return result + (self._log_standard(far.square(), 1) + math.log(2)).sum(dim=1)

    def _log_standard(self, square: Tensor, dim: int) -> Tensor:
        """Return the log-density of the standard distribution at squared distances from 0."""
        degrees = self.degrees
        if math.isinf(degrees):
            return -0.5 * square - 0.5 * dim * math.log(2 * math.pi)
        total = 0.5 * (degrees + dim)
        normaliser = 0.5 * dim * math.log(degrees * math.pi) + math.lgamma(0.5 * degrees)
        return math.lgamma(total) - normaliser - total * (square / degrees).log1p()

    def _scales(self, n: int, degrees: float, generator: torch.Generator | None) -> Tensor:
        """Return n factors that make standard normal numbers Student ones: √(ν/χ²), ``(n, 1)``."""
        half = torch.full((n, 1), 0.5 * degrees, dtype=torch.float64)
        return (half / draws.gamma(half, generator)).sqrt()

    def sample(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Return n rows."""
        return self.sample_given({}, n, generator)

    def _given(self, given: Mapping[int, float]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return which free columns are given, the covariance of all, its factor for these, and z.

        Here z = part⁻¹ (x - m) in the given columns, whose squared norm is δ₂.
        """
        index = self.free.nonzero()[:, 0].tolist()
        known = torch.tensor([column in given for column in index], dtype=torch.bool)
        values = torch.tensor([given[c] for c in index if c in given], dtype=torch.float64)
        covariance = self.factor @ self.factor.mT
        part = torch.linalg.cholesky(covariance[known][:, known])
        gap = (values - self.mean[known]).clamp(-FAR, FAR)[:, None]
        z = torch.linalg.solve_triangular(part, gap, upper=False).clamp(-FAR, FAR)
        return known, covariance, part, z

    def log_marginal(self, given: Mapping[int, float]) -> float:
        """Return the log-density of some columns alone."""
        _, _, part, z = self._given(given)
        widths = [float(self.width[c]) for c in given if not bool(self.free[c])]
        half = [
            (value - float(self.low[c])) / float(self.width[c])
            for c, value in given.items()
            if bool(self._half[c])
        ]
        far = torch.tensor(half, dtype=torch.float64).clamp(-FAR, FAR)
        return float(
            self._log_standard(z.square().sum(), len(z))
            - part.diagonal().log().sum()
            - sum(math.log(width) for width in widths)
            + (self._log_standard(far.square(), 1) + math.log(2)).sum()
        )

    def sample_given(
        self, given: Mapping[int, float], n: int, generator: torch.Generator | None
    ) -> Tensor:
        """Return n rows with some columns at given values."""
        fixed, covariance, part, z = self._given(given)
        open_ = ~fixed
        kind = torch.float64
        across = torch.linalg.solve_triangular(part, covariance[fixed][:, open_], upper=False)
        centre = self.mean[open_] + (across.mT @ z)[:, 0]
        rest = covariance[open_][:, open_] - across.mT @ across
        rest = rest + torch.diag(1e-12 * covariance.diagonal()[open_])
        noise = draws.normal((n, int(open_.sum())), generator, dtype=kind)
        if bool(open_.any()) and not math.isinf(self.degrees):
            degrees = self.degrees + len(z)
            wider = math.sqrt((self.degrees + float(z.square().sum())) / degrees)
            noise = wider * self._scales(n, degrees, generator) * noise
        uniform = draws.uniform((n, len(self.free)), generator, dtype=kind)
        x = self.low + self.width * uniform
        half = self._half
        if bool(half.any()):
            count = int(half.sum())
            far = draws.normal((n, count), generator, dtype=kind)
            if not math.isinf(self.degrees):
                far = far * self._scales(n * count, self.degrees, generator).reshape(n, count)
            x[:, half] = self.low[half] + self.opening[half] * self.width[half] * far.abs()
        index = self.free.nonzero()[:, 0]
        x[:, index[open_]] = centre + noise @ torch.linalg.cholesky(rest).mT
        for column, value in given.items():
            x[:, column] = value
        return x
