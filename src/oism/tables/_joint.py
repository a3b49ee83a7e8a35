"""The density of a table of any columns: a pool of mixtures in several coordinate systems.

    p(x) = Σ_i v_i p_i(x),    p_i(x) = Σ_k w_k N(y; m_k, S_k) Π_c π_kc(x_c) · Π_j dy_j/dx_j

A *part* i has its own coordinates y of the continuous columns, each a function of its column alone:
y_j = Φ⁻¹(F_j(x_j)) with the distribution function F_j of a `Margin`, or y_j = x_j. So the normal
distribution of y_j is the distribution F_j of x_j, bounds are at infinity, and the Jacobian is
dy_j/dx_j = f_j(x_j)/φ(y_j). Categorical columns have probabilities π_kc of their levels, which are
independent of the other columns within a component.

Because coordinates act column by column and components are Gaussians and tables, everything is in
closed form and no flow is followed: the mass is 1, marginals drop columns, and conditionals are
again such pools, with weights proportional to the density of the given values. Rows with missing
values have the density of the columns that are there.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, cast

import torch
from torch import Tensor

from oism._core import checks, draws
from oism.storage import storable
from oism.tables._column import Column
from oism.tables._contract import ColumnMap, ModelWithoutProcess, distinct_columns
from oism.tables._gaps import patterns
from oism.tables._margin import Margin
from oism.tables._mixture import MixtureModel
from oism.tables._pieces import density_entries, in_pieces

LEAST = 1e-9
"""Values of a distribution function are kept at this distance from 0 and 1."""


@storable
@dataclass(frozen=True)
class Identity:
    """The coordinate y = x of a column."""

    is_linear: ClassVar[bool] = True

    def to_normal(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return y, and log dy/dx."""
        return x, torch.zeros_like(x)

    def to_data(self, y: Tensor) -> Tensor:
        """Return x."""
        return y


