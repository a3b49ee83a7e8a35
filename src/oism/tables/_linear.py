"""Tables under a linear SDE that is given: free columns, one for each entry of a point.

Columns are standardised one by one, to the standard deviations of the stationary distribution: the
matrices of the process are those of the columns, so they are not rotated. Polynomials of a total
degree contain all interactions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oism.basis import TensorHermite
from oism.estimation import Moments, Ridge, Shrinkage, fit_linear_moments, moments_of
from oism.process import Clock, Linear
from oism.score import OperatorScore
from oism.tables._background import Spread
from oism.tables._chart import WhiteChart
from oism.tables._columns import Columns
from oism.tables._family import MomentFamily
from oism.tables._ornstein_uhlenbeck import FIRST_SIGMA, check_free, without_outliers

ORDER = 4
"""The largest total degree of the polynomials, unless given."""

HALVINGS = 60


@dataclass(frozen=True)
class LinearFamily(MomentFamily[Linear]):
    """Polynomials of a total degree under any linear SDE, symmetric or not."""

    example = "Linear(...)"
    process_type = Linear

    def check(self, columns: Columns) -> None:
        """Raise unless columns are free and as many as the process has entries."""
        check_free(columns, "a Linear process")
        if self.process.size != columns.count:
            raise ValueError(
                f"process must have one entry for each of the {columns.count} columns, got a "
                f"{type(self.process).__name__} process of {self.process.size} entries"
            )
        # Raises where there is no stationary distribution with a density to start the flow from.
        _ = self.process.invariant.log_density(torch.zeros(1, columns.count, dtype=torch.float64))

    def chart(self, columns: Columns, rows: Tensor, weights: Tensor, spread: Spread) -> WhiteChart:  # noqa: ARG002
        """Return the chart to mean 0 and the stationary variances, column by column."""
        spread = without_outliers(rows, weights, spread)
        chart = WhiteChart.of(spread.mean, spread.covariance, rotate=False)
        return chart.scaled(self._stationary().diagonal().sqrt())

    def _stationary(self) -> Tensor:
        """Return the stationary covariance of all entries: ``(d, d)``."""
        copies = torch.eye(self.process.copies, dtype=torch.float64)
        return torch.kron(self.process.stationary_covariance, copies)

    def moments(self, dim: int, n: float, folds: int, *, squares: bool) -> Moments:  # noqa: ARG002
        """Return an accumulator of products of polynomials."""
        order = ORDER if isinstance(self.order, str) else int(self.order)
        return moments_of(TensorHermite(dim, order), folds, squares=squares)

    def fit(
        self, moments: Moments, *, clock: Clock | None, shrinkage: Shrinkage, ridge: Ridge | float
    ) -> OperatorScore:
        """Return the scores in all directions, by default over the clock of `fit_linear`."""
        return fit_linear_moments(
            moments, self.process, whole=True, clock=clock, shrinkage=shrinkage, ridge=ridge
        )

    def span(self, score: OperatorScore) -> tuple[float, float]:
        """Return the clock times of the flow, which ends at a noise of 0.01.

        The noise is the root mean square over columns, in stationary standard deviations. Data on a
        plane in space have an infinite score at t = 0.
        """
        clock, target = score.clock, FIRST_SIGMA**2 * float(self._stationary().trace())
        first, last = 0.0, clock.horizon
        for _ in range(HALVINGS):
            middle = 0.5 * (first + last)
            covariance = self.process.transition(clock.time(middle)).covariance(self.process.size)
            enough = float(covariance.trace()) >= target
            first, last = (first, middle) if enough else (middle, last)
        return last, clock.horizon
