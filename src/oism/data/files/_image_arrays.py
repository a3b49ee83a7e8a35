"""Images in one array of an NPY or NPZ file, read a few at a time.

The array is uint8, ``(n, height, width)`` for grey images, ``(n, height, width, channels)`` or
``(n, channels, height, width)`` with one channel or three; where both fit, channels are last.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar

import numpy as np

from oism.data.files._arrays import Header, damage_explained
from oism.data.files._columns import FileError, find_column
from oism.data.files._decoding import Picture

CHANNELS = (1, 3)
BLOCK = 1 << 22
"""The number of bytes that are read at once; at least one image is."""


@dataclass(frozen=True)
class ImageArray:
    """The images in an array: in an NPY file, or in an entry of an NPZ file."""

    split: ClassVar[None] = None
    source: str
    path: str
    entry: str | None
    header: Header

    def __len__(self) -> int:
        return self.header.shape[0]

    def place(self, index: int) -> str:
        """Return the place of an image."""
        return f"{self.source}: row {index + 1}"

    def __iter__(self) -> Iterator[Picture]:
        for block in self._blocks():
            pictures = _channels_last(block)
            yield from pictures[..., 0] if pictures.shape[-1] == 1 else pictures

    def _blocks(self) -> Iterator[Picture]:
        count, *shape = self.header.shape
        size = math.prod(shape)
        step = max(1, BLOCK // size)
        with damage_explained(self.source), _opened(self.path, self.entry) as (stream, left):
            Header.read(stream, left)
            if self.header.fortran:  # the values of an image are spread over the whole array
                flat = np.frombuffer(_exactly(stream, count * size), np.uint8)
                yield flat.reshape(self.header.shape, order="F")
                return
            for start in range(0, count, step):
                part = min(step, count - start)
                yield np.frombuffer(_exactly(stream, part * size), np.uint8).reshape(part, *shape)


def headers(path: str) -> dict[str | None, Header]:
    """Return the headers of the arrays in a file by name; None is the name in an NPY file."""
    with damage_explained(path):
        if path.lower().endswith(".npy"):
            with _opened(path, None) as (stream, left):
                return {None: Header.read(stream, left)}
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
        found: dict[str | None, Header] = {}
        for name in names:
            with _opened(path, name) as (stream, left):
                found[name.removesuffix(".npy")] = Header.read(stream, left)
        return found


def open_array(path: str, column: str | None) -> ImageArray:
    """Return the images in an NPY file, or in one array of an NPZ file."""
    found = headers(path)
    if None in found:
        if column is not None:
            raise FileError(f"{path}: an NPY file has no columns to choose {column!r} from")
        images = ImageArray(path, path, None, found[None])
    else:
        name = _chosen({str(name): header for name, header in found.items()}, path, column)
        images = ImageArray(f"{path}, array {name!r}", path, f"{name}.npy", found[name])
    _check_images(images.header, images.source)
    return images


def _chosen(found: dict[str, Header], source: str, column: str | None) -> str:
    if column is not None:
        return list(found)[find_column(column, list(found), source)]
    likely = [name for name, header in found.items() if header.may_be_images]
    if len(likely) == 1:
        return likely[0]
    held = ", ".join(f"{name} {header.shape}" for name, header in found.items()) or "nothing"
    if not likely:
        raise FileError(f"{source}: no array has the shape of images; the archive holds {held}")
    raise FileError(
        f"{source}: more than one array has the shape of images, choose with --image-column; the "
        f"archive holds {held}"
    )


def _check_images(header: Header, source: str) -> None:
    shape = header.shape
    if not header.may_be_images or (len(shape) == 4 and not {shape[1], shape[3]} & set(CHANNELS)):
        raise FileError(
            f"{source}: images must have shape (n, height, width), (n, height, width, channels) or "
            f"(n, channels, height, width) with 1 or 3 channels, got {shape}"
        )
    if header.dtype != np.uint8:
        raise FileError(f"{source}: images must be of dtype uint8, 0 to 255, got {header.dtype}")
    if 0 in shape:
        raise FileError(f"{source}: there are no images in an array of shape {shape}")
    header.check_size(source)


def _channels_last(block: Picture) -> Picture:
    """Return images as (n, height, width, channels)."""
    if block.ndim == 3:
        return block[..., None]
    return block if block.shape[-1] in CHANNELS else np.moveaxis(block, 1, -1)


@contextmanager
def _opened(path: str, entry: str | None) -> Iterator[tuple[IO[bytes], int]]:
    """Open an array for reading, and give its size in bytes."""
    if entry is None:
        with Path(path).open("rb") as file:
            yield file, os.fstat(file.fileno()).st_size
    else:
        with zipfile.ZipFile(path) as archive, archive.open(entry) as stream:
            yield stream, archive.getinfo(entry).file_size


def _exactly(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError("the file ends before its array")
    return content
