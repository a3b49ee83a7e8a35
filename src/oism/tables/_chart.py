"""Charts: maps from the units of the data to the coordinates of a process.

A chart is an affine map u = A(x - c), followed by wrapping where the process lives on the torus.
Densities change by its Jacobian, log p(x) = log ρ(u) + log|det A|, and scores by the chain rule,
∇_x log p = Aᵀ ∇_u log ρ.

`BoxChart` maps to the torus [-π, π)^d, column by column. A *periodic* column becomes one full turn.
A *bounded* column becomes half a turn, from 0 to π, and the distribution on the torus is even, so
that nothing crosses the bounds; its density is 2 times that on the half. Where only one end is
declared, that end is at 0, and the other one, at π or -π, is where the box of the data ends. A
*free* column, without known bounds, is scaled so that the range of the data fills the box but for a
margin: values near one end of it must not be near the other end by wrapping.

`WhiteChart` maps to ℝ^d with mean zero and given standard deviations: in the columns themselves, or
along the principal directions of the columns in units of their standard deviations.

The tensors of a chart are float64 on the CPU. They take the dtype and the device of the data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oism._core import checks
from oism.process import wrapped
from oism.storage import storable
from oism.tables._tensors import check_tensor

FAR = 100.0
"""The number of standard deviations beyond which the density of a whitened model is 0."""

REACH = 3.5
"""The number of standard deviations on either side that the range of a whitened column has."""

CONSTANT = 1e-13
"""A column whose range is below this fraction of its values is constant: the range is rounding."""

NARROW = 1e-6
"""The scale of a constant column, as a fraction of its value, or of 1."""

RANK = 1e-6
"""Standard deviations of principal directions below this fraction of the columns' are set to it:
data in a plane have no density.
"""


def is_constant(low: Tensor, high: Tensor) -> Tensor:
    """Return which columns with values from ``low`` to ``high`` are constant."""
    return ~(high - low > CONSTANT * torch.maximum(low.abs(), high.abs()))


def constant_scale(value: Tensor) -> Tensor:
    """Return the scale of constant columns: narrow, and far above rounding errors."""
    return NARROW * torch.where(value != 0, value.abs(), 1.0)


class Chart(ABC):
    """A map from the data's units to the process's coordinates, and back."""

    centre: Tensor
    """The point c that is mapped to 0: ``(d,)``."""

    inverse: Tensor
    """The matrix A⁻¹: ``(d, d)``."""

    can_condition: bool = False
    """Whether each coordinate belongs to one column and is periodic: see `log_jacobian_of`."""

    @property
    def dim(self) -> int:
        """The number of columns."""
        return len(self.centre)

    @property
    @abstractmethod
    def log_jacobian(self) -> float:
        """The logarithm of the volume of u per volume of x."""

    @property
    @abstractmethod
    def isotropic_unit(self) -> float | None:
        """The number a where A⁻¹ = aI, otherwise None."""

    @property
    @abstractmethod
    def units(self) -> Tensor:
        """The standard deviations, in data units, of unit noise in the coordinates: ``(d,)``."""

    @property
    @abstractmethod
    def low(self) -> Tensor:
        """Where the range of each column begins: ``(d,)``."""

    @property
    @abstractmethod
    def width(self) -> Tensor:
        """How long the range of each column is: ``(d,)``."""

    @property
    def free(self) -> Tensor:
        """Which columns are neither periodic nor bounded: ``(d,)``."""
        return torch.ones(self.dim, dtype=torch.bool)

    @property
    def open(self) -> Tensor:
        """Which columns have values beyond the box, on one side or on both: ``(d,)``."""
        return self.free

    @property
    def opening(self) -> Tensor:
        """1 and -1 for columns that are bounded only below and only above, 0 otherwise."""
        return torch.zeros(self.dim, dtype=torch.float64)

    @property
    def reflections(self) -> Tensor:
        """Which columns are reflected at their bounds: ``(d,)``."""
        return torch.zeros(self.dim, dtype=torch.bool)

    @property
    def periods(self) -> Tensor:
        """The period of each column, 0 where it has none: ``(d,)``."""
        return torch.zeros(self.dim, dtype=torch.float64)

    @abstractmethod
    def to_process(self, x: Tensor) -> Tensor:
        """Return u for data ``(n, d)``."""

    @abstractmethod
    def to_data(self, u: Tensor) -> Tensor:
        """Return x for points of the process."""

    @abstractmethod
    def pull_score(self, score: Tensor) -> Tensor:
        """Return Aᵀ score: the score in the data's units."""

    @abstractmethod
    def covers(self, x: Tensor) -> Tensor:
        """Return which rows lie where the chart maps one to one: ``(n,)``."""

    def allows(self, x: Tensor) -> Tensor:
        """Return which rows are within declared bounds: ``(n,)``."""
        return torch.ones(len(x), dtype=torch.bool, device=x.device)

    def uses(self, x: Tensor) -> Tensor:
        """Return which rows a fit in these coordinates uses: ``(n,)``."""
        return torch.ones(len(x), dtype=torch.bool, device=x.device)

    def log_jacobian_of(self, columns: Tensor) -> float:  # noqa: ARG002
        """Return log_jacobian for some columns alone, ``columns`` boolean ``(d,)``."""
        raise TypeError(f"{type(self).__name__} mixes columns: they have no volumes of their own")

    @abstractmethod
    def facts(self) -> list[dict[str, Any]]:
        """Return what each column is, as plain values."""


