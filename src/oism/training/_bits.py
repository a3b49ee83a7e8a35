"""Bits per dimension of a trained model.

They are those of uniformly dequantised integers under the law at the least noise, by the
probability flow: an upper bound of the true ones, as far as the steps are fine enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import progress_bar
from oism.flow import OrdinaryMethod
from oism.images._evaluation import Estimate, Sum
from oism.nn import Diffusion
from oism.nn._model import CHUNK, METHOD
from oism.training._draws import mixed


@dataclass(frozen=True)
class Bits:
    """Bits per dimension, and how often the predictor was evaluated for a tensor, on average."""

    bits: Estimate
    evaluations: float


def bits_per_dim(  # noqa: PLR0913
    model: Diffusion,
    values: Tensor,
    *,
    method: OrdinaryMethod = METHOD,
    probes: int = 1,
    seed: int = 0,
    batch: int = CHUNK,
    progress: bool | None = None,
) -> Bits:
    """Return the bits per dimension of integers ``(n, *shape)``, ``batch`` of them at a time.

    What is drawn, the dequantisation and the probes of divergences, follows from the seed and the
    number of a batch.
    """
    checks.instance(model, Diffusion, "model")
    checks.instance(values, Tensor, "values")
    if values.ndim < 2 or not len(values):
        raise ValueError(f"values must be integers (n, *shape), got {tuple(values.shape)}")
    size = min(checks.integer(batch, "batch", minimum=1), model.chunk)
    sum_, calls = Sum(), 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    parts = torch.split(values, size)
    watch = model.predictor.register_forward_hook(count)
    try:
        with progress_bar(progress) as bar:
            bar.stage("bits per dimension", len(values))
            for number, part in enumerate(parts):
                source = torch.Generator(model.device).manual_seed(mixed(seed, number))
                sum_.add(
                    model.bits_per_dim(part, source, method=method, probes=probes, progress=False)
                )
                bar.advance(len(part))
    finally:
        watch.remove()
    return Bits(sum_.estimate(), calls / len(parts))
