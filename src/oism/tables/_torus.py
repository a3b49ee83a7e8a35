"""Tables on the torus: waves, for at most three columns of any kind."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from oism.basis import Fourier
from oism.estimation import Knots, Moments, PlacedKnots, Ridge, Shrinkage, fit_moments, moments_of
from oism.process import Clock, Torus, VarianceExploding
from oism.score import OperatorScore
from oism.tables._background import Spread
from oism.tables._chart import BoxChart
from oism.tables._columns import Columns
from oism.tables._family import MomentFamily

MOST_COLUMNS = 3
"""The largest number of columns; the number of waves grows like the volume of a ball."""

RESOLUTION = {1: (10_000.0, 0.4), 2: (600.0, 0.4), 3: (80.0, 0.5)}
"""By dimension: the bound on ‖ξ‖² for 10,000 rows, and the power of n by which it grows."""

LEAST_EIGENVALUE = {1: 400.0, 2: 25.0, 3: 4.0}
LARGEST_EIGENVALUE = {1: 40_000.0, 2: 2000.0, 3: 200.0}

SIGMA_MAX = 5.0
"""The noise at which a distribution on the torus counts as uniform: waves are down to e^{-12.5}."""

KNOT_ERROR = 1e-2
"""The relative error of scores between the times at which they are solved for."""


@dataclass(frozen=True)
class TorusFamily(MomentFamily[Torus]):
    """Fourier waves under Brownian motion modulo 2π."""

    knots: Knots = field(default_factory=lambda: PlacedKnots(KNOT_ERROR))

    name = "torus"
    example = "Torus()"
    process_type = Torus
    times = 17
    allows_network = True
    may_be_mixture = True

    def check(self, columns: Columns) -> None:
        """Raise for more than three columns."""
        if columns.count > MOST_COLUMNS:
            raise ValueError(
                f"the torus serves at most {MOST_COLUMNS} columns, got {columns.count}, because "
                "the number of waves grows like the volume of a ball: process='ou' serves any "
                "number of columns that are neither periodic nor bounded, and oism.fit(...) with "
                "a Fourier basis of chosen frequencies serves angles"
            )

    def chart(self, columns: Columns, rows: Tensor, weights: Tensor, spread: Spread) -> BoxChart:
        """Return the chart to the box [-π, π)^d."""
        return columns.chart(rows, spread.count, weights)

    def basis(self, dim: int, n: float) -> Fourier:
        """Return the waves for n rows."""
        bound = self.max_eigenvalue
        if isinstance(bound, str):
            most, power = RESOLUTION[dim]
            bound = most * (n / 10_000) ** power
            bound = min(max(bound, LEAST_EIGENVALUE[dim]), LARGEST_EIGENVALUE[dim])
        return Fourier.lattice(dim, float(bound))

    def moments(self, dim: int, n: float, folds: int, *, squares: bool) -> Moments:
        """Return an accumulator of waves."""
        return moments_of(self.basis(dim, n), folds, squares=squares)

    def fit(
        self, moments: Moments, *, clock: Clock | None, shrinkage: Shrinkage, ridge: Ridge | float
    ) -> OperatorScore:
        """Return the scores; noise begins well below the finest wave, 0.01 for ‖ξ‖² ≤ 500."""
        if clock is None:
            finest = -float(moments.basis.eigenvalues[-1])
            clock = VarianceExploding(0.01 * math.sqrt(500 / finest), SIGMA_MAX)
        return fit_moments(moments, clock=clock, shrinkage=shrinkage, ridge=ridge, knots=self.knots)
