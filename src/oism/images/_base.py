"""The contract of a prior: the scores of all noise levels of tensors, in closed form.

A prior models the law of tensors ``(n, *shape)`` in units in which the Ornstein-Uhlenbeck process
noises them, x_τ = α_τ x + σ_τ ε. Because π = N(0, I), the predicted noise is

    ε̂ = -σ ∇log ρ_t(x) = σ(x - s̃),    s̃ = ∇log(ρ_t/π),

and the denoised tensor E[x_0 | x_τ] = (x_τ - σ ε̂)/α. Times τ are those of the prior's clock, one
number or one per row; ``score`` takes the process's own t, as every score does.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import as_given, per_row
from oism.basis import TransformFrame
from oism.flow import Flow
from oism.images._gate import GATE, Gate
from oism.images._pixels import Pixels
from oism.process import Clock, Noising, OrnsteinUhlenbeck
from oism.score import Curve, SpectralModule


@dataclass(frozen=True)
class Setting:
    """What every prior knows: the shape of a tensor, its noise levels, and what its entries are.

    ``table`` is the clock by which everything that depends on time is tabulated. ``dequantised``
    tells whether the law is that of pixels spread over their steps.
    """

    shape: tuple[int, ...]
    clock: Clock
    table: Clock
    pixels: Pixels | None = None
    dequantised: bool = False


class TensorModel:
    """What every model of tensors says of itself, by its setting: priors, and networks too."""

    setting: Setting
    process = OrnsteinUhlenbeck()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.setting.shape

    @property
    def dim(self) -> int:
        """The number of entries of a tensor."""
        return math.prod(self.shape)

    @property
    def clock(self) -> Clock:
        """The noise levels."""
        return self.setting.clock

    @property
    def pixels(self) -> Pixels | None:
        """The range of integer data."""
        return self.setting.pixels

    @property
    def noising(self) -> Noising:
        """The process seen through the clock: α, σ and log-SNR of every τ."""
        return Noising(self.process, self.clock)

    def prepare(self, values: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return data as the model knows them: in its units, dequantised if its law is."""
        if self.pixels is None:
            return checks.floating(values, "values")
        if values.device.type == "cpu":  # raises where a value is no level of the range
            self.pixels.demand(values, "values")
        x = self.pixels.units(values)
        return self.pixels.dequantised(x, generator) if self.setting.dequantised else x


