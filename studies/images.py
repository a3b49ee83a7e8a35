"""Images for the studies: Parquet files of a folder, as on the Hub, or scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oism.data.files import open_images
from oism.flow import Estimate, Pixels
from oism.images import Prior, evaluate

DIGITS = "digits"
BATCH = 1000


@dataclass(frozen=True, eq=False)
class ImageSets:
    """Training and test images, ``(n, channels, height, width)``, and their range of values."""

    train: Tensor
    test: Tensor
    pixels: Pixels

    def to(self, device: str) -> ImageSets:
        """Return the images on a device."""
        return ImageSets(self.train.to(device), self.test.to(device), self.pixels)


def device() -> str:
    """Return the device of studies with networks: a GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def device_name() -> str:
    """Return the name of the device."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def image_sets(data: str, seed: int = 0) -> ImageSets:
    """Return the images of a folder with train*.parquet and test*.parquet, or the digits."""
    if data == DIGITS:
        return _digits(seed)
    folder = Path(data)
    shards = {part: sorted(map(str, folder.glob(f"{part}*.parquet"))) for part in ("train", "test")}
    for part, found in shards.items():
        if not found:
            raise FileNotFoundError(
                f"no {part}*.parquet in {folder}: give --data FOLDER with train*.parquet and "
                "test*.parquet, as the Hub's uoft-cs/cifar10 and ylecun/mnist have them, or "
                f"--data {DIGITS}"
            )
    train, test = (
        torch.from_numpy(np.concatenate(list(open_images(found)))) for found in shards.values()
    )
    return ImageSets(train, test, Pixels())


def _digits(seed: int) -> ImageSets:
    from sklearn.datasets import load_digits  # noqa: PLC0415 (not needed for other images)

    images = torch.from_numpy(load_digits().images).to(torch.uint8)[:, None]
    mixed = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))]
    return ImageSets(mixed[:1400], mixed[1400:], Pixels(0, 16))


def noise_errors(
    prior: Prior, images: Tensor, levels: Sequence[float], seed: int = 0
) -> list[float]:
    """Return the mean squared error of the predicted noise per dimension at clock times."""
    found = evaluate(prior, torch.split(images, BATCH), levels, bits=False, seed=seed)
    return [level.error.mean for level in found.levels]


def bits(prior: Prior, images: Tensor, seed: int = 0) -> Estimate:
    """Return bits per dimension of images and the standard error of their mean."""
    found = evaluate(prior, torch.split(images, BATCH), (), seed=seed).bits
    assert found is not None
    return found
