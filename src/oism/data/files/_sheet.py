"""A table with its source: columns as numbers, and errors that name the place in the source."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oism.data.files._columns import FileError, find_column, numbering

Array = NDArray[np.float64]

MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none")
"""Words for a missing number, in any case."""


def is_number(word: str) -> bool:
    """Return whether a word is a finite number."""
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table, the name of its source in messages, and the line of the source of each row."""

    table: pa.Table
    source: str
    line_of: Callable[[int], int] | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.table.column_names)

    @property
    def named(self) -> bool:
        """Whether the columns have names of their own."""
        return self.names != numbering(len(self.names))

    def place(self, row: int, column: str) -> str:
        """Return the place of a cell: its line in a text, otherwise its row, counted from 1."""
        where = f"row {row + 1}" if self.line_of is None else f"line {self.line_of(row)}"
        return f"{self.source}: {where}, column {column!r}"

    def check_shape(self) -> None:
        """Raise unless there are rows, and columns with different names."""
        if not self.names:
            raise FileError(f"{self.source}: the table has no columns")
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        if twice:
            raise FileError(f"{self.source}: more than one column is called {twice[0]!r}")
        if not self.table.num_rows:
            header = "a header but " if self.line_of is not None else ""
            raise FileError(f"{self.source}: the table has {header}no rows")

    def find(self, column: str) -> str:
        """Return the name of a column that is given by its name, or by its index from 0."""
        return self.names[find_column(column, self.names, self.source)]

    def choose(self, columns: Sequence[str], *, without: Sequence[str] = ()) -> list[str]:
        """Return the names of the given columns; of all but ``without`` where none is given."""
        if columns:
            found = [self.find(column) for column in columns]
            if len(set(found)) < len(found):
                raise FileError(f"{self.source}: a column is chosen twice in {', '.join(columns)}")
            return found
        if "" in self.names:
            index = self.names.index("")
            raise FileError(
                f"{self.source}: column {index} has no name, as an index that was written along: "
                "choose with --columns"
            )
        rest = [name for name in self.names if name not in without]
        if not rest:
            raise FileError(f"{self.source}: there is no column besides {', '.join(without)}")
        return rest

    def numbers(self, columns: Sequence[str], advice: str = "") -> Array:
        """Return columns as numbers ``(n, d)``, NaN where one is missing.

        ``advice`` ends the message about a column that does not hold numbers.
        """
        parts = [self._column(name, advice) for name in columns]
        return np.stack(parts, axis=1) if parts else np.empty((self.table.num_rows, 0))

    def complete(self, rows: Array, columns: Sequence[str], *, skip: bool) -> NDArray[np.bool_]:
        """Return which rows of `numbers` are complete; raise for others unless they are skipped."""
        lacking = np.isnan(rows)
        kept: NDArray[np.bool_] = np.logical_not(lacking.any(axis=1))
        if not skip and not kept.all():
            row, column = np.argwhere(lacking)[0]
            raise FileError(
                f"{self.place(int(row), columns[column])}: the value is missing; --missing skip "
                "leaves such rows out"
            )
        if not kept.any():
            raise FileError(f"{self.source}: no row is complete in {', '.join(columns)}")
        return kept

    def check_finite(self, rows: Array, columns: Sequence[str]) -> None:
        """Raise where a number is infinite."""
        infinite = np.isinf(rows)
        if infinite.any():
            row, column = np.argwhere(infinite)[0]
            value = rows[row, column]
            raise FileError(f"{self.place(int(row), columns[column])}: {value} is not finite")

    def _column(self, name: str, advice: str) -> Array:
        cells = self.table.column(name)
        if pa.types.is_dictionary(cells.type):
            cells = cells.cast(cells.type.value_type)
        kind = cells.type
        if any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string)):
            return self._parsed(name, cells, advice)
        numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        if not any(test(kind) for test in (*numeric, pa.types.is_boolean, pa.types.is_null)):
            raise FileError(f"{self.source}: column {name!r} holds {kind}, not numbers{advice}")
        return _float64(cells)

    def _parsed(self, name: str, cells: pa.ChunkedArray, advice: str) -> Array:
        words = pc.utf8_trim_whitespace(cells)
        missing = pc.is_in(pc.utf8_lower(words), value_set=pa.array(MISSING, cells.type))
        words = pc.if_else(missing, None, words)
        for kind in (pa.float64(), pa.bool_()):
            if (numbers := _cast(words, kind)) is not None:
                return _float64(numbers)
        low, high = 0, len(words)  # the first `low` words are numbers, not all of the first `high`
        while high - low > 1:
            middle = (low + high) // 2
            parsed = _cast(words[:middle], pa.float64())
            low, high = (low, middle) if parsed is None else (middle, high)
        word = cells[low].as_py()
        raise FileError(f"{self.place(low, name)}: {word!r} is not a number{advice}")


def _cast(words: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    try:
        return pc.cast(words, kind)
    except pa.ArrowInvalid:
        return None


def _float64(cells: pa.ChunkedArray) -> Array:
    if pa.types.is_boolean(cells.type):
        cells = pc.cast(cells, pa.int8())
    cells = pc.cast(cells, pa.float64(), safe=False)  # integers beyond 2⁵³ are rounded
    array: Array = np.array(cells.to_numpy(), dtype=np.float64)
    return array
