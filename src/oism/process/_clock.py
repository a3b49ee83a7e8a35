"""Clocks: noise schedules as maps from τ ∈ [0, horizon] to the process's own time t.

A noise schedule is a process with a clock: with t = t(τ), the distribution of X given its start is
the process's transition distribution at t, and the SDE in τ is

    dX = t'(τ) b(X) dτ + √t'(τ) L dW.

Hence α and σ depend on process and clock: `Noising` is the pair. With the variance preserving clock
α_τ = e^{-t} for the Ornstein-Uhlenbeck process; with the variance exploding one σ_τ = √(2t) for
Brownian motion, and t(0) = ½σ_min², not 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import as_given, per_row
from oism.process._base import Process
from oism.process._isotropic import Isotropic, IsotropicTransition
from oism.storage import storable


class Clock(ABC):
    """A smooth increasing map τ ↦ t. A subclass defines the map, its derivative and its inverse."""

    horizon: float = 1.0
    explodes: ClassVar[bool] = False
    """Whether its times are meant for Brownian motion, whose variance grows without bound."""

    @abstractmethod
    def _time(self, tau: Tensor) -> Tensor:
        """Return t(τ) for checked τ."""

    @abstractmethod
    def _rate(self, tau: Tensor) -> Tensor:
        """Return dt/dτ for checked τ."""

    @abstractmethod
    def _inverse(self, t: Tensor) -> Tensor:
        """Return τ(t) for checked t."""

    def time(self, tau: Tensor | float) -> Tensor:
        """Return t(τ) for τ in [0, horizon], one number or one per row."""
        return as_given(self._time(self._tau(tau)), tau)

    def rate(self, tau: Tensor | float) -> Tensor:
        """Return dt/dτ for τ in [0, horizon]."""
        return as_given(self._rate(self._tau(tau)), tau)

    def inverse(self, t: Tensor | float) -> Tensor:
        """Return τ(t) for t in [t(0), t(horizon)]."""
        low, high = self._time(torch.tensor([0.0, self.horizon], dtype=torch.float64)).unbind()
        # A t(τ) that was rounded to t's dtype, or to float32, is accepted and clamped to the ends.
        dtypes = {torch.float32, t.dtype} if isinstance(t, Tensor) else {torch.float32}
        slack = 4 * max(torch.finfo(d).eps for d in dtypes if d in checks.DTYPES)
        checked = checks.instants(t, "t", low=low, high=high, slack=slack)
        return as_given(self._inverse(checked).clamp(0.0, self.horizon), t)

    def _tau(self, tau: Tensor | float) -> Tensor:
        return checks.instants(tau, "tau", low=0.0, high=self.horizon)


def first_time(first: float, clock: Clock) -> float:
    """Return the smallest clock time of a model, checked."""
    found = checks.positive(first, "first")
    if found >= clock.horizon:
        raise ValueError(
            f"first must be less than the clock's horizon {clock.horizon:g}, got {first!r}"
        )
    return found


@storable
@dataclass(frozen=True)
class VariancePreserving(Clock):
    """t = β₀τ/2 + (β₁ - β₀)τ²/4, the clock of dX = -½β_τ X dτ + √β_τ dW with β_τ linear in τ.

    >>> VariancePreserving().time(1.0)
    tensor(5.0250, dtype=torch.float64)
    """

    beta_0: float = 0.1
    beta_1: float = 20.0

    def __post_init__(self) -> None:
        beta_0 = checks.positive(self.beta_0, "beta_0")
        beta_1 = checks.positive(self.beta_1, "beta_1")
        checks.assign(self, beta_0=beta_0, beta_1=beta_1)

    def _time(self, tau: Tensor) -> Tensor:
        return tau * (2 * self.beta_0 + (self.beta_1 - self.beta_0) * tau) / 4

    def _rate(self, tau: Tensor) -> Tensor:
        return (self.beta_0 + (self.beta_1 - self.beta_0) * tau) / 2

    def _inverse(self, t: Tensor) -> Tensor:
        # The root of the quadratic in a form without cancellation, for either sign of β₁ - β₀.
        root = torch.sqrt(self.beta_0**2 + 4 * (self.beta_1 - self.beta_0) * t)
        return 4 * t / (self.beta_0 + root)


@storable
@dataclass(frozen=True)
class VarianceExploding(Clock):
    """t = ½σ_τ² with σ_τ = σ_min (σ_max/σ_min)^τ.

    >>> VarianceExploding().time(0.0)
    tensor(5.0000e-05, dtype=torch.float64)
    """

    sigma_min: float = 0.01
    sigma_max: float = 50.0
    explodes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        sigma_min = checks.positive(self.sigma_min, "sigma_min")
        sigma_max = checks.positive(self.sigma_max, "sigma_max")
        if sigma_max <= sigma_min:
            raise ValueError(f"sigma_max must exceed sigma_min = {sigma_min!r}, got {sigma_max!r}")
        checks.positive(sigma_min * sigma_min, "sigma_min²")
        checks.positive(sigma_max * sigma_max, "sigma_max²")
        checks.assign(self, sigma_min=sigma_min, sigma_max=sigma_max)

    @property
    def _log_ratio(self) -> float:
        return math.log(self.sigma_max / self.sigma_min)

    def _time(self, tau: Tensor) -> Tensor:
        return 0.5 * self.sigma_min**2 * torch.exp(2 * self._log_ratio * tau)

    def _rate(self, tau: Tensor) -> Tensor:
        return 2 * self._log_ratio * self._time(tau)

    def _inverse(self, t: Tensor) -> Tensor:
        return torch.log(2 * t / self.sigma_min**2) / (2 * self._log_ratio)


@storable
@dataclass(frozen=True)
class IdentityClock(Clock):
    """t = τ up to a horizon."""

    horizon: float = 1.0

    def __post_init__(self) -> None:
        checks.assign(self, horizon=checks.positive(self.horizon, "horizon"))

    def _time(self, tau: Tensor) -> Tensor:
        return tau.clone()

    def _rate(self, tau: Tensor) -> Tensor:
        return torch.ones_like(tau)

    def _inverse(self, t: Tensor) -> Tensor:
        return t


@storable
@dataclass(frozen=True)
class Logarithmic(Clock):
    """t = first ((1 + last/first)^τ - 1): uniform in log t above ``first``, and t(0) = 0.

    For distributions with variances of many sizes: in a direction of variance s² the noise exceeds
    the signal from t ≈ ½s² on. Tables of coefficients over t use this spacing.

    >>> Logarithmic(first=1e-4, last=1.0).time(0.5)
    tensor(0.0099, dtype=torch.float64)
    """

    first: float = 1e-6
    last: float = 5.025

    def __post_init__(self) -> None:
        first, last = checks.positive(self.first, "first"), checks.positive(self.last, "last")
        checks.positive(last / first, "last / first")
        checks.assign(self, first=first, last=last)

    @property
    def _log_ratio(self) -> float:
        return math.log1p(self.last / self.first)

    def _time(self, tau: Tensor) -> Tensor:
        return self.first * torch.expm1(self._log_ratio * tau)

    def _rate(self, tau: Tensor) -> Tensor:
        return self.first * self._log_ratio * torch.exp(self._log_ratio * tau)

    def _inverse(self, t: Tensor) -> Tensor:
        return torch.log1p(t / self.first) / self._log_ratio


@dataclass(frozen=True)
class Noising:
    """A process with a clock: α, σ and log-SNR as functions of τ.

    >>> from oism.process import OrnsteinUhlenbeck
    >>> noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    >>> noising.sigma(0.5)
    tensor(0.9597, dtype=torch.float64)
    """

    process: Isotropic
    clock: Clock

    def __post_init__(self) -> None:
        checks.instance(self.process, Isotropic, "process")
        checks.instance(self.clock, Clock, "clock")

    @classmethod
    def of(cls, process: Process, clock: Clock) -> Self:
        """Return the pair; raise unless the process is `Isotropic`."""
        if not isinstance(process, Isotropic):
            raise TypeError(
                "process must be of type Isotropic, whose noise has one σ for all coordinates, got "
                f"{type(process).__name__}"
            )
        return cls(process, clock)

    def transition(self, tau: Tensor | float) -> IsotropicTransition:
        """Return the distribution of X at τ given X_0."""
        return self.process.transition(self.clock._time(self.clock._tau(tau)))

    def alpha(self, tau: Tensor | float) -> Tensor:
        """Return α_τ, with E[X_τ | x] = α_τ x."""
        return as_given(self.transition(tau).alpha, tau)

    def sigma(self, tau: Tensor | float) -> Tensor:
        """Return σ_τ, with Cov[X_τ | x] = σ_τ² I."""
        return as_given(self.transition(tau).sigma, tau)

    def log_snr(self, tau: Tensor | float) -> Tensor:
        """Return log(α_τ²/σ_τ²), the logarithm of the signal-to-noise ratio; +∞ at t = 0."""
        law = self.transition(tau)
        return as_given(2 * law.alpha.log() - law.variance.log(), tau)

    def log_snr_range(self, first: float) -> tuple[float, float]:
        """Return the highest and the lowest log-SNR, those of ``first`` and of the horizon.

        >>> from oism.process import OrnsteinUhlenbeck
        >>> highest, lowest = Noising(OrnsteinUhlenbeck(), VariancePreserving()).log_snr_range(1e-5)
        >>> round(highest, 2), round(lowest, 2)
        (13.81, -10.05)
        """
        ends = [first_time(first, self.clock), self.clock.horizon]
        highest, lowest = self.log_snr(torch.tensor(ends, dtype=torch.float64)).tolist()
        return highest, lowest

    def tau_of_log_snr(self, log_snr: Tensor | float) -> Tensor:
        """Return the τ with a given log-SNR, clamped to the range of the clock."""
        if not isinstance(log_snr, Tensor):
            log_snr = torch.tensor(checks.number(log_snr, "log_snr"), dtype=torch.float64)
        log_snr = checks.vectors(log_snr, "log_snr")
        # The ends as Python numbers: sending a tensor to a GPU would synchronise.
        ends = self.clock._time(torch.tensor([0.0, self.clock.horizon], dtype=torch.float64))
        t = self.process._time_of_log_snr(log_snr.double()).clamp(*ends.tolist())
        tau = self.clock._inverse(t)
        return as_given(tau.clamp(0.0, self.clock.horizon), log_snr)

    def drift(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return t'(τ) b(x), the drift of the SDE in τ."""
        return per_row(self.clock.rate(tau), checks.points(x), "tau") * self.process.drift(x)

    def diffusivity(self, tau: Tensor | float) -> Tensor:
        """Return t'(τ) g, half the squared noise coefficient of the SDE in τ."""
        return self.clock.rate(tau) * self.process.diffusivity
