"""What a noise predictor is worth on data it has not seen: its error by noise level.

Levels are *sixths*, say, of the range of log-SNR: every tensor is noised once in each, at a time of
its own, with the same noise in all. Times are spread evenly over an interval, by the multiples of
the golden ratio: tensor i is at u + iφ mod 1. What is drawn for a tensor follows from the seed and
its number alone, not from how tensors are batched. So errors of two predictors on the same data can
be compared to a small part of their own spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import progress_bar
from oism.images import Prior
from oism.images._evaluation import Estimate, Sum
from oism.nn import Diffusion
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.objectives._levels import FIRST

BATCH = 500
GOLDEN = (math.sqrt(5) - 1) / 2


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
    first: float | None = None,
    seed: int = 0,
    batch: int = BATCH,
    progress: bool | None = None,
) -> list[Interval]:
    """Return the errors in equal parts of the log-SNR range, low noise first.

    ``values`` ``(n, *shape)`` are data as they come, on any device. ``first`` is the least clock
    time: by default the model's, or 1e-5 for a prior.
    """
    checks.instance(values, Tensor, "values")
    if values.ndim < 2 or not len(values):
        raise ValueError(f"values must be tensors (n, *shape), got {tuple(values.shape)}")
    checks.integer(intervals, "intervals", minimum=1)
    checks.integer(batch, "batch", minimum=1)
    if first is None:
        first = model.first if isinstance(model, Diffusion) else FIRST
    levels = UniformLogSNR(model.noising, first)
    objective = DenoisingScoreMatching(levels)
    device = model.device if isinstance(model, Diffusion) else model.error.values.device
    sums = [Sum() for _ in range(intervals)]
    with progress_bar(progress) as bar:
        bar.stage("errors by noise level", len(values))
        for x, noise, place in _drawn(model, values, seed, batch):
            for i, sum_ in enumerate(sums):
                tau = levels.at((i + place) / intervals).to(device)
                sum_.add(objective.errors(model.noise, x.to(device), tau, noise.to(device)))
            bar.advance(len(x))
    bins = levels.bins(intervals)
    ends = [model.noising.log_snr(torch.tensor(one, dtype=torch.float64)).tolist() for one in bins]
    return [
        Interval(tau, (high, low), sum_.estimate())
        for tau, (high, low), sum_ in zip(bins, ends, sums, strict=True)
    ]


def _drawn(
    model: Diffusion | Prior, values: Tensor, seed: int, batch: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield tensors in the model's units, their noise, and their places in an interval."""
    source = torch.Generator().manual_seed(seed)
    shift = torch.rand((), generator=source, dtype=torch.float64)
    for numbers in torch.split(torch.arange(len(values)), batch):
        rows = values[int(numbers[0]) : int(numbers[-1]) + 1].cpu()
        parts: tuple[list[Tensor], list[Tensor]] = ([], [])
        for row in torch.split(rows, 1):  # one by one: torch draws many numbers in another order
            parts[0].append(model.prepare(row, source).float())
            parts[1].append(torch.randn(row.shape, generator=source))
        yield torch.cat(parts[0]), torch.cat(parts[1]), (shift + numbers * GOLDEN) % 1
