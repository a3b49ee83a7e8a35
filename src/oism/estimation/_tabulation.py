"""What is chosen over time and tabulated: ridge, truncation and coefficients at knots."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import Progress
from oism.estimation._knots import Knots
from oism.estimation._systems.choice import choose
from oism.process import Clock
from oism.score import Curve, Diagnostics, Schedule, System, Table


@dataclass(frozen=True)
class CrossValidation:
    """Choose ridge and truncation by cross-validation in closed form, at evenly spaced times."""

    folds: int = 5
    times: int = 41

    def __post_init__(self) -> None:
        folds = checks.integer(self.folds, "folds", minimum=2)
        checks.settle(self, folds=folds, times=checks.integer(self.times, "times", minimum=4))


NEGLIGIBLE = 1e-2
"""A score of this size in L²(ρ_t) need not be known relatively: it is added to the size."""


def checked_ridge(ridge: CrossValidation | float | None) -> CrossValidation | float:
    """Return how the ridge is chosen, or the number that was."""
    if ridge is None:
        return CrossValidation()
    if isinstance(ridge, CrossValidation):
        return ridge
    demand = "CrossValidation(...) or a finite number >= 0"
    number = checks.number(ridge, "ridge", demand)
    if number < 0:
        raise ValueError(f"ridge must be {demand}, got {number!r}")
    return number


def tabulate(
    system: System,
    clock: Clock,
    ridge: CrossValidation | float,
    knots: Knots,
    bar: Progress,
) -> Table:
    """Choose ridge and truncation, and solve at the knots."""
    if not system.has_coefficients:
        return Table.empty(clock)
    with system.workers():
        schedule, loss, tau = _schedule(system, clock, ridge, bar)
        t = clock._time(tau)
        chosen, level = schedule.at(tau)
        bar.stage("solving")
        found = system.diagnose(t, chosen, level)
        condition = (found.largest + chosen) / (found.smallest + chosen).clamp(min=1e-300)
        curve, wrong = _curve(system, schedule, clock, knots, found.alpha, bar)
    diagnostics = Diagnostics(
        tau=tau,
        t=t,
        ridge=chosen,
        level=level,
        loss=loss,
        smallest=found.smallest,
        condition=condition,
        iterations=found.iterations,
        interpolation=torch.tensor(wrong, dtype=torch.float64),
    )
    return Table(curve, schedule, diagnostics)


def _schedule(
    system: System,
    clock: Clock,
    ridge: CrossValidation | float,
    bar: Progress,
) -> tuple[Schedule, Tensor, Tensor]:
    """Return ridge and level over time, the cross-validated losses, and the times of choice."""
    cross = ridge if isinstance(ridge, CrossValidation) else None
    count = (cross or CrossValidation()).times
    tau = torch.linspace(0, clock.horizon, count, dtype=torch.float64)
    if cross is None or not system.has_choice:
        value = 0.0 if cross is not None else ridge
        schedule = Schedule.constant(value, system.untruncated, system.batch)
        return schedule, torch.full((count, *system.batch), torch.nan, dtype=torch.float64), tau
    bar.stage("choosing ridge and truncation", count)
    picks = []
    step = max(4, 40_000 // system.basis.size)  # few at a time where they are long
    for run in torch.split(tau, step):
        picks.append([part.cpu() for part in choose(system.losses(clock._time(run)))])
        bar.advance(len(run))
    log_ridge, level, loss = (torch.cat(many) for many in zip(*picks, strict=True))
    return Schedule(tau, log_ridge, level), loss, tau


def _curve(
    system: System,
    schedule: Schedule,
    clock: Clock,
    knots: Knots,
    known: Tensor,
    bar: Progress,
) -> tuple[Curve, float]:
    """Return the table of coefficients, and its tested error."""
    checks.instance(knots, Knots, "knots")

    def solve(tau: Tensor, guess: Tensor | None) -> Tensor:
        alpha = system.solve(clock._time(tau), *schedule.at(tau), start=guess).alpha
        bar.advance(len(tau))
        return alpha

    def error(tau: Tensor, exact: Tensor, guess: Tensor) -> Tensor:
        t = clock._time(tau)
        size = system.norm(t, exact) + NEGLIGIBLE
        return system.norm(t, exact - guess) / size

    return knots.curve(solve, error, known, clock.horizon)
