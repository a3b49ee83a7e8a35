"""The torus or mixtures of Gaussians, for at most three columns: held-out rows decide.

On the torus, waves of bounded frequency cannot follow a density that is much narrower in one
direction than the box: columns that nearly determine each other, narrow clusters far apart, one
value of a discrete column that most rows have, or the bulk of a distribution with heavy tails.
Mixtures of Gaussians can. For two or three free columns the alternative is one mixture, which has
the scores of all noise levels as the torus has. For others it is the pool of mixtures of
`JointModel`, which has densities, samples, marginals and conditionals only; its warped coordinates
follow heavy tails.

Both are fitted without each fold of the rows, in which copies of a row are together; ridge and
truncation of the torus are those of all rows, as are the weights of the mixtures in the pool. With
the difference d_i of the log-densities of a held-out row i, mixture minus torus, its weighted mean
D and standard error e (`oism.tables._pool.mean_gain`), the mixture is taken if D ≥ 2e and
D ≥ 0.05 nats; so a table keeps its flow unless that costs likelihood. Of few rows in three columns
the density on the torus is nearly uniform in the box, and many new rows lie outside of it: there
the mixture is taken unless D < -e.

A difference d_i is clipped to ±log(n + 1) for n rows: a model that had the other one mixed in with
the weight 1/(n + 1) would lose no more on a row. So one outlier does not decide.

A mixture of many rows takes longer than the torus. So above 1,500 different rows, or 300 where the
alternative is a pool and not all columns are free, a small mixture is tried first: fitted to at
most 1,500 of the rows, with one fold held out. The full one is fitted only if the small one has a
higher likelihood on that fold than the torus, although the torus was fitted to these rows. In one
column the torus is fitted to the other folds of the same 1,500 rows, which takes little time, and
the small mixture must be better by 0.05 nats. Above 50,000 rows the model is the torus.

In one free column the functions of the torus are fine enough for most densities. There nothing is
compared unless the rows lie more densely than the torus has them, by 0.05 nats in the mean and by
two standard errors of independent rows. How densely they lie follows from the distances of
neighbours, see `by_neighbours`. Up to 1,500 rows it is enough that their range is more than eight
times that of their central half, of which normal rows have three to six times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from oism.estimation import KnownKnots
from oism.flow import RungeKutta4
from oism.process import Torus
from oism.tables._background import effective_count
from oism.tables._candidates import Candidates
from oism.tables._collector import OUTSIDE, MomentCollector, Settings
from oism.tables._columns import Columns
from oism.tables._combined_collector import CombinedCollector
from oism.tables._contract import HeldOut, TabularModel
from oism.tables._family import Family, repeated
from oism.tables._joint_family import JointFamily, MixtureFamily
from oism.tables._joint_fit import cross_fit_joint
from oism.tables._model import TableModel
from oism.tables._pool import mean_gain
from oism.tables._rows import MOST_ROWS, RowCollector
from oism.tables._torus import TorusFamily
from oism.tables._training_rows import problems_of

LEAST_GAIN, ERRORS = 0.05, 2.0
"""The nats per row, and the standard errors, by which a mixture must be better."""

FEW_ROWS = {1: 0, 2: 0, 3: 100}
"""By the number of columns for which held-out rows decide: up to so many distinct rows the mixture
is taken unless the torus is better."""

ROWS_PER_COLUMN = 2
"""Without a fold, more than this many rows per column must remain: fewer lie nearly in a plane."""

TAILS = 8.0
"""A column has tails if its range is more than this many times that of its central half."""

STEPS = 8
"""The number of steps of flows that are compared: log-densities to 0.003."""

TRIAL_ROWS = 1500
"""The largest number of rows of a trial, and of those where neighbours are compared."""

TRIAL, TRIAL_FOLDS = Candidates(("plain",), counts=(8, 32), starts=1, local=False), (5, 1)
"""The mixtures of a trial; the number of its folds, and of those that it holds out."""


class Choice(NamedTuple):
    """The model taken, the number of held-out rows, and the mean gain of a mixture over the torus.

    The ``gain`` and its standard ``error`` are in nats per row.
    """

    taken: str
    rows: int
    gain: float
    error: float


def choose(
    mixture: Tensor, torus: Tensor, weights: Tensor, *, dim: int, few: bool = False
) -> Choice | None:
    """Return the choice by the log-densities of both models at held-out rows ``(n,)``.

    None where the effective number of rows is too small for a standard error.

    >>> torus = torch.zeros(8, dtype=torch.float64)
    >>> mixture = torch.tensor([0.1, -0.2, 0.3, 0.0] * 2, dtype=torch.float64)
    >>> [choose(mixture + shift, torus, torus + 1, dim=2).taken for shift in (0.0, 0.2)]
    ['torus', 'mixture']
    """
    rows = 1 / float((weights / weights.sum()).square().sum())
    if rows <= ROWS_PER_COLUMN * dim:
        return None
    gains = _clipped(mixture - torus)
    gain, error = mean_gain(gains, weights)
    least = -error if few else max(LEAST_GAIN, ERRORS * error)
    return Choice("mixture" if gain >= least else "torus", len(gains), gain, error)


def _clipped(gains: Tensor) -> Tensor:
    """Return differences of log-densities ``(n,)``, each within ±log(n + 1)."""
    most = math.log(len(gains) + 1)
    return gains.clamp(-most, most)


class TorusOrMixtureCollector(CombinedCollector[tuple[MomentCollector, RowCollector]]):
    """Averages for the torus, and the rows themselves for mixtures."""

    def __init__(
        self,
        families: tuple[TorusFamily, JointFamily],
        columns: Columns,
        torus: MomentCollector,
        mixture: RowCollector,
        settings: Settings,
    ) -> None:
        super().__init__((torus, mixture), settings)
        (self._family, other), self._columns = families, columns
        self._trial_rows = TRIAL_ROWS if self._is_line else other.trial_rows
        self._trial = replace(TRIAL, systems=other.systems)
        self._choice: Choice | None = None

    @property
    def _torus(self) -> MomentCollector:
        return self.parts[0]

    @property
    def _mixture(self) -> RowCollector:
        return self.parts[1]

    @property
    def choice(self) -> dict[str, Any] | None:
        """The model that was taken, and what held-out rows show."""
        return None if self._choice is None else self._choice._asdict()

    def warn_of_outside(self, rows: Tensor) -> None:
        """Warn if many rows lie outside of the box; few rows are likely to have a mixture."""
        if self._mixture.rows.seen + len(rows) > FEW_ROWS[self._columns.count]:
            super().warn_of_outside(rows)

    def model(self) -> TabularModel:
        """Return the mixture or the torus of all rows; the latter where nothing can be compared."""
        torus, self._choice = self._torus.model(), None
        if self._mixture.rows.seen > MOST_ROWS:
            return torus
        rows, weights = self._mixture.distinct()
        count = effective_count(float(weights.sum()), float(weights.square().sum()))
        # The torus of one row, or of rows of which one has nearly all of the weight, has one time.
        is_single = len(torus.operator_score.schedule.tau) < 2
        if is_single or count <= ROWS_PER_COLUMN * self._columns.count:
            return torus
        if self._is_line and not self._needs_comparison(rows, weights, torus):
            return torus
        if len(rows) > self._trial_rows and not self._is_promising(rows, weights, torus):
            return torus
        pool, held_out = self._mixture.cross_fitted()
        self._choice = self._compared(held_out, torus)
        if self._choice is None or self._choice.taken == "torus":
            return torus
        return self._mixture.model_of(pool)

    @property
    def _is_line(self) -> bool:
        return set(self._columns.kinds) == {"free"} and self._columns.count == 1

    def _needs_comparison(self, rows: Tensor, weights: Tensor, torus: TableModel) -> bool:
        """Return whether the torus may not follow the rows of one column."""
        order = rows[:, 0].argsort()
        x, weights = rows[order], weights[order]
        if len(x) <= TRIAL_ROWS and has_tails(x[:, 0], weights):
            return True
        near = by_neighbours(x[:, 0], weights)
        some = slice(None, None, -(-len(x) // TRIAL_ROWS))
        logs = torus.log_density(x[some], method=RungeKutta4(STEPS), progress=False)
        gain, error = mean_gain(_clipped(near[some] - logs), weights[some])
        return gain > max(LEAST_GAIN, ERRORS * error)

    def _is_promising(self, rows: Tensor, weights: Tensor, torus: TableModel) -> bool:
        """Return whether a mixture of some of the rows is better than the torus.

        The torus is that of all rows; in one column that of the rows of the trial.
        """
        step = -(-len(rows) // TRIAL_ROWS)
        some, own = rows[::step], weights[::step]
        train = problems_of(self._columns.cells_of(some, own), TRIAL_FOLDS)
        if len(train) == 1:
            return False
        _, held_out = cross_fit_joint(
            some, list(self._columns), weights=own, candidates=self._trial, train=train,
            seed=self._settings.seed, progress=False,
        )  # fmt: skip
        there, least = ~train[0], 0.0
        shown = held_out.select(there)
        if self._is_line:
            logs, least = self._without_folds(some, own, train, torus)[there], LEAST_GAIN
        else:
            logs = torus.log_density(shown.rows, method=RungeKutta4(STEPS), progress=False)
        gain, _ = mean_gain(_clipped(shown.log_density - logs), shown.weights)
        return gain > least

    def _compared(self, held_out: HeldOut, torus: TableModel) -> Choice | None:
        """Return the choice, or None where too few rows are left without a fold."""
        dim, (rows, weights) = self._columns.count, (held_out.rows, held_out.weights)
        least = int(held_out.train.sum(dim=1).min())
        if len(held_out.train) == 1 or least <= ROWS_PER_COLUMN * dim:
            return None
        logs = self._without_folds(rows, weights, held_out.train, torus)
        there, few = ~held_out.train[:-1].all(dim=0), len(rows) <= FEW_ROWS[dim]
        logs, mixture = logs[there], held_out.log_density[there]
        return choose(mixture, logs, weights[there], dim=dim, few=few)

    def _without_folds(
        self, rows: Tensor, weights: Tensor, train: Tensor, torus: TableModel
    ) -> Tensor:
        """Return the log-density of each row on the torus of the rows without its fold.

        Those of each fold are in a row of ``train``, whose last one is all rows. Rows of no fold
        have NaN. Ridge and truncation are those of the fit of all rows.
        """
        quick, score = replace(self._settings, steps=STEPS), torus.operator_score
        usual = replace(self._family, knots=KnownKnots())
        family, quick = cast("tuple[TorusFamily, Settings]", repeated(usual, quick, score))
        logs = torch.full((len(rows),), torch.nan, dtype=torch.float64)
        first_box = self._torus.outside > OUTSIDE * self._torus.spread.weight
        for own in train[:-1]:
            collector = family.collector(self._columns, rows[own], weights[own], quick)
            if first_box:  # that of a first batch, which does not cover later ones
                collector.chart = self._torus.chart
            collector.update(rows[own], weights[own])
            logs[~own] = collector.model().log_density(rows[~own], progress=False)
        return logs


def has_tails(x: Tensor, weights: Tensor) -> bool:
    """Return whether increasing numbers ``(n,)`` have a range far beyond their central half.

    >>> x = torch.linspace(-1, 1, 101)
    >>> has_tails(x, torch.ones(101)), has_tails(x**5, torch.ones(101))
    (False, True)
    """
    share = weights.cumsum(dim=0) / weights.sum()
    low, high = (x[int((share < level).sum())] for level in (0.25, 0.75))
    return bool(x[-1] - x[0] > TAILS * (high - low))


def by_neighbours(x: Tensor, weights: Tensor) -> Tensor:
    """Return log-densities ``(n,)`` at increasing numbers by the distances of their neighbours.

    The weight between the m-th neighbours on either side is divided by their distance, m = n^¼. For
    a distance Δ over k spacings the mean of log(k/(nΔ)) exceeds the log-density by about 1/(2k).

    >>> x = torch.linspace(0, 1, 10001)
    >>> round(float(by_neighbours(x, torch.ones_like(x))[5000]), 3)  # 20 spacings
    -0.025
    """
    place, m = torch.arange(len(x)), max(2, round(len(x) ** 0.25))
    low, high = (place - m).clamp(min=0), (place + m).clamp(max=len(x) - 1)
    share = (weights / weights.sum()).cumsum(dim=0)
    logs: Tensor = ((share[high] - share[low]) / (x[high] - x[low])).log()
    result: Tensor = logs - 0.5 / (high - low)
    return result


@dataclass(frozen=True)
class TorusOrMixtureFamily(Family[Torus]):
    """The torus, or mixtures if held-out rows show that they are better."""

    torus: TorusFamily = field(default_factory=lambda: TorusFamily(Torus()), kw_only=True)
    other: JointFamily = field(
        default_factory=lambda: JointFamily(JointFamily.process_type()), kw_only=True
    )

    example = ""
    process_type = Torus

    @classmethod
    def of(cls, family: Family[Any], columns: Columns) -> Family[Any]:
        """Return the choice in place of the torus, for at most three columns."""
        if columns.count not in FEW_ROWS or not family.may_be_mixture:
            return family
        alone = columns.count == 1
        kind = JointFamily if alone or set(columns.kinds) != {"free"} else MixtureFamily
        other = kind(kind.process_type())
        return cls(family.process, torus=cast("TorusFamily", family), other=other)

    def check(self, columns: Columns) -> None:
        """Raise unless the torus can model these columns."""
        self.torus.check(columns)

    def collector(
        self, columns: Columns, rows: Tensor, weights: Tensor, settings: Settings
    ) -> TorusOrMixtureCollector:
        """Return an empty collector of averages and rows."""
        torus = self.torus.collector(columns, rows, weights, settings)
        mixture = self.other.collector(columns, rows, weights, settings)
        families = self.torus, self.other
        return TorusOrMixtureCollector(families, columns, torus, mixture, settings)
