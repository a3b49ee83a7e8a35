"""The contract of a prior: a model of tensors with the scores of all noise levels in closed form.

A prior models tensors ``(n, *shape)`` in units in which the Ornstein-Uhlenbeck process noises
them, x_τ = α_τ x + σ_τ ε. Because π = N(0, I), the predicted noise is

    ε̂ = -σ ∇log ρ_t(x) = σ(x - s̃),    s̃ = ∇log(ρ_t/π),

and the denoised tensor E[x_0 | x_τ] = (x_τ - σ ε̂)/α. Times τ are those of the prior's clock, one
number or one per row; ``score`` takes the process's own t, as every score does. What depends on
time is tabulated over a clock of its own, even in log t.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from typing import Any, TypeGuard

import torch
from torch import Tensor

from oism._core import checks
from oism._core.devices import has_float64
from oism._core.transforms import as_given, per_row
from oism.flow import Divergence, OrdinaryMethod, StochasticMethod, TensorModel, TensorSpec
from oism.images._gate import DEFAULT_GATE, Gate
from oism.images._gaussian import GaussianPart
from oism.process import Clock
from oism.score import Curve, SpectralModule


class Prior(TensorModel, SpectralModule):
    """A distribution of tensors and all its noised versions, in closed form.

    ``table_clock`` is the clock over which everything that depends on time is tabulated; ``error``
    is the logarithm of the expected error of the predicted noise, per dimension, over that clock.
    """

    error: Curve

    loads: int = 0
    """How often tensors were set by `load_state_dict`, for those who keep what follows from them.
    """

    def __init__(self, spec: TensorSpec, table_clock: Clock, error: Curve) -> None:
        super().__init__(spec)
        checks.instance(table_clock, Clock, "table_clock")
        self.table_clock, self.error = table_clock, error

    def get_extra_state(self) -> Tensor:
        """Return the numbers beside the tensors that depend on the data, for `state_dict`."""
        return torch.tensor(list(_numbers(self.table_clock).values()), dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Set these numbers; raise `ValueError` where they are of another kind of prior."""
        own, names, values = self.table_clock, list(_numbers(self.table_clock)), state.tolist()
        clock: Clock | None = None
        if len(names) == len(values):
            clock = checks.changed(own, **dict(zip(names, values, strict=True)))
        if clock is None or not math.isclose(_end(clock), _end(own), rel_tol=1e-6):
            raise ValueError(
                "state_dict must be that of a prior with the same noise levels, whose table is "
                f"that of {own!r} or one with the same end, got the numbers {values}: fit the "
                "prior with the same clock, or load it from a file (oism.load)"
            )
        self._set_table_clock(clock)

    def _set_table_clock(self, clock: Clock) -> None:
        """Set the clock over which everything is tabulated."""
        self.table_clock = clock

    def _load_from_state_dict(  # noqa: PLR0913, PLR0917 (torch's signature)
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        key = f"{prefix}_extra_state"
        if key in state_dict:  # an error comes before a tensor is set
            self.set_extra_state(state_dict[key])
        self.loads += 1
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if key in missing_keys:  # earlier versions wrote none
            missing_keys.remove(key)

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

    @property
    def is_gaussian(self) -> bool:
        """Whether the prior is its Gaussian part, and nothing else."""
        return False

    @abstractmethod
    def gaussian_part(self) -> GaussianPart:
        """Return the Gaussian with the mean and the variances of the prior along its directions."""

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t(x), of the shape of ``x``; t is the process's own time."""
        return self._score(self._flat(x), self._time(t, x)).reshape(x.shape)

    def score_and_divergence(self, x: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return the score and its divergence, in closed form."""
        flat, t = self._flat(x), self._time(t, x)
        return self._score(flat, t).reshape(x.shape), self._divergence(flat, t)

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

    def expected_error(self, tau: Tensor | float) -> Tensor:
        """Return the expected mean squared error of the predicted noise, per dimension."""
        t = self.clock._time(self._instants(tau, "tau", self.clock.horizon))
        logarithm: Tensor = self.error(self.table_clock._inverse(t))
        return as_given(logarithm.exp().clamp(max=1), tau)

    def gate(self, tau: Tensor | float, rule: Gate = DEFAULT_GATE) -> Tensor:
        """Return g(τ) in [0, 1]: the factor of the prior beside a network for its residual."""
        checks.instance(rule, Gate, "rule")
        return rule.opening(self.expected_error(tau))

    def output_scale(self, tau: Tensor | float, rule: Gate = DEFAULT_GATE) -> Tensor:
        """Return c(τ), the standard deviation of the residual of the gated prior."""
        checks.instance(rule, Gate, "rule")
        return rule.scale(self.expected_error(tau))

    def extra_repr(self) -> str:
        """Return what torch prints of the module."""
        return ", ".join(f"{name}: {value}" for name, value in self.facts().items())

    @torch.no_grad()
    def log_density(
        self,
        x: Tensor,
        *,
        method: OrdinaryMethod | None = None,
        divergence: Divergence | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return log ρ(x) in the model's units: ``(n,)``.

        By the prior's own formula, or along the flow if a method or a divergence is given.
        """
        if method is None and divergence is None:
            return self._log_density(self._flat(x))
        return super().log_density(x, method=method, divergence=divergence, progress=progress)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        method: OrdinaryMethod | StochasticMethod | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return n tensors ``(n, *shape)`` in the model's units.

        By the prior's own formula, or along the flow if a method is given.
        """
        if method is not None:
            return super().sample(n, generator, method=method, progress=progress)
        n = checks.integer(n, "n", minimum=0)
        return self._sample(n, generator).reshape(n, *self.shape)

    def _flat(self, x: Tensor) -> Tensor:
        # On a device values are not read: reading would wait for it.
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
            return t.double() if has_float64(t.device) else t
        return checks.instants(t, name, low=0.0, high=last)

    @staticmethod
    def _shared(t: Tensor, x: Tensor, name: str) -> Tensor:
        if t.ndim and len(t) != len(x):
            raise ValueError(
                f"{name} must be one number or one per row: {len(x)} rows, {len(t)} values"
            )
        return t.to(x.device)


def _is_on_device(values: object) -> TypeGuard[Tensor]:
    """Return whether values are floating point on a device, where reading would wait for it."""
    return isinstance(values, Tensor) and values.is_floating_point() and values.device.type != "cpu"


def _numbers(clock: Any) -> dict[str, float]:  # noqa: ANN401
    """Return the numbers that state a clock, by name; none for a class that is no dataclass."""
    fields = dataclasses.fields(clock) if dataclasses.is_dataclass(clock) else ()
    return {field.name: float(getattr(clock, field.name)) for field in fields}


def _end(clock: Clock) -> float:
    return float(clock._time(torch.tensor(clock.horizon, dtype=torch.float64)))
