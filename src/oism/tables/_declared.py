"""What a user declares of columns: by which names or indices, and which intervals."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

from oism._core import checks


def interval(pair: object, name: str) -> tuple[float, float]:
    """Return the ends of an interval, both finite."""
    ends = [] if isinstance(pair, str) or not isinstance(pair, Iterable) else list(pair)
    if len(ends) != 2:
        raise TypeError(f"{name} must be a pair (low, high), got {pair!r}")
    low, high = (checks.number(end, f"{name}[{i}]") for i, end in enumerate(ends))
    if not low < high:
        raise ValueError(f"{name} must have low < high, got {pair!r}")
    return low, high


def ends_of(pair: object, name: str) -> tuple[float, float]:
    """Return the ends of an interval, of which one may be infinite or None."""
    ends = [] if isinstance(pair, str) or not isinstance(pair, Iterable) else list(pair)
    if len(ends) != 2:
        raise TypeError(f"{name} must be a pair (low, high), got {pair!r}")
    sides = (-math.inf, math.inf)
    given = [side if end is None else end for end, side in zip(ends, sides, strict=True)]
    if given == [*sides]:
        raise ValueError(
            f"{name} must have a finite end, got {pair!r}: leave a column without bounds out"
        )
    low, high = (
        side if end == side else checks.number(end, f"{name}[{i}]", "a finite number or None")
        for i, (end, side) in enumerate(zip(given, sides, strict=True))
    )
    if not low < high:
        raise ValueError(f"{name} must have low < high, got {pair!r}")
    return low, high


def check_periodic(periodic: object) -> None:
    """Raise for the names of columns without their periods."""
    if isinstance(periodic, str | list | tuple):
        raise ValueError(  # in the words of scikit-learn, which checks the other parameters
            "The 'periodic' parameter of OISM must be a mapping from columns to periods, as "
            f"{{'hour': 24}}, or one period for all columns. Got {periodic!r} instead."
        )


def by_index(
    values: Mapping[Any, Any], count: int, names: Sequence[Hashable] | None, what: str
) -> list[tuple[int, object, Any]]:
    """Return index, key and value for each column in a mapping."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{what} must be a mapping from columns, got {type(values).__name__}")
    found = [(index_of(key, count, names, what), key, value) for key, value in values.items()]
    columns = [column for column, _, _ in found]
    if len(set(columns)) < len(columns):
        raise ValueError(f"{what} must name every column once, got {list(values)}")
    return found


def index_of(key: object, count: int, names: Sequence[Hashable] | None, what: str) -> int:
    """Return the index of a column that is given by its name or by its index.

    A number that is the name of one column and the index of another one is an error.
    """
    known = [] if names is None else list(names)
    # True equals the number 1, but is the name of no column.
    named = known.index(key) if not isinstance(key, bool) and key in known else None
    if isinstance(key, str) and named is None:
        if names is None:
            raise ValueError(f"{what} names column {key!r}, but the data have no column names")
        raise ValueError(f"{what} names column {key!r}; the columns are {known}")
    if named is not None:
        index = int(key) if isinstance(key, Integral) else named
        if -count <= index < count and index % count != named:
            raise ValueError(
                f"{what} has {key!r}, which is the name of column {named} and also the index of "
                f"column {index % count}, whose name is {known[index % count]!r}: give the "
                "columns names that are text"
            )
        return named
    if isinstance(key, tuple | float) and known and not isinstance(known[0], str):
        raise ValueError(f"{what} names column {key!r}; the columns are {known}")
    column = checks.integer(key, f"a column of {what}", minimum=-count)
    if column >= count:
        raise ValueError(f"{what} has column {column}, but the data have {count} columns")
    return column % count
