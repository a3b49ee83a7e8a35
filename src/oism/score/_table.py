"""The table of a fit over clock time: coefficients, ridge and truncation, and diagnostics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from oism.process import Clock
from oism.score._interpolation import Curve

BANDWIDTH = 0.0375
"""The standard deviation of the smoothing kernel, as a share of the range of clock times.

It is at least one step of the schedule.
"""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Ridge and level as smooth functions of clock time.

    ``log_ridge`` and ``level``, ``(K, *batch)``, are the values chosen at the evenly spaced times
    ``tau`` ``(K,)``.
    """

    tau: Tensor
    log_ridge: Tensor
    level: Tensor

    def at(self, tau: Tensor) -> tuple[Tensor, Tensor]:
        """Return ridge and level at clock times ``(T,)``: ``(T, *batch)`` each."""
        if len(self.tau) == 1:
            shape = (len(tau), *self.level.shape[1:])
            return self.log_ridge.exp().expand(shape), self.level.expand(shape)
        steps = max(1.0, BANDWIDTH * (len(self.tau) - 1))
        width = steps * (self.tau[1] - self.tau[0])
        kernel = torch.softmax(-0.5 * ((tau[:, None] - self.tau) / width).square(), dim=1)
        ridge, level = (
            torch.tensordot(kernel, choice, dims=1) for choice in (self.log_ridge, self.level)
        )
        return ridge.exp(), level

    @classmethod
    def constant(cls, ridge: float, level: float, batch: tuple[int, ...]) -> Schedule:
        """Return one ridge and one level for all times."""
        ones = torch.ones(1, *batch, dtype=torch.float64)
        log_ridge = torch.tensor(ridge, dtype=torch.float64).log() * ones
        return cls(torch.zeros(1, dtype=torch.float64), log_ridge, level * ones)


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Diagnostics of a fit at the times of its schedule: tensors ``(K,)`` or ``(K, *batch)``.

    ``loss`` is the cross-validated score-matching loss (NaN without cross-validation), up to the
    constant E‖∇ log ρ_t/π‖². ``level`` is the truncation, 0 for none (torus: the cutoff is
    r·2^{-level/2}; Hermite: the order is lowered by it). ``smallest`` and ``condition`` are the
    smallest eigenvalue and the condition number of the scaled matrix (NaN if nothing was solved);
    where it is solved by iteration, the first is an upper and the second a lower estimate.
    ``iterations`` are those of conjugate gradients. ``interpolation`` is the largest relative error
    of the table between its knots, measured when the knots were placed (NaN if it was not
    measured).
    """

    tau: Tensor
    t: Tensor
    ridge: Tensor
    level: Tensor
    loss: Tensor
    smallest: Tensor
    condition: Tensor
    iterations: Tensor
    interpolation: Tensor


@dataclass(frozen=True, eq=False)
class Table:
    """Coefficients α over clock time, the ridge and truncation used for them, and diagnostics."""

    curve: Curve
    schedule: Schedule
    diagnostics: Diagnostics

    @classmethod
    def empty(cls, clock: Clock) -> Self:
        """Return the table of a Gaussian, which has no coefficients."""
        ends = torch.tensor([0.0, clock.horizon], dtype=torch.float64)
        none = torch.zeros(2, dtype=torch.float64)
        unknown = torch.full((2,), torch.nan, dtype=torch.float64)
        return cls(
            Curve(ends, torch.zeros(2, 0, dtype=torch.float64), order=2),
            Schedule.constant(0.0, 0.0, ()),
            Diagnostics(
                tau=ends,
                t=clock._time(ends),
                ridge=none,
                level=none,
                loss=unknown,
                smallest=unknown,
                condition=unknown,
                iterations=none.long(),
                interpolation=unknown[0],
            ),
        )
