"""The fit of a table: the family that models its columns, and the collector of its rows.

    rows ─► values of discrete columns spread over their cells ─► collector ─► model

The model is that of spread rows; where columns are discrete, a `DiscreteModel` makes it one of rows
as they are. Where a discrete value is in its cell follows from the position of its row in the table
if that is given, and then batches do not matter; otherwise it is drawn, for each batch anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import Tensor

from oism._core import checks
from oism._core.hashing import seed_from
from oism.tables._beside import Training, joint_with_network, torus_with_network
from oism.tables._choices import (
    SHRINKAGES,
    Parameters,
    allows_ends,
    allows_mixture,
    choose_family,
    choose_folds,
)
from oism.tables._collector import Collector, Settings
from oism.tables._columns import Columns
from oism.tables._contract import TabularModel
from oism.tables._declared import index_of
from oism.tables._directions import Directions
from oism.tables._discrete import DiscreteModel
from oism.tables._ends import choose_at_ends
from oism.tables._family import Family
from oism.tables._hints import warn_of_atoms, warn_of_rows
from oism.tables._joint import JointModel
from oism.tables._reading import USES_GAPS, check_complete
from oism.tables._reservoir import uniforms_of
from oism.tables._torus_or_mixture import TorusOrMixtureFamily


@dataclass
class TableFit:
    """A fit of rows ``(n, d)`` that are numbers, with NaN for gaps where the family allows them.

    ``added`` is the number of rows so far.
    """

    columns: Columns
    family: Family[Any]
    collector: Collector
    added: int = 0

    @classmethod
    def of(
        cls, parameters: Parameters, columns: Columns, rows: Tensor, weights: Tensor
    ) -> tuple[Self, Tensor | None]:
        """Return the fit for rows like these first ones, to which none are added yet.

        The second result is the folds of the rows, where those do not follow from their content.
        """
        if parameters.device is not None:
            checks.device(parameters.device)  # better to fail now than after the fit
        used = weights > 0
        if not bool(used.any()):
            raise ValueError("sample_weight must have a positive sum")
        family = choose_family(
            parameters.process,
            columns,
            _directions(parameters, columns),
            max_eigenvalue=parameters.max_eigenvalue,
            order=parameters.order,
            frame=parameters.frame,
        )
        if not family.allows_gaps:
            check_complete(columns, rows, USES_GAPS if parameters.sphere is None else "")
        first, weights = rows[used], weights[used]
        if parameters.sphere is None:
            warn_of_rows(columns, first)
            if not family.resolves_peaks:
                warn_of_atoms(columns, first)
        columns.check_bounds(first)
        folds, fold = choose_folds(parameters.cv, len(rows))
        settings = _settings(parameters, columns, folds)
        if allows_ends(parameters):
            family = choose_at_ends(family, columns, first, weights, settings)
        if allows_mixture(parameters):
            family = TorusOrMixtureFamily.of(family, columns)
        own = spread_out(columns, first), weights
        collector = family.collector(columns.continuous, *own, settings)
        return cls(columns, family, collector), fold

    def add(
        self,
        rows: Tensor,
        weights: Tensor,
        fold: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        """Add rows; folds follow from their content unless given, see `Collector.update`."""
        fold = self._folds(rows, fold)
        spread = spread_out(self.columns, rows, positions, self.added)
        self.collector.update(spread, weights, fold, positions)
        self.added += len(rows)

    def model(self) -> TabularModel:
        """Return the model of all rows."""
        return self._quantised(self.collector.model())

    def model_with_network(
        self, network: float | str, rows: Tensor, weights: Tensor, fold: Tensor | None
    ) -> TabularModel:
        """Return the model of all rows, with networks beside it if these help.

        The rows are those that were added, with the weights and folds given there.
        """
        model, held_out = self.collector.cross_fitted()
        used = weights > 0
        training = Training.of(network, int(used.sum()))
        if held_out is not None:
            joint = cast("JointModel", model)
            return self._quantised(joint_with_network(joint, held_out, training))
        fold = self._folds(rows, fold)
        spread, weights = spread_out(self.columns, rows)[used], weights[used]
        fold = None if fold is None else fold[used]

        def refit(part: Tensor) -> TabularModel:
            own = spread[part], weights[part]
            settings = self.collector.settings
            collector = self.family.collector(self.columns.continuous, *own, settings)
            collector.update(*own, None if fold is None else fold[part])
            return collector.model()

        return self._quantised(torus_with_network(model, spread, fold, refit, training))

    def _folds(self, rows: Tensor, fold: Tensor | None) -> Tensor | None:
        """Return the folds of rows, or None where those follow from the content of spread rows."""
        return self.collector.folds_of(rows) if fold is None and _has_copies(self.columns) else fold

    def _quantised(self, model: TabularModel) -> TabularModel:
        """Return the model of rows as they are, from that of spread rows."""
        return DiscreteModel(model, self.columns) if self.columns.discrete else model


def _directions(parameters: Parameters, columns: Columns) -> Directions | None:
    """Return how rows are read as points of the sphere, if they are."""
    if parameters.sphere is None:
        return None
    named = list(parameters.sphere)
    indices = [index_of(key, columns.count, columns.names, "sphere") for key in named]
    return Directions.of(named, parameters.sphere_unit, indices)


def _settings(parameters: Parameters, columns: Columns, folds: int) -> Settings:
    """Return the parameters that concern a fit, whatever the family."""
    return Settings(
        folds=folds,
        clock=parameters.clock,
        shrinkage=SHRINKAGES[parameters.shrinkage](),
        ridge=parameters.ridge,
        steps=parameters.flow_steps,
        device=parameters.device,
        levels=columns if _has_copies(columns) else None,
    )


def _has_copies(columns: Columns) -> bool:
    """Return whether rows are spread over cells of levels, and equal rows are copies."""
    # Where all columns have levels, equal rows are no copies, and one fold would hold all rows of a
    # level.
    return bool(columns.discrete) and not columns.have_levels


def spread_out(
    columns: Columns, rows: Tensor, positions: Tensor | None = None, before: int = 0
) -> Tensor:
    """Return rows whose discrete columns are spread over the cells of their levels.

    Without positions the numbers are those of a batch that comes after so many rows ``before``.
    """
    if positions is not None:
        return columns.within_cells(rows, uniforms_of(positions, len(columns.discrete)))
    seed = seed_from(before, len(rows)) if before else len(rows)
    return columns.dequantised(rows, torch.Generator().manual_seed(seed))
