"""Small networks of diffusers with random weights, and digits."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import UNet2DModel
from sklearn.datasets import load_digits
from torch import Tensor

from oism import fit_prior
from oism.images import Prior

SMALL: dict[str, Any] = {
    "sample_size": 8,
    "in_channels": 1,
    "out_channels": 1,
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "norm_num_groups": 4,
}


def small_unet(seed: int = 0, **changes: Any) -> UNet2DModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return UNet2DModel(**{**SMALL, **changes}).eval()


def digits(count: int = 400) -> Tensor:
    """Bytes ``(n, 1, 8, 8)``."""
    return torch.from_numpy(load_digits().images[:count] * 15).byte()[:, None]


def digits_prior(**options: Any) -> Prior:
    prior: Prior = fit_prior(digits(), order=2, **options)
    return prior


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
