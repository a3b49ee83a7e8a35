"""Tensor-product B-splines on a box, with even reflection at its faces.

On each axis the box is divided into equal cells of width h. The B-splines of degree p over these
cells, with p + 1 knots at each end, span all piecewise polynomials with p - 1 continuous
derivatives: ``cells + p`` functions, of which p + 1 do not vanish at a point. They are computed by
the recurrence of Cox and de Boor, with

    B'_{k,p} = p (B_{k,p-1}/(τ_{k+p} - τ_k) - B_{k+1,p-1}/(τ_{k+p+1} - τ_{k+1})).

A point outside the box is reflected into it: a function is extended evenly, and its derivative
changes sign with the reflection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import pad

from oism._core import checks
from oism._core.quadrature import gauss_legendre
from oism._core.transforms import matmul

ENTRIES = 2**24
"""The number of coefficients that are gathered per batch of points."""


def reflected(x: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return points ``(n, d)`` reflected into a box, and the signs ±1 of the derivatives."""
    width = high - low
    turn = torch.remainder(x - low, 2 * width)
    back = turn > width
    inside = torch.where(back, 2 * width - turn, turn)
    # The points themselves where they lie inside: bit for bit, and with their derivative.
    inside = torch.where((x >= low) & (x <= high), x, low + inside)
    signs = torch.where(back & ((x < low) | (x > high)), -1.0, 1.0).to(x)
    return torch.minimum(torch.maximum(inside, low), high), signs


