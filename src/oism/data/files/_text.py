"""Tables in CSV and TSV files, read whole or in batches. Cells stay text until numbers are read.

So identifiers like ``007`` and dates are written as they were read. A first row of numbers is not a
header, also where some are missing or infinite: columns are then named "0", "1", and so on. Names
that are numbers must be quoted.

A `Text` is opened anew for every purpose: for its first row, for a pass in batches, and to find the
line of an error. So no more than a block of it is in memory at once.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from oism._core.user_warnings import warn
from oism.data.files._columns import FileError, check_count, numbering
from oism.data.files._sheet import MISSING, Sheet, is_number

BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
BLOCK = 1 << 24
"""The number of bytes that Arrow reads at once; no row may be longer."""

DELIMITER_NAMES = {",": "comma", "\t": "tab", ";": "semicolon"}


@dataclass(frozen=True)
class Text:
    """A text with one row per line; ``open`` returns its bytes from the beginning."""

    open: Callable[[], IO[bytes]]
    source: str
    delimiter: str

    @cached_property
    def _head(self) -> tuple[list[str], bool]:
        """The cells of the first row, and whether they are names."""
        with self._opened() as stream:
            start = _first_lines(stream, self.source)
        records = _records(io.StringIO(start, newline=""), self.delimiter, self.source)
        _, cells = next(records, (0, []))
        if not cells:
            raise FileError(f"{self.source}: the file has no rows")
        check_count(len(cells), self.source)
        quoted = start.lstrip("\r\n").startswith('"')
        if not quoted:
            _check_delimiter(cells, self.delimiter, self.source)
        return cells, quoted or _is_header(cells, self.source)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        cells, headed = self._head
        return cells if headed else numbering(len(cells))

    def whole(self, content: bytes) -> pa.Table:
        """Return the table in the content, which is that of the text."""
        options = self._options(self.names, min(len(content), BLOCK))
        with self._explained():
            table = arrow_csv.read_csv(pa.BufferReader(content), *options)
        return table.slice(int(self._head[1])).rename_columns(self.names)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of the text, block by block."""
        rows_of_header = int(self._head[1])
        options = self._options(columns, BLOCK // 2)
        with self._explained(), self._opened() as stream:
            for block in arrow_csv.open_csv(stream, *options):
                table = pa.Table.from_batches([block]).slice(rows_of_header)
                rows_of_header = 0
                yield table.rename_columns(list(columns))

    def line_of(self, row: int) -> int:
        """Return the line on which a row begins."""
        with self._opened() as stream:
            records = _records(_decoding(stream, self.source), self.delimiter, self.source)
            return next(itertools.islice(records, row + self._head[1], None))[0]

    def _options(self, columns: Sequence[str], block: int) -> tuple[Any, Any, Any]:
        keys = numbering(len(self.names))  # not their names: Arrow would confuse equal ones
        chosen = [keys[self.names.index(name)] for name in columns]
        return (
            arrow_csv.ReadOptions(
                # Threads of Arrow that outlive an error abort the interpreter at its exit.
                use_threads=False,
                column_names=keys,
                block_size=block,
            ),
            arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(keys, pa.string()),
                include_columns=keys if list(columns) == self.names else chosen,
                strings_can_be_null=False,
            ),
        )

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        try:
            with self.open() as stream:
                yield stream
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            message = f"{self.source}: damaged, or not compressed by gzip: {error}"
            raise FileError(message) from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise the error about what Arrow could not read with its line."""
        try:
            yield
        except pa.ArrowInvalid as error:
            raise self._why(str(error)) from error

    def _why(self, message: str) -> FileError:
        count = len(self.names)
        with self._opened() as stream:
            for line, cells in _records(
                _decoding(stream, self.source), self.delimiter, self.source
            ):
                if len(cells) != count:
                    cell = "cell" if len(cells) == 1 else "cells"
                    return FileError(
                        f"{self.source}: line {line} has {len(cells)} {cell}, but the first row "
                        f"has {count}"
                    )
        return FileError(f"{self.source}: {message}")


def read(content: bytes, source: str, delimiter: str) -> Sheet:
    """Return the table in a text."""
    text = Text(lambda: io.BytesIO(content), source, delimiter)
    return Sheet(text.whole(content), source, text.line_of)


def content(table: pa.Table, delimiter: str, path: str) -> bytes:
    """Return a table as text: numbers with all their digits, quotes only where they are needed."""
    styles = ["none", "needed"]  # the first fails where a cell holds a delimiter or a quote
    if table.num_columns == 1:
        # An empty line is not a row: an empty cell needs quotes.
        words = pc.fill_null(pc.cast(table.column(0), pa.string()), "")
        if pc.any(pc.equal(words, "")).as_py():
            table, styles = pa.table({table.column_names[0]: words}), ["needed"]
    quoted, plain = _header(table.column_names, delimiter)
    for style in styles:
        try:
            return plain + _written(table, delimiter, style)[len(quoted) :]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason = error
    raise FileError(f"{path}: a column cannot be written as text: {reason}") from reason


def _written(table: pa.Table, delimiter: str, style: str) -> bytes:
    sink = io.BytesIO()
    options = arrow_csv.WriteOptions(delimiter=delimiter, quoting_style=style)
    arrow_csv.write_csv(table, sink, options)
    return sink.getvalue()


def _header(names: list[str], delimiter: str) -> tuple[bytes, bytes]:
    """Return a header as Arrow writes it, with all names in quotes, and with as few as needed."""
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    numeric = all(map(_is_cell_of_numbers, names))
    special = {*DELIMITER_NAMES, '"', "\r", "\n"}
    plain = [
        long if numeric or not name.strip() or set(name) & special else name
        for name, long in zip(names, quoted, strict=True)
    ]
    return (delimiter.join(quoted)).encode(), delimiter.join(plain).encode()


def _first_lines(stream: IO[bytes], source: str) -> str:
    """Return enough of a text to hold its first row."""
    part = stream.read(BLOCK)
    if len(part) == BLOCK:
        part = part[: part.rfind(b"\n") + 1] or part + stream.read()
    try:
        return part.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = part.count(b"\n", 0, error.start) + 1
        raise _not_utf8(source, line, BOMS.get(part[:2])) from error


def _not_utf8(source: str, line: int, kind: str | None = None) -> FileError:
    where = f"it looks like {kind}" if kind else f"line {line} is not UTF-8"
    return FileError(f"{source}: text must be encoded as UTF-8, but {where}")


def _decoding(stream: IO[bytes], source: str) -> Iterator[str]:
    """Yield the lines of a stream of bytes, with their ends."""
    # An error of the decoder would come a buffer too early, so it has marks for wrong bytes.
    with io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.encode()
            except UnicodeEncodeError as error:
                raise _not_utf8(source, number) from error
            yield line


def _records(lines: Iterable[str], delimiter: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a text and the lines on which they begin; empty lines are not rows."""
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise FileError(f"{source}: line {line}: {error}") from error
        if cells:
            yield line, cells


