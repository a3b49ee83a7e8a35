"""Models of tables with discrete columns, by the density of values spread over their cells.

Let q be a density of rows whose discrete entries were spread uniformly over cells, see `Column`.
For levels with cells C_1, …, C_k that begin at c and have the widths h, and other entries x_O

    p(x) = (1/m) Σ_i q(x_O, c + h ν_i)  ≈  ∫_C q(x_O, y) dy / (h_1 … h_k)

with m fixed nodes ν_i in [0, 1)^k. This is the probability of the levels per unit of their columns:
the probability itself where levels are 1 apart, and comparable to a density of the values as they
are. A value that is no level has the cell it lies in. Beyond the outer cells p = q; beyond a closed
end it is a small share of the probability of the outer level, see `Columns.enclosed`. Samples of q
are mapped to the levels of their cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from oism._core import checks, draws
from oism.flow import Flow
from oism.process import Clock, Process
from oism.storage import storable
from oism.tables._chart import Chart
from oism.tables._columns import Columns
from oism.tables._contract import TabularModel
from oism.tables._gaps import patterns
from oism.tables._tensors import check_tensor

NODES = 16
ROWS = 2**17
"""The number of nodes whose density is computed at a time."""


def cell_nodes(count: int) -> Tensor:
    """Return the nodes in [0, 1)^count: midpoints in one dimension, and Sobol's points in more."""
    if count == 1:
        return (torch.arange(NODES, dtype=torch.float64)[:, None] + 0.5) / NODES
    engine = SobolEngine(max(count, 1), scramble=True, seed=0)  # type: ignore[no-untyped-call]
    return engine.draw(NODES, dtype=torch.float64)


