"""The error about the content of a file, and the names of columns."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class FileError(ValueError):
    """The content of a file is wrong; the message names the file and the place in it."""


MOST_COLUMNS = 10_000
"""The largest number of columns of a table: no density of more is fitted, and names take long."""


def check_count(count: int, source: str) -> None:
    """Raise for a table of too many columns."""
    if count > MOST_COLUMNS:
        raise FileError(
            f"{source}: the table has {count:,} columns, and at most {MOST_COLUMNS:,} are read: "
            "write those of interest to a file of their own"
        )


def numbering(count: int) -> list[str]:
    """Return the names of columns that have none."""
    return [str(index) for index in range(count)]


def find_column(column: str, names: Sequence[str], source: str) -> int:
    """Return the index of a column that is given by its name, or by its index from 0."""
    if column in names:
        return list(names).index(column)
    if column.isdecimal() and int(column) < len(names):
        return int(column)
    raise unknown_column(column, names, source)


def unknown_column(column: str, names: Sequence[str], source: str) -> FileError:
    """Return the error for a missing column; it lists the columns that exist."""
    near = difflib.get_close_matches(column, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    known = ", ".join(repr(name) for name in names)
    return FileError(f"{source}: there is no column {column!r}, only {known}{hint}")
