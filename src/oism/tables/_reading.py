"""Tables read as columns and rows of numbers.

`read_columns` turns a table into `Columns` and rows ``(n, d)`` of float64, and `read_rows` turns
new rows of such a table into numbers: a level of a category becomes its index, a gap (NaN, None,
pandas' NA) becomes NaN.

Tables of numbers are read by scikit-learn; those here have other columns as well. A column is
*categorical* if its dtype is bool, "category" or polars' Enum, or if it holds text; text that all
parses as numbers is read as numbers. Text is an error in a column that is declared to be numeric,
or half of which parses as numbers. `oism.tables._levels` finds discrete columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism.tables._column import Column
from oism.tables._columns import Columns
from oism.tables._declared import index_of
from oism.tables._frame import TIMES, Table, as_python, dtype_text, letter_of
from oism.tables._levels import LEAST_ROWS, with_levels
from oism.tables._magnitudes import check_magnitudes

Array = NDArray[Any]

NUMBERS = "iufb"
"""The letters by which NumPy names the kinds of dtypes of numbers."""


def check_no_times(table: Table, j: int) -> None:
    """Raise if a column holds times, which NumPy would convert to nanoseconds or the like."""
    found = table.dtypes[j]
    if letter_of(found) not in TIMES:
        return
    raise _holds_times(table.name(j), found)


def _holds_times(name: str, found: object) -> TypeError:
    return TypeError(
        f"column {name} holds times ({found}): give numbers, for instance the days since the "
        "first, or leave the column out"
    )


def read_columns(
    table: Table | None,
    rows: Tensor | None,
    declared: Columns,
    discrete: str | Sequence[Any],
) -> tuple[Columns, Tensor]:
    """Return the columns of a table with what its values show, and its rows.

    ``rows`` are those of a table of numbers, which scikit-learn has read, and None otherwise.
    """
    listed: set[int] = set()
    if not isinstance(discrete, str):
        listed = {index_of(key, declared.count, declared.names, "discrete") for key in discrete}
    found: list[Column] = []
    values: list[Array] = []
    for j, given in enumerate(declared):
        dtype = None if table is None else table.dtypes[j]
        column = replace(given, dtype="float64" if dtype is None else dtype_text(dtype))
        if rows is None and table is not None:
            column, numbers = _learn(table, j, column, declared_by(column, listed=j in listed))
            values.append(numbers)
        found.append(column)
    if rows is None:
        rows = torch.from_numpy(np.stack(values, axis=1))
    columns = Columns(tuple(found), None if table is None else table.frame)
    check_finite(columns, rows)
    empty = rows.isnan().all(dim=0).nonzero()[:, 0].tolist()
    if empty and len(rows):
        raise ValueError(f"column {columns.label(empty[0])} has no values: leave it out")
    check_magnitudes(columns, rows)
    return with_levels(columns, rows, listed, detect=discrete == "auto"), rows


def read_rows(table: Table, columns: Columns) -> Tensor:
    """Return new rows of a table that was read before: ``(n, d)``."""
    if len(table.dtypes) != columns.count:
        raise ValueError(
            f"X has {len(table.dtypes)} features, but OISM is expecting {columns.count} features "
            "as input"
        )
    values = [
        _codes(table.column(j), column, table.name(j)) if column.categorical else _numbers(table, j)
        for j, column in enumerate(columns)
    ]
    rows = torch.from_numpy(np.stack(values, axis=1))
    check_finite(columns, rows)
    return rows


def level_code(column: Column, value: object, what: str) -> float:
    """Return the index of one level of a categorical column; ``what`` is named in the message."""
    if not _is_hashable(value) or value not in column.levels:
        raise ValueError(
            f"{what} must be a level that the fit has seen, one of {_listed(column)}, got {value!r}"
        )
    return float(column.levels.index(value))


def check_finite(columns: Columns, rows: Tensor) -> None:
    """Raise if rows ``(n, d)`` have infinite entries; gaps are allowed."""
    infinite = rows.isinf()
    if bool(infinite.any()):
        row, j = (int(k) for k in infinite.nonzero()[0])
        raise ValueError(
            f"Input X contains infinity: column {columns.label(j)}, row {row}. Give NaN for a "
            "missing value, or leave the row out"
        )


USES_GAPS = ", or fit with process='joint', which uses their other entries"
"""A further remedy for rows with gaps, where columns are not those of a sphere."""


def check_complete(columns: Columns, rows: Tensor, advice: str = "") -> None:
    """Raise if rows have gaps; ``advice`` ends the message."""
    gaps = rows.isnan()
    if bool(gaps.any()):
        row, j = (int(k) for k in gaps.nonzero()[0])
        raise ValueError(
            f"Input X contains NaN: column {columns.label(j)}, row {row}. Leave out rows with "
            f"missing values{advice}"
        )


def _is_gap(value: object) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def is_number(value: object) -> bool:
    """Return whether a value, or its text, is a number."""
    try:
        float(value)  # type: ignore[arg-type]  # whatever it is
    except (TypeError, ValueError):
        return False
    return True


def declared_by(column: Column, *, listed: bool) -> str:
    """Return the parameter that declares a column to be numeric, or nothing."""
    if column.period is not None:
        return "periodic" if column.start is None else "box"
    if column.is_bounded:
        return "bounds"
    return "discrete" if listed else ""


def _learn(table: Table, j: int, column: Column, numeric: str) -> tuple[Column, Array]:
    """Return a column of any dtype with what its values show, and its values as numbers.

    ``numeric`` is the parameter that declares it to be numeric, if one does.
    """
    entries, dtype, name = table.column(j), table.dtypes[j], table.name(j)
    if letter_of(dtype) in "iuf":
        return column, _numbers(table, j)
    check_no_times(table, j)
    given = [value for value in entries.tolist() if not _is_gap(value)]
    flags = bool(given) and all(isinstance(value, bool | np.bool_) for value in given)
    categories = _categories(dtype)
    declared = bool(categories)
    parsed = sum(map(is_number, given))
    if numeric or not (declared or flags or 2 * parsed < len(given)):
        return replace(column, dtype="float64"), _numbers(table, j, numeric)
    levels = _sorted(given, name)
    if len(given) >= LEAST_ROWS and 2 * len(levels) > len(given):
        raise ValueError(
            f"column {name} has {len(levels)} different texts in {len(given)} rows, as "
            f"{levels[0]!r}: these are no levels of a category; leave the column out, or give "
            "numbers"
        )
    if declared:
        levels = tuple(value for value in categories if value in set(levels))
    column = replace(column, levels=levels, categorical=True, categories=categories)
    return column, _codes(entries, column, name)


def _categories(dtype: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Return the categories that a dtype declares, in its order: "category", or polars' Enum."""
    found = getattr(dtype, "categories", None)
    if found is None or str(dtype).startswith(
        "Categorical"
    ):  # of polars, which collects them as they come
        return ()
    return tuple(as_python(value) for value in found)


