"""Tables of any columns under no single process: rows are kept, and a `JointModel` is fitted.

Rows with gaps take part. A first model is fitted to the rows without gaps; then the gaps are filled
with draws from its conditionals, and a second model is fitted to all rows. This is one step of
stochastic expectation maximisation. Where fewer than half of the rows are complete, the gaps are
first filled with draws from the other rows' values of the same column.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from oism.estimation import gathered
from oism.tables._background import effective_count
from oism.tables._candidates import Candidates
from oism.tables._collector import Collector, Settings
from oism.tables._column import Column, turn_start
from oism.tables._columns import Columns
from oism.tables._contract import HeldOut, TabularModel
from oism.tables._folds import canonical_order
from oism.tables._joint import JointModel
from oism.tables._joint_fit import cross_fit_joint
from oism.tables._mixture import MixtureModel
from oism.tables._reservoir import Reservoir
from oism.tables._training_rows import problems_of

MOST_ROWS = 50_000
"""Rows of which mixtures are fitted; of more, a random subsample."""


class RowCollector(Collector):
    """Rows as they are, up to 50,000 of them; of more, a random subsample."""

    def __init__(self, columns: Columns, settings: Settings, systems: tuple[str, ...]) -> None:
        super().__init__(settings)
        self.columns, self._systems = columns, systems
        self.rows = Reservoir(MOST_ROWS, columns.count)
        self.weight = self.weight_squared = 0.0

    @property
    def count(self) -> float:
        """The effective number of rows."""
        return effective_count(self.weight, self.weight_squared)

    def update(
        self,
        rows: Tensor,
        weights: Tensor,
        fold: Tensor | None = None,  # noqa: ARG002
        positions: Tensor | None = None,
    ) -> None:
        """Keep rows of positive weight; folds follow from their content."""
        if positions is None:
            positions = torch.arange(self.rows.seen, self.rows.seen + len(rows))
        used = weights > 0
        rows, weights, positions = rows[used], weights[used], positions[used]
        self.weight += float(weights.sum())
        self.weight_squared += float(weights.square().sum())
        self.rows.update(rows, weights, positions)

    def across_processes(self) -> Self:
        """Return the collector of the rows of all processes."""
        result = copy.copy(self)
        result.rows = self.rows.across_processes()
        result.weight = sum(gathered(self.weight))
        result.weight_squared = sum(gathered(self.weight_squared))
        return result

    def model(self) -> TabularModel:
        """Return the model of all rows."""
        return self.model_of(self.cross_fitted()[0])

    def model_of(self, pool: JointModel) -> TabularModel:
        """Return the model that a pool of mixtures makes: by default the pool itself."""
        return pool

    def cross_fitted(self) -> tuple[JointModel, HeldOut]:
        """Return the pool of mixtures of all rows, and what held-out rows without gaps show."""
        rows, weights = self._kept()
        gaps = rows.isnan().any(dim=1)
        if not bool(gaps.any()):
            return self._fitted(rows, weights)
        complete = ~gaps
        if 2 * int(complete.sum()) >= len(rows):
            model, _ = self._fitted(rows[complete], weights[complete])
        else:
            model, _ = self._fitted(_with_values_of_others(rows), weights)
        source = torch.Generator().manual_seed(self._settings.seed)
        return self._fitted(model.completed(rows, source), weights, complete)

    def distinct(self) -> tuple[Tensor, Tensor]:
        """Return the different rows in canonical order, and their weights; no row may have gaps."""
        return self._merged(*self._kept())[:2]

    def _kept(self) -> tuple[Tensor, Tensor]:
        """Return the rows that are kept, in their order, and their weights."""
        rows, weights = self.rows.rows(), self.rows.weights()
        order = self.rows.positions().argsort()
        rows, weights = rows[order], weights[order]
        weights = weights * (self.count / float(weights.sum()))
        if len(rows) < self.rows.seen:  # what is known of a subsample is known of its rows only
            weights = weights * (len(rows) / self.rows.seen)
        return rows, weights

    def _merged(self, rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the different rows, the sums of their weights, and the index of each row there."""
        # Equal rows are one of the sum of their weights: then the order does not matter, and an
        # integer weight is that number of rows.
        distinct, inverse = np.unique(rows.numpy(), axis=0, return_inverse=True)
        rows, place = torch.from_numpy(distinct), torch.from_numpy(inverse)
        weights = torch.zeros(len(rows)).double().index_add_(0, place, weights)
        # Random starts choose rows by number: in an order that does not depend on the columns'.
        order = canonical_order(self._cells_of(rows, weights))
        return rows[order], weights[order], order.argsort()[place]

    def _cells_of(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Return the cells that determine the order and the folds of rows without gaps."""
        return self.columns.cells_of(rows, weights)

    def _fitted(
        self, rows: Tensor, weights: Tensor, complete: Tensor | None = None
    ) -> tuple[JointModel, HeldOut]:
        """Return the pool for rows, and what held-out rows show, of those that are complete."""
        rows, weights, place = self._merged(rows, weights)
        columns = [_with_start(one, rows[:, j]) for j, one in enumerate(self.columns)]
        candidates, seed = Candidates(self._systems), self._settings.seed
        levels = self._settings.levels
        alike = rows if levels is None else levels.quantised(rows)
        train = problems_of(self._cells_of(alike, weights))
        model, held_out = cross_fit_joint(
            rows, columns, weights=weights, candidates=candidates, seed=seed, train=train
        )
        if complete is None:
            return model, held_out
        shown = torch.zeros(len(rows), dtype=torch.bool)
        shown[place[complete]] = True
        return model, held_out.select(shown)


class MixtureCollector(RowCollector):
    """Rows of free columns, for one mixture in the columns themselves."""

    def model_of(self, pool: JointModel) -> MixtureModel:
        """Return the mixture of the one part of the pool."""
        (part,) = pool.parts
        return part.mixture


def _with_start(column: Column, values: Tensor) -> Column:
    """Return a periodic column with a start, see `turn_start`."""
    if column.period is None or column.start is not None:
        return column
    low, high = (float(end) for end in values.aminmax())
    return replace(column, start=turn_start(low, high, column.period))


def _with_values_of_others(rows: Tensor) -> Tensor:
    """Return rows whose gaps have values of other rows in the same column."""
    source, result = torch.Generator().manual_seed(0), rows.clone()
    for j in range(rows.shape[1]):
        gaps = rows[:, j].isnan()
        values = rows[~gaps, j]
        chosen = torch.randint(len(values), (int(gaps.sum()),), generator=source)
        result[gaps, j] = values[chosen]
    return result
