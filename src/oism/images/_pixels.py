"""Pixels: integers from low to high, and what they are in a model's units, [-1, 1].

    x = 2 (v - low)/(high - low) - 1,    one step of v is h = 2/(high - low) in x.

*Uniform dequantisation* spreads each integer evenly over the step around it, v + U - ½, so that a
density p of x gives probabilities: -log₂ of the mean of p·h over the step is the number of bits
that a pixel costs, and E[-log₂(p(x + h(U - ½)) h)] an upper bound of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks

BYTES = 256


@dataclass(frozen=True)
class Pixels:
    """The range of integer data: 0 to 255 by default.

    >>> Pixels(0, 16).units(torch.tensor([0.0, 8.0, 16.0]))
    tensor([-1.,  0.,  1.])
    """

    low: int = 0
    high: int = 255

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            checks.integer(getattr(self, name), name, minimum=-(2**31))
        if self.high <= self.low:
            raise ValueError(f"high must exceed low = {self.low}, got {self.high}")

    @property
    def step(self) -> float:
        """The width h of a level in the model's units."""
        return 2 / (self.high - self.low)

    @property
    def are_bytes(self) -> bool:
        """Whether a byte holds every level."""
        return self.high - self.low < BYTES

    def units(self, values: Tensor) -> Tensor:
        """Return values in the model's units: floating point, in [-1, 1]."""
        values = values if values.is_floating_point() else values.to(torch.float32)
        return (values - self.low) * self.step - 1

    def values(self, x: Tensor) -> Tensor:
        """Return the nearest levels within the range: int64, or uint8 where a byte holds them."""
        levels = ((x + 1) / self.step + self.low).round().clamp(self.low, self.high)
        return levels.to(torch.uint8 if self.low >= 0 and self.high < BYTES else torch.int64)

    def demand(self, values: Tensor, name: str = "data", first: int = 0) -> None:
        """Raise unless rows ``(n, *shape)`` are levels; ``first`` is the number of the first."""
        if not values.is_floating_point():
            kind = torch.iinfo(values.dtype)
            if self.low <= kind.min and kind.max <= self.high:
                return
            values = values.long()  # a bound beyond its dtype would wrap around
        outside = ~((values >= self.low) & (values <= self.high))  # a NaN is outside
        self._refuse(values, outside, f"in [{self.low}, {self.high}]", name, first)
        if values.is_floating_point():
            self._refuse(values, values != values.round(), "whole numbers", name, first)

    def offsets(self, values: Tensor, first: int = 0) -> Tensor:
        """Return v - low of checked data: uint8 where a byte holds them, else float64."""
        self.demand(values, first=first)
        shifted = values.long() - self.low if self.low else values
        return shifted.to(torch.uint8 if self.are_bytes else torch.float64)

    @staticmethod
    def _refuse(values: Tensor, wrong: Tensor, demand: str, name: str, first: int) -> None:
        if bool(wrong.any()):
            place = tuple(int(i) for i in wrong.nonzero()[0])
            row, value = first + place[0], float(values[place])
            raise ValueError(f"{name} must be {demand}, but row {row} holds {value:g}")

    def bits(self, nats: Tensor, dim: int) -> Tensor:
        """Return -log₂(p·h) per dimension, from log-densities of dequantised tensors."""
        return -(nats / dim + math.log(self.step)) / math.log(2)

    def dequantised(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return x + h(U - ½) with independent uniform U."""
        noise = torch.empty_like(x).uniform_(-0.5, 0.5, generator=generator)
        return x + self.step * noise
