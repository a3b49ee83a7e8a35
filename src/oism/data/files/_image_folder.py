"""Encoded images: one per file of a folder, or one per row of Parquet files as on the Hub.

A column of images holds their bytes, or pairs of ``bytes`` and ``path`` as the `datasets` library
writes them.
"""

from __future__ import annotations

import bisect
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from oism.data.files import _formats as formats
from oism.data.files._columns import FileError, find_column
from oism.data.files._splits import Split, chosen, split_of_folder

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
"""The suffixes of image files."""

SHARDS = (".parquet", ".pq")
BUFFER = 1 << 20
ROWS = 64
"""The number of encoded images that are read from a Parquet file at once."""


@dataclass(frozen=True)
class Folder:
    """Image files, in the order of their names."""

    source: str
    paths: list[str]
    split: str | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def place(self, index: int) -> str:
        """Return the place of an image."""
        return self.paths[index]

    def __iter__(self) -> Iterator[bytes | None]:
        return (Path(path).read_bytes() for path in self.paths)


@dataclass(frozen=True)
class Shards:
    """The rows of a column of Parquet files."""

    source: str
    paths: list[str]
    column: str
    counts: list[int]
    split: str | None = None

    def __len__(self) -> int:
        return sum(self.counts)

    @cached_property
    def _ends(self) -> list[int]:
        return list(itertools.accumulate(self.counts))

    def place(self, index: int) -> str:
        """Return the place of an image: the file and the row in it, counted from 1."""
        shard = bisect.bisect_right(self._ends, index)
        row = index - (self._ends[shard] - self.counts[shard])
        return f"{self.paths[shard]}: row {row + 1}"

    def __iter__(self) -> Iterator[bytes | None]:
        index = 0
        for path in self.paths:
            with parquet(path) as file:
                # Threads of Arrow that outlive an error abort the interpreter at its exit.
                options = {"batch_size": ROWS, "columns": [self.column], "use_threads": False}
                batches = file.iter_batches(**options)
                while (batch := _next(batches, path)) is not None:
                    yield from self._contents(batch.column(self.column), index)
                    index += batch.num_rows

    def _contents(self, cells: pa.Array, index: int) -> Iterator[bytes | None]:
        if not pa.types.is_struct(cells.type):
            yield from cells.to_pylist()
            return
        for row, cell in enumerate(cells.to_pylist(), index):
            if cell and cell["bytes"] is None and cell.get("path"):
                raise FileError(
                    f"{self.place(row)}: holds only the path of an image, {cell['path']!r}, not "
                    "its bytes: embed them, or give the folder of images"
                )
            yield cell["bytes"] if cell else None


def open_folder(path: str, column: str | None, wanted: Split) -> Folder | Shards:
    """Return the images in a folder, or those in its Parquet files where it holds no others."""
    paths = listed(path, IMAGE_SUFFIXES)
    if paths and column is not None:
        raise FileError(f"{path}: a folder of images has no columns to choose {column!r} from")
    if paths:
        return _of_split(path, paths, wanted)
    shards = listed(path, SHARDS)
    if not shards:
        known = ", ".join((*IMAGE_SUFFIXES, *SHARDS))
        raise FileError(f"{path}: there are no images in the folder; known are {known}")
    split, names = chosen([os.path.relpath(shard, path) for shard in shards], wanted, path)
    return open_shards(path, [os.path.join(path, name) for name in names], column, split)


def _of_split(folder: str, paths: list[str], wanted: Split) -> Folder:
    """Return the images of a split, if the folders of the images are named by splits.

    A single name of a split among others may be that of a class, as of pictures of trains.
    """
    inner = len(os.path.join(folder, ""))
    tops = [path[inner:].split(os.sep, 1)[0] for path in paths]
    names = list(dict.fromkeys(tops))
    splits = {split_of_folder(name) for name in names}
    if None in splits and len(splits) <= 2:
        if isinstance(wanted, str):
            raise FileError(
                f"{folder}: a folder of images has no splits to choose {wanted!r} from, unless the "
                "folders in it are named by splits, as train and test"
            )
        return Folder(folder, paths)
    split, kept = chosen(names, wanted, folder, split_of_folder, "folder")
    paths = [path for path, top in zip(paths, tops, strict=True) if top in kept]
    return Folder(folder, paths, split)


def listed(folder: str, suffixes: Sequence[str]) -> list[str]:
    """Return the files below a folder that have one of the suffixes, hidden ones left out.

    They are sorted by their paths, part by part. Links to folders are not followed.
    """
    found: list[tuple[tuple[str, ...], str]] = []
    for root, folders, names in os.walk(folder, onerror=_refuse, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inner = Path(root).relative_to(folder).parts
        found += [
            ((*inner, name), os.path.join(root, name))
            for name in names
            if name.lower().endswith(tuple(suffixes)) and not name.startswith(".")
        ]
    return [path for _, path in sorted(found)]


def parquet(path: str) -> pq.ParquetFile:
    """Open a Parquet file."""
    try:
        # Without a buffer, Arrow reads whole row groups, and some files have only one.
        return formats.parquet(path, buffer_size=BUFFER, pre_buffer=False)
    except FileNotFoundError as error:  # Arrow's message has several lines
        raise FileNotFoundError(error.errno, os.strerror(error.errno or 2), path) from error
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path}: damaged, or not a Parquet file: {error}") from error


def image_columns(schema: pa.Schema) -> list[str]:
    """Return the columns that may hold images."""
    return [field.name for field in schema if _holds_images(field.type)]


def open_shards(
    source: str, paths: list[str], column: str | None, split: str | None = None
) -> Shards:
    """Return the images in a column of Parquet files; the column must be given if several fit."""
    name, counts = column, []
    for path in paths:
        with parquet(path) as file:
            name = _chosen(file.schema_arrow, path, name)
            counts.append(file.metadata.num_rows)
    assert name is not None, "there is a file"
    return Shards(source, paths, name, counts, split)


def _chosen(schema: pa.Schema, path: str, column: str | None) -> str:
    names = image_columns(schema)
    if column is None:
        if len(names) != 1:
            held = ", ".join(repr(name) for name in names or schema.names)
            found = "more than one column may hold images, choose with --image-column"
            raise FileError(f"{path}: {found if names else 'no column holds images'}: {held}")
        column = names[0]
    index = find_column(column, schema.names, path)
    name: str = schema.names[index]
    if schema.names.count(name) > 1:
        raise FileError(f"{path}: more than one column is called {name!r}")
    if name not in names:
        kind = schema.field(index).type
        raise FileError(f"{path}: column {name!r} holds {kind}, not the bytes of images")
    return name


def _holds_images(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        index = kind.get_field_index("bytes")
        return index >= 0 and _is_binary(kind.field(index).type)
    return _is_binary(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _next(batches: Iterator[pa.RecordBatch], path: str) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path}: damaged, or not a Parquet file: {error}") from error


def _refuse(error: OSError) -> None:
    raise error
