"""Small training runs: images of 4 × 4 pixels, and points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from oism import fit_prior, train
from oism.nn import MLP, Combined, DDPMpp
from oism.training import TrainingConfig

MODELS = ("network with a prior", "network alone", "points")


def pictures() -> Any:  # noqa: ANN401 (an array of uint8)
    """Return 40 images whose pixels depend on each other."""
    rng = np.random.default_rng(2)
    level = rng.uniform(0, 128, size=(40, 1, 1, 1)) + rng.uniform(0, 127, size=(40, 1, 4, 4))
    return level.astype(np.uint8)


def trained(folder: Path, model: str, *, steps: int, save_every: int, resume: bool = False) -> None:
    """Train one of `MODELS` in a folder, or continue; equal arguments give equal weights."""
    images: Any = torch.from_numpy(pictures())
    torch.manual_seed(0)
    network: Any = DDPMpp((1, 4, 4), width=8, multipliers=(1,), blocks=1, attention=())
    if model == "network with a prior":
        network = Combined(network, fit_prior(images, order=2))
    elif model == "points":
        images = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        network = MLP(2, width=16)
    config = TrainingConfig(
        steps=steps, batch=8, rate=1e-2, warmup=2, decay=0.9, flip=model != "points", log_every=1,
        save_every=save_every, sample_every=0, keep=2,
    )  # fmt: skip
    train(network, images, folder, config, resume=resume)
