"""Writing of images: as one array, or as a folder of PNG files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oism._core.atomic import check_new_folder, check_writable, replacing_folder
from oism.data.files import _arrays as arrays
from oism.data.files import _decoding as decoding
from oism.data.files._columns import FileError
from oism.data.files._streams import STANDARD, write_bytes


def write_images(path: str, images: NDArray[np.uint8]) -> None:
    """Write images ``(n, channels, height, width)`` of uint8, atomically.

    An NPY file gets an array ``(n, height, width)`` of grey or ``(n, height, width, 3)`` of colour
    images. A path without suffix is a folder, new or empty, of files 00000.png and so on.
    """
    pictures = _pictures(images)
    check_images(path)
    if Path(path).suffix.lower() == ".npy":
        write_bytes(arrays.npy(pictures), path)
        return
    with replacing_folder(path) as draft:
        digits = max(5, len(str(len(pictures) - 1)))
        for number, picture in enumerate(pictures):
            (draft / f"{number:0{digits}}.png").write_bytes(decoding.encoded(picture))


def check_images(path: str) -> None:
    """Raise the errors of `write_images` about a path, as far as they can be foreseen."""
    suffix = Path(path).suffix.lower()
    if suffix == ".npy":
        check_writable(path)
    elif path != STANDARD and (not suffix or os.path.isdir(path)):
        check_new_folder(path)
    else:
        raise FileError(f"{path}: images are written to an .npy file, or a folder without suffix")


def _pictures(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    shape = images.shape
    if images.dtype != np.uint8 or len(shape) != 4 or shape[1] not in (1, 3) or 0 in shape:
        raise ValueError(
            "images must be uint8 of shape (n, channels, height, width) with 1 or 3 channels, got "
            f"{images.dtype} of shape {shape}"
        )
    return images[:, 0] if shape[1] == 1 else images.transpose(0, 2, 3, 1)
