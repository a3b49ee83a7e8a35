"""Evaluation of a prior on images: errors of the predicted noise and bits, in one pass.

At a noise level τ every image is noised once, x_τ = α x + σ ε, and the error is that of the noise
the prior predicts, ‖ε̂(x_τ) - ε‖²/d; the same ε at every level, so that levels can be compared.
x is an image in the prior's units, dequantised if the prior is one of dequantised images.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core.progress import progress_bar
from oism.flow import Estimate, RunningMean, noise_errors
from oism.images._base import Prior


@dataclass(frozen=True)
class LevelError:
    """The error of the predicted noise at one noise level, per dimension, and the expected one."""

    tau: float
    sigma: float
    error: Estimate
    expected: float


@dataclass(frozen=True)
class Evaluation:
    """The errors at all levels, and the bits per dimension if they were asked for."""

    count: int
    levels: list[LevelError]
    bits: Estimate | None


@torch.no_grad()
def evaluate(
    prior: Prior,
    batches: Iterable[Tensor],
    levels: Sequence[float],
    *,
    bits: bool = True,
    seed: int = 0,
    total: int | None = None,
) -> Evaluation:
    """Return errors and bits of a prior of pixels on batches of integers ``(n, *shape)``.

    One batch is in memory at a time, on the device of the prior. ``seed`` is that of the noise, and
    the next one that of the dequantisation, for errors and bits; neither depends on how images are
    batched. ``total`` is the number of images for the progress bar.
    """
    if prior.pixels is None:
        raise ValueError("prior must be one of integers (pixels=…) to be evaluated on integers")
    errors, bits_mean, device = [RunningMean() for _ in levels], RunningMean(), prior.device
    noise_source = torch.Generator().manual_seed(seed)
    error_source, bits_source = (torch.Generator(device).manual_seed(seed + 1) for _ in range(2))
    times = torch.tensor(list(levels), dtype=torch.float64)
    with progress_bar(None) as bar:
        bar.stage("evaluate", total)
        for batch in batches:
            prior.pixels.check(batch)
            x = prior.prepare(batch.to(device), error_source)
            noise = _noise(x, noise_source) if levels else x
            for tau, mean in zip(times, errors, strict=True):
                mean.add(noise_errors(prior.noise, prior.noising, x, tau, noise))
            if bits:
                bits_mean.add(prior.bits_per_dim(batch, bits_source))
            bar.advance(len(batch))
    found = [
        LevelError(
            tau, float(prior.noising.sigma(tau)), mean.estimate(), float(prior.expected_error(tau))
        )
        for tau, mean in zip(levels, errors, strict=True)
    ]
    count = errors[0].count if errors else bits_mean.count
    return Evaluation(count, found, bits_mean.estimate() if bits else None)


def _noise(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return noise for rows, drawn row by row: torch draws many numbers in another order."""
    rows = [torch.randn(x.shape[1:], generator=generator) for _ in range(len(x))]
    return torch.stack(rows).to(x)
