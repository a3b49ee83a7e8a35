"""Means of values that come in batches, with their standard errors."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Estimate:
    """The mean of a number of values, and its standard error: NaN for a single one."""

    mean: float
    error: float
    count: int


class RunningMean:
    """Count, mean and squared deviations of values, joined batch by batch without cancellation.

    >>> import torch
    >>> values = RunningMean()
    >>> values.add(torch.tensor([1.0, 2.0]))
    >>> values.add(torch.tensor([3.0]))
    >>> values.estimate()
    Estimate(mean=2.0, error=0.577..., count=3)
    """

    def __init__(self) -> None:
        self.count, self.mean, self.square = 0, 0.0, 0.0

    def add(self, values: Tensor) -> None:
        """Include values ``(n,)``."""
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
