"""The classes of images: folders by class, a column of Parquet files, an array of an NPZ file.

Different values, in sorted order, are the classes 0, 1, …; integers that are these numbers already
keep them. Names are those of the folders, those that the Hub stores with a column of class labels,
or the values themselves.

The class of an image in a folder is the first folder on the way to it that not all images are in,
as in torchvision's ImageFolder if no folder holds all others: ``data/cat/1.png`` and
``data/dog/old/2.png`` are of the classes cat and dog.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oism.data.files import _image_arrays as image_arrays
from oism.data.files._arrays import KINDS as REFUSED
from oism.data.files._arrays import damage_explained
from oism.data.files._columns import FileError, find_column
from oism.data.files._formats import as_values
from oism.data.files._image_folder import Folder, Shards, parquet
from oism.data.files._splits import split_of_folder

LIKELY = ("labels", "label", "fine_label", "class", "target", "y")
"""The names of columns and arrays that are taken for labels, the first that exists."""


KINDS = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
)
"""The types of a Parquet column that may hold labels, as values or in a dictionary."""


@dataclass(frozen=True, eq=False)
class Labels:
    """The class of each image, integers from 0, and the names of the classes."""

    numbers: NDArray[np.int64]
    names: tuple[str, ...]


def labels_of(entries: Folder | Shards | image_arrays.ImageArray, column: str | None) -> Labels:
    """Return the classes of the images of a source."""
    readers: dict[type, Callable[[Any, str | None], Labels]] = {
        Folder: _of_folder,
        Shards: _of_shards,
        image_arrays.ImageArray: _of_array,
    }
    return readers[type(entries)](entries, column)


def _of_folder(entries: Folder, column: str | None) -> Labels:
    if column is not None:
        raise FileError(f"{entries.source}: a folder of images has no column {column!r} of labels")
    top = 0 if entries.split is None else 1  # the folder of a split is no class
    folders = [Path(path).relative_to(entries.source).parent.parts[top:] for path in entries.paths]
    examples = dict(zip(folders, entries.paths, strict=True))
    if () in examples:
        raise FileError(
            f"{examples[()]}: the image is in no subfolder, and labels are the names of the "
            "subfolders, one for each class"
        )
    # Folders that hold all others are no classes either: data/cat and data/dog.
    first, last = min(examples), max(examples)  # in alphabetical order, so others share as much
    shared = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    least = min(map(len, examples)) - 1
    shared = least if shared is None else min(shared, least)
    names = np.array([folder[shared] for folder in folders])
    if shared and len(examples) > 1 and all(map(split_of_folder, names)):
        inside = Path(entries.source, *folders[0][:shared])
        raise FileError(f"{inside}: the folders in it are splits: give this path, and --split")
    return _numbered(names)


def _of_shards(entries: Shards, column: str | None) -> Labels:
    parts, names = [], None
    for path in entries.paths:
        with parquet(path) as file:
            schema: pa.Schema = file.schema_arrow
            column = _chosen(column, schema.names, path, "columns")
            cells = as_values(file.read([column], use_threads=False).column(column))
        if cells.null_count:
            row = cells.is_null().to_pylist().index(True)
            raise FileError(f"{path}: row {row + 1}: there is no label in column {column!r}")
        kind = cells.type
        if not any(fits(kind) for fits in KINDS):
            raise FileError(f"{path}: column {column!r} holds {kind}, not integers or names")
        names = names or _hub_names(schema, column)
        parts.append(np.array(cells.to_pylist()))
    return _numbered(np.concatenate(parts), names)


def _of_array(entries: image_arrays.ImageArray, column: str | None) -> Labels:
    if entries.entry is None:
        raise FileError(
            f"{entries.path}: an NPY file has no labels: an NPZ file may hold an array 'labels'"
        )
    found = {str(name): header for name, header in image_arrays.headers(entries.path).items()}
    name = _chosen(column, list(found), entries.path, "arrays")
    header = found[name]
    if header.dtype.hasobject:
        raise FileError(
            f"{entries.path}, array {name!r}: the array holds {REFUSED['O']}: save "
            f"{name}.astype(str) instead"
        )
    if header.shape not in ((len(entries),), (len(entries), 1)):
        raise FileError(
            f"{entries.path}: labels must be one for each of the {len(entries)} images, but the "
            f"array {name!r} has shape {header.shape}"
        )
    if header.dtype.kind not in "iuUb":
        raise FileError(
            f"{entries.path}: labels must be integers or names, but the array {name!r} holds "
            f"{header.dtype}"
        )
    with damage_explained(entries.path), np.load(entries.path) as archive:
        values = archive[name]
    return _numbered(values.reshape(-1))


def _chosen(column: str | None, names: Sequence[str], source: str, kind: str) -> str:
    """Return the name of the column or array of labels."""
    if column is not None:
        return names[find_column(column, list(names), source)]
    found = next((name for name in LIKELY if name in names), None)
    if found is None:
        known = ", ".join(repr(name) for name in names)
        raise FileError(
            f"{source}: there are no labels among the {kind} {known}: choose with --label-column"
        )
    return found


def _hub_names(schema: pa.Schema, column: str) -> list[str] | None:
    """Return the names of classes that the Hub stores in the metadata of a file."""
    try:
        stored = json.loads((schema.metadata or {})[b"huggingface"])
        names = stored["info"]["features"][column]["names"]
    except (KeyError, ValueError, TypeError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


def _numbered(values: NDArray[np.generic], names: list[str] | None = None) -> Labels:
    """Return values as classes in sorted order."""
    found, numbers = np.unique(values, return_inverse=True)
    known = found.tolist()
    if names is not None and all(isinstance(k, int) and 0 <= k < len(names) for k in known):
        return Labels(numbers.astype(np.int64), tuple(names[int(k)] for k in known))
    return Labels(numbers.astype(np.int64), tuple(str(value) for value in known))
