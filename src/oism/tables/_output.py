"""Rows of numbers as tables of the kind that was fitted.

A data frame of pandas or polars gives a data frame back, with the names and the dtypes of its
columns; everything else gives an array. The index of a level becomes the level, and values of
integer columns are rounded.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from oism.tables._column import Column
from oism.tables._columns import Columns

Array = NDArray[Any]


def write_rows(columns: Columns, rows: Tensor) -> Any:  # noqa: ANN401 (an array or a frame)
    """Return rows ``(n, d)`` as a frame of the library that was read, or as an array.

    An array holds objects if there are categories.
    """
    array = rows.cpu().double().numpy()
    if columns.frame is None and not columns.categorical:
        return array
    values = [_written(column, array[:, j]) for j, column in enumerate(columns)]
    if columns.frame is None:
        result = np.empty(array.shape, dtype=object)
        for j, one in enumerate(values):
            result[:, j] = one
        return result
    library = importlib.import_module(columns.frame)
    make = _to_pandas if columns.frame == "pandas" else _to_polars
    return make(library, columns, values)


def _written(column: Column, values: Array) -> Array:
    """Return the values of one column: levels, integers or numbers."""
    if column.categorical:
        result = np.empty(len(values), dtype=object)
        gaps = np.isnan(values)
        codes = np.where(gaps, 0, values).astype(np.int64)
        result[:] = [column.levels[code] for code in codes]
        result[gaps] = None
        return result
    return column.whole(values) if column.is_integer else values


def _to_pandas(pandas: Any, columns: Columns, values: list[Array]) -> Any:  # noqa: ANN401
    series = {}
    for j, column in enumerate(columns):
        dtype: Any = column.dtype.removesuffix(", ordered")
        data = values[j]
        if column.categories:
            dtype = pandas.CategoricalDtype(
                list(column.categories), ordered=column.dtype.endswith(", ordered")
            )
        name = j if column.name is None else column.name
        series[name] = pandas.Series(data).astype(dtype)
    return pandas.DataFrame(series)


def _to_polars(polars: Any, columns: Columns, values: list[Array]) -> Any:  # noqa: ANN401
    series = []
    for j, column in enumerate(columns):
        name, word = str(column.name), column.dtype.partition("(")[0]
        dtype = getattr(polars, word, None)
        if column.categorical:
            one = polars.Series(name, values[j].tolist())
            dtype = polars.Enum(column.levels) if word == "Enum" else dtype
        elif column.is_integer:
            one = polars.Series(name, values[j]).fill_nan(None)
        else:
            one = polars.Series(name, values[j])
        series.append(one if dtype is None else one.cast(dtype))
    return polars.DataFrame(series)
