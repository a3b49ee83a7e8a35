"""The classes of images: folders by class, a column of Parquet files, an array of an NPZ file.

Different values, in sorted order, are the classes 0, 1, …; integers that are these numbers already
keep them. Names are those of the folders that hold the images, those that the Hub stores with a
column of class labels, or the values themselves.
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
    folders = [Path(path).relative_to(entries.source).parent for path in entries.paths]
    top = 0 if entries.split is None else 1
    examples = dict(zip(folders, entries.paths, strict=True))
    for folder, example in examples.items():
        if len(folder.parts) <= top:
            raise FileError(
                f"{example}: the image is in no subfolder, and labels are the names of the "
                "subfolders that hold the images, one for each class"
            )
    _check_classes(entries.source, list(examples))
    return _numbered(np.array([folder.name for folder in folders]))


def _check_classes(source: str, folders: list[Path]) -> None:
    """Raise unless folders lie at one depth and have different names."""
    first, known = folders[0], dict[str, Path]()
    for folder in folders:
        if len(folder.parts) != len(first.parts):
            raise FileError(
                f"{source}: labels are the names of the folders that hold the images, but {first} "
                f"and {folder} lie at different depths: give every class one folder beside the "
                "others"
            )
        other = known.setdefault(folder.name, folder)
        if other != folder:
            raise FileError(
                f"{source}: labels are the names of the folders that hold the images, but {other} "
                f"and {folder} have one name: give the path of one of {other.parent} and "
                f"{folder.parent}, or give every class one folder"
            )


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
