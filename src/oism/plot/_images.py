"""Grids of images, in whole pixels."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from oism._core.atomic import StrPath, replacing
from oism._core.extras import require

WIDTH = 640
"""The least width of a grid in pixels: small images are enlarged."""
WHITE = 255


def image_grid(
    images: NDArray[np.uint8], columns: int | None = None, pad: int = 2
) -> NDArray[np.uint8]:
    """Return images ``(n, channels, height, width)`` as one image, row by row, on white.

    The result has shape ``(height, width)`` for grey images and ``(height, width, 3)`` for colour.
    The number of columns is about that of rows unless it is given. Each pixel becomes a square of
    pixels, so that the grid is at least 640 wide.

    >>> image_grid(np.zeros((6, 1, 28, 28), dtype=np.uint8)).shape
    (454, 680)
    """
    shape = images.shape
    if images.dtype != np.uint8 or len(shape) != 4 or shape[1] not in (1, 3) or 0 in shape:
        raise ValueError(
            "images must be uint8 of shape (n, channels, height, width) with 1 or 3 channels, got "
            f"{images.dtype} of shape {shape}"
        )
    if pad < 0 or (columns is not None and columns < 1):
        raise ValueError(f"columns must be at least 1 and pad 0, got {columns} and {pad}")
    count, channels, height, width = shape
    columns = min(count, columns or math.ceil(math.sqrt(count)))
    rows = math.ceil(count / columns)
    factor = max(1, math.ceil((WIDTH - pad * (columns + 1)) / (columns * width)))
    high, wide = factor * height + pad, factor * width + pad
    cells = np.full((rows * columns, high, wide, channels), WHITE, dtype=np.uint8)
    cells[:count, pad:, pad:] = images.transpose(0, 2, 3, 1).repeat(factor, 1).repeat(factor, 2)
    table = cells.reshape(rows, columns, high, wide, channels).swapaxes(1, 2)
    grid = table.reshape(rows * high, columns * wide, channels)
    grid = np.pad(grid, ((0, pad), (0, pad), (0, 0)), constant_values=WHITE)
    return grid[..., 0] if channels == 1 else grid


def write_image_grid(
    path: StrPath, images: NDArray[np.uint8], columns: int | None = None, pad: int = 2
) -> None:
    """Write an `image_grid` to a PNG file, atomically."""
    require("PIL", "images", purpose="writing images", package="Pillow")
    from PIL import Image  # noqa: PLC0415 (most plots need no images)

    picture = Image.fromarray(np.ascontiguousarray(image_grid(images, columns, pad)))
    with replacing(path) as draft:
        picture.save(draft, format="png")
