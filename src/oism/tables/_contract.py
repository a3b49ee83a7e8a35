"""The contract of a fitted model of a table, beyond that of any fitted model.

A density of a table has those of some of its columns, alone or given values of the others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import torch
from torch import Tensor

from oism._core import checks
from oism.flow import Divergence, FittedModel, OrdinaryMethod, StochasticMethod
from oism.process import Clock, Process
from oism.tables._gaps import patterns


class Density(Protocol):
    """What the marginals and conditionals of a model offer."""

    def log_density(self, x: Tensor) -> Tensor:
        """Return log p at rows ``(n, d)``: ``(n,)``."""
        ...

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Return n rows."""
        ...

    def marginal(self, columns: Sequence[int]) -> Density:
        """Return the density of some columns alone, in the order given."""
        ...

    def conditional(self, given: Mapping[int, float]) -> Density:
        """Return the density of the other columns, in their order, given values of some."""
        ...


class ColumnMap(Protocol):
    """A coordinate y of one column."""

    def to_normal(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return y, and log dy/dx."""
        ...

    def to_data(self, y: Tensor) -> Tensor:
        """Return x."""
        ...


class HeldOut(NamedTuple):
    """What a fit has found on rows that it did not see.

    ``rows`` ``(n, d)`` have no gaps; ``weights`` are ``(n,)``. ``train`` ``(p, n)`` marks the rows
    of each problem; the last problem has all of them. ``log_density`` ``(n,)`` is that of the pool
    without the row, NaN where a row was never held out. ``coordinates`` are those of the plain
    system, for each problem.
    """

    rows: Tensor
    weights: Tensor
    train: Tensor
    log_density: Tensor
    coordinates: tuple[tuple[ColumnMap, ...], ...]

    def select(self, index: Tensor) -> HeldOut:
        """Return what is known of some rows."""
        train, logs = self.train[:, index], self.log_density[index]
        return HeldOut(self.rows[index], self.weights[index], train, logs, self.coordinates)


class TabularModel(FittedModel):
    """A model of rows ``(n, d)``; columns are given by their index."""

    steps: int | None = None
    """The number of steps of the flow; None where there is no flow and rows are drawn directly."""

    @property
    @abstractmethod
    def times(self) -> tuple[float, float]:
        """The first and the last time of the process that `score` can be evaluated at."""

    def noise_deviations(self, t: Tensor | float) -> Tensor:
        """Return the standard deviation of the noise in each column at one time t: ``(d,)``."""
        covariance = self.process.transition(t).covariance(self.dim)
        return covariance.diagonal().sqrt()

    @torch.no_grad()
    def log_density(
        self,
        x: Tensor,
        *,
        method: OrdinaryMethod | None = None,
        divergence: Divergence | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return log p at rows ``(n, d)``: ``(n,)``; -∞ outside of declared bounds.

        The other arguments are those of a density along a flow: models without one ignore them.
        """
        settings = {"method": method, "divergence": divergence, "progress": progress}
        return self._log_density(checks.points(x, dim=self.dim), **settings)

    def _log_density(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401
        """Return log p at checked rows, without gradients: by default along the flow."""
        return super().log_density(x, **settings)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        method: OrdinaryMethod | StochasticMethod | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return n rows drawn from p: ``(n, d)``.

        The other arguments are those of samples along a flow: models without one ignore them.
        """
        n = checks.integer(n, "n", minimum=0)
        return self._sample(n, generator, method=method, progress=progress)

    def _sample(
        self,
        n: int,
        generator: torch.Generator | None,
        **settings: Any,  # noqa: ANN401
    ) -> Tensor:
        """Return n rows, without gradients: by default along the flow."""
        return super().sample(n, generator, **settings)

    @abstractmethod
    def facts(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return a description of the model as JSON values; columns have numbers unless named."""

    @abstractmethod
    def marginal(self, columns: Sequence[int]) -> Density:
        """Return the density of some columns alone, in the order given."""

    @abstractmethod
    def conditional(self, given: Mapping[int, float]) -> Density:
        """Return the density of the other columns, in their order, given values of some."""

    @torch.no_grad()
    def completed(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return rows ``(n, d)`` whose missing values, NaN, are drawn given the other values.

        A row with the values x_S and gaps in the columns T has x_T ~ p(x_T | x_S). So filled rows
        are distributed like complete ones, if the model is right and gaps do not depend on the
        missing values. By default from the conditional of each different row.
        """
        result = rows.clone()
        for there, index in patterns(rows):
            gaps = [j for j in range(rows.shape[1]) if j not in there]
            if not there:
                result[index] = self.sample(len(index), generator).to(rows)
            elif gaps:
                distinct, place = torch.unique(rows[index][:, there], dim=0, return_inverse=True)
                for k, values in enumerate(distinct.tolist()):
                    own = index[place == k]
                    density = self.conditional(dict(zip(there, values, strict=True)))
                    drawn = density.sample(len(own), generator)
                    result[own[:, None], torch.tensor(gaps)] = drawn.to(rows)
        return result


class ModelWithoutProcess(TabularModel):
    """A model of parts that are noised by different processes, or by none: it has no single one."""

    @property
    def process(self) -> Process:
        """Not defined: the parts have no process in common."""
        self._no_process()

    @property
    def clock(self) -> Clock:
        """Not defined: the parts have no process in common."""
        self._no_process()

    @property
    def times(self) -> tuple[float, float]:
        """Not defined: the parts have no process in common."""
        self._no_process()

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:  # noqa: ARG002
        """Not defined at noise levels: the parts have no process in common."""
        self._no_process()

    @abstractmethod
    def _no_process(self) -> NoReturn:
        """Raise a TypeError that names the parts, and what has scores at noise levels."""


def distinct_columns(columns: Sequence[int], dim: int, name: str) -> list[int]:
    """Return distinct indices out of ``dim`` columns; ``name`` is the argument in messages."""
    found = [checks.integer(column, name, minimum=0) for column in columns]
    if not found or len(set(found)) < len(found) or max(found) >= dim:
        raise ValueError(
            f"{name} must be distinct columns out of 0 to {dim - 1}, got {list(columns)}"
        )
    return found
