"""The Hermite systems: batches of small Cholesky factors over directions and times.

The penalty, in coordinates Λ^{½}α where A_t tends to the identity, is ε times the degree, from
degree three on: degrees one and two are the Gaussian, which is not shrunk. Level ℓ is order n - ℓ,
down to the Gaussian.
"""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from torch import Tensor

from oism.basis import HermiteFamily, Standardised, TensorHermite
from oism.estimation._equations.hermite import HermiteEquations, TensorHermiteEquations
from oism.estimation._systems.nested_system import NestedSystem
from oism.process import Clock
from oism.score import (
    Coordinates,
    HermiteScore,
    Table,
    TensorHermiteScore,
)
from oism.storage import storable


class HermiteFamilySystem(NestedSystem):
    """Base class of the Hermite systems: standardised averages, and orders as levels."""

    basis: HermiteFamily

    def __init__(self, basis: HermiteFamily, standard: Standardised) -> None:
        super().__init__(basis, standard.averages, standard.scale.device)
        self.standard, self.order = standard, basis.order
        self.levels = max(1, basis.order - 1)
        self.coordinates = Coordinates(basis.process, standard.shift, standard.scale)

    @property
    def has_choice(self) -> bool:
        """Whether the order exceeds that of a Gaussian."""
        return self.order > 2

    def without_folds(self) -> Self:
        """Return the system with the averages over all rows only, on the CPU in float64."""
        return type(self)(self.basis, self.standard.without_folds())

    def to_config(self) -> dict[str, Any]:
        """Return the basis and the averages over all rows."""
        return {"basis": self.basis, "standard": self.standard}


@storable
class HermiteSystem(HermiteFamilySystem):
    """One equation for each direction, with its own ridge and order: α is ``(T, dim, order)``."""

    def __init__(self, basis: HermiteFamily, standard: Standardised) -> None:
        super().__init__(basis, standard)
        self.batch = (basis.dim,)

    def score(self, clock: Clock, table: Table) -> HermiteScore:
        """Return the score of one polynomial for each direction."""
        return HermiteScore(self.basis, clock, table, self.without_folds(), self.standard).cpu()

    @property
    def sizes(self) -> list[int]:
        """The orders, the highest first, down to the Gaussian."""
        return list(range(self.order, max(0, min(1, self.order - 1)), -1))

    @property
    def _entries(self) -> int:
        return self.batch[0] * self.order**2

    def _equations(self, part: str, t: Tensor) -> tuple[Tensor, Tensor]:
        means = getattr(self.averages, part)
        return HermiteEquations(self.order, self.coordinates, means).at(t)

    def _penalty(self, t: Tensor) -> Tensor:  # noqa: ARG002 (the same at all times)
        device = self.coordinates.scale.device
        degree = torch.arange(1, self.order + 1, dtype=torch.float64, device=device)
        return torch.where(degree > 2, degree.square(), 0.0)

    def loss(self, t: Tensor, alpha: Tensor) -> Tensor:
        """Return αᵀA_tα + 2b_tᵀα of each direction on all rows: ``(T, dim)``."""
        alpha = alpha.to(self.device, torch.float64)
        matrix, right = self._equations("total", t.to(self.device))
        image = (matrix @ alpha[..., None])[..., 0] + 2 * right
        return (alpha * image).sum(dim=-1).cpu()

    def norm(self, t: Tensor, alpha: Tensor) -> Tensor:
        """Return (αᵀA_tα)^½ over all directions: ``(T,)``."""
        t, alpha = t.to(self.device), alpha.to(self.device)
        matrix, _ = self._equations("total", t)
        metric = self.coordinates.at(t)[1].pow(-2)
        form = (alpha * (matrix @ alpha[..., None])[..., 0]).sum(dim=-1)
        return (metric * form).sum(dim=-1).clamp(min=0).sqrt().cpu()


@storable
class TensorHermiteSystem(HermiteFamilySystem):
    """All products up to a total degree, with one ridge and one order: α is ``(T, size)``."""

    basis: TensorHermite

    def score(self, clock: Clock, table: Table) -> TensorHermiteScore:
        """Return the score of all products."""
        return TensorHermiteScore(self.basis, clock, table, self.without_folds(), self.standard)

    @property
    def sizes(self) -> list[int]:
        """The numbers of functions up to each degree, the highest first, down to the Gaussian."""
        dim, least = len(self.coordinates.scale), min(2, self.order)
        return [math.comb(dim + n, dim) - 1 for n in range(self.order, least - 1, -1)]

    @property
    def _entries(self) -> int:
        return max(self.sizes) ** 2

    def _parts(self, part: str) -> TensorHermiteEquations:
        return TensorHermiteEquations(self.order, self.coordinates, getattr(self.averages, part))

    def _equations(self, part: str, t: Tensor) -> tuple[Tensor, Tensor]:
        return self._parts(part).at(t)

    def _penalty(self, t: Tensor) -> Tensor:
        equations = self._parts("total")
        degree = equations.indices.sum(dim=1)
        return torch.where(degree > 2, equations.rates(t) * degree, 0.0)

    def norm(self, t: Tensor, alpha: Tensor) -> Tensor:
        """Return (αᵀA_tα)^½: ``(T,)``."""
        matrix, _ = self._equations("total", t)
        return (alpha * (matrix @ alpha[..., None])[..., 0]).sum(dim=-1).clamp(min=0).sqrt()
