"""Tables in CSV and TSV files. Cells stay text until numbers are read from them.

So identifiers like ``007`` and dates are written as they were read. A first row of numbers is not a
header: columns are then named "0", "1", and so on. Names that are numbers must be quoted.
"""

from __future__ import annotations

import csv
import io
import itertools
import warnings
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from oism.data.files._columns import FileError, numbering
from oism.data.files._sheet import Sheet, is_number

BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
BLOCK = 1 << 24
"""The number of bytes that Arrow reads at once; no row may be longer."""

DELIMITER_NAMES = {",": "comma", "\t": "tab", ";": "semicolon"}


def read(content: bytes, source: str, delimiter: str) -> Sheet:
    """Return the table in a text."""
    start = _first_lines(content, source)
    _, cells = next(_records(start, delimiter, source), (0, []))
    if not cells:
        raise FileError(f"{source}: the file has no rows")
    quoted = start.lstrip("\r\n").startswith('"')
    if not quoted:
        _check_delimiter(cells, delimiter, source)
    headed = quoted or _is_header(cells, source)
    table = _table(content, source, delimiter, len(cells))
    names = cells if headed else numbering(len(cells))

    def line_of(row: int) -> int:
        records = _records(_decoded(content, source), delimiter, source)
        return next(itertools.islice(records, row + headed, None))[0]

    return Sheet(table.slice(int(headed)).rename_columns(names), source, line_of)


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
    numeric = all(map(is_number, names))
    special = {*DELIMITER_NAMES, '"', "\r", "\n"}
    plain = [
        long if numeric or not name.strip() or set(name) & special else name
        for name, long in zip(names, quoted, strict=True)
    ]
    return (delimiter.join(quoted)).encode(), delimiter.join(plain).encode()


def _table(content: bytes, source: str, delimiter: str, count: int) -> pa.Table:
    keys = numbering(count)  # not yet their names: Arrow would confuse columns of equal names
    try:
        return arrow_csv.read_csv(
            pa.BufferReader(content),
            arrow_csv.ReadOptions(
                # Threads of Arrow that outlive an error abort the interpreter at its exit.
                use_threads=False,
                column_names=keys,
                block_size=min(len(content), BLOCK),
            ),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(keys, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise _why(content, source, delimiter, count, str(error)) from error


def _first_lines(content: bytes, source: str) -> str:
    """Return enough of a text to hold its first row."""
    part = content[:BLOCK]
    whole = len(part) == len(content)
    return _decoded(part if whole else part[: part.rfind(b"\n") + 1] or content, source)


def _decoded(content: bytes, source: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        kind = BOMS.get(content[:2])
        where = f"it looks like {kind}" if kind else f"line {line} is not UTF-8"
        raise FileError(f"{source}: text must be encoded as UTF-8, but {where}") from error


def _records(text: str, delimiter: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a text and the lines on which they begin; empty lines are not rows."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
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
    filled = [cell for cell in cells if cell.strip()]
    if not filled or not all(is_number(cell) for cell in filled):
        return True
    if len(cells) > 1 and cells == numbering(len(cells)):
        warnings.warn(
            f"{source}: the first row, {','.join(cells)}, is taken as data; if it is a header, "
            "quote its names",
            UserWarning,
            stacklevel=3,
        )
    return False


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


def _why(content: bytes, source: str, delimiter: str, count: int, message: str) -> FileError:
    """Return the error about what Arrow could not read, with its line."""
    for line, cells in _records(_decoded(content, source), delimiter, source):
        if len(cells) != count:
            cell = "cell" if len(cells) == 1 else "cells"
            return FileError(
                f"{source}: line {line} has {len(cells)} {cell}, but the first row has {count}"
            )
    return FileError(f"{source}: {message}")
