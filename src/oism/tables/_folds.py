"""Folds of rows by their content, whatever the units and the order of the columns.

A column of range [l, l + h), with l = 0 for the period h of an angle, is divided into 2²⁴ cells,
c_j = ⌊2²⁴ (x_j - l_j)/h_j + o⌋. The fold of a row is a hash of its cell numbers in increasing
order. So equal rows share a fold, the order of the rows does not matter, and neither does that of
the columns, because the numbers are sorted. An affine change of units x → ax + b with a > 0 changes
ranges likewise, and no cell numbers: rounding errors, of about 10⁻¹⁶ (1 + |b|/ah) ranges, move one
value in 10⁸ to the next cell. The offset o is irrational, because a value on the edge of a cell, as
those of regular data, would often move.

Points of a sphere have the cells of their unit vectors, and rotations, of which the quaternions q
and -q are one, those of the products q_i q_j: in whatever form they are given.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oism.estimation import fold_of
from oism.tables._chart import Chart

CELLS = 2.0**24
"""The number of cells of a range: finer than any density that is fitted."""

FAR = 2.0**20
"""Values beyond so many ranges share a cell: cell numbers stay exact in float64."""

OFFSET = math.sqrt(2) - 1


def sorted_cells(rows: Tensor, low: Tensor, width: Tensor, periodic: Tensor) -> Tensor:
    """Return the numbers of the cells of rows ``(n, d)``, each row in increasing order.

    ``low`` and ``width``, ``(d,)``, are the ranges of the columns; values of ``periodic`` ones,
    boolean ``(d,)``, count modulo the width.
    """
    share = (rows.double() - torch.where(periodic, 0.0, low)) / width
    share = torch.where(periodic, share.remainder(1.0), share.clamp(-FAR, FAR))
    return torch.floor(CELLS * share + OFFSET).sort(dim=1).values


def ranges_of(chart: Chart) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ranges of a chart's columns, for `sorted_cells`: low, width, and whether periodic.

    That of a column with only an upper bound begins there, and its width is negative: it is the
    mirror image of one with a lower bound.
    """
    falling = chart.opening < 0
    low = torch.where(falling, chart.low + chart.width, chart.low)
    return low, torch.where(falling, -chart.width, chart.width), chart.periods > 0


def folds_by_content(
    rows: Tensor, low: Tensor, width: Tensor, periodic: Tensor, folds: int
) -> Tensor:
    """Return the fold of each row: ``(n,)``, int64; see `sorted_cells`.

    >>> x = torch.rand(100, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> low, width, no = torch.zeros(2), torch.ones(2), torch.zeros(2, dtype=torch.bool)
    >>> fold = folds_by_content(x, low, width, no, 5)
    >>> torch.equal(fold, folds_by_content(2.54 * x.flip(1) + 7, low + 7, 2.54 * width, no, 5))
    True
    """
    return fold_of(sorted_cells(rows, low, width, periodic), folds)


def cells_of_points(points: Tensor) -> Tensor:
    """Return the numbers of the cells of unit vectors ``(n, d)``, each in increasing order."""
    ends = points.new_full((points.shape[1],), -1.0)
    return sorted_cells(points, ends, -2 * ends, torch.zeros_like(ends) > 0)


def folds_of_points(points: Tensor, folds: int) -> Tensor:
    """Return the fold of each unit vector ``(n, d)``: ``(n,)``, int64.

    >>> x = torch.nn.functional.normalize(torch.arange(12.0).reshape(4, 3).double(), dim=1)
    >>> torch.equal(folds_of_points(x, 5), folds_of_points(x + 1e-15, 5))
    True
    """
    return fold_of(cells_of_points(points), folds)


def folds_of_rotations(q: Tensor, folds: int) -> Tensor:
    """Return the fold of each unit quaternion ``(n, 4)``, that of its negative too: ``(n,)``."""
    first, second = torch.triu_indices(4, 4)
    return folds_of_points(q[:, first] * q[:, second], folds)


def canonical_order(cells: Tensor) -> Tensor:
    """Return the lexicographic order of rows of cell numbers ``(n, d)``: ``(n,)``."""
    order = torch.arange(len(cells))
    for j in reversed(range(cells.shape[1])):  # the sorts are stable
        order = order[cells[order, j].argsort(stable=True)]
    return order
