"""What is chosen over time and tabulated: ridge, truncation and coefficients at knots."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism import checks
from oism.basis import Functions
from oism.clock import Clock
from oism.progress import Progress
from oism.score import Curve, Diagnostics, place_knots
from oism.solve import Schedule, System, choose


@dataclass(frozen=True)
class CrossValidation:
    """Choose ridge and truncation by cross-validation in closed form, at evenly spaced times."""

    folds: int = 5
    times: int = 41

    def __post_init__(self) -> None:
        folds = checks.integer(self.folds, "folds", minimum=2)
        checks.settle(self, folds=folds, times=checks.integer(self.times, "times", minimum=4))


@dataclass(frozen=True)
class EvenKnots:
    """Solve on evenly spaced clock times and join linearly; the paper's 1,000 by default."""

    count: int = 1000

    def __post_init__(self) -> None:
        checks.settle(self, count=checks.integer(self.count, "count", minimum=2))


@dataclass(frozen=True)
class PlacedKnots:
    """Solve where a cubic spline needs it: until no midpoint is off by more than ``tolerance``.

    The error is that of the score in L²(ρ_t), relative to its size. ``most`` bounds the number of
    knots.
    """

    tolerance: float = 1e-3
    most: int = 1025

    def __post_init__(self) -> None:
        tolerance = checks.positive(self.tolerance, "tolerance")
        checks.settle(self, tolerance=tolerance, most=checks.integer(self.most, "most", minimum=8))


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
    basis: Functions,
    system: System,
    clock: Clock,
    ridge: CrossValidation | float,
    knots: EvenKnots | PlacedKnots,
    bar: Progress,
) -> tuple[Curve, Schedule, Diagnostics]:
    """Choose ridge and truncation, and solve at the knots."""
    schedule, loss, tau = _schedule(basis, system, clock, ridge, bar)
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
    return curve, schedule, diagnostics


def _schedule(
    basis: Functions,
    system: System,
    clock: Clock,
    ridge: CrossValidation | float,
    bar: Progress,
) -> tuple[Schedule, Tensor, Tensor]:
    """Return ridge and level over time, the cross-validated losses, and the times of choice."""
    count = ridge.times if isinstance(ridge, CrossValidation) else CrossValidation().times
    tau = torch.linspace(0, clock.horizon, count, dtype=torch.float64)
    if not isinstance(ridge, CrossValidation) or not system.has_choice:
        value = 0.0 if isinstance(ridge, CrossValidation) else ridge
        schedule = Schedule.constant(value, system.untruncated, system.batch)
        return schedule, torch.full((count, *system.batch), torch.nan, dtype=torch.float64), tau
    bar.stage("choosing ridge and truncation", count)
    picks = []
    step = max(4, 40_000 // basis.size)  # few at a time where they are long
    for run in torch.split(tau, step):
        picks.append([part.cpu() for part in choose(system.losses(clock._time(run)))])
        bar.advance(len(run))
    log_ridge, level, loss = (torch.cat(many) for many in zip(*picks, strict=True))
    return Schedule(tau, log_ridge, level), loss, tau


def _curve(
    system: System,
    schedule: Schedule,
    clock: Clock,
    knots: EvenKnots | PlacedKnots,
    known: Tensor,
    bar: Progress,
) -> tuple[Curve, float]:
    """Return the table of coefficients, and its tested error.

    Placing knots begins with the coefficients that are ``known`` at evenly spaced times.
    """

    def solve(tau: Tensor, guess: Tensor | None) -> Tensor:
        alpha = system.solve(clock._time(tau), *schedule.at(tau), start=guess).alpha
        bar.advance(len(tau))
        return alpha

    if isinstance(knots, EvenKnots):
        tau = torch.linspace(0, clock.horizon, knots.count, dtype=torch.float64)
        return Curve(tau, solve(tau, None), order=2), math.nan
    checks.instance(knots, PlacedKnots, "knots")

    def error(tau: Tensor, exact: Tensor, guess: Tensor) -> Tensor:
        t = clock._time(tau)
        size = system.norm(t, exact) + NEGLIGIBLE
        return system.norm(t, exact - guess) / size

    start = torch.linspace(0, clock.horizon, len(known), dtype=torch.float64)
    return place_knots(solve, error, start, known, tolerance=knots.tolerance, most=knots.most)


def nothing_to_solve(clock: Clock) -> tuple[Curve, Schedule, Diagnostics]:
    """Return the parts of a Gaussian, of which nothing is left to solve or to choose."""
    ends = torch.tensor([0.0, clock.horizon], dtype=torch.float64)
    curve = Curve(ends, torch.zeros(2, 0, dtype=torch.float64), order=2)
    none = torch.zeros(2, dtype=torch.float64)
    unknown = torch.full((2,), torch.nan, dtype=torch.float64)
    diagnostics = Diagnostics(
        ends, clock._time(ends), none, none, unknown, unknown, unknown, none.long(), unknown[0]
    )
    return curve, Schedule.constant(0.0, 0.0, ()), diagnostics
