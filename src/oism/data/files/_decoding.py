"""Decoding of one image: 8 bits per channel, grey or colour.

A picture is an array ``(height, width)`` of grey or ``(height, width, 3)`` of colour. The EXIF
orientation is ignored; of several frames the first is read.
"""

from __future__ import annotations

import io
import math
import re
import warnings
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from oism._core.extras import require
from oism.data.files._columns import FileError

if TYPE_CHECKING:
    from PIL.Image import Image

Mode = Literal["L", "RGB"]
"""How images are decoded: in grey or in colour."""

Picture = NDArray[np.uint8]

MODES = {"L": "grey (L)", "RGB": "colour (RGB)"}
"""The modes, with their names in messages."""

FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF")
"""The accepted formats; others of Pillow are rare here, and one of them runs programs."""

MOST_PIXELS = 2**24
"""The largest number of pixels of an image that is decoded."""

DEEP_RAW = re.compile(r"(?<!BGR);16")  # in a BMP, BGR;16 are 16 bits for three channels


class BrokenImageError(FileError):
    """The bytes of an image are damaged or missing: the image can be left out."""


_ADVICE = "--skip-broken leaves such images out"


def decoded(
    content: bytes | None,
    place: str,
    mode: Mode | None = None,
    check_size: Callable[[int, int], None] | None = None,
) -> Picture:
    """Return the image in bytes, converted where a mode is given.

    ``check_size`` gets height and width before pixels are decoded: a few bytes may be the header of
    an image that needs gigabytes.
    """
    _require("reading images")
    from PIL import Image  # noqa: PLC0415 (tables are read without it)

    if not content:
        raise BrokenImageError(f"{place}: there is no image; {_ADVICE}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the error has what is wrong
        try:
            image: Image.Image = Image.open(io.BytesIO(content), formats=FORMATS)
            deep = _is_deep(image)
            _check_pixels(image, place)
            if check_size is not None:
                check_size(image.height, image.width)
            if image.format == "PNG":
                _check_chunks(content)
            image.load()
        except (MemoryError, FileError):
            raise
        except Exception as error:  # damaged bytes lead decoders anywhere
            raise BrokenImageError(f"{place}: {_reason(error)}; {_ADVICE}") from error
        if deep:
            raise FileError(
                f"{place}: the image has more than 8 bits a channel, mode {image.mode}; the rest "
                "would be lost, so convert it first"
            )
        return np.asarray(_converted(image, place, mode))


def _check_chunks(content: bytes) -> None:
    """Raise unless the parts of a PNG have their checksums: Pillow ignores those of pixels."""
    start = 8
    while start + 8 <= len(content):
        data = start + 8 + int.from_bytes(content[start : start + 4])
        kind = content[start + 4 : start + 8]
        if zlib.crc32(content[start + 4 : data]) != int.from_bytes(content[data : data + 4]):
            raise ValueError(f"the part {kind!r} does not have its checksum")
        if kind == b"IEND":
            return
        start = data + 4


def _check_pixels(image: Image, place: str) -> None:
    if image.width * image.height > MOST_PIXELS:
        side = math.isqrt(MOST_PIXELS)
        raise FileError(
            f"{place}: the image is {image.width} × {image.height} pixels, and at most "
            f"{side} × {side} are read: scale it down, or cut it into pieces"
        )


def converted(picture: Picture, mode: Mode) -> Picture:
    """Return a picture in a mode."""
    if mode == mode_of(picture):
        return picture
    _require("converting images")
    from PIL import Image  # noqa: PLC0415

    return np.asarray(Image.fromarray(np.ascontiguousarray(picture)).convert(mode))


def encoded(picture: Picture) -> bytes:
    """Return a picture as the content of a PNG file."""
    _require("writing images")
    from PIL import Image  # noqa: PLC0415

    sink = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(sink, format="png")
    return sink.getvalue()


def _require(purpose: str) -> None:
    require("PIL", "images", purpose=purpose, package="Pillow")


def mode_of(picture: Picture) -> Mode:
    """Return the mode of a picture, grey or colour."""
    return "L" if picture.ndim == 2 else "RGB"


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError  # noqa: PLC0415

    if isinstance(error, UnidentifiedImageError):
        return f"damaged, or not an image in {', '.join(FORMATS)}"
    return f"damaged: {' '.join(str(error).split()) or type(error).__name__}"


def _is_deep(image: Image) -> bool:
    """Return whether decoding loses bits, as 16 bits of colour that become 8."""
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        return True
    return any(DEEP_RAW.search(repr(tile[3])) for tile in getattr(image, "tile", ()))


def _converted(image: Image, place: str, mode: Mode | None) -> Image:
    if mode is None and image.mode not in MODES:
        raise FileError(
            f"{place}: the image is neither grey nor colour but of mode {image.mode}; --mode L or "
            "--mode RGB converts all"
        )
    try:
        return image if mode in (None, image.mode) else image.convert(mode)
    except ValueError as error:
        raise FileError(f"{place}: mode {image.mode} does not convert to {mode}") from error
