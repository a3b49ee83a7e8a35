"""Rows of numbers as tables of the kind that was fitted.

A data frame of pandas or polars gives a data frame back, with the names and the dtypes of its
columns; everything else gives an array. The index of a level becomes the level, and values of
integer columns are rounded.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from oism.tables._column import Column
from oism.tables._columns import Columns

Array = NDArray[Any]

DICTIONARY = re.compile(
    r"dictionary<values=(?P<value>\w+), indices=(?P<index>\w+), ordered=(?P<ordered>[01])>"
    r"\[pyarrow\](, ordered)?"
)
"""The text by which pandas names the dictionaries of Arrow."""


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
    if not column.is_integer:
        return values
    whole, gaps = column.whole(values), np.isnan(values)
    if not gaps.any():
        return whole
    result = whole.astype(object)
    result[gaps] = None
    return result


def _to_pandas(pandas: Any, columns: Columns, values: list[Array]) -> Any:  # noqa: ANN401
    series = {}
    for j, column in enumerate(columns):
        name = j if column.name is None else column.name
        series[name] = pandas.Series(values[j]).astype(_pandas_dtype(pandas, column))
    return pandas.DataFrame(series)


def _pandas_dtype(pandas: Any, column: Column) -> Any:  # noqa: ANN401
    """Return the dtype of a column of pandas by its text."""
    if column.categories:
        ordered = column.dtype.endswith(", ordered")
        return pandas.CategoricalDtype(list(column.categories), ordered=ordered)
    coded = DICTIONARY.fullmatch(column.dtype)
    if coded is None:
        return column.dtype.removesuffix(", ordered")
    arrow = importlib.import_module("pyarrow")  # pandas does not read this text
    index, value = (arrow.type_for_alias(coded[word]) for word in ("index", "value"))
    return pandas.ArrowDtype(arrow.dictionary(index, value, coded["ordered"] == "1"))


def _to_polars(polars: Any, columns: Columns, values: list[Array]) -> Any:  # noqa: ANN401
    series = []
    for j, column in enumerate(columns):
        name, word = str(column.name), column.dtype.partition("(")[0]
        dtype = getattr(polars, word, None)
        if word == "Enum":
            dtype = polars.Enum(column.categories or column.levels)
        data = values[j].tolist() if values[j].dtype == object else values[j]
        one = polars.Series(name, data)
        series.append(one if dtype is None else one.cast(dtype))
    return polars.DataFrame(series)