@storable
@dataclass(frozen=True, eq=False)
class BoxChart(Chart):
    """u = scale · (x - centre) modulo 2π, column by column.

    ``periodic`` and ``bounded`` are boolean, ``(d,)``; the other columns are free. ``start`` is
    where the range of a periodic column begins; its values are given back in this range.
    ``opening`` is 1 for bounded columns whose upper end is open, -1 for those whose lower end is,
    and 0 for all others; None is 0 for all.
    """

    centre: Tensor
    scale: Tensor
    start: Tensor
    periodic: Tensor
    bounded: Tensor
    opening: Tensor = None  # type: ignore[assignment]  # a tensor, once checked

    can_condition = True

    def __post_init__(self) -> None:
        for name in ("centre", "scale", "start"):
            check_tensor(getattr(self, name), name, (len(self.centre),))
        for name in ("periodic", "bounded"):
            check_tensor(getattr(self, name), name, (len(self.centre),), torch.bool)
        if not bool((self.scale > 0).all()):
            raise ValueError("scale must be positive")
        if bool((self.periodic & self.bounded).any()):
            raise ValueError("a column must be either periodic or bounded, not both")
        if self.opening is None:
            checks.assign(self, opening=torch.zeros_like(self.centre))
        check_tensor(self.opening, "opening", (len(self.centre),))
        ends = self.opening.abs()
        if not bool(((ends == 0) | ((ends == 1) & self.bounded)).all()):
            raise ValueError("opening must be 1, 0 or -1, and 0 unless a column is bounded")

    @property
    def free(self) -> Tensor:
        """Which columns are neither periodic nor bounded."""
        return ~(self.periodic | self.bounded)

    @property
    def open(self) -> Tensor:
        """The free columns, and those with one bound."""
        return self.free | (self.opening != 0)

    @property
    def _side(self) -> Tensor:
        """-1 where the box of a column lies below its centre, otherwise 1."""
        return torch.where(self.opening < 0, -1.0, 1.0).to(self.centre)

    @property
    def reflections(self) -> Tensor:
        """The bounded columns."""
        return self.bounded

    @property
    def periods(self) -> Tensor:
        """2π/scale for periodic columns, 0 for the others."""
        return torch.where(self.periodic, 2 * math.pi / self.scale, 0.0)

    @property
    def log_jacobian(self) -> float:
        """Σ log scale, and log 2 for every reflected column."""
        return float(self.scale.log().sum()) + math.log(2) * int(self.bounded.sum())

    def log_jacobian_of(self, columns: Tensor) -> float:
        """Return Σ log scale over some columns, and log 2 for every reflected one of them."""
        return float((self.scale.log() + math.log(2) * self.bounded)[columns].sum())

    @property
    def inverse(self) -> Tensor:  # type: ignore[override]  # computed, and not written to
        """The diagonal matrix 1/scale."""
        return torch.diag(self.units)

    @property
    def isotropic_unit(self) -> float | None:
        """1/scale where all columns have the same."""
        return float(self.units[0]) if bool((self.scale == self.scale[0]).all()) else None

    @property
    def units(self) -> Tensor:
        """1/scale."""
        return 1 / self.scale

    @property
    def low(self) -> Tensor:
        """The start of periodic columns, the lower bound, or the lower end of the box."""
        closed = self.bounded & (self.opening >= 0)
        ends = torch.where(closed, self.centre, self.centre - math.pi / self.scale)
        return torch.where(self.periodic, self.start, ends)

    @property
    def width(self) -> Tensor:
        """The period, the distance of the bounds, or the width of the box."""
        half = math.pi / self.scale
        return torch.where(self.bounded, half, 2 * half)

    def to_process(self, x: Tensor) -> Tensor:
        """Return the point on the torus."""
        return wrapped(self._scaled(x))

    def _scaled(self, x: Tensor) -> Tensor:
        return (x - self.centre.to(x)) * self.scale.to(x)

    def to_data(self, u: Tensor) -> Tensor:
        """Return the representative in the range of the data."""
        centre, scale, start = (part.to(u) for part in (self.centre, self.scale, self.start))
        bounded, periodic = self.bounded.to(u.device), self.periodic.to(u.device)
        x = centre + torch.where(bounded, self._side.to(u) * u.abs(), u) / scale
        period = 2 * math.pi / scale
        inside = start + (x - start).remainder(period)
        inside = torch.where(inside < start + period, inside, start)  # rounded up
        return torch.where(periodic, inside, x)

    def pull_score(self, score: Tensor) -> Tensor:
        """Return scale · score."""
        return self.scale.to(score) * score

    def covers(self, x: Tensor) -> Tensor:
        """Return whether open columns are in the box, and bounded ones within their bounds."""
        u = self._scaled(x) * self._side.to(x)
        inside = (u >= -math.pi) & (u < math.pi)
        return (inside | ~self.open.to(x.device)).all(dim=1) & self.allows(x)

    def allows(self, x: Tensor) -> Tensor:
        """Return whether bounded columns are within their bounds, up to rounding."""
        u = self._scaled(x) * self._side.to(x)
        slack = 1e-12 if x.dtype == torch.float64 else 16 * torch.finfo(x.dtype).eps
        inside = (u >= -slack) & ((u <= math.pi + slack) | (self.opening != 0).to(x.device))
        return (inside | ~self.bounded.to(x.device)).all(dim=1)

    def uses(self, x: Tensor) -> Tensor:
        """Return which rows lie in the box; the others are left to the background."""
        return self.covers(x)

    def facts(self) -> list[dict[str, Any]]:
        """Return kind and range of each column."""
        columns: list[dict[str, Any]] = []
        for j in range(self.dim):
            half, centre = math.pi / float(self.scale[j]), float(self.centre[j])
            if bool(self.periodic[j]):
                columns.append({"kind": "periodic", "period": 2 * half})
                continue
            bounded, opening = bool(self.bounded[j]), float(self.opening[j])
            low = centre if bounded and opening >= 0 else centre - half
            high = centre if opening < 0 else centre + half
            kind = "half-bounded" if opening else "bounded" if bounded else "free"
            columns.append({"kind": kind, "low": low, "high": high})
            if opening:
                columns[-1]["bound"] = centre
        return columns


