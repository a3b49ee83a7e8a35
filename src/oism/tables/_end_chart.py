"""Charts of one column to [0, 1] or (0, ∞): bounds become the ends of a diffusion's domain.

u = ±(x - c)/s. A column with both bounds has c = low and s = high - low. One with a single bound
has c at the bound, the sign of the side on which its values are, and a scale s from the data: the
length of a box that contains them, for [0, 1], or that of their mean, for (0, ∞).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oism._core import checks
from oism.storage import storable
from oism.tables._chart import Chart
from oism.tables._tensors import check_tensor

NEAREST = 1e-9
"""The least distance of a point from an end: a value at a bound has the density at this distance.
The density at the bound itself may be infinite.
"""

RANGE = 4.0
"""The range of a column with one bound, in root mean squares of its values."""


@storable
@dataclass(frozen=True, eq=False)
class EndChart(Chart):
    """u = side · (x - centre)/scale for one column; all tensors are ``(1,)``.

    ``opening`` is 0 for a column with both bounds, and the side on which a column with one bound is
    open, 1 or -1. ``span`` is the length of the range, in units of the data. ``boxed`` is whether
    the coordinate ends at 1: at the other bound, or at the end of the box of the data.
    """

    centre: Tensor
    scale: Tensor
    span: Tensor
    opening: Tensor = None  # type: ignore[assignment]  # a tensor, once checked
    boxed: bool = True

    def __post_init__(self) -> None:
        if self.opening is None:
            checks.assign(self, opening=torch.zeros_like(self.centre))
        for name in ("centre", "scale", "span", "opening"):
            check_tensor(getattr(self, name), name, (1,))
        if not bool((self.scale > 0).all() and (self.span > 0).all()):
            raise ValueError("scale and span must be positive")
        if float(self.opening) not in (-1.0, 0.0, 1.0):
            raise ValueError("opening must be 1, 0 or -1")

    @classmethod
    def interval(cls, low: float, high: float) -> EndChart:
        """Return the chart of a column with both bounds to [0, 1].

        >>> EndChart.interval(2.0, 6.0).to_process(torch.tensor([[3.0]]))
        tensor([[0.2500]])
        """
        ends = torch.tensor([[low], [high - low]], dtype=torch.float64)
        return cls(ends[0], ends[1], ends[1])

    @classmethod
    def box(cls, bound: float, side: float, width: float) -> EndChart:
        """Return the chart of a column with one bound to [0, 1], by a box of the data."""
        parts = torch.tensor([[bound], [width], [side]], dtype=torch.float64)
        return cls(parts[0], parts[1], parts[1], parts[2])

    @classmethod
    def half_line(cls, bound: float, side: float, scale: float, size: float) -> EndChart:
        """Return the chart of a column with one bound to (0, ∞); ``size`` is that of the values."""
        parts = torch.tensor([[bound], [scale], [RANGE * size], [side]], dtype=torch.float64)
        return cls(parts[0], parts[1], parts[2], parts[3], boxed=False)

    @property
    def _side(self) -> float:
        return -1.0 if float(self.opening) < 0 else 1.0

    @property
    def inverse(self) -> Tensor:  # type: ignore[override]  # computed, and not written to
        """The matrix of one number, ±scale."""
        return self._side * self.scale[:, None]

    @property
    def log_jacobian(self) -> float:
        """-log scale."""
        return -math.log(float(self.scale))

    @property
    def isotropic_unit(self) -> float | None:
        """None: noise depends on the point."""
        return None

    @property
    def units(self) -> Tensor:
        """The scale."""
        return self.scale

    @property
    def free(self) -> Tensor:
        """No column is free."""
        return torch.zeros(1, dtype=torch.bool)

    @property
    def open(self) -> Tensor:
        """Whether there is one bound only."""
        return self.opening != 0

    @property
    def low(self) -> Tensor:
        """The lower bound, or where the range begins."""
        return torch.where(self.opening < 0, self.centre - self.span, self.centre)

    @property
    def width(self) -> Tensor:
        """The distance of the bounds, or the length of the range."""
        return self.span

    def to_process(self, x: Tensor) -> Tensor:
        """Return the point of [0, 1] or (0, ∞)."""
        u = (x - self.centre.to(x)) * (self._side / self.scale.to(x))
        return u.clamp(NEAREST, 1 - NEAREST) if self.boxed else u.clamp(min=NEAREST)

    def to_data(self, u: Tensor) -> Tensor:
        """Return the value in the data's units."""
        return self.centre.to(u) + (self._side * self.scale.to(u)) * u

    def pull_score(self, score: Tensor) -> Tensor:
        """Return ± score/scale."""
        return (self._side / self.scale.to(score)) * score

    def covers(self, x: Tensor) -> Tensor:
        """Return which rows are within the bounds, up to rounding, and in the box."""
        return self._inside(x, math.inf if not self.boxed else 1.0)

    def allows(self, x: Tensor) -> Tensor:
        """Return which rows are within the bounds, up to rounding."""
        return self._inside(x, math.inf if float(self.opening) else 1.0)

    def _inside(self, x: Tensor, most: float) -> Tensor:
        u = (x - self.centre.to(x)) * (self._side / self.scale.to(x))
        slack = 1e-12 if x.dtype == torch.float64 else 16 * torch.finfo(x.dtype).eps
        return ((u >= -slack) & (u <= most + slack)).all(dim=1)

    def uses(self, x: Tensor) -> Tensor:
        """Return which rows the chart covers; the others are left to the background."""
        return self.covers(x)

    def log_jacobian_of(self, columns: Tensor) -> float:
        """Return log_jacobian of the column, or 0 without it."""
        return self.log_jacobian if bool(columns.any()) else 0.0

    def facts(self) -> list[dict[str, Any]]:
        """Return kind and range of the column."""
        low, width = float(self.low), float(self.width)
        if not float(self.opening):
            return [{"kind": "interval", "low": low, "high": low + width}]
        found = {"kind": "half-line", "low": low, "high": low + width}
        return [{**found, "bound": float(self.centre), "scale": float(self.scale)}]
