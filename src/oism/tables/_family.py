"""The contract of a family: how tables are modelled, for example under the processes of one space.

A family makes a `Collector` of rows for the columns of a table, and the collector makes the model.
`OISM` asks its family and no class, so a new space is one more file. A `MomentFamily` chooses what
a user has not: the chart, the functions, the noise levels, the knots and the range of the flow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar, cast

from torch import Tensor

from oism.basis import Basis
from oism.estimation import ChosenRidge, CrossValidation, Moments, Ridge, Shrinkage
from oism.process import Clock, Process
from oism.score import OperatorScore
from oism.tables._background import Spread
from oism.tables._chart import Chart
from oism.tables._collector import Collector, MomentCollector, Settings
from oism.tables._columns import Columns

P = TypeVar("P", bound=Process)


@dataclass(frozen=True)
class Family(ABC, Generic[P]):
    """The choices for one kind of process.

    ``max_eigenvalue``, ``order`` and ``frame`` are the parameters of `OISM`; a family uses those
    that concern it.
    """

    process: P
    max_eigenvalue: float | str = "auto"
    order: int | str = "auto"
    frame: str = "pca"

    name: ClassVar[str | None] = None
    """What a user may write for the process, where it has an obvious default."""

    example: ClassVar[str]
    """How messages write a process of this family."""

    process_type: ClassVar[type[Process]]
    """The processes that belong to this family."""

    allows_gaps: ClassVar[bool] = False
    """Whether rows with missing values, NaN, can be fitted."""

    resolves_peaks: ClassVar[bool] = False
    """Whether a value that many rows share becomes a narrow peak, and is not smoothed over."""

    allows_network: ClassVar[bool] = False
    """Whether networks can be trained beside a model, see `oism.tables._beside`."""

    may_be_mixture: ClassVar[bool] = False
    """Whether mixtures may take the place of the model of up to three columns."""

    @abstractmethod
    def check(self, columns: Columns) -> None:
        """Raise unless the family can model these columns."""

    @abstractmethod
    def collector(
        self, columns: Columns, rows: Tensor, weights: Tensor, settings: Settings
    ) -> Collector:
        """Return an empty collector for rows like these first ones, of positive weight."""


@dataclass(frozen=True)
class MomentFamily(Family[P]):
    """The choices for processes whose eigenfunctions are known: fits follow from averages."""

    times: ClassVar[int] = CrossValidation().times
    """The number of times at which ridge and truncation are chosen."""

    def collector(
        self, columns: Columns, rows: Tensor, weights: Tensor, settings: Settings
    ) -> MomentCollector:
        """Return an empty collector of the averages of the family's functions."""
        first = Spread(rows.mean(dim=0))
        first.update(rows, weights)
        chart = self.chart(columns, rows, weights, first)
        squares = settings.shrinkage.needs_variances
        moments = self.moments(columns.count, first.count, settings.folds, squares=squares)
        return MomentCollector(self, chart, moments, rows.mean(dim=0), settings)

    @abstractmethod
    def chart(self, columns: Columns, rows: Tensor, weights: Tensor, spread: Spread) -> Chart:
        """Return the chart for rows ``(m, d)`` of positive weight and of this spread."""

    @abstractmethod
    def moments(self, dim: int, n: float, folds: int, *, squares: bool) -> Moments:
        """Return an empty accumulator for n rows of ``dim`` columns."""

    @abstractmethod
    def fit(
        self, moments: Moments, *, clock: Clock | None, shrinkage: Shrinkage, ridge: Ridge | float
    ) -> OperatorScore:
        """Return the scores of all noise levels; the clock is the family's unless it is given."""

    def span(self, score: OperatorScore) -> tuple[float, float]:
        """Return the first and the last clock time of the flow: by default all of the clock."""
        return 0.0, score.clock.horizon


def repeated(
    family: Family[Any], settings: Settings, score: OperatorScore
) -> tuple[Family[Any], Settings]:
    """Return the family with the functions of a fit, and settings with its ridge and clock."""
    if not isinstance(settings.ridge, str):
        return family, settings
    finest = -float(cast("Basis", score.basis).eigenvalues[-1])
    ridge = ChosenRidge(score.schedule, len(score.schedule.tau))
    return replace(family, max_eigenvalue=finest), replace(settings, ridge=ridge, clock=score.clock)
