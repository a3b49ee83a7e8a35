"""Images for the studies: Hub-style Parquet of a folder, or the digits that scikit-learn ships."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oism.files import open_images
from oism.prior import Pixels, Prior

DIGITS = "digits"


@dataclass(frozen=True, eq=False)
class ImageSets:
    """Images to fit and images to measure, ``(n, channels, height, width)``, and their range."""

    train: Tensor
    test: Tensor
    pixels: Pixels

    def to(self, device: str) -> ImageSets:
        """Return the same on a device."""
        return ImageSets(self.train.to(device), self.test.to(device), self.pixels)


def image_sets(data: str, seed: int = 0) -> ImageSets:
    """Return the images of a folder with train*.parquet and test*.parquet, or the digits."""
    if data == DIGITS:
        return _digits(seed)
    folder = Path(data)
    shards = {part: sorted(map(str, folder.glob(f"{part}*.parquet"))) for part in ("train", "test")}
    for part, found in shards.items():
        if not found:
            raise FileNotFoundError(
                f"data must be a folder with train*.parquet and test*.parquet, as the Hub's "
                f"uoft-cs/cifar10 and ylecun/mnist have them: no {part}*.parquet in {folder}"
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


@torch.no_grad()
def noise_errors(
    prior: Prior, images: Tensor, levels: tuple[float, ...], seed: int = 0
) -> list[float]:
    """Return the mean squared error of the predicted noise per dimension at clock times.

    The noise, and dequantisation where the prior's law has it, are the same at all levels.
    """
    x = prior.prepare(images, torch.Generator(images.device).manual_seed(seed + 1))
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).to(x)
    errors = []
    for tau in levels:
        alpha, sigma = float(prior.noising.alpha(tau)), float(prior.noising.sigma(tau))
        total = 0.0
        for clean, own in zip(torch.split(x, 500), torch.split(noise, 500), strict=True):
            found = prior.noise(alpha * clean + sigma * own, tau)
            total += float((found - own).double().square().sum())
        errors.append(total / x.numel())
    return errors


@torch.no_grad()
def bits(prior: Prior, images: Tensor, seed: int = 0) -> tuple[float, float]:
    """Return bits per dimension of images and the standard error of their mean."""
    generator = torch.Generator(images.device).manual_seed(seed)
    found = torch.cat([prior.bits_per_dim(part, generator) for part in torch.split(images, 1000)])
    return float(found.mean()), float(found.std()) / len(found) ** 0.5
