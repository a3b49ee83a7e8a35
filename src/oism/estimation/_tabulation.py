"""The table of a fit over clock time: ridge and truncation, and coefficients at knots."""

from __future__ import annotations

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import Progress
from oism.estimation._knots import Knots
from oism.estimation._ridge import Ridge
from oism.process import Clock
from oism.score import Curve, Diagnostics, Schedule, System, Table

NEGLIGIBLE = 1e-2
"""Added to the norm of a score in L²(ρ_t), so that small scores need no relative accuracy."""


def tabulate(
    system: System,
    clock: Clock,
    ridge: Ridge,
    knots: Knots,
    bar: Progress,
) -> Table:
    """Return the table of a fit: chosen ridge and truncation, and coefficients at knots."""
    if not system.has_coefficients:
        return Table.empty(clock)
    with system.workers():
        schedule, loss, tau = ridge.choose(system, clock, bar)
        t = clock._time(tau)
        chosen, level = schedule.at(tau)
        found = system.diagnose(t, chosen, level, advance=bar.shares("solving"))
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


def _curve(
    system: System,
    schedule: Schedule,
    clock: Clock,
    knots: Knots,
    known: Tensor,
    bar: Progress,
) -> tuple[Curve, float]:
    """Return the curve of coefficients, and its measured error."""
    checks.instance(knots, Knots, "knots")

    def solve(tau: Tensor, guess: Tensor | None) -> Tensor:
        advance = bar.shares(f"solving at {len(tau)} more times")
        t, (ridge, level) = clock._time(tau), schedule.at(tau)
        return system.solve(t, ridge, level, start=guess, advance=advance).alpha

    def error(tau: Tensor, exact: Tensor, guess: Tensor) -> Tensor:
        t = clock._time(tau)
        size = system.norm(t, exact) + NEGLIGIBLE
        return system.norm(t, exact - guess) / size

    return knots.curve(solve, error, known, clock.horizon)
