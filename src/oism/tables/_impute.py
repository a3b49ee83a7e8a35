"""Rows of a table with given values, and with the index of the rows they were made from."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism.tables._columns import Columns
from oism.tables._contract import Density
from oism.tables._frame import Table
from oism.tables._output import write_rows

EXACT = 2.0**53
"""The integer up to which a float64 holds every one."""


def rows_given(
    model: Density, given: Mapping[int, float], n: int, dim: int, generator: torch.Generator
) -> Tensor:
    """Return n rows of ``dim`` columns with the given values, by the index of their column."""
    drawn = model.conditional(given).sample(n, generator).cpu()
    rows = torch.empty(n, dim, dtype=torch.float64)
    rows[:, [j for j in range(dim) if j not in given]] = drawn.double()
    for j, value in given.items():
        rows[:, j] = value
    return rows


def with_index_of(table: Any, filled: Any) -> Any:  # noqa: ANN401 (frames of any library)
    """Return filled rows with the index of the rows they were made from, where pandas has one."""
    if hasattr(filled, "set_axis") and hasattr(table, "set_axis"):
        return filled.set_axis(table.index, axis=0)
    return filled


def write_filled(columns: Columns, X: Any, rows: Tensor, filled: Tensor) -> Any:  # noqa: ANN401, N803
    """Return filled rows as a table, in which the numbers and levels of X are exactly as they were.

    A column has the dtype that was fitted if that holds them. Otherwise, as for a fraction in a
    column of integers, it has the dtype of X. ``rows`` are those of X, with NaN for gaps.
    """
    there = ~rows.isnan()
    result, table = write_rows(columns, torch.where(there, rows, filled)), Table.of(X)
    for j, column in enumerate(columns):
        own, values = there[:, j].numpy(), rows[:, j].numpy()
        if table is None or column.categorical or not own.any():
            continue
        drawn = _cells(result, j)
        exact = table.letter(j) == "f" or np.abs(values[own]).max() < EXACT
        if exact and np.array_equal(drawn[own].astype(np.float64), values[own]):
            continue
        if isinstance(X, np.ndarray) and X.dtype.kind in "iu":
            return X.copy()  # it has no gaps
        known = table.frame == columns.frame and table.letter(j) in "iuf"
        cells = _merged(table, j, values, drawn)
        result = _with_cells(result, j, cells, table.dtypes[j] if known else None)
    return result


def _cells(table: Any, j: int) -> NDArray[Any]:  # noqa: ANN401
    found = Table.of(table)
    assert found is not None
    return found.column(j)


def _merged(table: Table, j: int, values: NDArray[np.float64], drawn: NDArray[Any]) -> list[Any]:
    """Return the entries of a column of numbers, and what was drawn for its gaps."""
    whole = table.letter(j) in "iu"
    return [
        (round(float(one)) if whole else one)
        if np.isnan(value)
        else (float(value) if isinstance(cell, str) else cell)
        for cell, value, one in zip(table.cells(j), values, drawn.tolist(), strict=True)
    ]


def _with_cells(table: Any, j: int, cells: list[Any], dtype: Any) -> Any:  # noqa: ANN401
    """Return a table with other cells in one column, of a dtype or of that which holds them."""
    if isinstance(table, np.ndarray):
        result = table.astype(object)
        result[:, j] = cells
        return result
    library = importlib.import_module(type(table).__module__.partition(".")[0])
    name = table.columns[j]
    if hasattr(table, "with_columns"):  # polars
        return table.with_columns(library.Series(name, cells, dtype=dtype))
    table[name] = library.Series(cells, dtype=dtype)
    return table
