"""A table with its source: columns as numbers, and errors that name the place in the source."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oism.data.files._columns import FileError, check_count, find_column, numbering

Array = NDArray[np.float64]

MOST_LEVELS = 50
"""The largest number of different texts in a column whose texts are levels of a category."""

MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none")
"""Words for a missing number, in any case."""


SIGHTED = 2**16
"""The number of rows that decide whether the texts of a column are levels."""


def is_number(word: str) -> bool:
    """Return whether a word is a finite number."""
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table, the name of its source in messages, and the line of the source of each row.

    ``first`` is the number of rows of the source before those of the table.
    """

    table: pa.Table
    source: str
    line_of: Callable[[int], int] | None = None
    first: int = 0

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
        row += self.first
        where = f"row {row + 1}" if self.line_of is None else f"line {self.line_of(row)}"
        return f"{self.source}: {where}, column {column!r}"

    def check_columns(self) -> None:
        """Raise unless there are columns, with different names."""
        if not self.names:
            raise FileError(f"{self.source}: the table has no columns")
        check_count(len(self.names), self.source)
        twice = sorted(name for name, count in Counter(self.names).items() if count > 1)
        if twice:
            raise FileError(f"{self.source}: more than one column is called {twice[0]!r}")

    def check_shape(self) -> None:
        """Raise unless there are rows, and columns with different names."""
        self.check_columns()
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

    def frame(self, columns: Sequence[str], advice: str = "") -> pa.Table:
        """Return columns of numbers, of True and False, and of text with few levels.

        Columns of integers have their type, and null where one is missing; other numbers are
        float64, and NaN. A text is a level where at most half of a column's texts are numbers, and
        at most 50 of them are different; missing ones are null. Otherwise the first text is an
        error, see `numbers`. The texts true and false are True and False.
        """
        found = {
            name: self._levels(name) if (cells := self.typed(name)) is None else cells
            for name in columns
        }
        parts = [
            pa.array(self._column(name, advice)) if found[name] is None else found[name]
            for name in columns
        ]
        return pa.table(parts, list(columns))

    def typed(self, column: str) -> pa.ChunkedArray | None:
        """Return a column whose type is that of integers or of True and False, otherwise None."""
        cells = self.table.column(column)
        if pa.types.is_integer(cells.type) or pa.types.is_boolean(cells.type):
            return cells
        return None

    def holds_text(self, column: str) -> bool:
        """Return whether the cells of a column are text, also if that text is numbers."""
        kind = self.table.column(column).type
        return _is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)

    def texts(self, column: str) -> pa.ChunkedArray:
        """Return a column as texts, null where one is missing."""
        cells = self.table.column(column)
        return self._words(cells.cast(pa.string()))

    def _levels(self, name: str) -> pa.ChunkedArray | None:
        """Return a column of text as levels, or None if it holds numbers or too many texts."""
        cells = self.table.column(name)
        if pa.types.is_dictionary(cells.type):
            cells = cells.cast(cells.type.value_type)
        if not _is_text(cells.type):
            return None
        words = self._words(cells)
        counts = {
            count["values"]: count["counts"]
            for count in pc.value_counts(words[:SIGHTED]).to_pylist()
        }
        counts.pop(None, None)
        numbers = sum(count for word, count in counts.items() if is_number(word))
        few = len(counts) <= MOST_LEVELS and 2 * numbers < sum(counts.values())
        if counts and {word.lower() for word in counts} <= {"true", "false"}:
            return _cast(words, pa.bool_())  # None if there are other words further down
        if not few or not counts or len(pc.unique(words)) > MOST_LEVELS + 1:
            return None
        return words

    def gaps(self, column: str, *, numeric: bool) -> NDArray[np.bool_]:
        """Return which cells of a column of numbers, or of texts, are missing."""
        if numeric:
            return np.isnan(self.numbers([column])[:, 0])
        found: NDArray[np.bool_] = self.texts(column).is_null().to_numpy()
        return found

    def complete(
        self, rows: Array, columns: Sequence[str], *, skip: bool, some: bool = True
    ) -> NDArray[np.bool_]:
        """Return which rows of `numbers` are complete; raise for others unless they are skipped.

        With ``some`` there must be one at least; a batch may have none.
        """
        lacking = np.isnan(rows)
        kept: NDArray[np.bool_] = np.logical_not(lacking.any(axis=1))
        if not skip and not kept.all():
            row, column = np.argwhere(lacking)[0]
            raise FileError(
                f"{self.place(int(row), columns[column])}: the value is missing; --missing skip "
                "leaves such rows out, and --missing use keeps them where the model can"
            )
        if some and not kept.any():
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
        if _is_text(kind):
            return self._parsed(name, cells, advice)
        numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        if not any(test(kind) for test in (*numeric, pa.types.is_boolean, pa.types.is_null)):
            raise FileError(f"{self.source}: column {name!r} holds {kind}, not numbers{advice}")
        return _float64(cells)

    @staticmethod
    def _words(cells: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return texts without spaces around them, null where one is missing."""
        words = pc.utf8_trim_whitespace(cells)
        missing = pc.is_in(pc.utf8_lower(words), value_set=pa.array(MISSING, cells.type))
        return pc.if_else(missing, None, words)

    def _parsed(self, name: str, cells: pa.ChunkedArray, advice: str) -> Array:
        words = self._words(cells)
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


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


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
