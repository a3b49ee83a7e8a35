"""The clock times at which coefficients are solved for: evenly spaced, or placed adaptively."""

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
"""A function that returns coefficients at clock times, given a guess or None."""

Error = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A function that returns relative errors of a guess: ``error(tau, exact, guess)``."""

SHORTEST = 1e-6
"""The smallest distance of knots from a midpoint, as a share of the whole range."""


class Knots(ABC):
    """A rule for tabulating coefficients over clock time."""

    @abstractmethod
    def curve(
        self, solve: Solve, error: Error, known: Tensor, horizon: float
    ) -> tuple[Curve, float]:
        """Return coefficients on [0, horizon], and the largest measured error, or NaN.

        ``known`` are coefficients at evenly spaced times, from 0 to the horizon.
        """


@dataclass(frozen=True)
class EvenKnots(Knots):
    """Evenly spaced times with linear interpolation; by default 1,000, as in the paper."""

    count: int = 1000

    def __post_init__(self) -> None:
        checks.assign(self, count=checks.integer(self.count, "count", minimum=2))

    def curve(
        self,
        solve: Solve,
        error: Error,  # noqa: ARG002
        known: Tensor,  # noqa: ARG002
        horizon: float,
    ) -> tuple[Curve, float]:
        """Return the table of solutions; its error is not measured."""
        tau = torch.linspace(0, horizon, self.count, dtype=torch.float64)
        return Curve(tau, solve(tau, None), order=2), math.nan


@dataclass(frozen=True)
class KnownKnots(Knots):
    """The times at which ridge and truncation were chosen, and no others, by a cubic spline."""

    def curve(
        self,
        solve: Solve,  # noqa: ARG002
        error: Error,  # noqa: ARG002
        known: Tensor,
        horizon: float,
    ) -> tuple[Curve, float]:
        """Return the spline; its error is not measured."""
        tau = torch.linspace(0, horizon, len(known), dtype=torch.float64)
        return Curve(tau, known, order=4), math.nan


@dataclass(frozen=True)
class PlacedKnots(Knots):
    """Knots of a cubic spline, added until the error at all midpoints is at most ``tolerance``.

    The error is that of the score in L²(ρ_t), relative to its norm. ``most`` bounds the number of
    knots.
    """

    tolerance: float = 1e-3
    most: int = 1025

    def __post_init__(self) -> None:
        tolerance = checks.positive(self.tolerance, "tolerance")
        checks.assign(self, tolerance=tolerance, most=checks.integer(self.most, "most", minimum=8))

    def curve(
        self, solve: Solve, error: Error, known: Tensor, horizon: float
    ) -> tuple[Curve, float]:
        """Return a table refined from the values ``known`` at evenly spaced times."""
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
    """Return a cubic curve with an error below ``tolerance`` at midpoints, and its last error.

    ``solve(tau, guess)`` returns values at times, ``error(tau, exact, guess)`` the relative error
    of a guess. Starting with given knots and values, all midpoints are solved for, with the
    interpolated values as guesses, and added to the knots. Intervals whose midpoint had an error
    above the tolerance are halved again, up to ``most`` knots, and no shorter than ``SHORTEST``:
    where solutions jump, as those of equations that are not positive may, halving does not end.
    """
    pending = torch.ones(len(knots) - 1, dtype=torch.bool)
    shortest = SHORTEST * float(knots[-1] - knots[0])
    while True:
        curve = Curve(knots, values, order=4)
        left = pending.nonzero()[:, 0]
        before = knots[left]
        middle = 0.5 * (before + knots[left + 1])
        guess = curve(middle)
        exact = solve(middle, guess)
        wrong = error(middle, exact, guess)
        knots, order = torch.cat((knots, middle)).sort()
        values = torch.cat((values, exact))[order]
        split = torch.zeros(len(pending), dtype=torch.bool)
        split[left] = (wrong > tolerance) & (middle - before > shortest)
        tested = pending.long() + 1
        pending = split.repeat_interleave(tested)
        if not bool(pending.any()) or len(knots) + int(pending.sum()) > most:
            return Curve(knots, values, order=4), float(wrong.max())
