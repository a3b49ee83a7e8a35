"""A box with reflecting faces, and the density e^{-V} of a spline V on it.

The invariant distribution of a Langevin diffusion (``oism.process._langevin``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism._core.splines import Splines, reflected
from oism.process._domain import Domain
from oism.process._measure import Measure

TRIES = 1000
"""The largest number of rounds of rejection sampling."""


@dataclass(frozen=True, eq=False)
class Box(Domain):
    """A box with reflecting faces, ends ``(d, 2)``: points outside are reflected into it.

    >>> Box(torch.tensor([[0.0, 1.0]])).wrap(torch.tensor([[1.25], [-0.5]]))
    tensor([[0.7500],
            [0.5000]])
    """

    ends: Tensor

    def wrap(self, x: Tensor) -> Tensor:
        """Return the points reflected at the faces, as often as needed."""
        return self._wrap(checks.points(x, dim=len(self.ends)))

    def _wrap(self, x: Tensor) -> Tensor:
        return reflected(x, self.ends[:, 0].to(x), self.ends[:, 1].to(x))[0]

    def contains(self, x: Tensor) -> Tensor:
        """Return whether every coordinate is between its ends."""
        x = checks.points(x, dim=len(self.ends))
        return ((x >= self.ends[:, 0].to(x)) & (x <= self.ends[:, 1].to(x))).all(dim=1)

    def admit(self, x: Tensor, name: str = "x") -> Tensor:
        """Return data as they are; raise if a row is outside."""
        inside = self.contains(x)
        if not checks.holds(inside):
            row = int((~inside).nonzero()[0])
            raise ValueError(
                f"{name} must lie in the box {self.ends.tolist()}, but {name}[{row}] = "
                f"{x[row].tolist()}: give the process a larger box"
            )
        return x


@dataclass(frozen=True, eq=False)
class SplineGibbs(Measure):
    """π = e^{-V} on a box for a spline V; points outside are reflected into the box."""

    splines: Splines
    potential: Tensor

    def score(self, x: Tensor) -> Tensor:
        """Return -∇V."""
        return -self.splines.gradient(checks.points(x, dim=self.splines.dim), self.potential)

    def score_divergence(self, x: Tensor) -> Tensor:
        """Return -ΔV."""
        return -self.splines.laplacian(checks.points(x, dim=self.splines.dim), self.potential)

    def log_density(self, x: Tensor) -> Tensor:
        """Return -V."""
        x, zero = checks.points(x, dim=self.splines.dim), (0,) * self.splines.dim
        return -self.splines.evaluate(x, self.potential, zero)

    def _fill(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return exact samples, by rejection from a density that is constant on each cell.

        On a cell a spline is at least the smallest of its coefficients there.
        """
        checks.vectors(x, dim=self.splines.dim)
        bound = (-self.splines.lowest(self.potential)).reshape(-1)
        cumulative = torch.softmax(bound, dim=0).cumsum(dim=0)
        low, h = self.splines.box[:, 0].to(x.device), self.splines.widths.to(x.device)
        cells, rows = torch.tensor(self.splines.cells), torch.arange(len(x), device=x.device)
        for _ in range(TRIES):
            if not len(rows):
                return x
            size = (len(rows), 2 + self.splines.dim)
            draws = torch.empty(size, dtype=torch.float64, device=x.device)
            draws.uniform_(generator=generator)
            cell = torch.searchsorted(cumulative.to(x.device), draws[:, 0] * cumulative[-1].item())
            cell = cell.clamp(max=len(bound) - 1)
            place = torch.stack(torch.unravel_index(cell, tuple(cells.tolist())), dim=1)
            points = low + h * (place + draws[:, 2:])
            accepted = draws[:, 1].log() <= self.log_density(points) - bound.to(x.device)[cell]
            x[rows[accepted]] = points[accepted].to(x.dtype)
            rows = rows[~accepted]
        raise ArithmeticError("potential must vary less within a cell: give more cells")

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return a Gauss rule in every cell with at least ``nodes`` points per dimension.

        Weights are normalised to the sum 1.
        """
        if dim != self.splines.dim:
            raise ValueError(f"dim must be {self.splines.dim}, that of the box, got {dim}")
        per_cell = max(2, math.ceil(nodes / min(self.splines.cells)))
        points, weights = self.splines.rule(per_cell)
        weights = weights * self.log_density(points).exp()
        return points, weights / weights.sum()