@storable
@dataclass(frozen=True, eq=False)
class WhiteChart(Chart):
    """u = matrix (x - centre), with the inverse of the matrix.

    ``deviations`` ``(d,)`` are the standard deviations of the data in these coordinates.
    """

    centre: Tensor
    matrix: Tensor
    inverse: Tensor
    deviations: Tensor

    def __post_init__(self) -> None:
        dim = len(self.centre)
        for name, shape in (
            ("centre", (dim,)),
            ("matrix", (dim, dim)),
            ("inverse", (dim, dim)),
            ("deviations", (dim,)),
        ):
            check_tensor(getattr(self, name), name, shape)

    @classmethod
    def of(cls, mean: Tensor, covariance: Tensor, *, rotate: bool) -> WhiteChart:
        """Return the chart that gives data of these moments mean 0 and unit variances.

        >>> mean, covariance = torch.zeros(2), torch.tensor([[4.0, 0.0], [0.0, 9.0]])
        >>> chart = WhiteChart.of(mean, covariance, rotate=False)
        >>> chart.to_process(torch.tensor([[2.0, 3.0]]))
        tensor([[1., 1.]])
        """
        mean, covariance = mean.double(), covariance.double()
        # Columns first, each in its own unit; that of a constant one would be a rounding error.
        unit = covariance.diagonal().clamp(min=0).sqrt()
        constant = unit <= torch.finfo(torch.float64).eps * mean.abs()
        unit = torch.where(constant, constant_scale(mean), unit)
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
        return cls(mean, matrix.contiguous(), inverse.contiguous(), torch.ones_like(mean))

    def scaled(self, factor: float | Tensor) -> WhiteChart:
        """Return the chart to standard deviations that are ``factor`` times as large.

        ``factor`` is one number, or one for each coordinate: ``(d,)``.
        """
        factors = torch.as_tensor(factor, dtype=torch.float64).expand(self.dim)
        return WhiteChart(
            self.centre,
            factors[:, None] * self.matrix,
            self.inverse / factors,
            self.deviations * factors,
        )

    @property
    def log_jacobian(self) -> float:
        """log|det matrix|."""
        return float(torch.linalg.slogdet(self.matrix)[1])

    @property
    def isotropic_unit(self) -> float | None:
        """The number a where the inverse is aI."""
        unit = self.inverse[0, 0]
        same = torch.equal(self.inverse, unit * torch.eye(self.dim, dtype=torch.float64))
        return float(unit) if same else None

    @property
    def units(self) -> Tensor:
        """The standard deviations that unit noise in all directions has along the columns."""
        lengths: Tensor = self.inverse.norm(dim=1)
        return lengths

    @property
    def low(self) -> Tensor:
        """3.5 standard deviations below the mean."""
        return self.centre - 0.5 * self.width

    @property
    def width(self) -> Tensor:
        """7 standard deviations of each column."""
        deviations: Tensor = (self.inverse * self.deviations).norm(dim=1)
        return 2 * REACH * deviations

    def to_process(self, x: Tensor) -> Tensor:
        """Return the whitened point."""
        return (x - self.centre.to(x)) @ self.matrix.to(x).mT

    def to_data(self, u: Tensor) -> Tensor:
        """Return the point in the data's units."""
        return u @ self.inverse.to(u).mT + self.centre.to(u)

    def pull_score(self, score: Tensor) -> Tensor:
        """Return matrixᵀ score."""
        return score @ self.matrix.to(score)

    def covers(self, x: Tensor) -> Tensor:
        """Return whether a row is within 100: beyond, a density like a Gaussian's is 0."""
        return (self.to_process(x).abs() <= FAR).all(dim=1)

    def uses(self, x: Tensor) -> Tensor:
        """Return which rows are within 100; the others are left to the background."""
        return self.covers(x)

    def facts(self) -> list[dict[str, Any]]:
        """Return that all columns are whitened."""
        return [{"kind": "whitened"} for _ in range(self.dim)]
