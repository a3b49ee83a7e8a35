"""Tables under the Ornstein-Uhlenbeck process: any number of free columns.

Data are whitened to the variance of the invariant distribution. Each principal coordinate, or each
column, has its own polynomial.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism.basis import Hermite
from oism.estimation import EvenKnots, Moments, Ridge, Shrinkage, fit_moments, moments_of
from oism.process import Clock, OrnsteinUhlenbeck, VariancePreserving
from oism.score import OperatorScore
from oism.tables._background import Spread
from oism.tables._box import limits
from oism.tables._chart import FAR, WhiteChart
from oism.tables._columns import Columns
from oism.tables._family import MomentFamily

ORDER = 6

MOST_ORDER = 86
"""The largest degree of polynomials, of which the derivatives have products in `oism.basis`."""
"""The largest degree of the polynomials, unless given."""

FIRST_SIGMA = 0.01
"""The noise, in standard deviations of the data, at which the flow ends."""


@dataclass(frozen=True)
class OrnsteinUhlenbeckFamily(MomentFamily[OrnsteinUhlenbeck]):
    """Hermite polynomials of each direction."""

    name = "ou"
    example = "OrnsteinUhlenbeck(...)"
    process_type = OrnsteinUhlenbeck

    def check(self, columns: Columns) -> None:
        """Raise unless all columns are free."""
        check_free(columns, "'ou'")

    def chart(self, columns: Columns, rows: Tensor, weights: Tensor, spread: Spread) -> WhiteChart:  # noqa: ARG002
        """Return the chart to mean 0 and the variance of the invariant distribution."""
        spread = without_outliers(rows, weights, spread)
        chart = WhiteChart.of(spread.mean, spread.covariance, rotate=self.frame == "pca")
        return chart.scaled(math.sqrt(self.process.stationary_variance))

    def moments(self, dim: int, n: float, folds: int, *, squares: bool) -> Moments:  # noqa: ARG002
        """Return an accumulator of polynomials."""
        order = ORDER if isinstance(self.order, str) else int(self.order)
        if order > MOST_ORDER:  # their derivatives have one degree less
            raise ValueError(
                f"order must be at most {MOST_ORDER} for process='ou', got {order}: the products "
                "of polynomials of larger degree do not fit float64"
            )
        return moments_of(Hermite(dim, order, self.process), folds, squares=squares)

    def fit(
        self, moments: Moments, *, clock: Clock | None, shrinkage: Shrinkage, ridge: Ridge | float
    ) -> OperatorScore:
        """Return the scores, by default over the variance preserving clock."""
        clock = VariancePreserving() if clock is None else clock
        knots = EvenKnots()
        return fit_moments(moments, clock=clock, shrinkage=shrinkage, ridge=ridge, knots=knots)

    def span(self, score: OperatorScore) -> tuple[float, float]:
        """Return the clock times of the flow, which ends at a noise of 0.01.

        Data on a plane in space have an infinite score at t = 0.
        """
        t = -math.log1p(-(FIRST_SIGMA**2)) / (2 * self.process.theta)
        return first_time(score, t), score.clock.horizon


def without_outliers(rows: Tensor, weights: Tensor, spread: Spread) -> Spread:
    """Return the spread of rows, without those beyond 100 standard deviations of the others.

    One of them would be the scale of the chart, in which all others are one point to polynomials.
    """
    least, most = limits(rows, weights, spread.count)
    inner = ((rows >= least) & (rows <= most)).all(dim=1)
    if bool(inner.all()) or not bool(inner.any()):
        return spread
    own = _spread_of(rows[inner], weights[inner])
    deviation = own.covariance.diagonal().clamp(min=0).sqrt()
    far = ((rows - own.mean).abs() > FAR * deviation) & (deviation > 0)
    near = ~(far.any(dim=1) & ~inner)
    return spread if bool(near.all()) else _spread_of(rows[near], weights[near])


def _spread_of(rows: Tensor, weights: Tensor) -> Spread:
    found = Spread(rows.mean(dim=0))
    found.update(rows, weights)
    return found


def check_free(columns: Columns, got: str) -> None:
    """Raise unless all columns are free."""
    if not columns.are_free:
        raise ValueError(
            "periodic, bounds and box need process='torus' (at most three columns), got " + got
        )


def first_time(score: OperatorScore, t: float) -> float:
    """Return the clock time of a process time, within the range of the clock."""
    low, high = score.times
    clipped = torch.tensor(min(max(t, low), high), dtype=torch.float64)
    return float(score.clock.inverse(clipped))
