"""What a prior is worth on images it may not have seen: noise errors and bits, in one pass.

At a noise level τ every image is noised once, x_τ = α x + σ ε, and the error is that of the noise
the prior predicts, ‖ε̂(x_τ) - ε‖²/d; the same ε at every level, so that levels can be compared.
x is an image as the prior knows it, dequantised if its law is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core.progress import progress_bar
from oism.images._base import Prior


@dataclass(frozen=True)
class Estimate:
    """The mean of a number of values, and its standard error: NaN for a single one."""

    mean: float
    error: float
    count: int


class Sum:
    """Count, mean and squared deviations of values, joined batch by batch without cancellation.

    >>> values = Sum()
    >>> values.add(torch.tensor([1.0, 2.0]))
    >>> values.add(torch.tensor([3.0]))
    >>> values.estimate()
    Estimate(mean=2.0, error=0.577..., count=3)
    """

    def __init__(self) -> None:
        self.count, self.mean, self.square = 0, 0.0, 0.0

    def add(self, values: Tensor) -> None:
        """Count values ``(n,)``."""
        values = values.double()
        total, mean = self.count + len(values), float(values.mean())
        apart = mean - self.mean
        self.square += float((values - mean).square().sum())
        self.square += apart**2 * self.count * len(values) / total
        self.mean += apart * len(values) / total
        self.count = total

    def estimate(self) -> Estimate:
        """Return the mean and its standard error."""
        n = self.count
        error = math.sqrt(self.square / (n - 1) / n) if n > 1 else math.nan
        return Estimate(self.mean if n else math.nan, error, n)


@dataclass(frozen=True)
class Level:
    """A noise level: the error of the predicted noise, per dimension, and what was expected."""

    tau: float
    sigma: float
    error: Estimate
    expected: float


@dataclass(frozen=True)
class Evaluation:
    """The errors at all levels, and the bits per dimension where they were wanted."""

    count: int
    levels: list[Level]
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
    """Return what a prior of pixels is worth on batches of integers ``(n, *shape)``.

    One batch is in memory at a time, where the prior is. ``seed`` is that of the noise, and the
    next one that of the dequantisation, for errors and bits; neither depends on how images are
    batched.
    ``total`` is the number of images, if it is known, for the bar.
    """
    if prior.pixels is None:
        raise ValueError("prior must be one of integers (pixels=…) to be evaluated on integers")
    errors, bits_sum, device = [Sum() for _ in levels], Sum(), prior.error.values.device
    noise_source = torch.Generator().manual_seed(seed)
    error_source, bits_source = (torch.Generator(device).manual_seed(seed + 1) for _ in range(2))
    with progress_bar(None) as bar:
        bar.stage("evaluate", total)
        for batch in batches:
            prior.pixels.demand(batch)
            x = prior.prepare(batch.to(device), error_source)
            noise = _noise(x, noise_source) if levels else x
            for tau, sum_ in zip(levels, errors, strict=True):
                sum_.add(noise_error(prior, x, noise, tau))
            if bits:
                bits_sum.add(prior.bits_per_dim(batch.to(device), bits_source))
            bar.advance(len(batch))
    found = [
        Level(tau, float(prior.noising.sigma(tau)), sum_.estimate(), float(prior.skill(tau)))
        for tau, sum_ in zip(levels, errors, strict=True)
    ]
    count = errors[0].count if errors else bits_sum.count
    return Evaluation(count, found, bits_sum.estimate() if bits else None)


def noise_error(prior: Prior, x: Tensor, noise: Tensor, tau: float) -> Tensor:
    """Return ‖ε̂ - ε‖²/d for clean tensors and their noise: ``(n,)``."""
    noising = prior.noising
    noised = float(noising.alpha(tau)) * x + float(noising.sigma(tau)) * noise
    return (prior.noise(noised, tau) - noise).flatten(1).square().mean(dim=1)


def _noise(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return noise for rows, drawn row by row: torch draws many numbers in another order."""
    rows = [torch.randn(x.shape[1:], generator=generator) for _ in range(len(x))]
    return torch.stack(rows).to(x)
