"""Where coefficients are solved for: evenly, or where a cubic spline needs it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism.score import Curve

Solve = Callable[[Tensor, Tensor | None], Tensor]
"""Coefficients at clock times, given a guess or None."""

Error = Callable[[Tensor, Tensor, Tensor], Tensor]
"""The relative errors of a guess at clock times: ``error(tau, exact, guess)``."""


class Knots(ABC):
    """How coefficients are tabulated over clock time."""

    @abstractmethod
    def curve(
        self, solve: Solve, error: Error, known: Tensor, horizon: float
    ) -> tuple[Curve, float]:
        """Return coefficients on [0, horizon], and the largest error that was tested, or NaN.

        ``known`` are coefficients at evenly spaced times, from 0 to the horizon.
        """


@dataclass(frozen=True)
class EvenKnots(Knots):
    """Solve on evenly spaced clock times and join linearly; the paper's 1,000 by default."""

    count: int = 1000

    def __post_init__(self) -> None:
        checks.settle(self, count=checks.integer(self.count, "count", minimum=2))

    def curve(
        self, solve: Solve, error: Error, known: Tensor, horizon: float
    ) -> tuple[Curve, float]:  # noqa: ARG002
        """Return the table of solutions, whose error is not tested."""
        tau = torch.linspace(0, horizon, self.count, dtype=torch.float64)
        return Curve(tau, solve(tau, None), order=2), math.nan


@dataclass(frozen=True)
class PlacedKnots(Knots):
    """Solve where a cubic spline needs it: until no midpoint is off by more than ``tolerance``.

    The error is that of the score in L²(ρ_t), relative to its size. ``most`` bounds the number of
    knots.
    """

    tolerance: float = 1e-3
    most: int = 1025

    def __post_init__(self) -> None:
        tolerance = checks.positive(self.tolerance, "tolerance")
        checks.settle(self, tolerance=tolerance, most=checks.integer(self.most, "most", minimum=8))

    def curve(
        self, solve: Solve, error: Error, known: Tensor, horizon: float
    ) -> tuple[Curve, float]:
        """Return a table that begins with the values ``known`` at evenly spaced times."""
        start = torch.linspace(0, horizon, len(known), dtype=torch.float64)
        return place_knots(solve, error, start, known, tolerance=self.tolerance, most=self.most)


def place_knots(
    solve: Solve,
    error: Error,
    knots: Tensor,
    values: Tensor,
    *,
    tolerance: float,
    most: int,
) -> tuple[Curve, float]:
    """Return a cubic curve whose error between knots is below a tolerance, tested at midpoints.

    ``solve(tau, guess)`` gives values at times, ``error(tau, exact, guess)`` the relative error of
    a guess. Begins with given knots and values; every midpoint is solved, starting from the
    interpolated value, and joins the knots; an interval whose midpoint was off by more than the
    tolerance is halved again. Stops at ``most`` knots. The second result is the largest error of
    the last test.
    """
    pending = torch.ones(len(knots) - 1, dtype=torch.bool)
    while True:
        curve = Curve(knots, values, order=4)
        left = pending.nonzero()[:, 0]
        middle = 0.5 * (knots[left] + knots[left + 1])
        guess = curve(middle)
        exact = solve(middle, guess)
        wrong = error(middle, exact, guess)
        knots, order = torch.cat((knots, middle)).sort()
        values = torch.cat((values, exact))[order]
        split = torch.zeros(len(pending), dtype=torch.bool)
        split[left] = wrong > tolerance
        tested = pending.long() + 1
        pending = split.repeat_interleave(tested)
        if not bool(pending.any()) or len(knots) + int(pending.sum()) > most:
            return Curve(knots, values, order=4), float(wrong.max())
