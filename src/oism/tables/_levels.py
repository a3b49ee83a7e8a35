"""Which numeric columns are discrete, and their levels.

A numeric column is *discrete* if it is declared so, or if it has 2 to 256 different values and
these repeat: there are at least 20 rows, and at least 2 per value. Rows that are equal in all
columns count once, because they repeat rows and not values; a table of one column needs 5 rows per
value instead, unless its values are integers. A table of fewer than 20 different rows is one of
levels in all numeric columns or in none: in all of them there are at least 2 different rows per
value, or they hold integers and have at least 20 rows per value, copies included.

An end of the list of levels is closed, see `Column`, if at least 5 rows have the outer level.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from oism.tables._column import turn_start
from oism.tables._columns import Columns

LEAST_ROWS = 20
MOST_LEVELS = 256
"""The most levels that are found in a column; more lie closer than a model resolves."""

ROWS_PER_LEVEL = 2
ROWS_PER_LEVEL_ALONE = 5
"""The least number of rows per level: in general, and for a single column of fractions."""

COPIES_PER_LEVEL = 20
"""The least number of rows per level where copies count, of integers in very few different rows."""

ROWS_OF_AN_END = 5

SIGHTED = 1024
"""The number of rows in which more levels than these decide that a column is not discrete."""

MOST_COMPARED = 10**6
"""The number of rows beyond which equal rows count as several."""


def with_levels(columns: Columns, rows: Tensor, listed: set[int], *, detect: bool) -> Columns:
    """Return the columns with the levels of those that are discrete."""
    wanted = listed if not detect else discrete_columns(columns, rows) | listed
    found = list(columns)
    for j in sorted(wanted):
        column = found[j]
        if column.categorical:
            raise ValueError(f"discrete names column {columns.label(j)}, which is categorical")
        values = rows[:, j][~rows[:, j].isnan()]
        if column.period is not None:
            values = _within_turn(values, column.period, column.start)
        levels = tuple(torch.unique(values).tolist())
        ends = tuple(
            bool((values == end).sum() >= ROWS_OF_AN_END) for end in (levels[0], levels[-1])
        )
        found[j] = replace(column, levels=levels, closed=(ends[0], ends[1]))
    return Columns(tuple(found), columns.frame)


def _within_turn(values: Tensor, period: float, start: float | None) -> Tensor:
    """Return numbers modulo the period, as numbers that occur among them if one turn has such.

    Months from 1 to 12 stay as they are: 12 must not become 0, which is no month.
    """
    low, high = (float(end) for end in values.aminmax())
    inside = start is None or (start <= low and high <= start + period)
    if inside and high - low < period:
        return values
    turned = low + (values - low).remainder(period)
    if start is None and bool(torch.isin(turned, values).all()):
        return turned
    start = turn_start(low, high, period) if start is None else start
    return start + (values - start).remainder(period)


def discrete_columns(columns: Columns, rows: Tensor) -> set[int]:
    """Return the columns whose values repeat."""
    numeric = [j for j, one in enumerate(columns) if one.is_numeric]
    if len(rows) < LEAST_ROWS or not numeric:
        return set()
    counts = {}
    for j in numeric:
        values = rows[:, j][~rows[:, j].isnan()]
        # A part decides most columns without sorting the whole.
        if len(torch.unique(values[:SIGHTED])) <= MOST_LEVELS:
            counts[j] = len(torch.unique(values))
    few = {j: count for j, count in counts.items() if 2 <= count <= MOST_LEVELS}
    if not few:
        return set()
    alone = columns.count == 1
    n = len(rows)
    if not alone and n <= MOST_COMPARED:
        if min(few.values()) * ROWS_PER_LEVEL > n:
            return set()
        n = len(np.unique(rows.numpy(), axis=0, equal_nan=False))
    if n < LEAST_ROWS:
        return set(few) if _are_levels(rows[:, numeric], max(counts.values()), n) else set()
    result = set()
    for j, count in few.items():
        whole = _are_integers(rows[:, j])
        least = ROWS_PER_LEVEL_ALONE if alone and not whole else ROWS_PER_LEVEL
        if count * least <= n:
            result.add(j)
    return result


def _are_levels(values: Tensor, most: int, different: int) -> bool:
    """Return whether all columns of very few different rows hold levels, at most so many each.

    All or none: a column of fractions beside them shows that a longer table has been copied, and
    copies, as a bootstrap makes them, are no evidence that values repeat.
    """
    if most * ROWS_PER_LEVEL <= different:
        return True
    return most * COPIES_PER_LEVEL <= len(values) and _are_integers(values)


def _are_integers(values: Tensor) -> bool:
    return bool((values.isnan() | (values == values.round())).all())