def at_nodes(
    density: Any,  # noqa: ANN401 (a FittedModel, or a marginal of one)
    columns: Columns,
    nodes: Tensor,
    rows: Tensor,
    **settings: Any,  # noqa: ANN401 (those of the density)
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield rows with the nodes of their cells ``(n, m, d)``, and log q there ``(n, m)``.

    In pieces of rows, so that memory stays bounded.
    """
    low, width = columns.cells(rows)
    step, discrete = max(1, ROWS // len(nodes)), list(columns.discrete)
    for k in range(0, len(rows), step):
        part = slice(k, k + step)
        points = rows[part, None].repeat(1, len(nodes), 1)
        points[..., discrete] = low[part, None] + width[part, None] * nodes
        logs = density.log_density(points.flatten(0, 1), **settings)
        yield points, logs.reshape(-1, len(nodes))


@storable
class DiscreteModel(TabularModel):
    """The distribution of rows with discrete columns; ``score`` is that of the spread rows.

    Parameters
    ----------
    inner
        The density q of spread rows, a model with ``log_density`` and ``sample``.
    columns
        The columns of the rows, of which at least one is discrete.
    nodes
        The nodes ν_i of the discrete columns ``(m, k)``; those of `cell_nodes` by default.
    """

    def __init__(
        self,
        inner: Any,  # noqa: ANN401 (a FittedModel, or a marginal or conditional of one)
        columns: Columns,
        nodes: Tensor | None = None,
    ) -> None:
        super().__init__()
        if columns.count != inner.dim or not columns.discrete:
            raise ValueError(
                f"columns must be the {inner.dim} of the model and have a discrete one, got "
                f"{columns.count} of the kinds {columns.kinds}"
            )
        count = len(columns.discrete)
        nodes = cell_nodes(count) if nodes is None else nodes
        check_tensor(nodes, "nodes", (len(nodes), count))
        self.inner, self.columns, self.nodes = inner, columns, nodes

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"inner": self.inner, "columns": self.columns, "nodes": self.nodes}

    @property
    def process(self) -> Process:
        """The noising process of spread rows."""
        process: Process = self.inner.process
        return process

    @property
    def clock(self) -> Clock:
        """The noise levels."""
        clock: Clock = self.inner.clock
        return clock

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row, one axis."""
        return (self.columns.count,)

    @property
    def steps(self) -> int | None:  # type: ignore[override]  # read only, as all that is inner's
        """The number of steps of the flow of spread rows, None where there is none."""
        steps: int | None = self.inner.steps
        return steps

    @property
    def times(self) -> tuple[float, float]:
        """The first and the last time of the process that `score` can be evaluated at."""
        times: tuple[float, float] = self.inner.times
        return times

    @property
    def flow(self) -> Flow:
        """The probability flow of spread rows."""
        flow: Flow = self.inner.flow
        return flow

    @property
    def chart(self) -> Chart:
        """The map from spread rows to the coordinates of the process, where the model has one."""
        chart: Chart = self.inner.chart
        return chart

    def noise_deviations(self, t: Tensor | float) -> Tensor:
        """Return the standard deviation of the noise in each column at one time t: ``(d,)``."""
        deviations: Tensor = self.inner.noise_deviations(t)
        return deviations

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t(x) of spread rows."""
        score: Tensor = self.inner.score(x, t)
        return score

    def facts(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return what is known of the spread rows, and the levels of discrete columns."""
        found: dict[str, Any] = dict(self.inner.facts(names))
        columns = [dict(column) for column in found.get("columns", [])]
        for j in self.columns.discrete:
            levels = self.columns.levels(j)
            columns[j] |= {
                "kind": "discrete",
                "levels": len(levels),
                "low": float(levels[0]),
                "high": float(levels[-1]),
            }
        return {**found, "columns": columns}

    def _log_density(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401 (those of inner)
        """Return log p at rows ``(n, d)``: ``(n,)``; -∞ outside of declared bounds."""
        settings = _given(settings)
        allowed = self.columns.allows(x)
        result = x.new_full((len(x),), -math.inf)
        if not bool(allowed.any()):
            return result
        # Levels repeat: equal rows are computed once.
        inside, penalty = self.columns.enclosed(x[allowed])
        levels = self.columns.quantised(inside, outside=False)
        rows, place = torch.unique(levels, dim=0, return_inverse=True)
        logs = [
            torch.logsumexp(found, dim=1)
            for _, found in at_nodes(self.inner, self.columns, self.nodes.to(x), rows, **settings)
        ]
        result[allowed] = (torch.cat(logs) - math.log(len(self.nodes)))[place] + penalty
        return result

    def _sample(
        self,
        n: int,
        generator: torch.Generator | None,
        **settings: Any,  # noqa: ANN401 (those of inner)
    ) -> Tensor:
        """Return n rows with levels in discrete columns."""
        return self.columns.quantised(self.inner.sample(n, generator, **_given(settings)))

    @torch.no_grad()
    def completed(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return rows ``(n, d)`` whose missing values, NaN, are drawn given the other values.

        As by `DiscreteConditional`: levels that are there become nodes of their cells, drawn by the
        density of the values that are there, and the inner model completes the rows.
        """
        spread = rows.clone()
        for there, index in patterns(rows):
            if len(there) < self.dim and set(there) & set(self.columns.discrete):
                spread[index[:, None], torch.tensor(there)] = self._drawn_nodes(
                    rows[index][:, there], there, generator
                )
        drawn = self.columns.quantised(self.inner.completed(spread, generator))
        return torch.where(rows.isnan(), drawn, rows)

    def _drawn_nodes(
        self, values: Tensor, there: list[int], generator: torch.Generator | None
    ) -> Tensor:
        """Return values of some columns with nodes in place of levels."""
        places = [k for k, j in enumerate(self.columns.discrete) if j in there]
        own, nodes = self.columns.select(there), self.nodes[:, places].to(values)
        inside, _ = own.enclosed(values)  # as in log_density: beyond a closed end, the outer level
        rows, place = torch.unique(inside, dim=0, return_inverse=True)
        pieces = list(at_nodes(self.inner.marginal(there), own, nodes, rows))
        points, logs = (torch.cat(part)[place] for part in zip(*pieces, strict=True))
        empty = ~(logs.isfinite().any(dim=1) & own.allows(values))
        if bool(empty.any()):
            raise ValueError(
                f"rows have density 0: {values[empty][0].tolist()} in columns {there} is outside "
                "of the bounds"
            )
        chosen = draws.categorical(torch.softmax(logs.double(), dim=1), generator)
        return points[torch.arange(len(points)), chosen]

    def marginal(self, columns: Sequence[int]) -> Any:  # noqa: ANN401 (of inner, or wrapped)
        """Return the model of some columns alone, in the order given."""
        return self._wrapped(self.inner.marginal(columns), list(columns))

    def conditional(self, given: Mapping[int, float]) -> Any:  # noqa: ANN401
        """Return the model of the other columns, in their order, given values of some."""
        rest = [j for j in range(self.dim) if j not in given]
        if any(j in given for j in self.columns.discrete):
            return DiscreteConditional(self, tuple(given.items()))
        return self._wrapped(self.inner.conditional(given), rest)

    def _wrapped(self, inner: Any, columns: list[int]) -> Any:  # noqa: ANN401
        """Return the model of some columns, of which some may be discrete."""
        discrete = list(self.columns.discrete)
        picked = [discrete.index(j) for j in columns if j in discrete]
        if not picked:
            return inner
        return DiscreteModel(inner, self.columns.select(columns), self.nodes[:, picked])


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are given: marginals on a grid, which have no flow, take none."""
    return {name: value for name, value in settings.items() if value is not None}


@storable
class DiscreteConditional:
    """A `DiscreteModel` given values of columns of which some are discrete: p(x, g)/p(g)."""

    def __init__(self, model: DiscreteModel, given: tuple[tuple[int, float], ...]) -> None:
        checks.instance(model, DiscreteModel, "model")
        self.model = model
        self.given = tuple((j, checks.number(value, f"given[{j}]")) for j, value in given)
        self._fixed = [j for j, _ in self.given]
        self._rest = [j for j in range(model.dim) if j not in self._fixed]
        if not self._rest or not set(self._fixed) <= set(range(model.dim)):
            raise ValueError(f"given must leave at least one of the {model.dim} columns")
        if not bool(model.columns.select(self._fixed).allows(self._values).all()):
            raise ValueError(f"given has density 0: {dict(self.given)} is outside of the bounds")

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"model": self.model, "given": self.given}

    @property
    def dim(self) -> int:
        """The number of columns that are not given."""
        return len(self._rest)

    @cached_property
    def _values(self) -> Tensor:
        return torch.tensor([[value for _, value in self.given]], dtype=torch.float64)

    @cached_property
    def _log_given(self) -> float:
        return float(self.model.marginal(self._fixed).log_density(self._values))

    def log_density(self, x: Tensor) -> Tensor:
        """Return log p at rows ``(n, k)`` of the other columns: ``(n,)``."""
        x = checks.points(x, dim=self.dim)
        rows = x.new_empty(len(x), self.model.dim)
        rows[:, self._rest], rows[:, self._fixed] = x, self._values.to(x)
        return self.model.log_density(rows) - self._log_given

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Return n rows: nodes of the given cells by their density, and the rest given these."""
        given, inner = self.model.columns.select(self._fixed), self.model.inner
        inside, _ = given.enclosed(self._values)  # as in log_density
        low, width = given.cells(inside)
        found = list(self.model.columns.discrete)
        nodes = self.model.nodes[:, [found.index(j) for j in self._fixed if j in found]]
        points = inside.repeat(len(nodes), 1)
        points[:, list(given.discrete)] = low + width * nodes
        weights = torch.softmax(inner.marginal(self._fixed).log_density(points), dim=0)
        chosen = draws.multinomial(weights, n, generator)
        rows = torch.empty(n, self.dim, dtype=torch.float64)
        for k in torch.unique(chosen).tolist():
            mine = chosen == k
            values = dict(zip(self._fixed, points[k].tolist(), strict=True))
            rows[mine] = inner.conditional(values).sample(int(mine.sum()), generator).cpu()
        return self.model.columns.select(self._rest).quantised(rows)

    def marginal(self, columns: Sequence[int]) -> DiscreteConditional:
        """Return the model of some of the other columns, in the order given."""
        kept = [self._rest[j] for j in columns]
        model = self.model.marginal([*kept, *self._fixed])
        given = tuple((len(kept) + k, value) for k, (_, value) in enumerate(self.given))
        return DiscreteConditional(model, given)

    def conditional(self, given: Mapping[int, float]) -> DiscreteConditional:
        """Return the model given values of more columns."""
        more = tuple((self._rest[j], value) for j, value in given.items())
        return DiscreteConditional(self.model, (*self.given, *more))
