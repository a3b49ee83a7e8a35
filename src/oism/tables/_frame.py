"""Tables as users have them, read as columns and rows of numbers.

`read_columns` turns a table into `Columns` and rows ``(n, d)`` of float64, and `read_rows` turns
new rows of such a table into numbers: a level of a category becomes its index, a gap (NaN, None,
pandas' NA) becomes NaN.

Tables of numbers are read by scikit-learn; those here have other columns as well. A column is
*categorical* if its dtype is bool, "category" or polars' Enum, or if it holds text; text that all
parses as numbers is read as numbers. Text is an error in a column that is declared to be numeric,
or half of which parses as numbers. `oism.tables._levels` finds discrete columns.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism.tables._column import Column
from oism.tables._columns import Columns, index_of
from oism.tables._levels import LEAST_ROWS, with_levels

Array = NDArray[Any]

INTEGER = re.compile(r"(?P<unsigned>[uU])?(?P<letter>[iI])nt(?P<bits>\d+)")
"""The text of a dtype of integers; one with a capital letter has gaps."""

NUMBERS, TIMES = "iufb", "mM"
"""The letters by which NumPy names the kinds of dtypes."""


@dataclass(frozen=True)
class Table:
    """The columns of a table that are not all numbers, or that have dtypes to be kept.

    ``column`` returns the entries of a column as an array, in which integers beside gaps may be
    rounded, and ``cells`` as objects that are exact.
    """

    frame: str | None
    labels: tuple[Hashable, ...] | None
    dtypes: tuple[Any, ...]
    column: Callable[[int], Array]
    cells: Callable[[int], list[Any]]

    @classmethod
    def of(cls, X: Any) -> Table | None:  # noqa: ANN401, N803
        """Return the columns of a frame or an array, or None where there are none to be told."""
        frame = type(X).__module__.partition(".")[0]
        if frame in ("pandas", "polars", "pyarrow") and getattr(X, "shape", ())[1:] == (0,):
            raise ValueError(f"X must have at least one column, got a table of shape {X.shape}")
        if frame == "pandas" and hasattr(X, "iloc") and getattr(X, "ndim", 0) == 2:
            labels, dtypes = list(X.columns), list(X.dtypes)
            return cls(
                frame,
                _labels(labels),
                tuple(dtypes),
                lambda j: np.asarray(X.iloc[:, j]),
                lambda j: list(X.iloc[:, j].tolist()),
            )
        if frame == "polars" and hasattr(X, "schema") and hasattr(X, "get_columns"):
            series = X.get_columns()
            labels, dtypes = [one.name for one in series], [one.dtype for one in series]
            return cls(
                frame,
                _labels(labels),
                tuple(dtypes),
                lambda j: np.asarray(series[j]),
                lambda j: list(series[j].to_list()),
            )
        if frame == "pyarrow" and hasattr(X, "schema"):
            parts, labels = list(X.columns), list(X.schema.names)
            dtypes = [one.type for one in parts]
            return cls(
                None,
                _labels(labels),
                tuple(dtypes),
                lambda j: np.asarray(parts[j].to_pylist(), dtype=object),
                lambda j: list(parts[j].to_pylist()),
            )
        return cls._of_array(X)

    @classmethod
    def _of_array(cls, X: Any) -> Table | None:  # noqa: ANN401, N803
        if not isinstance(X, np.ndarray | list | tuple):
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                array = np.asarray(X)
                if array.dtype.kind in "US":  # numbers among text became text
                    array = np.asarray(X, dtype=object)
        except Exception:  # ragged lists and the like: scikit-learn says what is wrong
            return None
        if array.ndim != 2:
            return None
        return cls(
            None,
            None,
            (array.dtype,) * array.shape[1],
            lambda j: array[:, j],
            lambda j: list(array[:, j].tolist()),
        )

    @property
    def is_numeric(self) -> bool:
        """Whether scikit-learn reads this table: all dtypes are those of numbers."""
        letters = {_letter(dtype) for dtype in self.dtypes}
        return letters <= set("iufc") or (self.frame is None and letters == {"b"})

    def letter(self, j: int) -> str:
        """Return NumPy's letter for the kind of a column's dtype."""
        return _letter(self.dtypes[j])

    def name(self, j: int) -> str:
        """Return what messages call a column."""
        label = None if self.labels is None else self.labels[j]
        return str(j) if label is None or isinstance(label, int) else repr(label)


def readable(X: Any) -> Any:  # noqa: ANN401, N803
    """Return a table as NumPy reads it, with NaN or None for the masked entries of an array.

    NumPy itself would read the numbers under the mask as data. It has no bfloat16, and for sparse
    columns of pandas scikit-learn needs zeros as the values that are left out.
    """
    if isinstance(X, Tensor):
        return X.float() if X.dtype == torch.bfloat16 else X
    if type(X).__module__.partition(".")[0] == "pandas" and hasattr(X, "columns"):
        sparse = [one for one in X.dtypes if str(one).startswith("Sparse[")]
        return X.astype(_dense(X)) if sparse else X
    if isinstance(X, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(X)
        if not mask.any():
            return X.data
        if X.dtype.kind in "biu":
            return np.where(mask, np.nan, X.data.astype(np.float64))
        gap = np.array("NaT", X.dtype) if X.dtype.kind in TIMES else np.nan
        plain = X.data.copy() if X.dtype.kind in "fcmM" else X.data.astype(object)
        plain[mask] = gap if plain.dtype != object else None
        return plain
    return X


def _dense(frame: Any) -> dict[Any, Any]:  # noqa: ANN401
    """Return the dtypes that the sparse columns of a frame of pandas have when they are dense."""
    _labels(list(frame.columns))  # one dtype for each name
    dtypes = frame.dtypes.items()
    return {name: one.subtype for name, one in dtypes if str(one).startswith("Sparse[")}


def types_of(X: Any) -> dict[int, dict[str, Any]]:  # noqa: ANN401, N803
    """Return the dtypes of the columns of a frame or an array, by their text."""
    table = Table.of(X)
    dtypes = () if table is None else table.dtypes
    return {j: {_text(dtype): dtype} for j, dtype in enumerate(dtypes)}


def common_dtype(dtypes: Mapping[str, Any]) -> Any:  # noqa: ANN401 (of any library)
    """Return the one of several dtypes, by their text, that holds all values; None for float64.

    >>> common_dtype({"int32": np.dtype("int32"), "int64": np.dtype("int64")})
    dtype('int64')
    >>> common_dtype({"int64": np.dtype("int64"), "float32": np.dtype("float32")}) is None
    True
    """
    if len(dtypes) == 1:
        return next(iter(dtypes.values()))
    found = [INTEGER.fullmatch(text) for text in dtypes]
    if not all(found):
        return None
    parts = [(bool(one["unsigned"]), int(one["bits"]), one["letter"]) for one in found if one]
    letters = "I" if any(letter == "I" for *_, letter in parts) else "i"  # with gaps, or without
    # An unsigned integer needs one bit more in a signed one.
    widest = max(bits + unsigned for unsigned, bits, _ in parts)
    signed = {unsigned for unsigned, *_ in parts} != {True}
    for text, (unsigned, bits, letter) in zip(dtypes, parts, strict=True):
        if letter == letters and bits + unsigned >= widest and not (signed and unsigned):
            return dtypes[text]
    return None


def check_no_times(table: Table, j: int) -> None:
    """Raise if a column holds times, which NumPy would convert to nanoseconds or the like."""
    found = table.dtypes[j]
    if _letter(found) not in TIMES:
        return
    raise _holds_times(table.name(j), found)


def _holds_times(name: str, found: object) -> TypeError:
    return TypeError(
        f"column {name} holds times ({found}): give numbers, for instance the days since the "
        "first, or leave the column out"
    )


def check_is_table(X: object) -> None:  # noqa: N803
    """Raise for the name of a file and for a dictionary, which are tables only when read."""
    if isinstance(X, str | bytes | os.PathLike):
        raise TypeError(
            f"X must be a table, got the text {X!r}: for a file give what pandas.read_csv, or "
            "another function that reads it, returns"
        )
    if isinstance(X, Mapping) and not scipy.sparse.issparse(X):  # some of which are mappings
        raise TypeError("X must be a table, got a mapping: give pandas.DataFrame(X)")


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
        column = replace(given, dtype="float64" if dtype is None else _text(dtype))
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


def check_labels(columns: Columns, table: Table | None) -> None:
    """Raise if a frame has other names than the fit, or the same in another order.

    Scikit-learn does so for names that are text. The numbers from 0 that pandas gives to columns
    without names agree with names that are no text, unless these are numbers in another order.
    """
    known, labels = columns.names, None if table is None else table.labels
    if known is None or labels is None or known == labels:
        return
    nameless = labels == tuple(range(len(labels)))
    if nameless and columns.texts is None and set(known) != set(labels):
        return
    raise ValueError(
        f"X must have the columns {list(known)} in this order, as the fit, got {list(labels)}"
    )


def _labels(labels: list[Any]) -> tuple[Hashable, ...]:
    """Return the names of columns, which have to be distinct; those of NumPy as Python's."""
    names = [_name(label) for label in labels]
    twice = [label for k, label in enumerate(names) if label in names[:k]]
    if twice:
        raise ValueError(f"columns must have distinct names, but {twice[0]!r} is there twice")
    return tuple(names)


