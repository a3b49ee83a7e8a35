"""Few rows of three free columns: a mixture of Gaussians, or the torus.

On the torus the ridge of few rows makes their density nearly uniform in the box, and many new rows
lie outside of the box of few rows, where only the background has a density. A mixture of few rows
is nearly one Gaussian, and has no box, and is the better model of most such tables. In two columns
the two are alike. Both have the scores of all noise levels, marginals and conditionals.

So the model is a mixture unless held-out rows show that the torus is better. Both are fitted
without each of five folds, in which copies of a row are together; ridge and truncation of the torus
are those of all rows, as are the weights of the mixtures in the pool. With the difference d_i of
the log-densities of a held-out row i of weight w_i, mixture minus torus,

    D = Σ_i w_i d_i / Σ_i w_i,    e² = m/(m - 1) Σ_i w_i² (d_i - D)² / (Σ_i w_i)²,

where m = (Σ_i w_i)²/Σ_i w_i² is the effective number of rows. The torus is taken if D < -e.

A difference d_i is clipped to ±log(n + 1) for n rows: a model that had the other one mixed in with
the weight 1/(n + 1) would lose no more on a row. So one outlier does not decide. Many rows, counted
without copies, are always modelled on the torus.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism.estimation import KnownKnots, gathered
from oism.process import Torus
from oism.score import OperatorScore
from oism.tables._collector import Collector, MomentCollector, Settings
from oism.tables._columns import Columns
from oism.tables._contract import HeldOut, TabularModel
from oism.tables._family import Family, repeated
from oism.tables._joint_family import MixtureFamily
from oism.tables._rows import MixtureCollector
from oism.tables._torus import TorusFamily

Array = NDArray[np.float64]

COLUMNS, MOST_ROWS = 3, 100
"""The number of columns, and the largest number of distinct rows, for which held-out rows decide.
"""

ROWS_PER_COLUMN = 2
"""Without a fold, more than this many rows per column must remain: fewer lie nearly in a plane."""

STEPS = 8
"""The number of steps of flows that are compared: log-densities to 0.003."""

CHUNK = 1024
"""The number of rows that are searched for new ones at a time."""


class Choice(NamedTuple):
    """What is taken for how many rows, and by how many nats per row a mixture is better.

    ``error`` is the standard error of the ``gain``.
    """

    taken: str
    rows: int
    gain: float
    error: float


def choose(mixture: Tensor, torus: Tensor, weights: Tensor) -> Choice | None:
    """Return the choice by the log-densities of both models at held-out rows ``(n,)``.

    None where the effective number of rows is too small for a standard error.

    >>> torus = torch.zeros(8, dtype=torch.float64)
    >>> mixture = torch.tensor([0.1, -0.2, 0.3, 0.0] * 2, dtype=torch.float64)
    >>> [choose(mixture + shift, torus, torus + 1).taken for shift in (0.0, -0.2)]
    ['mixture', 'torus']
    """
    share, most = weights / weights.sum(), math.log(len(weights) + 1)
    rows = 1 / float(share.square().sum())
    if rows <= ROWS_PER_COLUMN * COLUMNS:
        return None
    gains = (mixture - torus).clamp(-most, most)
    gain = float(share @ gains)
    square = float((share * (gains - gain)).square().sum())
    error = math.sqrt(rows / (rows - 1) * square)
    return Choice("torus" if gain < -error else "mixture", len(gains), gain, error)


class FewRowsCollector(Collector):
    """Averages for the torus, and the rows themselves while they are few."""

    def __init__(
        self,
        family: TorusFamily,
        columns: Columns,
        torus: MomentCollector,
        mixture: MixtureCollector | None,
        settings: Settings,
    ) -> None:
        super().__init__(settings)
        self._family, self._columns = family, columns
        self._torus, self._mixture = torus, mixture
        self._distinct = np.empty((0, columns.count))
        self._choice: Choice | None = None

    @property
    def count(self) -> float:
        """The effective number of rows."""
        return self._torus.count

    @property
    def choice(self) -> dict[str, Any] | None:
        """The model that was taken, and what held-out rows show."""
        return None if self._choice is None else self._choice._asdict()

    def folds_of(self, rows: Tensor) -> Tensor:
        """Return the folds of rows by their content."""
        return self._torus.folds_of(rows)

    def prepare(self, weight: float) -> None:
        """Prepare the averages."""
        self._torus.prepare(weight)

    def warn_of_outside(self, rows: Tensor) -> None:
        """Warn if many rows lie outside of the box, unless the model may be a mixture."""
        if self._mixture is None:
            self._torus.warn_of_outside(rows)

    def update(
        self,
        rows: Tensor,
        weights: Tensor,
        fold: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        """Add rows to the averages, and keep them while they are few."""
        self._torus.update(rows, weights, fold, positions)
        if self._mixture is None:
            return
        parts = zip(torch.split(rows, CHUNK), torch.split(weights, CHUNK), strict=True)
        used = (part[own > 0].numpy() for part, own in parts)
        found = distinct_rows(itertools.chain([self._distinct], used), MOST_ROWS)
        if found is None:
            self._mixture = None
        else:
            self._distinct = found
            self._mixture.update(rows, weights, positions=positions)

    def across_processes(self) -> Self:
        """Return the collector of the rows of all processes."""
        torus, parts = self._torus.across_processes(), gathered(self._distinct)
        are_few = all(gathered(self._mixture is not None))
        found = distinct_rows(parts, MOST_ROWS) if are_few else None
        result = type(self)(self._family, self._columns, torus, None, self._settings)
        if found is not None and self._mixture is not None:
            result._distinct, result._mixture = found, self._mixture.across_processes()
        return result

    def model(self) -> TabularModel:
        """Return the mixture or the torus of all rows; the latter where nothing can be compared."""
        torus, self._choice = self._torus.model(), None
        if self._mixture is None or len(self._distinct) <= ROWS_PER_COLUMN * COLUMNS:
            return torus
        pool, held_out = self._mixture.cross_fitted()
        self._choice = self._compared(held_out, torus.operator_score)
        if self._choice is None or self._choice.taken == "torus":
            return torus
        (part,) = pool.parts
        return part.mixture

    def _compared(self, held_out: HeldOut, score: OperatorScore) -> Choice | None:
        """Return the choice, or None where too few rows are left without a fold.

        Ridge and truncation on the torus are those of ``score``, the fit of all rows.
        """
        quick = replace(self._settings, steps=STEPS)
        family, quick = repeated(replace(self._family, knots=KnownKnots()), quick, score)
        rows, weights = held_out.rows, held_out.weights
        least = int(held_out.train.sum(dim=1).min())
        if len(held_out.train) == 1 or least <= ROWS_PER_COLUMN * COLUMNS:
            return None
        logs = torch.full_like(held_out.log_density, torch.nan)
        for own in held_out.train[:-1]:
            collector = family.collector(self._columns, rows[own], weights[own], quick)
            collector.update(rows[own], weights[own])
            logs[~own] = collector.model().log_density(rows[~own])
        return choose(held_out.log_density, logs, weights)


def distinct_rows(parts: Iterable[Array], most: int) -> Array | None:
    """Return the different rows ``(n, d)`` of several arrays, or None for more than ``most``.

    >>> distinct_rows([np.ones((3, 2)), np.zeros((1, 2))], 2)
    array([[0., 0.],
           [1., 1.]])
    >>> distinct_rows([np.ones((3, 2)), np.zeros((1, 2))], 1) is None
    True
    """
    found: Array | None = None
    for part in parts:
        found = np.unique(part if found is None else np.concatenate((found, part)), axis=0)
        if len(found) > most:
            return None
    return found


@dataclass(frozen=True)
class FewRowsFamily(Family[Torus]):
    """The torus, or a mixture where rows are few: held-out rows decide."""

    torus: TorusFamily = field(default_factory=lambda: TorusFamily(Torus()), kw_only=True)

    example = ""
    process_type = Torus

    @classmethod
    def of(cls, family: Family[Any], columns: Columns) -> Family[Any]:
        """Return the choice in place of the torus, for three free columns."""
        free = columns.count == COLUMNS and all(kind == "free" for kind in columns.kinds)
        if not free or family.name != TorusFamily.name:
            return family
        return cls(family.process, torus=cast("TorusFamily", family))

    def check(self, columns: Columns) -> None:
        """Raise unless the torus can model these columns."""
        self.torus.check(columns)

    def collector(
        self, columns: Columns, rows: Tensor, weights: Tensor, settings: Settings
    ) -> FewRowsCollector:
        """Return an empty collector of averages and rows."""
        torus = self.torus.collector(columns, rows, weights, settings)
        mixture = MixtureFamily(MixtureFamily.process_type()).collector(
            columns, rows, weights, settings
        )
        return FewRowsCollector(self.torus, columns, torus, mixture, settings)
