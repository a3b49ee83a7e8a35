"""What a noise predictor is worth on data it has not seen: its error by noise level, and bits.

Levels are *sixths*, say, of the range of log-SNR: every tensor is noised once in each, at a time of
its own, spread evenly over the interval, with the same noise in all. So errors of two predictors on
the same data can be compared to a small part of their own spread.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oism.nn.model import Diffusion
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.prior.base import Prior
from oism.prior.evaluation import Estimate, Sum
from oism.progress import progress_bar
from oism.training.draws import mixed

BATCH = 500


@dataclass(frozen=True)
class Interval:
    """An interval of clock times, and the mean error of the predicted noise in it."""

    tau: tuple[float, float]
    log_snr: tuple[float, float]
    error: Estimate


@torch.no_grad()
def errors_by_level(  # noqa: PLR0913
    model: Diffusion | Prior,
    values: Tensor,
    *,
    intervals: int = 6,
    first: float = 1e-5,
    seed: int = 0,
    batch: int = BATCH,
    progress: bool | None = None,
) -> list[Interval]:
    """Return the errors in equal parts of the log-SNR range, low noise first.

    ``values`` ``(n, *shape)`` are data as they come, on any device.
    """
    levels = UniformLogSNR(model.noising, first)
    objective = DenoisingScoreMatching(levels)
    device = model.device if isinstance(model, Diffusion) else model.error.values.device
    sums = [Sum() for _ in range(intervals)]
    with progress_bar(progress) as bar:
        bar.stage("errors by noise level", len(values))
        for number, part in enumerate(torch.split(values, batch)):
            source = torch.Generator().manual_seed(mixed(seed, number))
            x = model.prepare(part.cpu(), source).to(device)
            noise = torch.randn(x.shape, generator=source).to(x)
            place = (torch.rand((), generator=source) + torch.arange(len(x)) / len(x)) % 1
            for i, sum_ in enumerate(sums):
                tau = levels.at((i + place.double()) / intervals).to(device)
                sum_.add(objective.errors(model.noise, x, tau, noise))
            bar.advance(len(part))
    bins = levels.bins(intervals)
    ends = [model.noising.log_snr(torch.tensor(one, dtype=torch.float64)).tolist() for one in bins]
    return [
        Interval(tau, (high, low), sum_.estimate())
        for tau, (high, low), sum_ in zip(bins, ends, sums, strict=True)
    ]