def _name(label: Any) -> Hashable:  # noqa: ANN401
    """Return a name that equals itself and is no mark of a column without a name."""
    if isinstance(label, tuple):
        return tuple(map(_name, label))
    label = _plain(label)
    name: Hashable = str(label) if label is None or label != label else label  # noqa: PLR0124
    return name


def _letter(dtype: Any) -> str:  # noqa: ANN401
    """Return NumPy's letter for the kind of a dtype of any library."""
    kind = getattr(dtype, "kind", None)
    if isinstance(kind, str):  # NumPy, and the extensions of pandas
        return kind if getattr(dtype, "categories", None) is None else "O"
    if hasattr(dtype, "is_numeric"):  # polars
        words = ("is_float", "f"), ("is_integer", "i"), ("is_temporal", "M"), ("is_decimal", "O")
        found = [letter for word, letter in words if getattr(dtype, word)()]
        return found[0] if found else "b" if str(dtype) == "Boolean" else "O"
    try:  # Arrow
        return str(np.dtype(dtype.to_pandas_dtype()).kind)
    except (NotImplementedError, TypeError):
        return "O"


def _text(dtype: Any) -> str:  # noqa: ANN401
    """Return the text of a dtype by which `write_rows` finds it again."""
    text = str(dtype)
    return f"{text}, ordered" if getattr(dtype, "ordered", False) else text


def _is_gap(value: object) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _is_number(value: object) -> bool:
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
    if _letter(dtype) in "iuf":
        return column, _numbers(table, j)
    check_no_times(table, j)
    given = [value for value in entries.tolist() if not _is_gap(value)]
    flags = bool(given) and all(isinstance(value, bool | np.bool_) for value in given)
    categories = _categories(dtype)
    declared = bool(categories)
    parsed = sum(map(_is_number, given))
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
    return tuple(_plain(value) for value in found)


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
        elif _is_number(value):
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
        distinct = list(dict.fromkeys(_plain(value) for value in given))
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


def _plain(value: Any) -> Any:  # noqa: ANN401
    return value.item() if isinstance(value, np.generic) else value
