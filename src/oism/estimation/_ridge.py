"""Ridge and truncation over time: chosen by cross-validation, or one number for all times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import Progress
from oism.estimation._systems.choice import choose
from oism.process import Clock
from oism.score import Schedule, System

TIMES = 41
"""The default number of times at which ridge and truncation are chosen."""


class Choice(NamedTuple):
    """Ridge and level over time, with cross-validated losses at the times ``tau``."""

    schedule: Schedule
    loss: Tensor  # (K, *batch), NaN without cross-validation
    tau: Tensor  # (K,)


class Ridge(ABC):
    """A rule that chooses ridge and truncation; ``folds`` is 1 if no rows are held out."""

    folds: int

    @abstractmethod
    def choose(self, system: System, clock: Clock, bar: Progress) -> Choice:
        """Return ridge and level over the times of a clock."""


@dataclass(frozen=True)
class FixedRidge(Ridge):
    """One ridge ε for all times, without truncation."""

    value: float
    folds: ClassVar[int] = 1  # type: ignore[misc]  # a constant of the class

    def choose(self, system: System, clock: Clock, bar: Progress) -> Choice:  # noqa: ARG002
        """Return the ridge at evenly spaced times."""
        return _constant(self.value, system, clock, TIMES)


@dataclass(frozen=True, eq=False)
class ChosenRidge(Ridge):
    """Ridge and truncation that were chosen before, for rows of the same kind and basis.

    ``times`` is the number of times at which solutions are diagnosed; by default those of the
    choice and the midpoints between them.
    """

    schedule: Schedule
    times: int | None = None
    folds: ClassVar[int] = 1  # type: ignore[misc]  # a constant of the class

    def choose(self, system: System, clock: Clock, bar: Progress) -> Choice:  # noqa: ARG002
        """Return what was chosen, at its times and the midpoints between them."""
        chosen = len(self.schedule.tau)
        count = self.times or (2 * chosen - 1 if chosen > 1 else TIMES)
        tau = torch.linspace(0, clock.horizon, count, dtype=torch.float64)
        missing = torch.full((len(tau), *system.batch), torch.nan, dtype=torch.float64)
        return Choice(self.schedule, missing, tau)


@dataclass(frozen=True)
class CrossValidation(Ridge):
    """Ridge and truncation by cross-validation in closed form, at evenly spaced times."""

    folds: int = 5
    times: int = TIMES

    def __post_init__(self) -> None:
        folds = checks.integer(self.folds, "folds", minimum=2)
        checks.assign(self, folds=folds, times=checks.integer(self.times, "times", minimum=4))

    def choose(self, system: System, clock: Clock, bar: Progress) -> Choice:
        """Return the ridge and level with the smallest held-out loss, smoothed over time."""
        if not system.has_choice:
            return _constant(0.0, system, clock, self.times)
        tau = torch.linspace(0, clock.horizon, self.times, dtype=torch.float64)
        advance = bar.shares("choosing ridge and truncation")
        found = system.choices(clock._time(tau), advance=advance)
        if found is not None:
            log_ridge, level, loss = (part.cpu() for part in found)
            return Choice(Schedule(tau, log_ridge, level), loss, tau)
        picks = []
        # Batches of times, to bound memory, unless one choice depends on the next.
        step = self.times if system.whole_sweep else max(4, 40_000 // system.basis.size)
        for run in torch.split(tau, step):

            def partly(share: float, part: float = len(run) / self.times) -> None:
                advance(part * share)

            losses = system.losses(clock._time(run), advance=partly)
            picks.append([pick.cpu() for pick in choose(losses)])
        log_ridge, level, loss = (torch.cat(many) for many in zip(*picks, strict=True))
        return Choice(Schedule(tau, log_ridge, level), loss, tau)


def _constant(ridge: float, system: System, clock: Clock, times: int) -> Choice:
    tau = torch.linspace(0, clock.horizon, times, dtype=torch.float64)
    schedule = Schedule.constant(ridge, system.untruncated, system.batch)
    return Choice(schedule, torch.full((times, *system.batch), torch.nan, dtype=torch.float64), tau)


def ridge_of(ridge: Ridge | float | None) -> Ridge:
    """Return the rule for an argument ``ridge``: cross-validation for None, or a fixed number."""
    if ridge is None:
        return CrossValidation()
    if isinstance(ridge, Ridge):
        return ridge
    allowed = "CrossValidation(...) or a finite number >= 0"
    number = checks.number(ridge, "ridge", allowed)
    if number < 0:
        raise ValueError(f"ridge must be {allowed}, got {number!r}")
    return FixedRidge(number)
