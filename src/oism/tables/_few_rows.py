"""Few rows of two or three free columns: a mixture of Gaussians, or the torus.

On the torus a fit of few rows is drawn towards the uniform distribution in their box, and a new row
often lies outside of a box of few rows, where only the background has a density. A mixture of few
rows is drawn towards one Gaussian, and has no box. Which of them describes a table better depends
on its distribution. Both have the scores of all noise levels, marginals and conditionals.

So both are fitted without each of five folds, in which copies of a row are together. With the
difference d_i of the log-densities of a held-out row i of weight w_i, mixture minus torus,

    D = Σ_i w_i d_i / Σ_i w_i,    e² = Σ_i w_i² (d_i - D)² / (Σ_i w_i)².

One model is *usual*, and the other is taken if D shows it to be better by more than the standard
error e: the torus is usual in two columns, where the two are alike on average over many
distributions, and the mixture in three, where it is better by a fifth of a nat per row.

A difference d_i counts up to ±log(n + 1) of n rows: a model that had the other one mixed in with
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

MOST_ROWS = {2: 50, 3: 100}
"""By the number of columns: the largest number of distinct rows for which held-out rows decide."""

USUAL = {2: "torus", 3: "mixture"}
"""By the number of columns: what is taken unless the other is better by a standard error."""

ROWS_PER_COLUMN = 2
"""Rows of a fold's complement must be more than this per column: fewer lie nearly in a plane."""

STEPS = 8
"""The number of steps of flows that are compared: log-densities to 0.003."""

CHUNK = 1024
"""The number of rows that are searched for new ones at a time."""


class Choice(NamedTuple):
    """What is taken for how many rows, and by how many nats per row a mixture is better.

    ``error`` is the standard error of the ``gain``; a mixture needs more than ``needed``.
    """

    taken: str
    rows: int
    gain: float
    error: float
    needed: float


def choose(mixture: Tensor, torus: Tensor, weights: Tensor, usual: str) -> Choice:
    """Return the choice by the log-densities of both models at held-out rows ``(n,)``.

    >>> torus = torch.zeros(4, dtype=torch.float64)
    >>> mixture = torch.tensor([0.1, -0.2, 0.3, 0.0], dtype=torch.float64)  # 0.05 ± 0.09
    >>> [choose(mixture, torus, torus + 1, usual).taken for usual in ("torus", "mixture")]
    ['torus', 'mixture']
    """
    share, most = weights / weights.sum(), math.log(len(weights) + 1)
    gains = (mixture - torus).clamp(-most, most)
    gain = float(share @ gains)
    error = float((share * (gains - gain)).square().sum().sqrt())
    needed = error if usual == "torus" else -error
    taken = "mixture" if gain > needed else "torus"
    return Choice(taken, len(gains), gain, error, needed)


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
        self._most = MOST_ROWS[columns.count]
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
        """Warn if many rows lie outside of the box."""
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
        found = distinct_rows(itertools.chain([self._distinct], used), self._most)
        if found is None:
            self._mixture = None
        else:
            self._distinct = found
            self._mixture.update(rows, weights, positions=positions)

    def across_processes(self) -> Self:
        """Return the collector of the rows of all processes."""
        torus, parts = self._torus.across_processes(), gathered(self._distinct)
        are_few = all(gathered(self._mixture is not None))
        found = distinct_rows(parts, self._most) if are_few else None
        result = type(self)(self._family, self._columns, torus, None, self._settings)
        if found is not None and self._mixture is not None:
            result._distinct, result._mixture = found, self._mixture.across_processes()
        return result

    def model(self) -> TabularModel:
        """Return the mixture or the torus of all rows; the latter where nothing can be compared."""
        torus, self._choice = self._torus.model(), None
        if self._mixture is None or len(self._distinct) <= ROWS_PER_COLUMN * self._columns.count:
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
        quick = replace(self._settings, steps=STEPS, device=None)
        family, quick = repeated(replace(self._family, knots=KnownKnots()), quick, score)
        rows, weights = held_out.rows, held_out.weights
        least = int(held_out.train.sum(dim=1).min())
        if len(held_out.train) == 1 or least <= ROWS_PER_COLUMN * self._columns.count:
            return None
        logs = torch.full_like(held_out.log_density, torch.nan)
        for own in held_out.train[:-1]:
            collector = family.collector(self._columns, rows[own], weights[own], quick)
            collector.update(rows[own], weights[own])
            logs[~own] = collector.model().log_density(rows[~own])
        return choose(held_out.log_density, logs, weights, USUAL[self._columns.count])


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
        """Return the choice in place of the torus, for two or three free columns."""
        free = columns.count in USUAL and all(kind == "free" for kind in columns.kinds)
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