@storable
@dataclass(frozen=True, eq=False)
class Warp:
    """The coordinate y = Φ⁻¹(F(x)) of a column with the distribution function F."""

    margin: Margin

    is_linear: ClassVar[bool] = False

    def to_normal(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return y, and log dy/dx = log f(x) - log φ(y)."""
        y = torch.special.ndtri(self.margin.cdf(x).clamp(LEAST, 1 - LEAST))
        log_normal = -0.5 * y.square() - 0.5 * math.log(2 * math.pi)
        return y, self.margin.log_density(x) - log_normal

    def to_data(self, y: Tensor) -> Tensor:
        """Return x = F⁻¹(Φ(y))."""
        return self.margin.quantile(torch.special.ndtr(y).clamp(LEAST, 1 - LEAST))


Coordinate = Identity | Warp


def to_normal(coordinates: Sequence[ColumnMap], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return y for continuous columns ``(n, d)``, and the log-Jacobian ``(n,)``."""
    y, log_jacobian = torch.empty_like(x), x.new_zeros(len(x))
    for j, one in enumerate(coordinates):
        y[:, j], slope = one.to_normal(x[:, j])
        log_jacobian += slope
    return y, log_jacobian


@storable
class Part(torch.nn.Module):
    """One mixture with its coordinates.

    Parameters
    ----------
    name
        Of the coordinate system.
    coordinates
        One for each continuous column.
    mixture
        Of the continuous columns in these coordinates, k components.
    levels
        Log-probabilities for each categorical column: ``(k, number of levels)``.
    """

    def __init__(
        self,
        name: str,
        coordinates: tuple[Identity | Warp, ...],
        mixture: MixtureModel,
        levels: tuple[Tensor, ...],
    ) -> None:
        super().__init__()
        self.name, self.coordinates, self.mixture = name, tuple(coordinates), mixture
        for column, table in enumerate(levels):  # not in the state: files have the arguments
            self.register_buffer(f"_levels_{column}", table, persistent=False)
        self._levelled = len(levels)
        if len(self.coordinates) != mixture.dim:
            raise ValueError(f"coordinates must be {mixture.dim}, got {len(self.coordinates)}")
        for table in self.levels:
            if table.ndim != 2 or len(table) != mixture.components:
                raise ValueError(f"levels must be ({mixture.components}, l) each")

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        names = ("name", "coordinates", "mixture", "levels")
        return {name: getattr(self, name) for name in names}

    @property
    def levels(self) -> tuple[Tensor, ...]:
        """Log-probabilities for each categorical column: ``(k, number of levels)``."""
        return tuple(self.get_buffer(f"_levels_{column}") for column in range(self._levelled))

    def to_normal(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return y for continuous columns ``(n, d)``, and the log-Jacobian ``(n,)``."""
        return to_normal(self.coordinates, x)

    def level_terms(self, codes: Tensor) -> Tensor:
        """Return Σ_c log π_kc for codes of levels ``(n, c)``: ``(n, k)``."""
        total = codes.new_zeros(len(codes), self.mixture.components, dtype=torch.float64)
        for column, table in enumerate(self.levels):
            total += table.mT[codes[:, column]]
        return total

    def log_density(self, x: Tensor, codes: Tensor) -> Tensor:
        """Return log p of continuous columns and of codes of levels: ``(n,)``."""
        y, log_jacobian = self.to_normal(x)
        return self.mixture_density(y, codes) + log_jacobian

    def mixture_density(self, y: Tensor, codes: Tensor) -> Tensor:
        """Return the log-density in the coordinates, in pieces of bounded memory."""

        def density(y: Tensor, codes: Tensor) -> Tensor:
            terms = self.mixture.log_terms(y)
            if self.levels:
                terms = terms + self.level_terms(codes)
            return torch.logsumexp(terms, dim=1)

        entries = density_entries(self.mixture.dim, self.mixture.components)
        return in_pieces(density, entries, y, codes)

    def sample(self, n: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Return n rows: continuous columns, and codes of levels."""
        x, component = self.mixture.sample_with_components(n, generator)
        for j, one in enumerate(self.coordinates):
            x[:, j] = one.to_data(x[:, j])
        return x, self._draw_levels(component, generator)

    def _draw_levels(self, component: Tensor, generator: torch.Generator | None) -> Tensor:
        codes = torch.empty(len(component), len(self.levels), dtype=torch.int64)
        for column, table in enumerate(self.levels):
            codes[:, column] = draws.categorical(table.exp()[component], generator)
        return codes

    def completed(
        self,
        known: Sequence[int],
        x: Tensor,
        levelled: Sequence[int],
        codes: Tensor,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor]:
        """Return all columns and codes, those that are not known drawn given the others."""
        part = self.marginal(known, levelled)
        y, _ = part.to_normal(x)
        terms = part.mixture.log_terms(y) + part.level_terms(codes)
        chance = torch.softmax(terms, dim=1)
        component = draws.categorical(chance, generator)
        rest = [j for j in range(self.mixture.dim) if j not in known]
        whole = x.new_empty(len(x), self.mixture.dim)
        whole[:, list(known)] = x
        drawn = self.mixture.draw_rest(known, y, component, generator)
        for k, j in enumerate(rest):
            whole[:, j] = self.coordinates[j].to_data(drawn[:, k])
        levels = self._draw_levels(component, generator)
        levels[:, list(levelled)] = codes
        return whole, levels

    def marginal(self, columns: Sequence[int], level_columns: Sequence[int]) -> Part:
        """Return the part of some continuous and some categorical columns."""
        return Part(
            self.name,
            tuple(self.coordinates[j] for j in columns),
            self.mixture.restricted(columns),
            tuple(self.levels[c] for c in level_columns),
        )

    def conditional(
        self, given: Mapping[int, float], given_levels: Mapping[int, int]
    ) -> tuple[float, Part]:
        """Return the log-density of values of some columns, and the part of the others."""
        codes = torch.zeros(1, len(self.levels), dtype=torch.int64)
        terms = torch.zeros(self.mixture.components, dtype=torch.float64)
        for column, code in given_levels.items():
            codes[0, column] = code
            terms = terms + self.levels[column][:, code]
        values, log_jacobian = {}, 0.0
        for column, value in given.items():
            exact = torch.tensor([value], dtype=torch.float64)
            y, slope = self.coordinates[column].to_normal(exact)
            values[column], log_jacobian = float(y[0]), log_jacobian + float(slope[0])
        log_mass, mixture, kept = self.mixture.given(values, terms)
        rest = [j for j in range(self.mixture.dim) if j not in given]
        others = [c for c in range(len(self.levels)) if c not in given_levels]
        part = Part(
            self.name,
            tuple(self.coordinates[j] for j in rest),
            mixture,
            tuple(self.levels[c][kept] for c in others),
        )
        return log_mass + log_jacobian, part


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
            "OISM(process='mixture') has the scores of all noise levels in closed form"
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
