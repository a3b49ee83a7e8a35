"""Several models of one column, pooled with weights from held-out rows: p = Σ_k w_k p_k.

The members noise the column by different processes, so that the pool has no single process, flow or
score at t > 0; ``members`` have theirs. At t = 0 the score is the slope of log p, by differences. A
kernel density estimate with the bounds of the column may be one more part of the pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self, cast

import torch
from torch import Tensor

from oism._core import checks
from oism.process import Process
from oism.storage import storable
from oism.tables._chart import Chart
from oism.tables._collector import Collector, Settings
from oism.tables._columns import Columns
from oism.tables._combined_collector import CombinedCollector
from oism.tables._contract import ModelWithoutProcess
from oism.tables._end_kernels import EndKernelChoice, EndKernels, EndKernelSums
from oism.tables._family import Family
from oism.tables._model import TableModel
from oism.tables._pool import Densities, Pool, Single, notable

LEAST_SHARE = 0.05
"""Members of a smaller weight are left out."""

STEP, NEAREST = 1e-3, 1e-5
"""The step of a difference in units of the distance from an end, and the least such distance."""


@storable
class StackedTable(ModelWithoutProcess):
    """A pool of models of one column, ``members`` and ``kernels``, with their ``shares``."""

    def __init__(
        self,
        members: Sequence[TableModel],
        shares: Sequence[float],
        kernels: EndKernels | None = None,
    ) -> None:
        super().__init__()
        for member in members:
            checks.instance(member, TableModel, "members")
            if member.dim != 1:
                raise ValueError(f"members must be models of one column, got {member.dim} columns")
        self.members, self.shares = tuple(members), tuple(float(share) for share in shares)
        self.steps = max(member.steps for member in members)
        parts: list[Densities] = [Single(one) for one in members]
        own = torch.tensor(self.shares, dtype=torch.float64)
        self.pool = Pool(parts if kernels is None else [*parts, kernels], own)

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "members": list(self.members),
            "shares": list(self.shares),
            "kernels": self.kernels,
        }

    @property
    def kernels(self) -> EndKernels | None:
        """The kernel density estimate, if it has a share: the last one."""
        rest = self.pool.parts[len(self.members) :]
        return cast("EndKernels", rest[0]) if rest else None

    def _no_process(self) -> NoReturn:
        names = ", ".join(repr(member.process.inner) for member in self.members)
        raise TypeError(
            f"this model pools the processes {names} and has no single one, and scores at t = 0 "
            "only: use model_.members[k].score(x, t), or fit OISM(process='torus'), whose scores "
            "are those of one process"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row, one entry."""
        return (1,)

    @property
    def times(self) -> tuple[float, float]:
        """The times that `score` can be evaluated at: 0 only."""
        return 0.0, 0.0

    @property
    def chart(self) -> Chart:
        """The chart of the widest range."""
        return max((member.chart for member in self.members), key=lambda one: float(one.width))

    def noise_deviations(self, t: Tensor | float) -> Tensor:
        """Return 0, the standard deviation of the noise at t = 0: ``(1,)``."""
        self._check_time(t)
        return torch.zeros(1, dtype=torch.float64)

    def _check_time(self, t: Tensor | float) -> None:
        if not bool((torch.as_tensor(t) == 0).all()):
            self._no_process()

    @torch.no_grad()
    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log p(x) at t = 0: ``(n, 1)``; NaN beyond the bounds.

        By differences over a thousandth of the distance from the ends of the range, so that it is
        accurate where the density is infinite at a bound.
        """
        self._check_time(t)
        x = checks.points(x, dim=1)
        chart = self.chart
        low, width = chart.low.to(x), chart.width.to(x)
        gap = torch.minimum((x - low).abs(), (low + width - x).abs())
        step = STEP * torch.maximum(gap, NEAREST * width)
        ends = [x + step, x - step]
        ends = [torch.where(chart.allows(end)[:, None], end, x) for end in ends]
        above, below = (self.log_density(end)[:, None] for end in ends)
        return (above - below) / (ends[0] - ends[1])

    def facts(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the column, and process, weight and functions of the members."""
        found = [member.facts(names) for member in self.members]
        members = [
            {
                "name": repr(member.process.inner),
                "weight": share,
                "functions": one["functions"],
                "steps": one["steps"],
            }
            for member, share, one in zip(self.members, self.shares, found, strict=False)
        ]
        facts = {"kind": type(self).__name__, "columns": found[0]["columns"], "members": members}
        if self.kernels is not None:
            facts["kernels"] = {"weight": self.shares[-1], **self.kernels.facts()}
        return facts

    def _log_density(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401
        """Return log p at rows ``(n, 1)``: ``(n,)``."""
        return self.pool.log_density(x, **settings).to(x)

    def _sample(
        self,
        n: int,
        generator: torch.Generator | None,
        **settings: Any,  # noqa: ANN401
    ) -> Tensor:
        """Return n rows: each from a member drawn by its share."""
        return self.pool.sample(n, generator, **settings)

    def marginal(self, columns: Sequence[int]) -> StackedTable:
        """Return the model itself: it has one column."""
        if tuple(columns) != (0,):
            raise ValueError(f"columns must be the only one, 0, got {list(columns)}")
        return self

    def conditional(self, given: Mapping[int, float]) -> NoReturn:
        """Raise: there is no other column."""
        raise ValueError(f"given must leave a column, got {dict(given)} of one column")


class StackedCollector(CombinedCollector[tuple[Collector, ...]]):
    """The collectors of several families, and the sums of kernels."""

    def __init__(
        self,
        collectors: Sequence[Collector],
        shares: Sequence[float],
        settings: Settings,
        kernels: EndKernelSums | None = None,
    ) -> None:
        super().__init__(tuple(collectors), settings)
        self.shares, self.kernels = tuple(shares), kernels

    def update(
        self,
        rows: Tensor,
        weights: Tensor,
        fold: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        """Add rows to all collectors and to the sums of kernels."""
        super().update(rows, weights, fold, positions)
        if self.kernels is not None:
            self.kernels.update(rows, weights)

    def across_processes(self) -> Self:
        """Return the collector of the rows of all processes."""
        result = super().across_processes()
        result.kernels = None if self.kernels is None else self.kernels.across_processes()
        return result

    def model(self) -> StackedTable:
        """Return the mixture of the models."""
        models = [cast("TableModel", own.model()) for own in self.parts]
        kernels = None if self.kernels is None else self.kernels.model()
        return StackedTable(models, self.shares, kernels)


@dataclass(frozen=True)
class StackedFamily(Family[Process]):
    """Several families with their shares, the largest first, and the share of kernels last."""

    members: tuple[Family[Any], ...] = field(kw_only=True)
    shares: tuple[float, ...] = field(kw_only=True)
    kernels: EndKernelChoice | None = field(default=None, kw_only=True)

    example = ""
    process_type = Process

    @classmethod
    def of(
        cls, members: Sequence[Family[Any]], shares: Tensor, kernels: EndKernelChoice
    ) -> Family[Any]:
        """Return the members of notable share; the family itself if there is one.

        ``shares`` ``(m + 1,)`` end with that of the kernels. The largest member always has one:
        kernels alone have no scores.
        """
        order = shares[:-1].argsort(descending=True)
        least = torch.zeros_like(shares)
        least[0] = LEAST_SHARE
        kept, own = notable(torch.cat((shares[:-1][order], shares[-1:])), LEAST_SHARE, least)
        chosen = tuple(members[int(order[k])] for k in kept if k < len(members))
        if len(own) == 1:
            return chosen[0]
        smooth = kernels if len(own) > len(chosen) else None
        weights = tuple(own.tolist())
        return cls(chosen[0].process, members=chosen, shares=weights, kernels=smooth)

    def check(self, columns: Columns) -> None:
        """Raise unless all members can model these columns."""
        for member in self.members:
            member.check(columns)

    def collector(
        self, columns: Columns, rows: Tensor, weights: Tensor, settings: Settings
    ) -> StackedCollector:
        """Return an empty collector of all members."""
        own = [member.collector(columns, rows, weights, settings) for member in self.members]
        kernels = None if self.kernels is None else EndKernelSums(self.kernels.step(len(rows)))
        return StackedCollector(own, self.shares, settings, kernels)
