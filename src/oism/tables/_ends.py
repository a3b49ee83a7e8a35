"""One column with bounds under a diffusion whose domain ends there.

A column with both bounds is modelled by Jacobi polynomials on [0, 1], one with a single bound by
Laguerre polynomials on (0, ∞), or by Jacobi polynomials in a box of the data. The parameters of the
process are the powers of its invariant density at the ends: x^{a-1} at 0 and (1 - x)^{b-1} at 1. If
they are those of the data, log(ρ/π) is smooth up to the ends, also where the density is infinite.
`choose_at_ends` fits several, beside reflection on the torus and a kernel density estimate
(`oism.tables._end_kernels`), to parts of the rows, and mixes them with the weights that give
held-out rows the largest mean log-density, see `oism.tables._stack`. Rows on an end need a finite
density there: then a power is at least 1. A density that is infinite at an end, and that rows
hardly show, would spoil pictures and integrals over a grid for a gain in likelihood that may be
chance. So likely powers that do not differ from 1 by two standard errors are 1; and at an end of
likely power 1 or more the power ½ has a weight only if it improves the pool by two standard errors,
see `oism.tables._pool.supported_weights`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
import scipy.optimize
import scipy.special
import torch
from torch import Tensor

from oism.basis import JacobiPolynomials, LaguerrePolynomials
from oism.estimation import (
    Knots,
    KnownKnots,
    Moments,
    PlacedKnots,
    Ridge,
    Shrinkage,
    fit_moments,
    fold_of,
    moments_of,
)
from oism.process import Clock, Jacobi, Laguerre
from oism.score import OperatorScore
from oism.tables._background import Spread, effective_count
from oism.tables._collector import Settings
from oism.tables._column import Column
from oism.tables._columns import Columns
from oism.tables._end_chart import EndChart
from oism.tables._end_kernels import choose_end_kernels
from oism.tables._family import Family, MomentFamily, P, repeated
from oism.tables._model import TableModel
from oism.tables._pool import Densities, Single, held_out_logs, supported_weights
from oism.tables._stack import StackedFamily

KNOT_ERROR = 1e-2
"""The relative error of scores between the times at which they are solved for."""

FOLDS = 3
"""The number of folds by which a family is chosen."""

LEAST_ROWS = 100
"""The least number of rows for a choice."""

MOST_HELD_OUT = 500
"""The largest number of held-out rows per fold at which densities are compared."""

STEPS = 12
"""The number of steps of flows that are compared."""

POWERS = (0.25, 3.0)
"""The range of the powers a and b that are estimated."""

ERRORS = 2.0
"""The standard errors by which a likely power must differ from 1."""


@dataclass(frozen=True)
class EndFamily(MomentFamily[P]):
    """The choices for one column with bounds; the degree is the usual one unless it is given."""

    usual_degree: ClassVar[int]

    knots: Knots = field(default_factory=lambda: PlacedKnots(KNOT_ERROR))

    times = 17

    def fit(
        self, moments: Moments, *, clock: Clock | None, shrinkage: Shrinkage, ridge: Ridge | float
    ) -> OperatorScore:
        """Return the scores, by default over the clock of the basis."""
        return fit_moments(moments, clock=clock, shrinkage=shrinkage, ridge=ridge, knots=self.knots)

    @property
    @abstractmethod
    def powers(self) -> tuple[float, float]:
        """The powers of the invariant density at the ends; 1 for an end at infinity."""

    def is_steep(self, likely: tuple[float, float]) -> bool:
        """Return whether densities are infinite at an end where by likely powers they are not."""
        return any(own < 1 <= other for own, other in zip(self.powers, likely, strict=True))

    def degree(self) -> int:
        """Return the largest degree of the polynomials."""
        return self.usual_degree if isinstance(self.order, str) else int(self.order)


@dataclass(frozen=True)
class JacobiFamily(EndFamily[Jacobi]):
    """Jacobi polynomials of a column with both bounds, or with one and a box of the data."""

    example = "Jacobi(a, b)"
    process_type = Jacobi
    usual_degree = 48

    @property
    def powers(self) -> tuple[float, float]:
        """The parameters of the process."""
        return self.process.a, self.process.b

    def check(self, columns: Columns) -> None:
        """Raise unless there is one column, with bounds."""
        if columns.count != 1 or not ends_of(columns[0]):
            raise ValueError(
                f"process={self.process!r} needs one column with bounds, such as "
                "bounds={0: (0, 1)}: use process='auto' for other columns"
            )

    def chart(self, columns: Columns, rows: Tensor, weights: Tensor, spread: Spread) -> EndChart:
        """Return the chart to [0, 1]."""
        if ends_of(columns[0]) == 2:
            return EndChart.interval(columns[0].low, columns[0].high)
        width = float(columns.chart(rows, spread.count, weights).width)
        return EndChart.box(*end_of(columns[0]), width)

    def moments(self, dim: int, n: float, folds: int, *, squares: bool) -> Moments:  # noqa: ARG002
        """Return an accumulator of Jacobi polynomials."""
        basis = JacobiPolynomials(self.process, self.degree())
        return moments_of(basis, folds, squares=squares)


@dataclass(frozen=True)
class LaguerreFamily(EndFamily[Laguerre]):
    """Laguerre polynomials of a column with one bound."""

    example = "Laguerre(a)"
    process_type = Laguerre
    usual_degree = 12

    @property
    def powers(self) -> tuple[float, float]:
        """The parameter of the process, and 1."""
        return self.process.a, 1.0

    def check(self, columns: Columns) -> None:
        """Raise unless there is one column, with one bound."""
        if columns.count != 1 or ends_of(columns[0]) != 1:
            raise ValueError(
                f"process={self.process!r} needs one column with one bound, such as "
                "bounds={0: (0, None)}: use process='auto' for other columns"
            )

    def chart(self, columns: Columns, rows: Tensor, weights: Tensor, spread: Spread) -> EndChart:  # noqa: ARG002
        """Return the chart to (0, ∞) in which the data have the mean a of the process."""
        bound, side = end_of(columns[0])
        gaps = side * (rows[:, 0] - bound)
        mean = float(weights @ gaps / weights.sum()) or 1.0
        size = math.sqrt(float(weights @ gaps.square() / weights.sum())) or 1.0
        return EndChart.half_line(bound, side, mean / self.process.a, size)

    def moments(self, dim: int, n: float, folds: int, *, squares: bool) -> Moments:  # noqa: ARG002
        """Return an accumulator of Laguerre polynomials."""
        basis = LaguerrePolynomials(self.process, self.degree())
        return moments_of(basis, folds, squares=squares)


def ends_of(column: Column) -> int:
    """Return the number of bounds of a column; 0 if it is periodic or has levels."""
    if column.period is not None or column.levels or column.categorical:
        return 0
    return math.isfinite(column.low) + math.isfinite(column.high)


def end_of(column: Column) -> tuple[float, float]:
    """Return the bound of a column with one, and the side of its values, 1 or -1."""
    return (column.low, 1.0) if math.isfinite(column.low) else (column.high, -1.0)


def candidates(column: Column, x: Tensor, likely: tuple[float, float]) -> list[EndFamily[Any]]:
    """Return families for a column with bounds, its values ``(n,)`` and their likely powers.

    >>> column = Column(low=0.0, high=1.0)
    >>> x = torch.linspace(0.01, 0.99, 99).double()
    >>> [family.process for family in candidates(column, x, (1.2, 1.3))]
    [Jacobi(a=0.5, b=0.5), Jacobi(a=1.0, b=1.0), Jacobi(a=1.2, b=1.3)]
    """
    least = least_powers(column, x)
    if ends_of(column) == 2:
        pairs = [(max(p, least[0]), max(p, least[1])) for p in (0.5, 1.0)]
        return [JacobiFamily(Jacobi(*pair)) for pair in dict.fromkeys([*pairs, likely])]
    near = dict.fromkeys([likely[0], max(0.5, least[0])])
    boxed = [JacobiFamily(Jacobi(power, 1.0)) for power in near]
    return [LaguerreFamily(Laguerre(likely[0])), *boxed]


def least_powers(column: Column, x: Tensor) -> tuple[float, float]:
    """Return the least powers at the ends: 1 where there are values on them, otherwise 0."""
    bound, side = end_of(column)
    on = float((side * (x - bound)).min()) <= 0, bool((x >= column.high).any())
    return 1.0 if on[0] else 0.0, 1.0 if on[1] and ends_of(column) == 2 else 0.0


def likely_powers(column: Column, x: Tensor, weights: Tensor) -> tuple[float, float]:
    """Return the powers of maximal likelihood at the ends; 1 for an end at infinity.

    Those that do not differ from 1 by `ERRORS` standard errors are 1.
    """
    least = least_powers(column, x)
    count = effective_count(float(weights.sum()), float(weights.square().sum()))
    if ends_of(column) == 2:
        a, b = beta_powers(((x - column.low) / (column.high - column.low)).clamp(0, 1), weights)
        errors = beta_errors(a, b, count)
        return (
            max(_or_one(a, errors[0]), least[0]),
            max(_or_one(b, errors[1]), least[1]),
        )
    bound, side = end_of(column)
    a = gamma_power((side * (x - bound)).clamp(min=0), weights)
    return max(_or_one(a, gamma_error(a, count)), least[0]), 1.0


def _or_one(power: float, error: float) -> float:
    """Return 1 if a power may be 1, else the power."""
    return 1.0 if abs(power - 1) <= ERRORS * error else power


def beta_errors(a: float, b: float, n: float) -> tuple[float, float]:
    """Return the standard errors of powers of maximal likelihood from n rows.

    The information of a row about (a, b) is diag(ψ₁(a), ψ₁(b)) - ψ₁(a + b), with ψ₁ = (log Γ)″.
    """
    one, other, both = scipy.special.polygamma(1, [a, b, a + b])
    size = n * ((one - both) * (other - both) - both**2)
    return math.sqrt((other - both) / size), math.sqrt((one - both) / size)


def gamma_error(a: float, n: float) -> float:
    """Return the standard error of the power of maximal likelihood from n rows, any scale.

    It is √(a/(n(aψ₁(a) - 1))), from the information about shape and scale.
    """
    return math.sqrt(a / (n * (a * float(scipy.special.polygamma(1, a)) - 1)))


def beta_powers(u: Tensor, weights: Tensor) -> tuple[float, float]:
    """Return a and b of the Beta distribution of maximal likelihood, within `POWERS`."""
    share, inside = weights / weights.sum(), u.clamp(1e-12, 1 - 1e-12)
    logs = float(share @ inside.log()), float(share @ torch.log1p(-inside))

    def loss(theta: np.ndarray) -> float:
        a, b = np.exp(theta)
        return float(scipy.special.betaln(a, b) - (a - 1) * logs[0] - (b - 1) * logs[1])

    ends = (math.log(POWERS[0]), math.log(POWERS[1]))
    found = scipy.optimize.minimize(loss, np.zeros(2), method="L-BFGS-B", bounds=[ends, ends])
    a, b = np.exp(found.x).round(3)
    return float(a), float(b)


def gamma_power(gaps: Tensor, weights: Tensor) -> float:
    """Return a of the Gamma distribution of maximal likelihood, within `POWERS`."""
    share = weights / weights.sum()
    mean = float(share @ gaps)
    target = math.log(mean) - float(share @ gaps.clamp(min=1e-12 * mean).log()) if mean else 0.0

    def excess(a: float) -> float:
        return math.log(a) - float(scipy.special.digamma(a)) - target  # falls with a

    low, high = POWERS
    if excess(low) <= 0 or excess(high) >= 0:
        return low if excess(low) <= 0 else high
    return round(float(scipy.optimize.brentq(excess, low, high)), 3)


def choose_at_ends(
    family: Family[Any], columns: Columns, rows: Tensor, weights: Tensor, settings: Settings
) -> Family[Any]:
    """Return the given family and candidates, stacked by their held-out log-densities.

    The given one for tables without candidates: several columns, no bounds, or few rows. Ridge and
    truncation of each are chosen without the first fold, and used for the other folds as well.
    """
    if columns.count != 1 or not ends_of(columns[0]) or len(rows) < LEAST_ROWS:
        return family
    fold = fold_of(columns.cells_of(rows, weights), FOLDS)
    used = torch.unique(fold)
    if len(used) < 2:  # nothing can be held out
        return family
    column, x = columns[0], rows[:, 0]
    powers = likely_powers(column, x, weights)
    own = candidates(column, x, powers)
    families: list[Any] = [family, *own]
    kernels = choose_end_kernels((column.low, column.high), powers, rows, weights, fold)
    quick = replace(settings, steps=STEPS, device=None)
    tasks = [(replace(one, knots=KnownKnots()), quick) for one in families]

    def fit(own: Tensor) -> list[Densities]:
        models: list[Densities] = []
        for k, (one, chosen) in enumerate(tasks):
            collector = one.collector(columns, rows[own], weights[own], chosen)
            collector.update(rows[own], weights[own])
            model = cast("TableModel", collector.model())
            tasks[k] = repeated(one, chosen, model.operator_score)
            models.append(Single(model))
        return [*models, kernels.fitted(rows[own], weights[own])]

    folds = [fold == one for one in used]
    logs, mass, _ = held_out_logs(fit, rows, weights, folds, MOST_HELD_OUT)
    plain = torch.tensor([True, *(not one.is_steep(powers) for one in own), True])
    return StackedFamily.of(families, supported_weights(logs, mass, plain), kernels)
