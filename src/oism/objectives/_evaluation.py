"""The error of a model by noise level, on data that it was not trained on.

The range of log-SNR is divided into equal intervals. Every tensor is noised once in each, at a time
of its own, with the same noise in all. Times are spread evenly over an interval by the multiples of
the golden ratio: tensor i is at u + iφ mod 1. What is drawn for a tensor depends on the seed and
its number alone, not on how tensors are batched. So the difference of the errors of two models on
the same data has a much smaller variance than either of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import progress_bar
from oism.flow import Estimate, NoisePredictor, RunningMean, TensorModel, noise_errors
from oism.objectives._levels import UniformLogSNR

BATCH = 500
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class IntervalError:
    """An interval of clock times, and the mean error of the predicted noise in it."""

    tau: tuple[float, float]
    log_snr: tuple[float, float]
    error: Estimate


@torch.no_grad()
def errors_by_level(  # noqa: PLR0913
    model: TensorModel,
    values: Tensor,
    *,
    labels: Tensor | None = None,
    intervals: int = 6,
    first: float | None = None,
    seed: int = 0,
    batch: int = BATCH,
    progress: bool | None = None,
) -> list[IntervalError]:
    """Return the errors ‖ε̂ - ε‖²/d in equal intervals of the log-SNR, low noise first.

    ``values`` ``(n, *shape)`` are data before `TensorModel.prepare`, on any device. ``labels``
    ``(n,)`` are their classes, for a model that has some. ``first`` is the smallest clock time, by
    default the model's.

    >>> from oism.images import fit_prior
    >>> x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    >>> low, high = errors_by_level(fit_prior(x, order=2), x, intervals=2)
    >>> low.error.mean > high.error.mean
    True
    """
    checks.instance(model, TensorModel, "model")
    checks.instance(values, Tensor, "values")
    if values.ndim < 2 or not len(values):
        raise ValueError(f"values must be tensors (n, *shape), got {tuple(values.shape)}")
    checks.integer(intervals, "intervals", minimum=1)
    checks.integer(batch, "batch", minimum=1)
    levels = UniformLogSNR(model.noising, model.first if first is None else first)
    means, device = [RunningMean() for _ in range(intervals)], model.device
    if labels is not None and len(labels) != len(values):
        raise ValueError(f"labels must be one per row: {len(values)} rows, {len(labels)} labels")
    seen = 0
    with progress_bar(progress) as bar:
        bar.stage("errors by noise level", len(values))
        for x, noise, place in _drawn(model, values, seed, batch):
            predict: NoisePredictor = model.noise
            if labels is not None:
                predict = partial(model.conditional_noise, labels=labels[seen : seen + len(x)])
            seen += len(x)
            for i, mean in enumerate(means):
                tau = levels.at((i + place) / intervals).to(device)
                mean.add(noise_errors(predict, model.noising, x.to(device), tau, noise.to(device)))
            bar.advance(len(x))
    bins = levels.bins(intervals)
    ends = [model.noising.log_snr(torch.tensor(one, dtype=torch.float64)).tolist() for one in bins]
    return [
        IntervalError(tau, (high, low), mean.estimate())
        for tau, (high, low), mean in zip(bins, ends, means, strict=True)
    ]


def _drawn(
    model: TensorModel, values: Tensor, seed: int, batch: int
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
