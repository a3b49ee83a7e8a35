"""Bits per dimension of a trained model.

They are those of uniformly dequantised integers under the distribution at the smallest noise level,
by the probability flow: an upper bound of the bits of the integers, up to the error of the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism._core.hashing import seed_from
from oism._core.progress import progress_bar
from oism.flow import Estimate, Hutchinson, OrdinaryMethod, RunningMean
from oism.nn import Diffusion


@dataclass(frozen=True)
class Bits:
    """Bits per dimension, and the mean number of evaluations of the predictor for a tensor."""

    bits: Estimate
    evaluations: float


def bits_per_dim(  # noqa: PLR0913
    model: Diffusion,
    values: Tensor,
    *,
    method: OrdinaryMethod | None = None,
    probes: int = 1,
    seed: int = 0,
    batch: int = Diffusion.chunk,
    progress: bool | None = None,
) -> Bits:
    """Return the mean bits per dimension of integers ``(n, *shape)``, in batches.

    The dequantisation and the probes of divergences are determined by the seed and the number of a
    batch.
    """
    checks.instance(model, Diffusion, "model")
    checks.instance(values, Tensor, "values")
    if values.ndim < 2 or not len(values):
        raise ValueError(f"values must be integers (n, *shape), got {tuple(values.shape)}")
    size = min(checks.integer(batch, "batch", minimum=1), model.chunk)
    mean, calls = RunningMean(), 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    parts = torch.split(values, size)
    hook = model.predictor.register_forward_hook(count)
    try:
        with progress_bar(progress) as bar:
            bar.stage("bits per dimension", len(values))
            for number, part in enumerate(parts):
                source = torch.Generator(model.device).manual_seed(seed_from(seed, number))
                mean.add(
                    model.bits_per_dim(
                        part,
                        source,
                        method=method,
                        divergence=Hutchinson(source, probes),
                        progress=False,
                    )
                )
                bar.advance(len(part))
    finally:
        hook.remove()
    return Bits(mean.estimate(), calls / len(parts))
