"""Gates: how much of a prior is added to a network that learns its residual.

The prior predicts the noise with a known error m(τ) per dimension (`Prior.expected_error`), and the
network the rest,

    ε̂ = g·prior + c·network,    c² = E‖ε - g·prior‖²/d = m + (1 - g)²(1 - m),

the last for a calibrated prior, E[ε·ε̂] = E‖ε̂‖². Then the target of the network has variance one.
The scale c is smallest, √m, for g = 1. But the errors of a poor prior have a structure of their
own, largest at edges, which is harder to learn than the noise itself. And at noise levels where the
prior leaves little, the network learns little that it could use at lower ones: on CIFAR-10 every
gate cost accuracy at the levels just below it, the less the later it opened. So by default the gate
opens where the residual is nearly zero, and quickly: in between the network also has to learn the
share 1 - g of the prior.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism.storage import storable


class Gate(ABC):
    """Two functions of the prior's error m: g, and the scale c of the network's output."""

    @abstractmethod
    def opening(self, error: Tensor) -> Tensor:
        """Return g in [0, 1]."""

    def scale(self, error: Tensor) -> Tensor:
        """Return c, the standard deviation of the residual of the gated prior."""
        # Not 1 - (2g - g²)(1 - m), in which float32 would lose a small error.
        return (error + (1 - self.opening(error)).square() * (1 - error)).sqrt()


@storable
@dataclass(frozen=True)
class Open(Gate):
    """The paper's form: the whole prior at every noise level, the network's output unscaled."""

    def opening(self, error: Tensor) -> Tensor:
        """Return 1."""
        return torch.ones_like(error)

    def scale(self, error: Tensor) -> Tensor:
        """Return 1."""
        return torch.ones_like(error)


@storable
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
        checks.assign(self, half=half, sharpness=sharpness)

    def opening(self, error: Tensor) -> Tensor:
        """Return g, falling from 1 without error to 0."""
        return 1 / (1 + (error / self.half) ** self.sharpness)


DEFAULT_GATE = ByError()
"""The gate of a network that learns the residual of a prior, unless another is given."""