REMEDIES = {
    "periodic": "give periodic={column: period} for the columns that have a period",
    "box": "box is for columns that are all numbers: give periodic or bounds instead",
    "bounds": "leave it out of bounds",
    "discrete": "leave it out of discrete",
}
"""What to do about text in a column that a parameter declares to be numeric."""


def _numbers(table: Table, j: int, declared: str = "") -> Array:
    """Return the values of a numeric column, or raise at the first that is no number.

    ``declared`` is the parameter that declares it to be numeric, if one does.
    """
    check_no_times(table, j)
    entries, name = table.column(j), table.name(j)
    if entries.dtype.kind in NUMBERS:
        return entries.astype(np.float64)
    result = np.empty(len(entries), dtype=np.float64)
    for row, value in enumerate(entries.tolist()):
        if _is_gap(value):
            result[row] = np.nan
        elif isinstance(value, date | timedelta | np.datetime64 | np.timedelta64):
            raise _holds_times(name, type(value).__name__)
        elif is_number(value):
            result[row] = float(value)
        elif isinstance(value, str) and declared:
            raise ValueError(
                f"column {name} has the text {value!r} in row {row}, but {declared} declares it to "
                f"be numeric: {REMEDIES[declared]}, or give numbers, and NaN for a missing value"
            )
        elif isinstance(value, str):
            raise ValueError(
                f"column {name} has the text {value!r} in row {row}, among numbers: give NaN for a "
                "missing value, or numbers"
            )
        else:
            raise TypeError(
                f"column {name} has {value!r} in row {row}: the argument must be a string or a "
                f"number, not {type(value).__name__}"
            )
    return result


def _codes(entries: Array, column: Column, name: str) -> Array:
    """Return the indices of levels, NaN for gaps."""
    index = {level: float(code) for code, level in enumerate(column.levels)}
    result = np.empty(len(entries), dtype=np.float64)
    for row, value in enumerate(entries.tolist()):
        if _is_gap(value):
            result[row] = np.nan
            continue
        code = index.get(value) if _is_hashable(value) else None
        if code is None:
            raise ValueError(
                f"column {name} has the level {value!r} in row {row}, which the fit has not seen: "
                f"its levels are {_listed(column)}. Leave the row out, give NaN, or fit again"
            )
        result[row] = code
    return result


def _listed(column: Column) -> str:
    """Return the levels of a column, at most 20 of them, as text."""
    known = ", ".join(map(repr, column.levels[:20]))
    return f"{known}, …" if len(column.levels) > 20 else known


def _sorted(given: list[Any], name: str) -> tuple[Any, ...]:
    """Return the different levels, by their value or, where they are of several types, as text."""
    try:
        distinct = list(dict.fromkeys(as_python(value) for value in given))
    except TypeError:
        bad = next(value for value in given if not _is_hashable(value))
        raise TypeError(
            f"column {name} has {bad!r}: the argument must be a string or a number, not "
            f"{type(bad).__name__}"
        ) from None
    try:
        return tuple(sorted(distinct))
    except TypeError:
        return tuple(sorted(distinct, key=str))


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
