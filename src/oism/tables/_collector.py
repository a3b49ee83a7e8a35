"""The contract of a collector: rows come in batches, and a model is made of all of them.

`MomentCollector` keeps averages only, so its memory does not grow with the rows. The order and the
batches do not matter, and processes add their sums. Models that need rows keep them, see
`oism.tables._rows`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from oism._core.progress import progress_bar
from oism._core.user_warnings import warn
from oism.estimation import (
    CrossValidation,
    Moments,
    Ridge,
    SampleMeans,
    Shrinkage,
    across_processes,
    gathered,
)
from oism.process import Clock
from oism.score import OperatorScore
from oism.tables._background import Background, Spread
from oism.tables._chart import Chart
from oism.tables._columns import Columns
from oism.tables._contract import HeldOut, TabularModel
from oism.tables._folds import folds_by_content, ranges_of
from oism.tables._model import TableModel, converged_steps

FEW_ROWS_RIDGE = 0.1
"""The ridge where rows are too few, or too equal, to fall into two folds."""

OUTSIDE = 0.01
"""The share of a later batch that may lie outside of the box without a warning."""


@dataclass(frozen=True)
class Settings:
    """The parameters of `OISM` that concern a fit, whatever the family.

    ``levels`` are the columns as they are in the table where rows are spread over the cells of
    discrete ones and equal rows are copies, which must not be held out one from another.
    """

    folds: int = 5
    clock: Clock | None = None
    shrinkage: Shrinkage = field(default_factory=SampleMeans)
    ridge: Ridge | float | str = "cv"
    steps: int | str = "auto"
    device: str | torch.device | None = None
    seed: int = 0
    levels: Columns | None = None


class Collector(ABC):
    """Takes rows, and makes the model of all of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    @abstractmethod
    def count(self) -> float:
        """The effective number of rows."""

    @property
    def settings(self) -> Settings:
        """The parameters of the fit."""
        return self._settings

    @property
    def folds(self) -> int:
        """The number of folds."""
        return self._settings.folds

    def folds_of(self, rows: Tensor) -> Tensor | None:  # noqa: ARG002
        """Return the folds of rows ``(n, d)`` by their content, ``(n,)``.

        None, the default, if they are found when the model is made.
        """
        return None

    @abstractmethod
    def update(
        self,
        rows: Tensor,
        weights: Tensor,
        fold: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        """Add rows ``(n, d)`` with weights; folds follow from their content unless given.

        ``positions`` ``(n,)`` are the numbers of the rows in the whole table, if these are not
        given in its order.
        """

    @abstractmethod
    def model(self) -> TabularModel:
        """Return the model of all rows."""

    def cross_fitted(self) -> tuple[TabularModel, HeldOut | None]:
        """Return the model of all rows, and what held-out rows show if the fit has held out any."""
        return self.model(), None

    @property
    def choice(self) -> dict[str, Any] | None:
        """What the last `model` was chosen by, as plain values; None where there was no choice."""
        return None

    def prepare(self, weight: float) -> None:  # noqa: B027 (most need nothing)
        """Prepare for rows of this total weight that come in batches of any size."""

    def warn_of_outside(self, rows: Tensor) -> None:  # noqa: B027
        """Warn if rows of a later batch do not suit what the first has fixed."""

    @abstractmethod
    def across_processes(self) -> Self:
        """Return the collector of the rows of all processes."""


class Solver(Protocol):
    """What a collector of moments asks of its family."""

    @property
    def times(self) -> int:
        """The number of times at which ridge and truncation are chosen."""
        ...

    def fit(
        self, moments: Moments, *, clock: Clock | None, shrinkage: Shrinkage, ridge: Ridge | float
    ) -> OperatorScore:
        """Return the scores of all noise levels."""
        ...

    def span(self, score: OperatorScore) -> tuple[float, float]:
        """Return the first and the last clock time of the flow."""
        ...


class MomentCollector(Collector):
    """Averages of the functions of a basis, and the spread of the columns."""

    def __init__(
        self,
        solver: Solver,
        chart: Chart,
        moments: Moments,
        origin: Tensor,
        settings: Settings,
    ) -> None:
        super().__init__(settings)
        self._solver = solver
        self.chart, self.moments = chart, moments
        self.spread, self.outside = Spread(origin), 0.0

    @property
    def count(self) -> float:
        """The effective number of rows."""
        return self.spread.count

    def folds_of(self, rows: Tensor) -> Tensor:
        """Return folds that depend neither on units nor on the order of the columns."""
        return folds_by_content(rows, *ranges_of(self.chart), self.moments.folds)

    def prepare(self, weight: float) -> None:
        """Round blocks of rows so that sums of many batches stay exact."""
        self.moments.round_blocks(weight)

    def update(
        self,
        rows: Tensor,
        weights: Tensor,
        fold: Tensor | None = None,
        positions: Tensor | None = None,  # noqa: ARG002 (every row counts)
    ) -> None:
        """Add rows to the averages; those outside of the box are left to the background."""
        fold = self.folds_of(rows) if fold is None else fold
        self.spread.update(rows, weights)
        used = self.chart.uses(rows)
        self.outside += float(weights[~used].sum())
        weights = weights.where(used, 0.0)
        step = max(1, self.moments.block // rows.shape[1])  # as the accumulator takes them
        with progress_bar(None) as bar:
            bar.stage("rows", len(rows))
            for start in range(0, len(rows), step):
                part = slice(start, start + step)
                u = self.chart.to_process(rows[part]).to(device=self._settings.device)
                self.moments.update(u, weights[part], fold=fold[part])
                bar.advance(len(u))

    def warn_of_outside(self, rows: Tensor) -> None:
        """Warn if many rows lie outside of the box."""
        outside = float((~self.chart.uses(rows)).double().mean())
        if outside > OUTSIDE:
            warn(
                f"{outside:.1%} of {len(rows)} rows lie outside of the box that the first batch "
                "gave, and on the torus they are left to the background: give bounds or "
                "box, or a first batch that covers the range"
            )

    def across_processes(self) -> Self:
        """Return the collector with the sums of all processes."""
        result = copy.copy(self)
        result.moments = across_processes(self.moments)
        result.spread = across_processes(self.spread)
        result.outside = sum(gathered(self.outside))
        return result

    def model(self) -> TableModel:
        """Solve the equations and fix the flow."""
        chart, settings = self.chart, self._settings
        moments = self.moments.reflected(chart.reflections)
        score = self._solver.fit(
            moments,
            clock=settings.clock,
            shrinkage=settings.shrinkage,
            ridge=self._choose_ridge(moments),
        )
        span = self._solver.span(score)
        background = None
        if bool(chart.open.any()):
            background = Background.of(
                self.spread,
                chart.free,
                chart.low,
                chart.width,
                opening=chart.opening,
                outside=self.outside,
            )
        auto = isinstance(settings.steps, str)
        steps = converged_steps(score, span, settings.device) if auto else int(settings.steps)
        if settings.device is not None:
            score = score.to(settings.device)
        return TableModel(score, chart, background, span, steps)

    def _choose_ridge(self, moments: Moments) -> Ridge | float:
        if not isinstance(self._settings.ridge, str):
            return self._settings.ridge
        if int((moments.weight > 0).sum()) < 2:
            return FEW_ROWS_RIDGE
        return CrossValidation(max(2, moments.folds), self._solver.times)
