"""Discrete timesteps as times of the Ornstein-Uhlenbeck process.

A scheduler of diffusers noises with x_j = √ᾱ_j x_0 + √(1 - ᾱ_j) ε at timesteps j = 0, …, T - 1. The
Ornstein-Uhlenbeck process has the same noise, and the same log-SNR, at its own time

    s_j = -½ log ᾱ_j,    log-SNR = log(ᾱ_j/(1 - ᾱ_j)) = -log(e^{2s_j} - 1).

The process has no noise at s = 0, which is timestep -1. Between timesteps s is linear, so that any
noise level has a fractional timestep, and the log-SNR of a level is exactly that of its timestep.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from diffusers import DDPMScheduler
from torch import Tensor

from oism.nn import Clean, Noise, Parametrisation, Velocity
from oism.process import Clock
from oism.score import SpectralModule

BETAS = (
    "num_train_timesteps",
    "beta_start",
    "beta_end",
    "beta_schedule",
    "trained_betas",
    "rescale_betas_zero_snr",
)
"""The settings of a scheduler that determine its noise."""

PREDICTIONS: Mapping[str, Parametrisation] = MappingProxyType(
    {"epsilon": Noise(), "v_prediction": Velocity(), "sample": Clean()}
)
"""What a network predicts, by diffusers' names."""


class Timesteps(SpectralModule):
    """The times s_j of a noise schedule, and the map between them and fractional timesteps.

    A last timestep without any signal (``rescale_betas_zero_snr``), at s = ∞, is left out.

    >>> table = Timesteps({"num_train_timesteps": 1000})
    >>> table.timestep(table.time(torch.tensor([-1.0, 0.25, 2.0])))
    tensor([-1.0000,  0.2500,  2.0000], dtype=torch.float64)
    """

    spectral = ("times",)
    times: Tensor

    def __init__(self, schedule: Mapping[str, Any]) -> None:
        super().__init__()
        self.schedule = dict(schedule)
        with torch.device("cpu"):  # where a file is read, the default device has no values
            times = _times(_betas(schedule))
        # Not stored: the schedule determines it.
        self.register_buffer("times", torch.cat((times.new_zeros(1), times)), persistent=False)

    def __len__(self) -> int:
        """Return the number of timesteps with some signal."""
        return len(self.times) - 1

    @property
    def last(self) -> int:
        """The last timestep, that of the highest noise."""
        return len(self) - 1

    def time(self, timestep: Tensor) -> Tensor:
        """Return s at fractional timesteps, which are clamped to [-1, last]: float64."""
        place = (timestep.to(self.times) + 1).clamp(0, len(self))
        low = place.long().clamp(max=self.last)
        # `take`, because indexing by one number on a device reads it, and waits.
        return torch.lerp(self.times.take(low), self.times.take(low + 1), place - low)

    def timestep(self, time: Tensor) -> Tensor:
        """Return the fractional timesteps of times s, clamped to [-1, last]: float64."""
        time = time.to(self.times)
        low = (torch.searchsorted(self.times, time, right=True) - 1).clamp(0, self.last)
        before, after = self.times.take(low), self.times.take(low + 1)
        return (low - 1 + (time - before) / (after - before)).clamp(-1, self.last)


def schedule_of(scheduler: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the settings of a `DDPMScheduler` with the noise of any scheduler of diffusers.

    Where the settings of the scheduler itself do not give its noise, its betas are listed.
    """
    cumulative = getattr(scheduler, "alphas_cumprod", None)
    if not isinstance(cumulative, Tensor):
        raise TypeError(
            "scheduler must be one of diffusers with alphas_cumprod, which preserve variance, as "
            f"DDPMScheduler does, got {type(scheduler).__name__}"
        )
    cumulative = cumulative.double().cpu()
    before = torch.cat((cumulative.new_ones(1), cumulative[:-1]))
    betas = 1 - cumulative / before
    _times(betas)
    config = {name: scheduler.config[name] for name in BETAS if name in scheduler.config}
    own = (1 - _betas(config)).cumprod(dim=0)
    if own.shape == cumulative.shape and torch.allclose(own, cumulative, rtol=1e-5, atol=1e-6):
        default = DDPMScheduler().config
        chosen = {name: value for name, value in config.items() if value != default[name]}
        return {"num_train_timesteps": len(cumulative), **chosen}
    return {"num_train_timesteps": len(betas), "trained_betas": betas.tolist()}


def schedule_for(clock: Clock, count: int = 1000) -> dict[str, Any]:
    """Return a schedule of timesteps with s_j = t(τ) at τ = (j + 1)/T, the last at the horizon."""
    tau = torch.arange(1, count + 1, dtype=torch.float64) * (clock.horizon / count)
    times = clock._time(tau)
    steps = times.diff(prepend=times.new_zeros(1))
    betas = (-torch.expm1(-2 * steps)).tolist()
    return {"num_train_timesteps": count, "trained_betas": betas}


def prediction_of(scheduler: Any) -> str:  # noqa: ANN401
    """Return what a network predicts: the prediction type of a scheduler."""
    found = str(scheduler.config.get("prediction_type", "epsilon"))
    if found not in PREDICTIONS:
        raise ValueError(
            f"scheduler must have the prediction type {', '.join(PREDICTIONS)}, got {found!r}"
        )
    return found


def _betas(schedule: Mapping[str, Any]) -> Tensor:
    """Return the betas of a schedule in float64; diffusers' own are in float32."""
    if schedule.get("trained_betas") is not None and not schedule.get("rescale_betas_zero_snr"):
        return torch.tensor(schedule["trained_betas"], dtype=torch.float64)
    betas: Tensor = DDPMScheduler(**schedule).betas
    return betas.double()


def _times(betas: Tensor) -> Tensor:
    """Return s_j = -½ Σ log(1 - β_i) of the timesteps with some signal, checked to increase."""
    betas = betas[: -1 if len(betas) and float(betas[-1]) == 1 else None]
    if not len(betas) or not bool(((betas > 0) & (betas < 1)).all()):
        raise ValueError(
            "scheduler must have noise that increases from timestep to timestep: betas in (0, 1)"
        )
    return -0.5 * torch.log1p(-betas).cumsum(dim=0)
