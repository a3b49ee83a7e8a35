"""What is wrong with a file, in words that a person can act on; and how columns are named."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class FileError(ValueError):
    """A file does not hold what it should; the message names the file and the place in it."""


def numbering(count: int) -> list[str]:
    """Return the names of columns that have none."""
    return [str(index) for index in range(count)]


def find_column(said: str, names: Sequence[str], source: str) -> int:
    """Return the index of the column that is meant by a name, or by an index from 0."""
    if said in names:
        return list(names).index(said)
    if said.isdecimal() and int(said) < len(names):
        return int(said)
    raise unknown_column(said, names, source)


def unknown_column(said: str, names: Sequence[str], source: str) -> FileError:
    """Return the error for a column that is not there: it lists those that are."""
    near = difflib.get_close_matches(said, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    known = ", ".join(repr(name) for name in names)
    return FileError(f"{source}: there is no column {said!r}, only {known}{hint}")
