"""The range of numbers that tables may hold, checked when a fit learns its columns.

Fits square distances and multiply the scales of columns. Within this range none of that leaves the
range of floating-point numbers.
"""

from __future__ import annotations

import math

from torch import Tensor

from oism.tables._columns import Columns

LEAST, MOST = 1e-100, 1e100
"""The range of magnitudes other than 0, and the least distance between different values."""


def check_magnitudes(columns: Columns, rows: Tensor) -> None:
    """Raise for a column of rows ``(n, d)`` whose numbers are out of range; gaps are allowed."""
    for j, column in enumerate(columns):
        if column.categorical:
            continue
        values = rows[:, j][~rows[:, j].isnan()]
        if len(values):
            low, high = (float(end) for end in values.aminmax())
            _check(max(abs(low), abs(high)), f"column {columns.label(j)} has a value of magnitude")
            if high - low < LEAST:
                _check(high - low, f"column {columns.label(j)} has values over a range of")
        ends = [end for end in (column.low, column.high) if math.isfinite(end)]
        for end in ends:
            if abs(end) > MOST:
                _check(abs(end), f"bounds of column {columns.label(j)} have an end of magnitude")
        if len(ends) == 2 and ends[1] - ends[0] < LEAST:
            _check(ends[1] - ends[0], f"bounds of column {columns.label(j)} have a width of")
        if column.period is not None:
            _check(column.period, f"column {columns.label(j)} has the period")


def _check(size: float, what: str) -> None:
    if size != 0 and not LEAST <= size <= MOST:
        raise ValueError(
            f"{what} {size:g}, and fits square such numbers: rescale the column so that "
            f"magnitudes other than 0 are between {LEAST:g} and {MOST:g}"
        )
