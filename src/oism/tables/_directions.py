"""Columns that are points of the sphere: latitude and longitude, or unit vectors.

    x = (cos φ cos λ, cos φ sin λ, sin φ)    with latitude φ and longitude λ.

Densities are with respect to area on the unit sphere, per steradian, whatever the units of the
columns. (Per unit of latitude and longitude it would be cos φ times that, which is not a function
on the sphere: it depends on where the poles are.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oism.storage import storable

TURNS = {"degrees": 360.0, "radians": 2 * math.pi}

UNIT = 1e-3
"""The largest distance of the norm of a vector from 1."""

ROUNDING = 1e-9
"""The share of a right angle by which a latitude may exceed it."""


@storable
@dataclass(frozen=True)
class Directions:
    """How rows are read as points: ``unit`` is "degrees", "radians" or "vectors".

    ``columns`` are the positions of latitude and longitude, or of x, y and z. Longitudes of samples
    start at ``first``, 0 or minus half a turn.
    """

    columns: tuple[int, ...]
    unit: str = "degrees"
    first: float = 0.0

    @classmethod
    def of(cls, sphere: Sequence[object], unit: str, indices: Sequence[int]) -> Directions:
        """Return the reading of the columns of a table that are named; ``indices`` are theirs."""
        named = ", ".join(map(str, sphere))
        if len(indices) not in (2, 3) or len(set(indices)) < len(indices):
            raise ValueError(
                "sphere must be two columns, latitude and longitude, or three, the entries of unit "
                f"vectors, got ({named})"
            )
        return cls(tuple(indices), unit if len(indices) == 2 else "vectors")

    @property
    def is_angular(self) -> bool:
        """Whether rows are latitudes and longitudes."""
        return self.unit != "vectors"

    def starting(self, rows: Tensor) -> Directions:
        """Return the reading with longitudes from 0 if those of the rows are not negative."""
        if not self.is_angular:
            return self
        negative = bool((rows[:, self.columns[1]] < 0).any())
        return Directions(self.columns, self.unit, -0.5 * TURNS[self.unit] if negative else 0.0)

    def to_points(self, rows: Tensor) -> Tensor:
        """Return unit vectors ``(n, 3)`` of rows, checked."""
        own = rows[:, list(self.columns)].double()
        if not self.is_angular:
            norm = own.norm(dim=1)
            self._check(
                (norm - 1).abs() <= UNIT,
                norm,
                "vectors must have norm 1",
                "norm",
                "divide them by their norms, or give latitude and longitude",
            )
            found: Tensor = own / norm[:, None]
            return found
        turn = TURNS[self.unit]
        latitude, longitude = (2 * math.pi / turn) * own.mT
        inside = latitude.abs() <= 0.5 * math.pi * (1 + ROUNDING)
        self._check(
            inside,
            own[:, 0],
            f"latitudes must be within ±{turn / 4:.4g} {self.unit}",
            "latitude",
            "sphere=(latitude, longitude) in this order, sphere_unit for radians",
        )
        latitude = latitude.clamp(-0.5 * math.pi, 0.5 * math.pi)
        flat = latitude.cos()
        return torch.stack((flat * longitude.cos(), flat * longitude.sin(), latitude.sin()), dim=1)

    @staticmethod
    def _check(allowed: Tensor, values: Tensor, rule: str, name: str, remedy: str) -> None:
        if not bool(allowed.all()):
            row = int((~allowed).nonzero()[0])
            value = float(values[row])
            if math.isnan(value):
                remedy = "drop rows without a point"
            raise ValueError(f"{rule}, but row {row} has {name} {value:g}: {remedy}")

    def to_rows(self, points: Tensor) -> Tensor:
        """Return rows of unit vectors."""
        rows = points.new_empty(len(points), len(self.columns))
        if not self.is_angular:
            rows[:, list(self.columns)] = points
            return rows
        turn = TURNS[self.unit]
        scale = turn / (2 * math.pi)
        latitude = torch.atan2(points[:, 2], torch.hypot(points[:, 0], points[:, 1])) * scale
        longitude = torch.atan2(points[:, 1], points[:, 0]) * scale
        longitude = (longitude - self.first).remainder(turn) + self.first
        # The remainder of a tiny negative number rounds to the whole turn.
        longitude = torch.where(longitude >= self.first + turn, self.first, longitude)
        rows[:, self.columns[0]], rows[:, self.columns[1]] = latitude, longitude
        return rows

    def tangent(self, vectors: Tensor, points: Tensor) -> Tensor:
        """Return tangent vectors as rows: towards north and east per radian, or as they are."""
        rows = vectors.new_empty(len(vectors), len(self.columns))
        if not self.is_angular:
            rows[:, list(self.columns)] = vectors
            return rows
        east = torch.stack((-points[:, 1], points[:, 0], torch.zeros_like(points[:, 0])), dim=1)
        size = east.norm(dim=1, keepdim=True)
        pole = torch.tensor([0.0, 1.0, 0.0]).to(east)  # any direction is east at a pole
        east = torch.where(size > 0, east / size.where(size > 0, 1.0), pole)
        north = torch.linalg.cross(points, east)
        rows[:, self.columns[0]] = (vectors * north).sum(dim=1)
        rows[:, self.columns[1]] = (vectors * east).sum(dim=1)
        return rows