class Prior(TensorModel, SpectralModule, ABC):
    """A law of tensors and of all its noised versions.

    ``error`` is the logarithm of the expected error of the predicted noise, per dimension, over the
    table's clock.
    """

    error: Curve

    def __init__(self, setting: Setting, error: Curve) -> None:
        super().__init__()
        self.setting, self.error = setting, error

    @property
    @abstractmethod
    def facts(self) -> dict[str, object]:
        """What the prior is, in plain words and numbers."""

    @abstractmethod
    def _score(self, x: Tensor, t: Tensor) -> Tensor:
        """Return the score at checked flat tensors ``(n, d)``, t one number or one per row."""

    @abstractmethod
    def _divergence(self, x: Tensor, t: Tensor) -> Tensor:
        """Return its divergence: ``(n,)``."""

    @abstractmethod
    def _log_density(self, x: Tensor) -> Tensor:
        """Return the log-density of clean flat tensors: ``(n,)``."""

    @abstractmethod
    def _sample(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Return clean flat tensors ``(n, d)``."""

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t(x), of the shape of ``x``; t is the process's own time."""
        return self._score(self._flat(x), self._time(t, x)).reshape(x.shape)

    def score_and_divergence(self, x: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return the score and its divergence, in closed form."""
        flat, t = self._flat(x), self._time(t, x)
        return self._score(flat, t).reshape(x.shape), self._divergence(flat, t)

    def forward(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return the score."""
        return self.score(x, t)

    def noise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return ε̂ = σ(x - s̃), the noise to expect in x at clock time τ: of the shape of ``x``."""
        flat, t = self._flat(x), self._clock_time(tau, x)
        score = self._score(flat, t).reshape(x.shape)
        return per_row(-self.process._variance(t).sqrt(), x, "tau") * score

    def denoise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return E[x_0 | x_τ = x] = (x + σ² ∇log ρ_t)/α."""
        flat, t = self._flat(x), self._clock_time(tau, x)
        alpha, variance = self.process._alpha(t), self.process._variance(t)
        score = self._score(flat, t).reshape(x.shape)
        return (x + per_row(variance, x, "tau") * score) / per_row(alpha, x, "tau")

    @property
    def flow(self) -> Flow:
        """The probability flow and the reverse SDE of this prior."""
        return Flow(self, self.process, self.clock)

    def skill(self, tau: Tensor | float) -> Tensor:
        """Return the expected mean squared error of the predicted noise, per dimension."""
        t = self.clock._time(self._instants(tau, "tau", self.clock.horizon))
        logarithm: Tensor = self.error(self.setting.table._inverse(t))
        return as_given(logarithm.exp().clamp(max=1), tau)

    def gate(self, tau: Tensor | float, rule: Gate = GATE) -> Tensor:
        """Return g(τ) in [0, 1]: how far a network that learns what is left trusts the prior."""
        checks.instance(rule, Gate, "rule")
        return rule.opening(self.skill(tau))

    def output_scale(self, tau: Tensor | float, rule: Gate = GATE) -> Tensor:
        """Return c(τ), the deviation of what the gated prior leaves to a network."""
        checks.instance(rule, Gate, "rule")
        return rule.scale(self.skill(tau))

    def extra_repr(self) -> str:
        """Return what torch prints of the module."""
        return ", ".join(f"{name}: {value}" for name, value in self.facts.items())

    @torch.no_grad()
    def log_density(self, x: Tensor) -> Tensor:
        """Return log ρ(x) in the model's units: ``(n,)``."""
        return self._log_density(self._flat(x))

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Return n tensors ``(n, *shape)`` in the model's units."""
        n = checks.integer(n, "n", minimum=0)
        return self._sample(n, generator).reshape(n, *self.shape)

    @torch.no_grad()
    def bits_per_dim(self, values: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return -log₂ of the density of dequantised integers, per dimension: ``(n,)``.

        In expectation over the dequantisation for a Gaussian, for one draw of it otherwise.
        """
        if self.pixels is None:
            raise ValueError("bits per dimension are known only to a prior of integers (pixels=…)")
        self.pixels.demand(values, "values")
        x = self._flat(self.pixels.units(values))
        nats = self._dequantised_log_density(x, generator)
        return self.pixels.bits(nats, self.dim)

    def _dequantised_log_density(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        assert self.pixels is not None
        return self._log_density(self.pixels.dequantised(x, generator))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, atomically; `Prior.load` reads it."""
        from oism.images._storage import save  # noqa: PLC0415 (storage knows every kind of prior)

        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], frame: TransformFrame | None = None) -> Prior:
        """Return the prior in a file, on the CPU. A user's transform must be given again."""
        from oism.images._storage import load  # noqa: PLC0415

        return load(path, frame)

    def _flat(self, x: Tensor) -> Tensor:
        # On a device values are not read, so that nothing waits for it.
        if not _is_on_device(x):
            x = checks.floating(x, "x")
        if x.ndim < 2 or tuple(x.shape[1:]) not in (self.shape, (self.dim,)):
            raise ValueError(
                f"x must be tensors (n, {', '.join(map(str, self.shape))}), or flat ones "
                f"(n, {self.dim}), got {tuple(x.shape)}"
            )
        return x.reshape(len(x), self.dim)

    def _clock_time(self, tau: Tensor | float, x: Tensor) -> Tensor:
        tau = self._instants(tau, "tau", self.clock.horizon)
        return self._shared(self.clock._time(tau), x, "tau")

    def _time(self, t: Tensor | float, x: Tensor) -> Tensor:
        return self._shared(self._instants(t, "t", math.inf), x, "t")

    @staticmethod
    def _instants(t: Tensor | float, name: str, last: float) -> Tensor:
        """Return times in float64; on a device their values are not read."""
        if _is_on_device(t) and t.ndim <= 1:
            return t if t.device.type == "mps" else t.double()
        return checks.instants(t, name, low=0.0, high=last)

    @staticmethod
    def _shared(t: Tensor, x: Tensor, name: str) -> Tensor:
        if t.ndim and len(t) != len(x):
            raise ValueError(
                f"{name} must be one number or one per row: {len(x)} rows, {len(t)} values"
            )
        return t.to(x.device)


def _is_on_device(values: object) -> TypeGuard[Tensor]:
    """Tell whether values are floating point on a device, where reading them would wait for it."""
    return isinstance(values, Tensor) and values.is_floating_point() and values.device.type != "cpu"