@dataclass(frozen=True, eq=False)
class Splines:
    """The splines of degree ``degree`` over ``cells[i]`` cells along axis i of a box ``(d, 2)``."""

    box: Tensor
    cells: tuple[int, ...]
    degree: int = 5

    def __post_init__(self) -> None:
        box = checks.floating(self.box, "box").detach().double().clone()
        if box.ndim != 2 or box.shape[1] != 2 or not len(box):
            raise ValueError(
                f"box must hold the ends (low, high) of each axis, shape (d, 2), got "
                f"{tuple(box.shape)}"
            )
        if not bool((box.isfinite().all(dim=1) & (box[:, 0] < box[:, 1])).all()):
            raise ValueError(f"box must have finite ends low < high, got {box.tolist()}")
        cells = tuple(checks.integer(count, "cells", minimum=1) for count in self.cells)
        if len(cells) != len(box):
            raise ValueError(f"cells must hold one number per axis, {len(box)}, got {cells}")
        checks.assign(self, box=box, cells=cells)
        checks.assign(self, degree=checks.integer(self.degree, "degree", minimum=2))

    @property
    def dim(self) -> int:
        """The number of axes."""
        return len(self.box)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of B-splines along each axis."""
        return tuple(count + self.degree for count in self.cells)

    @property
    def size(self) -> int:
        """The number of products of B-splines."""
        return math.prod(self.sizes)

    @property
    def widths(self) -> Tensor:
        """The width h of a cell along each axis: ``(d,)``."""
        return (self.box[:, 1] - self.box[:, 0]) / torch.tensor(self.cells, dtype=torch.float64)

    def _knots(self, axis: int) -> Tensor:
        low, high = self.box[axis].tolist()
        inner = torch.linspace(low, high, self.cells[axis] + 1, dtype=torch.float64)
        ends = torch.ones(self.degree, dtype=torch.float64)
        return torch.cat((low * ends, inner, high * ends))

    def along(self, x: Tensor, axis: int, derivative: int = 0) -> tuple[Tensor, Tensor]:
        """Return the first index ``(n,)`` and p + 1 values ``(n, p + 1)`` for points ``(n,)``.

        Of the B-splines that do not vanish there, or of their derivatives; points are inside.
        """
        p, knots = self.degree, self._knots(axis).to(x)
        low = float(self.box[axis, 0])
        place = ((x.detach() - low) / float(self.widths[axis])).floor().long()
        first = place.clamp(0, self.cells[axis] - 1)
        span = first + p  # knots[span] ≤ x < knots[span + 1]
        offsets = torch.arange(1 - p, p + 1, device=x.device)
        near = knots[span[:, None] + offsets]  # (n, 2p): p knots on either side
        values = torch.ones_like(x)[:, None]
        for degree in range(1, p + 1):
            left, right = near[:, p - degree : p], near[:, p : p + degree]
            share = values / (right - left)
            if degree <= p - derivative:
                falling, rising = (right - x[:, None]) * share, (x[:, None] - left) * share
            else:
                falling, rising = -degree * share, degree * share
            values = pad(falling, (0, 1)) + pad(rising, (1, 0))
        return first, values

    def evaluate(self, x: Tensor, coefficients: Tensor, derivatives: tuple[int, ...]) -> Tensor:
        """Return Σ c_k ∂^derivatives B_k at points ``(n, d)``, reflected into the box.

        Coefficients are ``(size,)`` for one function, result ``(n,)``, or ``(size, K)`` for K
        functions, result ``(n, K)``.
        """
        flat = coefficients.to(x).reshape(self.size, -1)
        step = max(1, ENTRIES // ((self.degree + 1) ** self.dim * flat.shape[1]))
        parts = [self._evaluate(part, flat, derivatives) for part in torch.split(x, step)]
        values = torch.cat(parts) if parts else x.new_zeros(0, flat.shape[1])
        return values[:, 0] if coefficients.ndim == 1 else values

    def _evaluate(self, x: Tensor, flat: Tensor, derivatives: tuple[int, ...]) -> Tensor:
        index, weights = self.local(x, derivatives)
        return matmul(weights[:, None], flat[index])[:, 0]

    def local(self, x: Tensor, derivatives: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return the indices of the B-splines that do not vanish, and their values.

        ``(n, (p + 1)^d)`` each, or those of a derivative, at points ``(n, d)`` of any place.
        """
        inside, signs = reflected(x, self.box[:, 0].to(x), self.box[:, 1].to(x))
        local = torch.arange(self.degree + 1, device=x.device)
        index = torch.zeros(len(x), 1, dtype=torch.int64, device=x.device)
        weights = torch.ones_like(x[:, :1])
        for axis, order in enumerate(derivatives):
            first, values = self.along(inside[:, axis], axis, order)
            if order % 2:
                values = values * signs[:, axis, None]
            index = (index * self.sizes[axis])[:, :, None] + (first[:, None] + local)[:, None]
            weights = weights[:, :, None] * values[:, None]
            index, weights = index.flatten(1), weights.flatten(1)
        return index, weights

    def gradient(self, x: Tensor, coefficients: Tensor) -> Tensor:
        """Return the gradient of one function ``(n, d)``, or of K functions ``(n, K, d)``."""
        axes = range(self.dim)
        unit = [tuple(int(i == axis) for i in axes) for axis in axes]
        return torch.stack([self.evaluate(x, coefficients, one) for one in unit], dim=-1)

    def laplacian(self, x: Tensor, coefficients: Tensor) -> Tensor:
        """Return the Laplacian of one function ``(n,)``, or of K functions ``(n, K)``."""
        axes = range(self.dim)
        parts = [
            self.evaluate(x, coefficients, tuple(2 * int(i == axis) for i in axes)) for axis in axes
        ]
        return torch.stack(parts).sum(dim=0)

    def histogram(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return Σ_i w_i B_k(x_i) for points ``(n, d)`` and weights ``(f, n)``: ``(f, size)``."""
        total = torch.zeros(len(weights), self.size, dtype=torch.float64)
        step = max(1, ENTRIES // (self.degree + 1) ** self.dim)
        for start in range(0, len(x), step):
            index, values = self.local(x[start : start + step].double(), (0,) * self.dim)
            for row, own in zip(total, weights[:, start : start + step], strict=True):
                row.index_add_(0, index.reshape(-1), (own.double()[:, None] * values).reshape(-1))
        return total

    def gauss(self, axis: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return the Gauss rule with ``nodes`` points in each cell of an axis, ``(m,)`` each."""
        points, weights = gauss_legendre(nodes)
        h = float(self.widths[axis])
        places = torch.arange(self.cells[axis], dtype=torch.float64)[:, None] + points
        return float(self.box[axis, 0]) + h * places.reshape(-1), (h * weights).repeat(len(places))

    def rule(self, nodes: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the product rule on the box, points ``(m, d)`` and weights ``(m,)`` for dx.

        By default p + 1 nodes per cell and axis: the products of two splines are integrated
        exactly.
        """
        axes = [self.gauss(axis, nodes or self.degree + 1) for axis in range(self.dim)]
        points = torch.cartesian_prod(*(points for points, _ in axes)).reshape(-1, self.dim)
        weights = axes[0][1]
        for _, own in axes[1:]:
            weights = (weights[:, None] * own).reshape(-1)
        return points, weights

    def _collocation(self, axis: int, x: Tensor, derivative: int) -> sparse.csr_array:
        first, values = self.along(x, axis, derivative)
        columns = first[:, None] + torch.arange(self.degree + 1)
        rows = torch.arange(len(x))[:, None].expand_as(columns)
        shape = (len(x), self.sizes[axis])
        entries = (values.numpy().ravel(), (rows.numpy().ravel(), columns.numpy().ravel()))
        return sparse.csr_array(entries, shape=shape)

    def _products(self, derivatives: tuple[int, ...], nodes: int) -> sparse.csr_array:
        """Return the values at the points of the rule: sparse ``(m, size)``."""
        parts = [
            self._collocation(axis, self.gauss(axis, nodes)[0], order)
            for axis, order in enumerate(derivatives)
        ]
        whole = parts[0]
        for part in parts[1:]:
            whole = sparse.csr_array(sparse.kron(whole, part, format="csr"))
        return whole

    def forms(self, density: NDArray[np.float64]) -> tuple[sparse.csc_array, sparse.csc_array]:
        """Return ∫∇B_j·∇B_k w dx and ∫B_jB_k w dx for a weight w at the points of the rule."""
        nodes = self.degree + 1
        weights = sparse.diags_array(density * self.rule()[1].numpy())
        mass = self._products((0,) * self.dim, nodes)
        stiffness = None
        for axis in range(self.dim):
            slope = self._products(tuple(int(i == axis) for i in range(self.dim)), nodes)
            own = slope.T @ (weights @ slope)
            stiffness = own if stiffness is None else stiffness + own
        return sparse.csc_array(stiffness), sparse.csc_array(mass.T @ (weights @ mass))

    @cached_property
    def greville(self) -> tuple[Tensor, ...]:
        """The interpolation points of each axis: averages of p neighbouring knots."""
        points = []
        for axis, size in enumerate(self.sizes):
            windows = self._knots(axis)[1:-1].unfold(0, self.degree, 1)
            points.append(windows.mean(dim=1).clamp(*self.box[axis].tolist())[:size])
        return tuple(points)

    def interpolate(self, values: Tensor) -> Tensor:
        """Return the coefficients of the spline with given values at the `greville` points.

        ``values`` ``(*sizes)`` or flat ``(size,)``; result ``(size,)``.
        """
        grid = values.double().reshape(self.sizes)
        for axis, points in enumerate(self.greville):
            matrix = torch.from_numpy(self._collocation(axis, points, 0).toarray())
            moved = grid.movedim(axis, 0)
            solved = torch.linalg.solve(matrix, moved.reshape(len(points), -1))
            grid = solved.reshape(moved.shape).movedim(0, axis)
        return grid.reshape(-1)

    def lowest(self, coefficients: Tensor) -> Tensor:
        """Return a lower bound of a spline on each cell, ``(*cells)``: by its coefficients."""
        grid = coefficients.reshape(self.sizes)
        for axis in range(self.dim):
            grid = grid.unfold(axis, self.degree + 1, 1).amin(dim=-1)
        return grid
