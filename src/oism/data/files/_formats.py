"""The format of a file of a table, and the functions that read and write it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from oism.data.files import _arrays as arrays
from oism.data.files import _text as text
from oism.data.files._columns import FileError
from oism.data.files._sheet import Sheet
from oism.data.files._streams import STANDARD, called, read_bytes, write_bytes

FORMATS = ("csv", "tsv", "parquet", "npy", "npz")
"""The formats of tables."""

SUFFIXES = {f".{name}": name for name in FORMATS} | {".pq": "parquet", ".tab": "tsv"}
DELIMITERS = {"csv": ",", "tsv": "\t"}
TEXT_FORMATS = tuple(DELIMITERS)
"""The formats of tables that are text."""


def format_of(path: str, given: str | None = None) -> str:
    """Return the format of a file, by its suffix unless it is given."""
    if given is not None:
        if given not in FORMATS:
            raise FileError(f"format must be one of {', '.join(FORMATS)}, got {given!r}")
        return given
    if path == STANDARD:
        return "csv"
    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    found = SUFFIXES.get(suffix)
    if found is None or (path.endswith(".gz") and found not in DELIMITERS):
        known = ", ".join([*SUFFIXES, *(f".{name}.gz" for name in DELIMITERS)])
        what = f"the suffix {Path(path).suffix!r}" if Path(path).suffix else "no suffix"
        raise FileError(
            f"{path}: {what} names no format; known are {known}, and --format names one"
        )
    return found


def read(path: str, format: str | None = None) -> Sheet:  # noqa: A002
    """Return the table in a file."""
    kind, source = format_of(path, format), called(path)
    content = read_bytes(path)
    if not content:
        raise FileError(f"{source}: the file is empty")
    if kind in DELIMITERS:
        content = _decompressed(content, source) if path.endswith(".gz") else content
        sheet = text.read(content, source, DELIMITERS[kind])
    elif kind == "parquet":
        sheet = Sheet(_parquet(content, source), source)
    else:
        reader = arrays.read_npy if kind == "npy" else arrays.read_npz
        sheet = Sheet(reader(content, source), source)
    sheet.check_shape()
    return sheet


def write(table: pa.Table, path: str, format: str | None = None) -> None:  # noqa: A002
    """Write a table to a file, atomically."""
    kind = format_of(path, format)
    if kind in DELIMITERS:
        content = text.content(table, DELIMITERS[kind], path)
        content = _compressed(content) if path.endswith(".gz") else content
    elif kind == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, write_page_checksum=True)
        content = sink.getvalue().to_pybytes()
    elif kind == "npy":
        numbers = Sheet(table, path).numbers(table.column_names, "; NPY holds numbers only")
        content = arrays.npy(numbers)
    else:
        content = arrays.npz(table, path)
    write_bytes(content, path)


def write_array(array: NDArray[np.generic], path: str) -> None:
    """Write an array to an NPY file, atomically."""
    write_bytes(arrays.npy(array), path)


@contextmanager
def explained(source: str) -> Iterator[None]:
    """Raise errors of Arrow about a Parquet file as a `FileError`."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        message = f"{source}: damaged, or not a Parquet file: {error}"
        raise FileError(message) from error


def parquet(source: str | pa.NativeFile, **options: Any) -> pq.ParquetFile:  # noqa: ANN401
    """Open a Parquet file, whose pages are compared with their checksums where they have some."""
    return pq.ParquetFile(source, page_checksum_verification=True, **options)


def is_index(name: str) -> bool:
    """Return whether a column is the index of a frame, which pandas writes as well."""
    return re.match(r"__index_level_\d+__", name) is not None


def _parquet(content: bytes, source: str) -> pa.Table:
    with explained(source):
        table = parquet(pa.BufferReader(content)).read(use_threads=False)
    return without_views(
        table.select([i for i, name in enumerate(table.column_names) if not is_index(name)])
    )


def without_views(table: pa.Table) -> pa.Table:
    """Return a table whose texts are strings where they were views, which few functions accept."""
    for index, field in enumerate(table.schema):
        if pa.types.is_string_view(field.type):
            strings = table.column(index).cast(pa.string())
            table = table.set_column(index, field.name, strings)
    return table


def as_values(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with the values of a dictionary instead of their indices."""
    return cells.cast(cells.type.value_type) if pa.types.is_dictionary(cells.type) else cells


def _decompressed(content: bytes, source: str) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(content), "gzip") as stream:
            return bytes(stream.read())
    except OSError as error:
        raise FileError(f"{source}: damaged, or not compressed by gzip: {error}") from error


def _compressed(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "gzip") as stream:
        stream.write(content)
    return bytes(sink.getvalue().to_pybytes())
