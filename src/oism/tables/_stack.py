"""Several models of one column, mixed with weights from held-out rows.

p = Σ_k w_k p_k, with the weights of a pool (`oism.tables._pool`): the rows of each fold are held
out from the models that they weigh. The error of a mixture, as a Kullback-Leibler divergence, is at
most the mean of those of its members, and lower if these err in different places.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

import torch
from torch import Tensor

from oism._core import checks
from oism.flow import Divergence, OrdinaryMethod, StochasticMethod
from oism.process import Process
from oism.storage import storable
from oism.tables._collector import Collector, Settings
from oism.tables._columns import Columns
from oism.tables._family import Family
from oism.tables._model import TableModel

LEAST_SHARE = 0.05
"""Members of a smaller weight are left out."""


@storable
class StackedTable(TableModel):
    """A mixture of models of the same column; process, flow and score are those of the first."""

    def __init__(self, members: Sequence[TableModel], shares: Sequence[float]) -> None:
        for member in members:
            checks.instance(member, TableModel, "members")
        if len(members) != len(shares) or len(members) < 2:
            raise ValueError(f"shares must be one for each of two or more members, got {shares!r}")
        if min(shares) < 0 or not math.isclose(sum(shares), 1, rel_tol=1e-9):
            raise ValueError(f"shares must be >= 0 with the sum 1, got {list(shares)}")
        first = members[0]
        super().__init__(
            first.operator_score, first.chart, first.background, first.span, first.steps
        )
        self.others = torch.nn.ModuleList(members[1:])
        self._first = (first,)  # in a tuple: its parts are registered already
        self.shares = tuple(float(share) for share in shares)

    @property
    def members(self) -> tuple[TableModel, ...]:
        """The models, the largest share first."""
        return (*self._first, *(cast("TableModel", member) for member in self.others))

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"members": list(self.members), "shares": list(self.shares)}

    def facts(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return those of the first member, and processes and shares of all."""
        pairs = zip(self.members, self.shares, strict=True)
        stack = [{"process": repr(m.process.inner), "share": share} for m, share in pairs]
        return {**super().facts(names), "kind": type(self).__name__, "stack": stack}

    @torch.no_grad()
    def log_density(
        self,
        x: Tensor,
        *,
        method: OrdinaryMethod | None = None,
        divergence: Divergence | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return log p at rows ``(n, d)``: ``(n,)``."""
        settings: dict[str, Any] = {
            "method": method, "divergence": divergence, "progress": progress
        }  # fmt: skip
        first = TableModel.log_density(self, x, **settings)
        logs = [first, *(member.log_density(x, **settings) for member in self.members[1:])]
        weighted = [log + math.log(w) for log, w in zip(logs, self.shares, strict=True)]
        return torch.logsumexp(torch.stack(weighted), dim=0)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        method: OrdinaryMethod | StochasticMethod | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return n rows: each from a member drawn by its share."""
        n = checks.integer(n, "n", minimum=0)
        shares = torch.tensor(self.shares, dtype=torch.float64)
        chosen = torch.multinomial(shares.expand(max(n, 1), -1), 1, generator=generator)[:n, 0]
        rows = torch.empty(n, self.dim, dtype=torch.float64, device=self.device)
        for k, member in enumerate(self.members):
            where = chosen == k
            draw = member.sample if k else super().sample
            count = int(where.sum())
            rows[where] = draw(count, generator, method=method, progress=progress).to(rows)
        return rows

    def marginal(self, columns: Sequence[int]) -> StackedTable:
        """Return the model itself: it has one column."""
        if tuple(columns) != (0,):
            raise ValueError(f"columns must be the only one, 0, got {list(columns)}")
        return self

    def conditional(self, given: Mapping[int, float]) -> Any:  # noqa: ANN401 (there is none)
        """Raise: there is no other column."""
        raise ValueError(f"given must leave a column, got {dict(given)} of one column")


class StackedCollector(Collector):
    """The collectors of several families."""

    def __init__(
        self, collectors: Sequence[Collector], shares: Sequence[float], settings: Settings
    ) -> None:
        super().__init__(settings)
        self.collectors, self.shares = tuple(collectors), tuple(shares)

    @property
    def count(self) -> float:
        """The effective number of rows."""
        return self.collectors[0].count

    def prepare(self, weight: float) -> None:
        """Prepare all collectors."""
        for own in self.collectors:
            own.prepare(weight)

    def update(
        self,
        rows: Tensor,
        weights: Tensor,
        fold: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        """Add rows to all collectors."""
        for own in self.collectors:
            own.update(rows, weights, fold, positions)

    def warn_of_outside(self, rows: Tensor) -> None:
        """Warn as the collectors do."""
        for own in self.collectors:
            own.warn_of_outside(rows)

    def across_processes(self) -> Self:
        """Return the collector of the rows of all processes."""
        merged = [own.across_processes() for own in self.collectors]
        return type(self)(merged, self.shares, self._settings)

    def model(self) -> StackedTable:
        """Return the mixture of the models."""
        models = [cast("TableModel", own.model()) for own in self.collectors]
        return StackedTable(models, self.shares)


@dataclass(frozen=True)
class StackedFamily(Family[Process]):
    """Several families with their shares, the largest first."""

    members: tuple[Family[Any], ...] = field(kw_only=True)
    shares: tuple[float, ...] = field(kw_only=True)

    example = ""
    process_type = Process

    @classmethod
    def of(cls, members: Sequence[Family[Any]], shares: Tensor) -> Family[Any]:
        """Return the members of notable share; the family itself if there is one."""
        order = [int(k) for k in shares.argsort(descending=True) if float(shares[k]) >= LEAST_SHARE]
        chosen = tuple(members[k] for k in order)
        if len(chosen) == 1:
            return chosen[0]
        kept = shares[order] / shares[order].sum()
        return cls(chosen[0].process, members=chosen, shares=tuple(kept.tolist()))

    def check(self, columns: Columns) -> None:
        """Raise unless all members can model these columns."""
        for member in self.members:
            member.check(columns)

    def collector(
        self, columns: Columns, rows: Tensor, weights: Tensor, settings: Settings
    ) -> StackedCollector:
        """Return an empty collector of all members."""
        own = [member.collector(columns, rows, weights, settings) for member in self.members]
        return StackedCollector(own, self.shares, settings)
