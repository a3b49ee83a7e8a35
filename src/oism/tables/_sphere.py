"""Points of the sphere: a diffusion model in closed form, pooled with kernels of many widths.

    p(x) = v₀ ρ(x) + Σ_j v_j q_j(x) + v_u/4π    per steradian

ρ is the density of the probability flow of harmonics under Brownian motion on the sphere. Its
resolution is limited by the degree everywhere; structure that is sharp in few places is left to
kernel estimates q_j, see `oism.tables._kernels`. The weights v maximise the likelihood of held-out
rows, see `oism.tables._pool`.

Scores of all noise levels are those of ρ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from oism._core import checks
from oism.basis import SphericalHarmonics
from oism.estimation import (
    ChosenRidge,
    CrossValidation,
    KnownKnots,
    Ridge,
    fit_moments,
    moments_of,
)
from oism.flow import Flow, OrdinaryMethod, RungeKutta4, log_density
from oism.process import Clock, Sphere
from oism.score import OperatorScore
from oism.storage import storable
from oism.tables._background import effective_count
from oism.tables._collector import FEW_ROWS_RIDGE, Collector, Settings
from oism.tables._columns import Columns
from oism.tables._contract import TabularModel
from oism.tables._directions import Directions
from oism.tables._family import Family
from oism.tables._folds import cells_of_points, folds_of_points
from oism.tables._kernels import DirectionalKernels
from oism.tables._model import converged_steps
from oism.tables._pool import Densities, FlowDensity, Invariant, Pool, held_out_weights, notable
from oism.tables._reservoir import Reservoir
from oism.tables._rows import MOST_ROWS, RowCollector
from oism.tables._summary import score_facts

DEGREE, POWER = 96.0, 0.4
"""The largest degree for 4,000 rows, and the power of n by which it grows; data may need less."""

LEAST_DEGREE, LARGEST_DEGREE = 12, 96

TIMES = 21
"""The number of times at which ridge and penalty are chosen and coefficients are solved for."""

ONE_FOLD = 3000
"""The number of rows above which one fold is held out for the weights of the pool, not all."""

HELD_OUT = 4000
"""The largest number of held-out rows for the weights of the pool."""

LEAST_WEIGHT = 1e-3
"""Kernels of less weight are left out."""


@storable
class SphereModel(TabularModel):
    """The density of points of the sphere per steradian, and the scores of all noise levels.

    Parameters
    ----------
    operator_score
        The scores of all noise levels, for unit vectors.
    directions
        How rows are read as points.
    kernels
        The members of the dictionary that are used.
    weights
        Of the flow, of the uniform distribution and of the members of ``kernels``.
    steps
        The number of steps of the flow.
    """

    operator_score: OperatorScore
    steps: int

    def __init__(
        self,
        operator_score: OperatorScore,
        directions: Directions,
        kernels: DirectionalKernels,
        weights: Tensor,
        steps: int,
    ) -> None:
        super().__init__()
        self.operator_score, self.directions, self.kernels = operator_score, directions, kernels
        self.steps = checks.integer(steps, "steps", minimum=1)
        self.pool = Pool(_parts(operator_score, kernels, steps), weights)

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        names = ("operator_score", "directions", "kernels", "weights", "steps")
        return {name: getattr(self, name) for name in names}

    @property
    def weights(self) -> Tensor:
        """The weights of the flow, of the uniform distribution and of the kernels."""
        return self.pool.weights

    @property
    def process(self) -> Sphere:
        """Brownian motion on the sphere, for unit vectors."""
        return self.operator_score.process  # type: ignore[return-value]

    @property
    def clock(self) -> Clock:
        """The noise levels."""
        return self.operator_score.clock

    @property
    def times(self) -> tuple[float, float]:
        """The first and the last time of the process that `score` can be evaluated at."""
        return self.operator_score.times

    def noise_deviations(self, t: Tensor | float) -> NoReturn:  # noqa: ARG002
        """Raise: the noise moves points along the sphere, and columns by different amounts."""
        raise TypeError("the noise of points of the sphere has no standard deviation in a column")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row, one axis."""
        return (len(self.directions.columns),)

    @property
    def flow(self) -> Flow:
        """The probability flow of unit vectors."""
        return Flow(self.operator_score)

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t at rows, without kernels: towards north and east per radian.

        For unit vectors it is the tangent vector.
        """
        points = self.directions.to_points(checks.points(x, dim=self.dim))
        return self.directions.tangent(self.operator_score.score(points, t), points)

    @torch.no_grad()
    def flow_density(self, points: Tensor, method: OrdinaryMethod | None = None) -> Tensor:
        """Return log ρ of unit vectors ``(n, 3)``: ``(n,)``."""
        return log_density(self.flow, points, method=method or RungeKutta4(self.steps))

    def _log_density(
        self, x: Tensor, *, method: OrdinaryMethod | None = None, **_: object
    ) -> Tensor:
        """Return log p at rows, per steradian: ``(n,)``."""
        return self.point_density(self.directions.to_points(x), method)

    def point_density(self, points: Tensor, method: OrdinaryMethod | None = None) -> Tensor:
        """Return log p of unit vectors ``(n, 3)``: ``(n,)``."""
        return self.pool.log_density(points, method=method)

    def _sample(
        self,
        n: int,
        generator: torch.Generator | None,
        **settings: Any,  # noqa: ANN401
    ) -> Tensor:
        """Return n rows drawn from p, float64."""
        return self.directions.to_rows(self.pool.sample(n, generator, **settings))

    def facts(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return columns, process, functions and choices; columns have numbers unless named."""
        names = [str(j) for j in range(self.dim)] if names is None else names
        kinds = ("latitude", "longitude") if self.directions.is_angular else ("x", "y", "z")
        columns: list[dict[str, Any]] = [{} for _ in names]
        for kind, j in zip(kinds, self.directions.columns, strict=True):
            columns[j] = {"name": names[j], "kind": kind, "unit": self.directions.unit}
        flow, uniform, kernels = (float(part.sum()) for part in self.pool.shares)
        return {
            "kind": type(self).__name__,
            "columns": columns,
            **score_facts(self.operator_score),
            "steps": self.steps,
            "background": None,
            "pool": {
                "flow": flow,
                "uniform": uniform,
                "kernels": kernels,
                "members": self.kernels.count,
            },
        }

    @property
    def sphere_columns(self) -> tuple[int, ...]:
        """The positions of the columns of the points: all."""
        return tuple(range(self.dim))

    def read_as(self, directions: Directions) -> SphereModel:
        """Return the model of the same points in other columns or units."""
        return type(self)(**{**self.to_config(), "directions": directions})

    def marginal(self, columns: Sequence[int]) -> SphereModel:
        """Return the model itself for all columns; raise for others: a point is one thing."""
        if tuple(columns) != self.sphere_columns:
            self._refuse()
        return self

    def conditional(self, given: Mapping[int, float]) -> NoReturn:  # noqa: ARG002
        """Raise: a point of the sphere is one thing."""
        self._refuse()

    @staticmethod
    def _refuse() -> NoReturn:
        raise ValueError(
            "the columns of a point of the sphere have no marginals and conditionals, and rows of "
            "them no gaps: drop rows with missing entries"
        )


