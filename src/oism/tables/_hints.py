"""Warnings about rows that fit no model well, each with a remedy, given once by a fit."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from oism._core.user_warnings import warn
from oism.tables._chart import is_constant
from oism.tables._columns import Columns

MOST_COLUMNS = 20
"""More columns than this give a warning."""

ANGLES = ((-180.0, 180.0), (0.0, 360.0))
NEAR_THE_END = 0.02
"""A column in one of these ranges that reaches both ends up to this share looks like an angle."""

FAR_TURNS = 2.0
"""A periodic column further than this many periods from zero, or from the box, gives a warning."""

COLLINEAR = 1e-9
"""The standard deviation of a residual, in that of its column, that counts as rounding."""

EXAMINED = 10_000
"""The number of rows, evenly spaced, that are examined for columns that are collinear."""

ATOM = 0.05
LEAST_COPIES, SINGLED_OUT = 10, 3
"""The share and the number of rows from which one value gives a warning, if the next most frequent
one is rarer by this factor: otherwise all values repeat, and the column is rounded.
"""

NAMED = 8
"""The number of columns that a warning names."""


def warn_of_rows(columns: Columns, rows: Tensor) -> None:
    """Warn of rows ``(n, d)`` without spread, of collinear columns, of angles and of few rows."""
    warn_of_shape(columns, len(rows))
    constant = warn_of_constants(columns, rows)
    warn_of_collinear(columns, rows, constant)
    warn_of_angles(columns, rows)
    warn_of_turns(columns, rows)


def warn_of_shape(columns: Columns, n: int) -> None:
    """Warn of fewer rows than columns, and of many columns."""
    if n < columns.count:
        warn(
            f"{'1 row is' if n == 1 else f'{n} rows are'} fewer than the {columns.count} columns: "
            "such a density is mostly the margins and a Gaussian; give more rows, or fewer columns"
        )
    if columns.count > MOST_COLUMNS:
        warn(
            f"{columns.count} columns are more than {MOST_COLUMNS}: densities of so many columns "
            "need very many rows; leave some out, or combine them"
        )


def warn_of_constants(columns: Columns, rows: Tensor) -> list[int]:
    """Warn of columns that have the same value in all rows, and return their indices."""
    low = torch.where(rows.isnan(), torch.inf, rows).amin(dim=0)
    high = torch.where(rows.isnan(), -torch.inf, rows).amax(dim=0)
    constant = is_constant(low, high).nonzero()[:, 0].tolist()
    if constant:
        warn(
            f"{_subject(columns, constant)} constant in all rows: such a column has no density, "
            "and a narrow one is used; better leave it out"
        )
    return constant


def warn_of_collinear(columns: Columns, rows: Tensor, constant: list[int]) -> None:
    """Warn of columns that are linear functions of others."""
    used = [j for j, one in enumerate(columns) if one.is_numeric and j not in constant]
    step = max(1, len(rows) // EXAMINED)
    x = rows[::step][:, used]
    x = x[~x.isnan().any(dim=1)]
    if len(used) < 2 or len(x) <= len(used):
        return
    x = x - x.mean(dim=0)
    size = x.square().mean(dim=0).sqrt()
    if not bool((size > 0).all()):  # constant in the rows that are examined
        return
    triangle = torch.linalg.qr(x / size, mode="r").R
    _, values, vectors = torch.linalg.svd(triangle)
    null = vectors[values <= COLLINEAR * len(x) ** 0.5].abs()
    if len(null):
        found = [used[k] for k in (null.amax(dim=0) > 1e-6).nonzero()[:, 0].tolist()]
        warn(
            f"{_subject(columns, found)} linear functions of each other: such rows have no "
            "density, and a thin one is used; better leave one of the columns out"
        )


def warn_of_angles(columns: Columns, rows: Tensor) -> None:
    """Warn of columns that fill -180 to 180, or 0 to 360, and were not declared to be periodic."""
    for j, column in enumerate(columns):
        values = rows[:, j][~rows[:, j].isnan()]
        if not column.is_numeric or column.period is not None or column.is_bounded:
            continue
        if not len(values):
            continue
        low, high = (float(end) for end in values.aminmax())
        for first, last in ANGLES:
            slack = NEAR_THE_END * (last - first)
            if first <= low <= first + slack and last - slack <= high <= last:
                key = columns.label(j)
                warn(
                    f"column {key} reaches from {low:g} to {high:g} and looks like an angle: give "
                    f"periodic={{{key}: 360}}, or bounds={{{key}: ({first:g}, {last:g})}} if it is "
                    "none"
                )
                break


def warn_of_turns(columns: Columns, rows: Tensor) -> None:
    """Warn of periodic columns that reach far beyond a turn: the period may have another unit."""
    for j in columns.of_kind("periodic"):
        values = rows[:, j][~rows[:, j].isnan()]
        if not len(values):
            continue
        low, high = (float(end) for end in values.aminmax())
        period, start = cast("float", columns[j].period), columns[j].start or 0.0
        if max(start - low, high - start) > FAR_TURNS * period:
            warn(
                f"column {columns.label(j)} is periodic with period {period:g}, but reaches from "
                f"{low:g} to {high:g}: it is wrapped; check the unit of the period"
            )


def warn_of_atoms(columns: Columns, rows: Tensor) -> None:
    """Warn of columns of different numbers in which one value has a share of the rows."""
    for j, column in enumerate(columns):
        values = rows[:, j][~rows[:, j].isnan()]
        if column.kind in ("categorical", "discrete") or len(values) < LEAST_COPIES:
            continue
        found, counts = torch.unique(values, return_counts=True)
        if len(found) < 2:  # constant, which is another warning
            continue
        most, next_most = counts.topk(2).values.tolist()
        if most < max(LEAST_COPIES, ATOM * len(values), SINGLED_OUT * next_most):
            continue
        value = float(found[counts.argmax()])
        # Without bounds the peak of a mixture may be wide, and reach beyond the value.
        given = "process='joint'" if column.is_bounded else "bounds and process='joint'"
        warn(
            f"column {columns.label(j)} has the value {value:g} in {most / len(values):.0%} of the "
            f"rows, and this model spreads them over other values: give {given}, for a narrow peak "
            "there, or fit the other rows alone and add the value in its share of the samples"
        )


def _subject(columns: Columns, found: list[int]) -> str:
    """Return the subject of a sentence about columns, with its verb."""
    noun, verb = ("column", "is") if len(found) == 1 else ("columns", "are")
    more = ", …" if len(found) > NAMED else ""
    return f"{noun} {', '.join(columns.label(j) for j in found[:NAMED])}{more} {verb}"
