"""Where the box of a column ends.

A free column fills the box but for a margin. One outlier would compress all other rows into a
corner of the box, where no wave separates them. So the box extends beyond the range of the central
99% of the rows by at most half of the width of that range (all rows of a normal distribution, in
samples of fewer than ten million). From 10 to 200 rows, of which 99% are all but one, the central
rows are all but one on either side, and the box may extend further. Rows outside of it are left to
the background. A column with one bound begins there, and its other end is set as that of a free
column.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oism.tables._chart import CONSTANT, NARROW

MARGIN = 0.1
"""The share of the range of a free column that is empty, for many rows; see `margin`."""

CENTRAL = 0.99
REACH = 0.5
"""How far a box may extend beyond the range of the central rows, as a share of its width."""

LEAST_ROWS, FEW_ROWS_REACH = 10, 5.0
"""The number of rows from which one may be an outlier, and how much further the box of few rows may
extend than that of 200: times 1/√n - 1/√200.
"""


def margin(n: float) -> float:
    """Return how much wider than the range of n rows the box is; more for few rows."""
    return MARGIN + 1 / math.sqrt(max(n, 1.0))


def limits(x: Tensor, weights: Tensor, n: float) -> tuple[Tensor, Tensor]:
    """Return how far the box of effectively n rows may extend in each column, by quantiles."""
    values, order = x.sort(dim=0)
    share = weights[order].cumsum(dim=0)
    share = share / share[-1]
    tail, extent = 0.5 * (1 - CENTRAL), REACH
    if LEAST_ROWS <= n < 1 / tail:  # with one row on either side, which may be an outlier
        extent += FEW_ROWS_REACH * (1 / math.sqrt(n) - math.sqrt(tail))
        tail = 1.001 / n
    low, high = (
        values.gather(0, (share < level).sum(dim=0, keepdim=True).clamp(max=len(x) - 1))[0]
        for level in (tail, 1 - tail)
    )
    return low - extent * (high - low), high + extent * (high - low)


def covered(x: Tensor, weights: Tensor, n: float) -> tuple[Tensor, Tensor]:
    """Return the least and the largest value in the box without its margin, of each column."""
    least, most = limits(x, weights, n)
    return torch.maximum(x.amin(dim=0), least), torch.minimum(x.amax(dim=0), most)


def bounded_box(
    first: float, last: float, near: float, far: float, n: float
) -> tuple[float, float, float]:
    """Return where the box of a column with bounds begins, its width, and where it is open.

    The last is 0 with two bounds, 1 if only the lower one is finite, and -1 if only the upper one
    is. Then ``near`` or ``far`` is the end of the rows on the open side.
    """
    width = last - first
    if math.isfinite(width):
        return first, width, 0.0
    below = math.isfinite(first)
    end, opening = (first, 1.0) if below else (last, -1.0)
    reach = abs((far if below else near) - end)
    # Rows that all lie at the bound have no scale of their own.
    reach = reach if reach > CONSTANT * abs(end) else NARROW * (abs(end) or 1.0)
    return end, (1 + 0.5 * margin(n)) * reach, opening
