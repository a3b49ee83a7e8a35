"""What is wrong with a file, in words that a person can act on."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class FileError(ValueError):
    """A file does not hold what it should; the message names the file and the place in it."""


def unknown_column(source: str, name: str, known: Sequence[str]) -> FileError:
    """Return the error for a column that a table does not have."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    columns = ", ".join(repr(column) for column in known)
    return FileError(f"{source}: there is no column {name!r}, only {columns}{hint}")
