"""Images of the studies: their sources, and measurements on them."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from oism.flow import Pixels
from oism.images import Prior, fit_mixture, fit_prior
from studies import STUDIES, make_study
from studies.images import DIGITS, ImageSets, bits, image_sets, noise_errors

OF_IMAGES = {"coefficients", "closed-form-cifar", "sampling", "training"}


# Sources


def test_digits_are_split() -> None:
    """Every digit is in one of the sets, as often as in scikit-learn."""
    from sklearn.datasets import load_digits  # noqa: PLC0415

    sets = image_sets(DIGITS)
    assert sets.train.shape == (1400, 1, 8, 8)
    assert sets.test.shape == (397, 1, 8, 8)
    assert sets.pixels == Pixels(0, 16)
    assert sets.train.dtype == torch.uint8

    def ordered(rows: NDArray[np.uint8]) -> list[bytes]:
        return sorted(row.tobytes() for row in rows)

    both = torch.cat((sets.train, sets.test)).numpy()
    assert ordered(both) == ordered(load_digits().images.astype(np.uint8))
    assert not set(ordered(sets.train.numpy())) & set(ordered(sets.test.numpy()))


def test_the_split_depends_on_the_seed() -> None:
    one, again, other = (image_sets(DIGITS, seed) for seed in (2, 2, 3))
    assert torch.equal(one.train, again.train)
    assert torch.equal(one.test, again.test)
    assert not torch.equal(one.test, other.test)


def test_sets_move() -> None:
    sets = image_sets(DIGITS).to("cpu")
    assert isinstance(sets, ImageSets)
    assert sets.pixels == Pixels(0, 16)


def shard(path: Path, images: NDArray[np.uint8], name: str = "image") -> None:
    """Write images ``(n, height, width, …)`` as the Hub does."""
    cells = []
    for picture in images:
        sink = io.BytesIO()
        Image.fromarray(picture).save(sink, "png")
        cells.append({"bytes": sink.getvalue(), "path": None})
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    pq.write_table(pa.table({name: pa.array(cells, kind), "label": range(len(cells))}), path)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_folder_of_parquet(channels: int, tmp_path: Path) -> None:
    shape = (11, 5, 4) if channels == 1 else (11, 5, 4, 3)
    data = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    shard(tmp_path / "train-00001-of-00002.parquet", data[4:7])
    shard(tmp_path / "train-00000-of-00002.parquet", data[:4])
    shard(tmp_path / "test-00000-of-00001.parquet", data[7:])
    sets = image_sets(str(tmp_path))
    first = torch.from_numpy(data)
    expected = first[:, None] if channels == 1 else first.movedim(-1, 1)
    assert torch.equal(sets.train, expected[:7])
    assert torch.equal(sets.test, expected[7:])
    assert sets.pixels == Pixels()


@pytest.mark.parametrize(("there", "missing"), [("train", "test"), ("test", "train")])
def test_missing_files_are_named(there: str, missing: str, tmp_path: Path) -> None:
    shard(tmp_path / f"{there}-00000-of-00001.parquet", np.zeros((2, 5, 4), np.uint8))
    with pytest.raises(FileNotFoundError, match=rf"no {missing}\*\.parquet in {tmp_path}"):
        image_sets(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no train\*\.parquet in nowhere"):
        image_sets("nowhere")


# Measurements


@pytest.mark.parametrize("dequantise", [True, False])
def test_errors_and_bits(dequantise: bool) -> None:
    """Also for more images than one batch."""
    sets = image_sets(DIGITS)
    prior: Prior = fit_mixture(sets.train, components=2, pixels=sets.pixels, dequantise=dequantise)
    images, levels = sets.train[:1100], (0.01, 0.3)
    x = 2 * images / 16 - 1
    if dequantise:
        generator = torch.Generator().manual_seed(8)
        x = x + torch.empty_like(x).uniform_(-0.5, 0.5, generator=generator) * 2 / 16
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(7))
    for tau, error in zip(levels, noise_errors(prior, images, levels, seed=7), strict=True):
        integral = 0.05 * tau + 19.9 * tau**2 / 4  # ∫β/2 of the default clock
        noised = math.exp(-integral) * x + math.sqrt(-math.expm1(-2 * integral)) * noise
        expected = (prior.noise(noised, tau) - noise).square().mean()
        assert error == pytest.approx(float(expected), rel=1e-5)
    draw = torch.Generator().manual_seed(8)  # the seed after that of the noise
    each = torch.cat([prior.bits_per_dim(part, draw) for part in (images[:1000], images[1000:])])
    found = bits(prior, images, seed=7)
    assert found.mean == pytest.approx(float(each.mean()), rel=1e-6)
    assert found.error == pytest.approx(float(each.double().std()) / math.sqrt(1100), rel=1e-5)


def test_errors_are_those_that_a_prior_expects() -> None:
    sets = image_sets(DIGITS)
    prior = fit_prior(sets.train, order=2, pixels=sets.pixels)
    levels = (0.03, 0.1, 0.5)
    for tau, error in zip(levels, noise_errors(prior, sets.test, levels), strict=True):
        assert error == pytest.approx(float(prior.expected_error(tau)), rel=0.05)


# By name


@pytest.mark.parametrize("name", STUDIES)
def test_data_are_for_studies_of_images(name: str) -> None:
    if name in OF_IMAGES:
        study = make_study(name, quick=True, seed=3, data="folder")
        assert vars(study) == {**vars(make_study(name, quick=True, seed=3)), "data": "folder"}
        return
    with pytest.raises(ValueError, match=f"data must be None for {name}, .* got 'folder'"):
        make_study(name, data="folder")
