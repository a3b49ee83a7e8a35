"""The contract of a sampling method."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from oism._core import checks
from oism.images import GaussianPart
from oism.sampling._plan import Plan, Span


class SamplingMethod(ABC):
    """A method that turns a number of evaluations into a `Plan`."""

    @abstractmethod
    def plan(self, part: GaussianPart, span: Span, evaluations: int) -> Plan:
        """Return the plan for a Gaussian part, a range of levels and a number of evaluations."""


def checked_part(part: object, span: object) -> None:
    """Raise unless the arguments of a plan are a Gaussian part and a range of levels."""
    if not isinstance(part, GaussianPart):
        remedy = ": use its gaussian_part()" if hasattr(part, "gaussian_part") else ""
        raise TypeError(f"part must be a GaussianPart, got {type(part).__name__}{remedy}")
    checks.instance(span, Span, "span")


def checked_levels(levels: Tensor, span: Span) -> Tensor:
    """Return levels λ_0 < … < λ_N in float64, or raise if they are not increasing in the span."""
    levels = torch.as_tensor(levels, dtype=torch.float64).cpu()
    if levels.ndim != 1 or len(levels) < 2 or not bool((levels.diff() > 0).all()):
        raise ValueError(
            f"levels must be at least two increasing values of λ = log(α/σ), got {levels.tolist()}"
        )
    slack = 1e-6 * (span.last - span.first)
    low, high = float(levels[0]), float(levels[-1])
    if low < span.first - slack or high > span.last + slack:
        raise ValueError(
            f"levels must lie in the range of the model, {span.first:g} to {span.last:g}, got "
            f"{low:g} to {high:g}"
        )
    return levels.clamp(span.first, span.last)