def _parts(score: OperatorScore, kernels: DirectionalKernels, steps: int) -> list[Densities]:
    return [FlowDensity(score, steps), Invariant(Sphere(), 3), kernels]


def _count(weights: Tensor) -> float:
    """Return the effective number of rows."""
    return effective_count(float(weights.sum()), float(weights.square().sum()))


@dataclass(frozen=True)
class SphereFit:
    """Fits points ``(n, 3)`` with weights, which are numbers of rows, and folds.

    Equal rows of a fold are merged before.
    """

    settings: Settings
    max_eigenvalue: float | str = "auto"

    def basis(self, n: float) -> SphericalHarmonics:
        """Return the harmonics for n rows."""
        if not isinstance(self.max_eigenvalue, str):
            return SphericalHarmonics(256).truncated(float(self.max_eigenvalue))
        degree = round(DEGREE * (n / 4000) ** POWER)
        return SphericalHarmonics(min(max(degree, LEAST_DEGREE), LARGEST_DEGREE))

    def score(
        self,
        points: Tensor,
        weights: Tensor,
        fold: Tensor,
        ridge: Ridge | float,
        clock: Clock | None = None,
    ) -> OperatorScore:
        """Return the scores of all noise levels; by default those that the degree resolves."""
        basis = self.basis(_count(weights))
        moments = moments_of(basis, self.settings.folds).update(points, weights, fold=fold)
        return fit_moments(
            moments,
            clock=clock,
            shrinkage=self.settings.shrinkage,
            ridge=ridge,
            knots=KnownKnots(),
        )

    def __call__(
        self, points: Tensor, weights: Tensor, fold: Tensor, directions: Directions
    ) -> SphereModel:
        """Return the model."""
        used = torch.unique(fold)
        ridge: Ridge | float = FEW_ROWS_RIDGE
        if not isinstance(self.settings.ridge, str):
            ridge = self.settings.ridge
        elif len(used) > 1:
            ridge = CrossValidation(max(2, self.settings.folds), TIMES)
        score = self.score(points, weights, fold, ridge, self.settings.clock)
        auto = isinstance(self.settings.steps, str)
        span = 0.0, score.clock.horizon
        steps = converged_steps(score, span) if auto else int(self.settings.steps)
        least = 1 / (1 + _count(weights))
        if len(used) < 2:  # nothing can be held out
            none = DirectionalKernels(points, weights, torch.zeros(0, dtype=torch.int64))
            share = torch.tensor([1 - least, least], dtype=torch.float64)
            return SphereModel(score, directions, none, share, steps)
        degree = score.basis.facts()["finest"]
        again = replace(self, max_eigenvalue=degree * (degree + 1))
        chosen = ChosenRidge(score.schedule, times=TIMES)

        def fit_parts(own: Tensor) -> list[Densities]:
            rest = points[own], weights[own]
            before = again.score(*rest, fold[own], chosen, score.clock)
            return _parts(before, DirectionalKernels(*rest), steps)

        folds = [fold == one for one in (used[:1] if len(points) > ONE_FOLD else used)]
        found, _ = held_out_weights(fit_parts, points, weights, folds, HELD_OUT)
        always = torch.zeros_like(found)
        always[0], always[1] = 1e-300, least  # no place is impossible
        kept, share = notable(found, LEAST_WEIGHT, always)
        kernels = DirectionalKernels(points, weights, kept[2:] - 2)
        return SphereModel(score, directions, kernels, share, steps)