def _is_header(cells: list[str], source: str) -> bool:
    if not all(map(_is_cell_of_numbers, cells)):
        return True
    if not any(map(is_number, cells)):
        if any(cell.strip() for cell in cells):
            warn(
                f"{source}: the first row, {','.join(cells)}, is taken as the header; if it is "
                "data, put a row of names before it"
            )
        return True
    if len(cells) > 1 and cells == numbering(len(cells)):
        warn(
            f"{source}: the first row, {','.join(cells)}, is taken as data; if it is a header, "
            "quote its names"
        )
    return False


def _is_cell_of_numbers(cell: str) -> bool:
    """Return whether a cell is a number, which may be infinite, or a word for a missing one."""
    try:
        float(cell)
    except ValueError:
        return cell.strip().lower() in MISSING
    return True


def _check_delimiter(cells: list[str], delimiter: str, source: str) -> None:
    """Raise where a row has one cell because another character separates its cells."""
    for other, name in DELIMITER_NAMES.items():
        if len(cells) == 1 and other != delimiter and other in cells[0]:
            hint = {"\t": ", or give --format tsv", ",": ", or give --format csv"}.get(other, "")
            expected = DELIMITER_NAMES[delimiter]
            raise FileError(
                f"{source}: columns are separated by a {name} where a {expected} is expected: "
                f"write them with a {expected}{hint}"
            )
