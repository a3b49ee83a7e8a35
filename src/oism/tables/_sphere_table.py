"""Points of the sphere beside other columns: p(x, z) = p(x) p(z | x).

p(x) is the `SphereModel` of the directions, per steradian. The other columns z, of any kind, have
the conditional density

    p(z | x) = q(s, λ, z)/q(s, λ),    s = ⟨x, e₃⟩,  λ = the angle of (⟨x, e₁⟩, ⟨x, e₂⟩),

of a `JointModel` q of two coordinates of the direction and z. (Lambert's cylindrical coordinates
preserve areas: a uniform direction has a uniform s in [-1, 1] and a uniform angle λ.) So p has the
mass 1 whatever q is, and samples draw x first, then z given x. The coordinates are singular at ±e₃:
this axis is the one with the fewest rows near it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from oism._core import checks
from oism.storage import storable
from oism.tables._collector import Settings
from oism.tables._column import Column
from oism.tables._columns import Columns
from oism.tables._combined_collector import CombinedCollector
from oism.tables._contract import Density, ModelWithoutProcess, distinct_columns
from oism.tables._directions import Directions
from oism.tables._joint import JointModel
from oism.tables._rows import RowCollector
from oism.tables._sphere import SphereCollector, SphereFamily, SphereModel
from oism.tables._tensors import check_tensor

AXES = 400
"""The number of axes that are compared."""

NEAR = 20.0
"""The concentration κ of the kernel e^{κ(cos - 1)} that counts rows near an axis: about 13°."""

COORDINATES = (Column(low=-1.0, high=1.0), Column(period=2 * math.pi, start=-math.pi))
"""s and λ."""


def empty_axis(points: Tensor, weights: Tensor) -> Tensor:
    """Return orthonormal e₁, e₂, e₃, ``(3, 3)``, with few of the unit vectors near ±e₃."""
    k = torch.arange(AXES, dtype=torch.float64)
    height, turn = (k + 0.5) / AXES, math.pi * (1 + math.sqrt(5)) * k  # on half of the sphere
    flat = (1 - height.square()).sqrt()
    axes = torch.stack((flat * turn.cos(), flat * turn.sin(), height), dim=1)
    near = torch.zeros(AXES, dtype=torch.float64)
    for piece, own in zip(torch.split(points, 2**13), torch.split(weights, 2**13), strict=True):
        near += own @ (NEAR * ((piece @ axes.mT).abs() - 1)).exp()
    axis = axes[int(near.argmin())]
    first = torch.eye(3, dtype=torch.float64)[int(axis.abs().argmin())]
    first = torch.nn.functional.normalize(first - (first @ axis) * axis, dim=0)
    return torch.stack((first, torch.linalg.cross(axis, first), axis))


def cylindrical(points: Tensor, frame: Tensor) -> Tensor:
    """Return (s, λ) of unit vectors: ``(n, 2)``.

    >>> cylindrical(torch.tensor([[0.0, 1.0, 0.0]]).double(), torch.eye(3).double())
    tensor([[0.0000, 1.5708]], dtype=torch.float64)
    """
    x, y, s = (points @ frame.mT).mT
    return torch.stack((s.clamp(-1, 1), torch.atan2(y, x)), dim=1)


@storable
class SphereTable(ModelWithoutProcess):
    """The density of points of the sphere, per steradian, and of other columns.

    Parameters
    ----------
    sphere
        The model of the points.
    others
        The model q of s, λ and the other columns.
    frame
        e₁, e₂, e₃ as rows: ``(3, 3)``.
    place
        The positions of the columns of ``sphere`` in the table; the others keep their order.
    """

    frame: Tensor

    def __init__(
        self, sphere: SphereModel, others: JointModel, frame: Tensor, place: tuple[int, ...]
    ) -> None:
        super().__init__()
        checks.instance(sphere, SphereModel, "sphere")
        checks.instance(others, JointModel, "others")
        check_tensor(frame, "frame", (3, 3))
        self.sphere, self.others, self.sphere_columns = sphere, others, tuple(place)
        self.register_buffer("frame", frame.double())
        rest = set(range(self.dim)) - set(self.sphere_columns)
        self._rest = sorted(rest)

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "sphere": self.sphere,
            "others": self.others,
            "frame": self.frame,
            "place": self.sphere_columns,
        }

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row, one axis."""
        return (len(self.sphere_columns) + self.others.dim - len(COORDINATES),)

    def _no_process(self) -> NoReturn:
        raise TypeError(
            "points of the sphere beside other columns have no single noising process: "
            "model_.sphere has the scores of the points"
        )

    def _coordinates(self, rows: Tensor) -> Tensor:
        """Return s, λ and the other columns of rows."""
        points = self.sphere.directions.to_points(rows[:, list(self.sphere_columns)])
        return torch.cat((cylindrical(points, self.frame), rows[:, self._rest].double()), dim=1)

    def _log_density(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401
        """Return log p at rows ``(n, d)``, per steradian and unit of the others: ``(n,)``."""
        rows = x.cpu()
        y, near = self._coordinates(rows), self.others.marginal((0, 1))
        alone = self.sphere.log_density(rows[:, list(self.sphere_columns)], **settings)
        return (alone + self.others.log_density(y) - near.log_density(y[:, :2])).to(x)

    def _sample(
        self,
        n: int,
        generator: torch.Generator | None,
        **settings: Any,  # noqa: ANN401
    ) -> Tensor:
        """Return n rows, float64: points, then the other columns given these."""
        points = self.sphere.sample(n, generator, **settings)
        rows = torch.full((len(points), self.dim), math.nan, dtype=torch.float64)
        rows[:, list(self.sphere_columns)] = points
        drawn = self.others.completed(self._coordinates(rows), generator)
        rows[:, self._rest] = drawn[:, len(COORDINATES) :]
        return rows

    def facts(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the facts of the points, and ``others``: those of the model of other columns."""
        names = [str(j) for j in range(self.dim)] if names is None else names
        found = self.sphere.facts([names[j] for j in self.sphere_columns])
        others = self.others.facts(["s", "λ", *(names[j] for j in self._rest)])
        columns: list[dict[str, Any]] = [{} for _ in names]
        for j, one in zip(self.sphere_columns, found["columns"], strict=True):
            columns[j] = one
        for j, one in zip(self._rest, others["columns"][len(COORDINATES) :], strict=True):
            columns[j] = one
        return {**found, "kind": type(self).__name__, "columns": columns, "others": others}

    def marginal(self, columns: Sequence[int]) -> Density:
        """Return the model of the points alone, or of these and of some other columns."""
        kept = distinct_columns(columns, self.dim, "columns")
        if tuple(kept) == self.sphere_columns:
            return self.sphere
        if not set(self.sphere_columns) <= set(kept):
            self._refuse("marginals with", list(columns))
        own = [len(COORDINATES) + self._rest.index(j) for j in kept if j in self._rest]
        place = tuple(kept.index(j) for j in self.sphere_columns)
        if not own:  # the points with their columns in another order
            found = self.sphere.directions
            turned = replace(found, columns=tuple(place[k] for k in found.columns))
            return self.sphere.read_as(turned)
        return SphereTable(self.sphere, self.others.marginal((0, 1, *own)), self.frame, place)

    def conditional(self, given: Mapping[int, float]) -> JointModel:
        """Return the model of other columns, given a point and values of some of the others."""
        known = distinct_columns(list(given), self.dim, "given")
        if not set(self.sphere_columns) <= set(known):
            self._refuse("conditionals given", known)
        row = torch.full((1, self.dim), math.nan, dtype=torch.float64)
        for j in known:
            row[0, j] = checks.number(given[j], f"given[{j}]")
        values = self._coordinates(row)[0].tolist()
        return self.others.conditional({j: v for j, v in enumerate(values) if not math.isnan(v)})

    @torch.no_grad()
    def completed(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return rows ``(n, d)`` whose missing values, NaN, are drawn given the other values."""
        known = ~rows[:, list(self.sphere_columns)].isnan().any(dim=1)
        result = rows.clone()
        drawn = self.others.completed(self._coordinates(rows[known]), generator)
        result[known[:, None] & rows.isnan()] = drawn[:, len(COORDINATES) :][
            rows[known][:, self._rest].isnan()
        ].to(rows)
        result[~known] = super().completed(rows[~known], generator)
        return result

    def _refuse(self, what: str, columns: Sequence[int]) -> NoReturn:
        raise ValueError(
            f"a table with points of the sphere has {what} all columns of the points, "
            f"{list(self.sphere_columns)}, got {list(columns)}: fit another OISM to the other "
            "columns for their density alone"
        )


class SphereTableCollector(CombinedCollector[tuple[SphereCollector, RowCollector]]):
    """The collectors of the points, and of their coordinates with the other columns."""

    def __init__(
        self,
        sphere: SphereCollector,
        others: RowCollector,
        frame: Tensor,
        place: tuple[int, ...],
        settings: Settings,
    ) -> None:
        super().__init__((sphere, others), settings)
        self.frame, self.place = frame, place

    @property
    def sphere(self) -> SphereCollector:
        """The collector of the points."""
        return self.parts[0]

    @property
    def others(self) -> RowCollector:
        """The collector of s, λ and the other columns."""
        return self.parts[1]

    def _shared(self, rows: Tensor) -> Sequence[Tensor]:
        """Return the columns of the points, and s, λ with the other columns."""
        own, rest = _split(rows, self.place)
        points = self.sphere.directions.to_points(own)
        return own, torch.cat((cylindrical(points, self.frame), rest), dim=1)

    def model(self) -> SphereTable:
        """Return the model of all rows."""
        others, _ = self.others.cross_fitted()
        return SphereTable(self.sphere.model(), others, self.frame, self.place)


def _split(rows: Tensor, place: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the columns at some positions, and the others in their order."""
    rest = [j for j in range(rows.shape[1]) if j not in place]
    return rows[:, list(place)], rows[:, rest]


def _beside(columns: Columns, place: Sequence[int]) -> Columns:
    """Return s, λ and the columns of a table that are not at some positions, in their order."""
    return Columns((*COORDINATES, *(one for j, one in enumerate(columns) if j not in place)))


@dataclass(frozen=True)
class SphereTableFamily(SphereFamily):
    """Points of the sphere beside other columns, which may have gaps."""

    allows_gaps = True

    def check(self, columns: Columns) -> None:
        """Raise unless the columns of the points are plain numbers."""
        super().check(columns.select(self.directions.columns))

    def collector(
        self, columns: Columns, rows: Tensor, weights: Tensor, settings: Settings
    ) -> SphereTableCollector:
        """Return a collector that keeps rows."""
        place = self.directions.columns
        own = Directions(tuple(range(len(place))), self.directions.unit)
        others, beside = _beside(columns, place), settings
        if settings.levels is not None:  # those of the table, whose columns have other numbers
            beside = replace(settings, levels=_beside(settings.levels, place))
        points = own.to_points(_split(rows, place)[0])
        return SphereTableCollector(
            SphereCollector(columns.select(place), settings, own, self.max_eigenvalue),
            RowCollector(others, beside, ("plain", "warped")),
            empty_axis(points, weights),
            place,
            settings,
        )
