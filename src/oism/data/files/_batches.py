"""Tables in files that are read in batches, as often as needed, in bounded memory.

A text is read block by block, and Parquet by its row groups. Other formats, and standard input,
are read whole and handed out in slices. Several processes share a table: process r of R reads the
row groups r, r + R, ... of a Parquet file with at least R of them. From other tables each process
reads all and keeps the batches r, r + R, ... . A batch names its place in the whole table, which
does not depend on the number of processes.
"""

from __future__ import annotations

import gzip
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from oism.data.files import _formats as formats
from oism.data.files._columns import FileError
from oism.data.files._sheet import Sheet
from oism.data.files._streams import STANDARD, called
from oism.data.files._text import Text

BATCH = 2**18
"""The number of rows in a batch, unless given."""

LARGE = 2**27
"""The size of a table in bytes above which it is better read in batches."""

READ_AHEAD = 2**20
"""The number of bytes of a column of a Parquet file that are read at once."""


@dataclass(frozen=True)
class Shard:
    """The part of a table that is read by process ``rank`` out of ``count``."""

    rank: int = 0
    count: int = 1

    def has(self, index: int) -> bool:
        """Return whether a part of this index belongs to the shard."""
        return index % self.count == self.rank


ALL = Shard()


class TableFile(ABC):
    """A table in a file: ``head`` has its columns without rows, ``total`` is the number of rows.

    ``total`` is None where it is not known before the table is read, ``size`` is in bytes.
    """

    head: Sheet
    total: int | None
    size: int

    @property
    def is_large(self) -> bool:
        """Whether the table is better read in batches than whole."""
        return self.size > LARGE

    @abstractmethod
    def whole(self) -> Sheet:
        """Return the whole table."""

    def sheets(
        self, columns: Sequence[str], rows: int = BATCH, shard: Shard = ALL
    ) -> Iterator[Sheet]:
        """Yield some columns, in batches of at most so many rows; `Sheet.first` is their place."""
        for first, table in self._tables(columns, rows, shard):
            yield Sheet(table, self.head.source, self.head.line_of, first)

    @abstractmethod
    def _tables(
        self, columns: Sequence[str], rows: int, shard: Shard
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield the tables of the batches, and the numbers of rows before them."""


class TextFile(TableFile):
    """A table in a text, compressed by gzip or not."""

    def __init__(self, path: str, source: str, delimiter: str) -> None:
        self._path, self._text = path, Text(_opener(path), source, delimiter)
        self.size, self.total = os.path.getsize(path), None
        self.head = Sheet(_without_rows(self._text.names), source, self._text.line_of)

    def whole(self) -> Sheet:
        """Return the whole table."""
        kind = next(
            kind for kind, mark in formats.DELIMITERS.items() if mark == self._text.delimiter
        )
        return formats.read(self._path, kind)

    def _tables(
        self, columns: Sequence[str], rows: int, shard: Shard
    ) -> Iterator[tuple[int, pa.Table]]:
        blocks = self._text.batches(columns)
        yield from _shared(_slices(blocks, rows), shard)


class ParquetFile(TableFile):
    """A table in a Parquet file."""

    def __init__(self, path: str, source: str) -> None:
        self._path, self._source = path, source
        with formats.explained(source), self._opened() as file:
            schema, data = file.schema_arrow, file.metadata
            names = [name for name in schema.names if not formats.is_index(name)]
            head = schema.empty_table().select(_places(schema.names, names))
            self.head = Sheet(formats.without_views(head), source)
            self._groups = [data.row_group(i).num_rows for i in range(data.num_row_groups)]
        self.total = sum(self._groups)
        self.size = 8 * self.total * len(names)

    def whole(self) -> Sheet:
        """Return the whole table."""
        return formats.read(self._path, "parquet")

    def _opened(self) -> pq.ParquetFile:
        # Pages, not whole column chunks: a file may be one row group.
        return formats.parquet(self._path, buffer_size=READ_AHEAD, pre_buffer=False)

    def _tables(
        self, columns: Sequence[str], rows: int, shard: Shard
    ) -> Iterator[tuple[int, pa.Table]]:
        by_group = len(self._groups) >= shard.count
        found = self._by_group(columns, rows, shard if by_group else ALL)
        yield from found if by_group else _of_shard(found, shard)

    def _by_group(
        self, columns: Sequence[str], rows: int, shard: Shard
    ) -> Iterator[tuple[int, pa.Table]]:
        with formats.explained(self._source), self._opened() as file:
            place = 0
            for group, count in enumerate(self._groups):
                first, place = place, place + count
                if not shard.has(group):
                    continue
                for batch in file.iter_batches(
                    rows, row_groups=[group], columns=list(columns), use_threads=False
                ):
                    table = pa.Table.from_batches([batch]).select(list(columns))
                    yield first, formats.without_views(table)
                    first += batch.num_rows


class WholeFile(TableFile):
    """A table that is held in memory."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet, self._table = sheet, sheet.table
        self.total, self.size = sheet.table.num_rows, 0
        self.head = Sheet(sheet.table.slice(0, 0), sheet.source, sheet.line_of)

    def whole(self) -> Sheet:
        """Return the whole table."""
        return self._sheet

    def _tables(
        self, columns: Sequence[str], rows: int, shard: Shard
    ) -> Iterator[tuple[int, pa.Table]]:
        yield from _shared(_slices(iter([self._table.select(list(columns))]), rows), shard)


def open_table(path: str, format: str | None = None) -> TableFile:  # noqa: A002
    """Return the table in a file, of which only the names of its columns have been read."""
    kind, source = formats.format_of(path, format), called(path)
    if path == STANDARD or kind not in (*formats.DELIMITERS, "parquet") or not os.path.isfile(path):
        return WholeFile(formats.read(path, format))
    if not os.path.getsize(path):
        raise FileError(f"{source}: the file is empty")
    table: TableFile = (
        ParquetFile(path, source)
        if kind == "parquet"
        else TextFile(path, source, formats.DELIMITERS[kind])
    )
    table.head.check_columns()
    return table


def _opener(path: str) -> Callable[[], IO[bytes]]:
    def plain() -> IO[bytes]:
        return open(path, "rb")

    def compressed() -> IO[bytes]:
        return gzip.open(path, "rb")  # type: ignore[return-value]

    return compressed if path.endswith(".gz") else plain


def _slices(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield tables of at most so many rows."""
    for table in tables:
        for start in range(0, table.num_rows, rows):
            yield table.slice(start, rows)


def _shared(tables: Iterator[pa.Table], shard: Shard) -> Iterator[tuple[int, pa.Table]]:
    """Yield the tables of a shard, and the numbers of rows before them."""

    def located() -> Iterator[tuple[int, pa.Table]]:
        first = 0
        for table in tables:
            yield first, table
            first += table.num_rows

    yield from _of_shard(located(), shard)


def _of_shard(
    found: Iterator[tuple[int, pa.Table]], shard: Shard
) -> Iterator[tuple[int, pa.Table]]:
    for index, part in enumerate(found):
        if shard.has(index):
            yield part


def _without_rows(names: Sequence[str]) -> pa.Table:
    return pa.Table.from_arrays([pa.array([], pa.string()) for _ in names], names=list(names))


def _places(names: Sequence[str], chosen: Sequence[str]) -> list[int]:
    return [index for index, name in enumerate(names) if name in chosen]
