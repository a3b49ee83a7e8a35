"""Grids show every image where it belongs, enlarged by whole pixels, on white."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from oism.plot import image_grid, write_image_grid


def random(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 255, shape, dtype=np.uint8)  # never white


@settings(max_examples=30)
@given(
    count=st.integers(1, 12),
    channels=st.sampled_from([1, 3]),
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    columns=st.none() | st.integers(1, 15),
    pad=st.integers(0, 4),
)
def test_every_image_is_where_it_belongs(
    count: int, channels: int, size: tuple[int, int], columns: int | None, pad: int
) -> None:
    images = random(count, channels, *size)
    grid = image_grid(images, columns, pad)
    wide = min(count, columns or int(np.ceil(np.sqrt(count))))
    rows = -(-count // wide)
    factor = (grid.shape[1] - pad * (wide + 1)) // (wide * size[1])
    height, width = factor * size[0], factor * size[1]
    assert grid.shape[:2] == (rows * (height + pad) + pad, wide * (width + pad) + pad)
    assert grid.shape[2:] == (() if channels == 1 else (3,))
    assert grid.shape[1] >= 640
    assert factor == 1 or (factor - 1) * wide * size[1] + pad * (wide + 1) < 640
    pixels = grid.reshape(*grid.shape[:2], channels)
    left = np.ones(grid.shape[:2], dtype=bool)
    for k, image in enumerate(images):
        top, start = pad + k // wide * (height + pad), pad + k % wide * (width + pad)
        part = slice(top, top + height), slice(start, start + width)
        for i, j in ((0, 0), (factor // 2, factor - 1), (factor - 1, 0)):
            np.testing.assert_array_equal(
                pixels[part][i::factor, j::factor], image.transpose(1, 2, 0)
            )
        left[part] = False
    assert (pixels[left] == 255).all()


def test_large_images_keep_their_size() -> None:
    assert image_grid(random(4, 1, 500, 400), pad=0).shape == (1000, 800)


@pytest.mark.parametrize("channels", [1, 3])
def test_grids_are_written_whatever_the_name(channels: int, tmp_path: Path) -> None:
    images = random(5, channels, 8, 8)
    write_image_grid(tmp_path / "grid.out", images, columns=5, pad=1)
    with Image.open(tmp_path / "grid.out") as found:
        assert found.format == "PNG"
        np.testing.assert_array_equal(np.asarray(found), image_grid(images, 5, 1))
    assert [path.name for path in tmp_path.iterdir()] == ["grid.out"]


def test_what_is_no_grid_is_refused() -> None:
    images = random(2, 3, 4, 4)
    wrong: list[Any] = [images / 255, images[0], images[:, :2], images[:0]]
    for bad in wrong:
        with pytest.raises(ValueError, match="images must be uint8 of shape"):
            image_grid(bad)
    for columns, pad in ((0, 2), (None, -1)):
        with pytest.raises(ValueError, match="columns must be at least 1"):
            image_grid(images, columns, pad)
