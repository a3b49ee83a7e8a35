"""A mixture of the columns of a table in coordinates of its own: a part of a `JointModel`.

    p(x) = Σ_k w_k N(y; m_k, S_k) Π_c π_kc(x_c) · Π_j dy_j/dx_j

The coordinates y of the continuous columns are functions of one column each: y_j = Φ⁻¹(F_j(x_j))
with the distribution function F_j of a `Margin`, or y_j = x_j. So the normal distribution of y_j is
the distribution F_j of x_j, bounds are at infinity, and the Jacobian dy_j/dx_j is f_j(x_j)/φ(y_j).
Categorical columns have probabilities π_kc of their levels, which are independent of the other
columns within a component.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from oism._core import draws
from oism.storage import storable
from oism.tables._contract import ColumnMap
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
