"""Models of tensors: their shape, their noise levels, and the range of integer data.

Tensors ``(n, *shape)`` are noised by the Ornstein-Uhlenbeck process, x_τ = α_τ x + σ_τ ε. Pixels
are integers from low to high; in a model's units they lie in [-1, 1],

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
from oism._core.draws import uniform_like
from oism.flow._likelihood import Divergence
from oism.flow._methods import OrdinaryMethod
from oism.flow._model import FittedModel
from oism.process import Clock, OrnsteinUhlenbeck
from oism.storage import storable

BYTES = 256

FIRST = 1e-5
"""The smallest clock time of a model by default: at 0 the signal-to-noise ratio is infinite."""

LATEST = 20.0
"""The largest time of a clock: e^{-2t} = 4e-18, less than float64 resolves beside the noise."""


@storable
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

    @staticmethod
    def of(values: Tensor, pixels: Pixels | None) -> Pixels | None:
        """Return the range of data: the one given, 0 to 255 for bytes, None for floating point.

        >>> Pixels.of(torch.zeros(1, dtype=torch.uint8), None)
        Pixels(low=0, high=255)
        """
        if pixels is None and values.dtype == torch.uint8:
            return Pixels()
        if pixels is None and not values.is_floating_point():
            raise TypeError(
                f"pixels must be given for integers other than bytes, got {values.dtype}: "
                "Pixels(low, high) states their range"
            )
        return pixels

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

    def check(self, values: Tensor, name: str = "data", first: int = 0) -> None:
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
        self.check(values, first=first)
        shifted = values.long() - self.low if self.low else values
        return shifted.to(torch.uint8 if self.are_bytes else torch.float64)

    @staticmethod
    def _refuse(values: Tensor, wrong: Tensor, allowed: str, name: str, first: int) -> None:
        if bool(wrong.any()):
            place = tuple(int(i) for i in wrong.nonzero()[0])
            row, value = first + place[0], float(values[place])
            raise ValueError(f"{name} must be {allowed}, but row {row} holds {value:g}")

    def bits(self, nats: Tensor, dim: int) -> Tensor:
        """Return -log₂(p·h) per dimension, from log-densities of dequantised tensors."""
        return -(nats / dim + math.log(self.step)) / math.log(2)

    def dequantised(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return x + h(U - ½) with independent uniform U."""
        return x + self.step * (uniform_like(x, generator) - 0.5)


@storable
@dataclass(frozen=True)
class TensorSpec:
    """The tensors of a model: their shape, their noise levels, and the range of integer data.

    ``dequantised`` is whether the model is one of pixels spread evenly over their steps.

    >>> from oism.process import VariancePreserving
    >>> TensorSpec((3, 32, 32), VariancePreserving(), Pixels(), dequantised=True).dim
    3072
    """

    shape: tuple[int, ...]
    clock: Clock
    pixels: Pixels | None = None
    dequantised: bool = False

    def __post_init__(self) -> None:
        checks.assign(self, shape=checks.shape(self.shape, minimum=1))
        checks.optional(self.pixels, Pixels, "pixels")
        checked_clock(self.clock)

    @property
    def dim(self) -> int:
        """The number of entries of a tensor."""
        return math.prod(self.shape)


def checked_clock(clock: Clock) -> Clock:
    """Return a clock under which the Ornstein-Uhlenbeck process leaves some signal."""
    checks.instance(clock, Clock, "clock")
    last = float(clock._time(torch.tensor(clock.horizon, dtype=torch.float64)))
    if not last <= LATEST:
        raise ValueError(
            f"clock must end at a time t of at most {LATEST:g}: tensors are noised by the "
            f"Ornstein-Uhlenbeck process, of which {clock!r} leaves e^-{last:g} of the signal. "
            "Use a variance preserving clock: VariancePreserving() ends at t = 5.025"
        )
    if clock.explodes:
        raise ValueError(
            "clock must be one of noise that preserves variance, x_τ = αx + σε with α² + σ² = 1: "
            f"that of {clock!r} is for Brownian motion. Use VariancePreserving()"
        )
    return clock


class TensorModel(FittedModel):
    """A model of tensors ``(n, *shape)`` under the Ornstein-Uhlenbeck process."""

    process = OrnsteinUhlenbeck()
    first: float = FIRST
    """The smallest clock time that the model is evaluated at."""

    def __init__(self, spec: TensorSpec) -> None:
        super().__init__()
        checks.instance(spec, TensorSpec, "spec")
        self.spec = spec

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.spec.shape

    @property
    def clock(self) -> Clock:
        """The noise levels."""
        return self.spec.clock

    @property
    def pixels(self) -> Pixels | None:
        """The range of integer data."""
        return self.spec.pixels

    @property
    def classes(self) -> int | None:
        """The number of classes, if the distribution depends on labels."""
        return None

    def conditional_noise(self, x: Tensor, tau: Tensor | float, labels: object) -> Tensor:  # noqa: ARG002
        """Return ε̂ given labels; a model without classes predicts the same for all of them."""
        return self.noise(x, tau)

    def prepare(self, values: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return data in the model's units, dequantised if the model is one of such tensors."""
        if self.pixels is None:
            return checks.floating(values, "values")
        if values.device.type == "cpu":
            self.pixels.check(values, "values")
        x = self.pixels.units(values)
        return self.pixels.dequantised(x, generator) if self.spec.dequantised else x

    @torch.no_grad()
    def bits_per_dim(
        self,
        values: Tensor,
        generator: torch.Generator | None = None,
        *,
        method: OrdinaryMethod | None = None,
        divergence: Divergence | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return -log₂ of the density of uniformly dequantised integers, per dimension: ``(n,)``.

        ``generator`` draws the dequantisation, and must be on the model's device; the other
        arguments are those of `log_density`.
        """
        if self.pixels is None:
            raise ValueError("bits per dimension need a model of integers: spec must have pixels")
        self.pixels.check(values, "values")
        x = self.pixels.units(values.to(self.device))
        nats = self._dequantised_log_density(
            x, self.pixels, generator, method=method, divergence=divergence, progress=progress
        )
        return self.pixels.bits(nats, self.dim)

    def _dequantised_log_density(
        self,
        x: Tensor,
        pixels: Pixels,
        generator: torch.Generator | None,
        *,
        method: OrdinaryMethod | None,
        divergence: Divergence | None,
        progress: bool | None,
    ) -> Tensor:
        """Return log ρ at one draw of the dequantisation: ``(n,)``."""
        x = pixels.dequantised(x, generator)
        return self.log_density(x, method=method, divergence=divergence, progress=progress)