class SphereCollector(RowCollector):
    """Rows that are points of the sphere, with their folds."""

    def __init__(
        self, columns: Columns, settings: Settings, directions: Directions, bound: float | str
    ) -> None:
        super().__init__(columns, settings, ())
        self.rows = Reservoir(MOST_ROWS, columns.count + 1)
        self.directions, self._fit = directions, SphereFit(settings, bound)

    def update(
        self,
        rows: Tensor,
        weights: Tensor,
        fold: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        """Keep rows of positive weight and their folds, by content unless given."""
        points = self.directions.to_points(rows)  # raises for rows that are no points
        fold = folds_of_points(points, self.folds) if fold is None else fold
        super().update(torch.cat((rows, fold[:, None].double()), dim=1), weights, None, positions)

    def model(self) -> SphereModel:
        """Return the model of all rows."""
        rows, weights = self.distinct()
        rows, fold = rows[:, :-1], rows[:, -1].long()
        directions = self.directions.starting(rows)
        return self._fit(directions.to_points(rows), weights, fold, directions)

    def _cells_of(self, rows: Tensor, weights: Tensor) -> Tensor:  # noqa: ARG002
        """Return the cells of the points, whatever their columns and units."""
        return cells_of_points(self.directions.to_points(rows[:, :-1]))


@dataclass(frozen=True)
class SphereFamily(Family[Sphere]):
    """Harmonics under Brownian motion on the sphere, with kernels beside them."""

    directions: Directions = Directions((0, 1))  # noqa: RUF009 (frozen)

    example = "Sphere()"
    process_type = Sphere

    def check(self, columns: Columns) -> None:
        """Raise unless the columns are plain numbers."""
        if columns.categorical or not columns.are_free:
            raise ValueError(
                "columns of sphere cannot be periodic, have bounds or a box, or be categorical: "
                "longitudes are periodic and latitudes bounded already"
            )

    def collector(
        self,
        columns: Columns,
        rows: Tensor,
        weights: Tensor,  # noqa: ARG002
        settings: Settings,
    ) -> Collector:
        """Return a collector that keeps rows."""
        self.directions.to_points(rows)
        return SphereCollector(columns, settings, self.directions, self.max_eigenvalue)
