"""Tables as users have them: the names, dtypes and entries of their columns, of any library."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism.tables._columns import Columns

Array = NDArray[Any]

INTEGER = re.compile(r"(?P<unsigned>[uU])?(?P<letter>[iI])nt(?P<bits>\d+)")
"""The text of a dtype of integers; one with a capital letter has gaps."""

TIMES = "mM"
"""The letters by which NumPy names the kinds of dtypes of times."""


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
        letters = {letter_of(dtype) for dtype in self.dtypes}
        return letters <= set("iufc") or (self.frame is None and letters == {"b"})

    def letter(self, j: int) -> str:
        """Return NumPy's letter for the kind of a column's dtype."""
        return letter_of(self.dtypes[j])

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
    return {j: {dtype_text(dtype): dtype} for j, dtype in enumerate(dtypes)}


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


def check_is_table(X: object) -> None:  # noqa: N803
    """Raise for the name of a file and for a dictionary, which are tables only when read."""
    if isinstance(X, str | bytes | os.PathLike):
        raise TypeError(
            f"X must be a table, got the text {X!r}: for a file give what pandas.read_csv, or "
            "another function that reads it, returns"
        )
    if isinstance(X, Mapping) and not scipy.sparse.issparse(X):  # some of which are mappings
        raise TypeError("X must be a table, got a mapping: give pandas.DataFrame(X)")


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
    label = as_python(label)
    name: Hashable = str(label) if label is None or label != label else label  # noqa: PLR0124
    return name


def letter_of(dtype: Any) -> str:  # noqa: ANN401
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


def dtype_text(dtype: Any) -> str:  # noqa: ANN401
    """Return the text of a dtype by which `write_rows` finds it again."""
    text = str(dtype)
    return f"{text}, ordered" if getattr(dtype, "ordered", False) else text


def as_python(value: Any) -> Any:  # noqa: ANN401
    return value.item() if isinstance(value, np.generic) else value
