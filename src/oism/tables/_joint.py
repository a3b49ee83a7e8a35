"""The density of a table of any columns: a pool of mixtures in several coordinate systems.

    p(x) = Σ_i v_i p_i(x)

with the densities p_i of parts, see `oism.tables._part`. Because coordinates act column by column
and components are Gaussians and tables, everything is in closed form and no flow is followed: the
mass is 1, marginals drop columns, and conditionals are again such pools, with weights proportional
to the density of the given values. Rows with missing values have the density of the columns that
are there.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

import torch
from torch import Tensor

from oism._core import checks, draws
from oism.storage import storable
from oism.tables._column import Column
from oism.tables._contract import ModelWithoutProcess, distinct_columns
from oism.tables._gaps import patterns
from oism.tables._part import Part


@storable
class JointModel(ModelWithoutProcess):
    """The density of a table whose columns are of any kind, as a pool of mixtures.

    Parameters
    ----------
    columns
        One record for each column. Rows ``(n, d)`` hold numbers, and the codes 0, 1, … of the
        levels of categorical columns.
    weights
        Of the parts: ``(m,)``.
    parts
        The mixtures with their coordinates.
    notes
        What is known of the fit: ``rows``, ``held_out`` (the mean log-likelihood of rows that
        were held out) and ``members``.
    """

    weights: Tensor

    def __init__(
        self,
        columns: tuple[Column, ...],
        weights: Tensor,
        parts: tuple[Part, ...],
        notes: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.columns = tuple(columns)
        self.register_buffer("weights", weights, persistent=False)  # files have the arguments
        self._parts = torch.nn.ModuleList(parts)
        self.notes = dict(notes or {})
        if len(weights) != len(parts) or not math.isclose(float(weights.sum()), 1, abs_tol=1e-9):
            raise ValueError(f"weights must be {len(parts)} numbers with a sum of 1")
        self._continuous = [j for j, one in enumerate(self.columns) if not one.categorical]
        self._levelled = [j for j, one in enumerate(self.columns) if one.categorical]

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "columns": self.columns,
            "weights": self.weights,
            "parts": self.parts,
            "notes": self.notes,
        }

    @property
    def parts(self) -> tuple[Part, ...]:
        """The mixtures with their coordinates."""
        return tuple(cast("Part", part) for part in self._parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row, one axis."""
        return (len(self.columns),)

    def _no_process(self) -> NoReturn:
        raise TypeError(
            "a JointModel pools mixtures in several coordinates and has no single noising process: "
            "OISM(process='torus') of at most three columns, and OISM(process='mixture') of free "
            "columns, have the scores of all noise levels"
        )

    @property
    def components(self) -> int:
        """The number of Gaussians in all parts."""
        return sum(part.mixture.components for part in self.parts)

    def facts(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return columns, parts and what is known of the fit."""
        names = names or [
            str(j if one.name is None else one.name) for j, one in enumerate(self.columns)
        ]
        return {
            "kind": type(self).__name__,
            "columns": [
                one.facts() | {"name": n} for n, one in zip(names, self.columns, strict=True)
            ],
            "components": self.components,
            "parts": [
                {"name": part.name, "weight": float(w), "components": part.mixture.components}
                for w, part in zip(self.weights, self.parts, strict=True)
            ],
            **self.notes,
        }

    def extra_repr(self) -> str:
        """Return what torch prints of the module."""
        return f"{self.dim} columns, {self.components} components"

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return continuous columns and codes of levels."""
        codes = x[:, self._levelled]
        for k, j in enumerate(self._levelled):
            self._check_codes(j, codes[:, k])
        return x[:, self._continuous], codes.long()

    def _check_codes(self, j: int, codes: Tensor) -> None:
        """Raise unless numbers are codes of the levels of a column."""
        count = len(self.columns[j].levels)
        wrong = (codes < 0) | (codes >= count) | (codes % 1 != 0)
        if bool(wrong.any()):
            raise ValueError(
                f"column {j} must hold codes of levels, 0 to {count - 1}, got "
                f"{float(codes[wrong][0]):g}"
            )

    def _log_density(self, x: Tensor, **_: object) -> Tensor:
        """Return log p at rows ``(n, d)``: ``(n,)``, exactly; -∞ beyond bounds."""
        values, codes = (part.to(self.device) for part in self._split(x.cpu().double()))
        logs = torch.stack([part.log_density(values, codes) for part in self.parts], dim=1)
        return torch.logsumexp(logs + self.weights.log(), dim=1).to(x)

    def _on_the_cpu(self) -> JointModel:
        """Return the model on the CPU, where rows are drawn and conditionals computed."""
        return self if self.device.type == "cpu" else copy.deepcopy(self).cpu()

    def _sample(self, n: int, generator: torch.Generator | None, **_: object) -> Tensor:
        """Return n rows drawn from the pool, float64."""
        model = self._on_the_cpu()
        rows = torch.empty(n, self.dim, dtype=torch.float64)
        chosen = draws.multinomial(model.weights, n, generator)
        for number, part in enumerate(model.parts):
            where = (chosen == number).nonzero()[:, 0]
            rows[where] = self._joined(*part.sample(len(where), generator))
        return rows.to(self.device)

    @torch.no_grad()
    def completed(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return rows ``(n, d)`` whose missing values, NaN, are drawn given the other values."""
        return self._on_the_cpu()._completed(rows.cpu(), generator).to(rows.device)

    def _completed(self, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        for j in self._levelled:  # by the numbers of these columns, not of those that are there
            self._check_codes(j, rows[~rows[:, j].isnan(), j])
        result = rows.clone()
        for there, index in patterns(rows):
            if len(there) == self.dim:
                continue
            if not there:
                result[index] = self.sample(len(index), generator)
                continue
            kept = self.marginal(there)
            x, codes = kept._split(rows[index][:, there])
            logs = torch.stack([part.log_density(x, codes) for part in kept.parts], dim=1)
            logs = logs + kept.weights.log()
            empty = ~logs.isfinite().any(dim=1)
            if bool(empty.any()):
                values = rows[index[empty][0], there].tolist()
                raise ValueError(
                    f"rows have density 0: {values} in columns {there} is outside of the bounds"
                )
            chosen = draws.categorical(torch.softmax(logs, dim=1), generator)
            known = [self._continuous.index(j) for j in there if j in self._continuous]
            levelled = [self._levelled.index(j) for j in there if j in self._levelled]
            for number, part in enumerate(self.parts):
                own = (chosen == number).nonzero()[:, 0]
                if len(own):
                    drawn = part.completed(known, x[own], levelled, codes[own], generator)
                    result[index[own]] = self._joined(*drawn)
        return torch.where(rows.isnan(), result, rows)

    def _joined(self, x: Tensor, codes: Tensor) -> Tensor:
        rows = torch.empty(len(x), self.dim, dtype=torch.float64)
        rows[:, self._continuous] = x
        rows[:, self._levelled] = codes.double()
        for j, one in enumerate(self.columns):
            if one.period is not None:
                rows[:, j] = one.within_turn(rows[:, j])
        return rows

    def marginal(self, columns: Sequence[int]) -> JointModel:
        """Return the model of some columns alone, in the order given."""
        kept = distinct_columns(columns, self.dim, "columns")
        continuous = [self._continuous.index(j) for j in kept if j in self._continuous]
        levelled = [self._levelled.index(j) for j in kept if j in self._levelled]
        parts = tuple(part.marginal(continuous, levelled) for part in self.parts)
        return JointModel(tuple(self.columns[j] for j in kept), self.weights, parts)

    def conditional(self, given: Mapping[int, float]) -> JointModel:
        """Return the model of the other columns, in their order, given values of some.

        A value of a categorical column is the code of its level.
        """
        return self._on_the_cpu()._conditional(given).to(self.device)

    def _conditional(self, given: Mapping[int, float]) -> JointModel:
        known = distinct_columns(list(given), self.dim, "given")
        rest = [j for j in range(self.dim) if j not in known]
        if not rest:
            raise ValueError(f"given must leave at least one of the {self.dim} columns")
        values = {j: checks.number(given[j], f"given[{j}]") for j in known}
        numbers = {self._continuous.index(j): v for j, v in values.items() if j in self._continuous}
        levels = {j: v for j, v in values.items() if j in self._levelled}
        for j, value in levels.items():
            self._check_codes(j, torch.tensor([value], dtype=torch.float64))
        codes = {self._levelled.index(j): int(value) for j, value in levels.items()}
        found = [part.conditional(numbers, codes) for part in self.parts]
        logs = torch.tensor([mass for mass, _ in found], dtype=torch.float64) + self.weights.log()
        if not bool(logs.isfinite().any()):
            raise ValueError(f"given has density 0: {dict(given)} is outside of the bounds")
        weights = torch.softmax(logs, dim=0)
        kept = (weights > 1e-12).nonzero()[:, 0].tolist()
        weights = weights[kept] / weights[kept].sum()
        parts = tuple(found[k][1] for k in kept)
        return JointModel(tuple(self.columns[j] for j in rest), weights, parts)
