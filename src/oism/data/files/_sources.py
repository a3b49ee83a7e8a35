"""The sources of images: folders, shards of Parquet files, arrays and datasets of the Hub."""

from __future__ import annotations

import os
import stat

from oism.data.files import _hub as hub
from oism.data.files import _image_arrays as image_arrays
from oism.data.files import _image_folder as image_folder
from oism.data.files._columns import FileError
from oism.data.files._formats import format_of
from oism.data.files._splits import Split
from oism.data.files._streams import STANDARD, called

FORMATS = ("parquet", "npy", "npz")

Source = image_folder.Folder | image_folder.Shards | image_arrays.ImageArray
"""A source gives encoded images or arrays, always in the same order, and their places."""


def is_images(path: str) -> bool:
    """Return whether a path may hold images, not a table; at most its header is read.

    True for a folder, a Parquet file with a column of bytes, and an array of three or four axes. A
    path that does not exist may be the id of a dataset of the Hub, which is not asked.
    """
    if hub.is_dataset_id(path):
        return True
    if path == STANDARD or not os.path.exists(path):
        return False
    if os.path.isdir(path):
        return True
    try:
        kind = format_of(path)
        if kind == "parquet":
            with image_folder.parquet(path) as file:
                return bool(image_folder.image_columns(file.schema_arrow))
        arrays = image_arrays.headers(path) if kind in FORMATS else {}
        return any(header.may_be_images for header in arrays.values())
    except FileError:  # the reader of tables raises it
        return False


def entries(paths: list[str], column: str | None, wanted: Split) -> Source:
    """Return the images in a folder, a file, several Parquet files or a dataset of the Hub."""
    if not paths:
        raise ValueError("path must name a folder or a file, got none")
    if len(paths) == 1 and hub.is_dataset_id(paths[0]):
        return hub.open_dataset(paths[0], wanted, column)
    kinds = [_kind(path) for path in paths]
    if len(paths) > 1:
        for path, kind in zip(paths, kinds, strict=True):
            if kind != "parquet":
                raise FileError(f"{path}: of several files of images, all must be Parquet files")
    (path, *others), (kind, *_) = paths, kinds
    if kind == "folder":
        return image_folder.open_folder(path, column, wanted)
    if isinstance(wanted, str):
        raise FileError(f"{path}: a file has no splits to choose {wanted!r} from")
    if kind == "parquet":
        source = f"{path} and {len(others)} more" if others else path
        return image_folder.open_shards(source, paths, column)
    return image_arrays.open_array(path, column)


def _kind(path: str) -> str:
    """Return the kind of a path: ``folder``, or a format that may hold images."""
    if path == STANDARD:
        raise FileError(f"{called(path)}: images are read from files and folders only")
    if stat.S_ISDIR(os.stat(path).st_mode):
        return "folder"
    if path.lower().endswith(image_folder.IMAGE_SUFFIXES):
        raise FileError(f"{path}: a single image; give a folder of images")
    kind = format_of(path)
    if kind not in FORMATS:
        raise FileError(f"{path}: {kind} holds no images; folders, {', '.join(FORMATS)} may")
    return kind
