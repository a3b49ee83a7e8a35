"""How far a network that learns what a prior leaves trusts it, and how much is then left to learn.

The prior predicts the noise with a known error m(τ) per dimension (`oism.images._skill`), and the
network the rest,

    ε̂ = g·prior + c·network,    c² = E‖ε - g·prior‖²/d = m + (1 - g)²(1 - m),

the last for a calibrated prior, E[ε·ε̂] = E‖ε̂‖²; then what the network has to learn has variance
one. The scale c is least, √m, for g = 1. But a prior that is poor is wrong in its own way, largest
at edges, and to undo that is harder than to start from nothing. And what is taken from a network at
high noise it does not learn from: on CIFAR-10 every gate left it behind at the levels just below,
the less the later it opened. So by default it opens where next to nothing is left, and quickly:
in between the network has to learn the share 1 - g of the prior as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks


class Gate(ABC):
    """Two functions of the prior's error m: g, and the scale c of the network's output."""

    @abstractmethod
    def opening(self, error: Tensor) -> Tensor:
        """Return g in [0, 1]."""

    def scale(self, error: Tensor) -> Tensor:
        """Return c, the deviation of what the gated prior leaves to a network."""
        # Not 1 - (2g - g²)(1 - m), in which float32 would lose a small error.
        return (error + (1 - self.opening(error)).square() * (1 - error)).sqrt()


@dataclass(frozen=True)
class Open(Gate):
    """The paper's: the prior in full at every noise level, the network's output as it is."""

    def opening(self, error: Tensor) -> Tensor:
        """Return 1."""
        return torch.ones_like(error)

    def scale(self, error: Tensor) -> Tensor:
        """Return 1."""
        return torch.ones_like(error)


@dataclass(frozen=True)
class ByError(Gate):
    """g = 1/(1 + (m/half)^sharpness): half open where the error is ``half``.

    >>> ByError(half=0.1, sharpness=2.0).opening(torch.tensor([0.5, 0.1, 0.01]))
    tensor([0.0385, 0.5000, 0.9901])
    """

    half: float = 0.001
    sharpness: float = 4.0

    def __post_init__(self) -> None:
        half = checks.positive(self.half, "half")
        sharpness = checks.positive(self.sharpness, "sharpness")
        checks.settle(self, half=half, sharpness=sharpness)

    def opening(self, error: Tensor) -> Tensor:
        """Return g, falling from 1 without error to 0."""
        return 1 / (1 + (error / self.half) ** self.sharpness)


GATE = ByError()
"""How far a network that learns what a prior leaves trusts it, unless it is told otherwise."""
