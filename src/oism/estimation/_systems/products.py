"""The system of any basis: equations from products of its functions, truncated to prefixes.

The penalty, in coordinates Λ^{½}α where A_t tends to the identity, is ε|λ|/|λ₁| with the smallest
eigenvalue λ₁. Level ℓ keeps the functions with |λ| ≤ 2^{-ℓ}|λ|max.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from oism.basis import Averages, Basis
from oism.estimation._equations.products import ProductEquations
from oism.estimation._systems.nested_system import NestedSystem
from oism.process import Clock
from oism.score import OperatorScore, ReversibleScore, SeriesScore, Table
from oism.storage import storable


@storable
class ProductSystem(NestedSystem):
    """A_t and b_t of a basis from the averages of ``basis.doubled()``: α is ``(T, size)``."""

    basis: Basis

    def __init__(self, basis: Basis, averages: Averages) -> None:
        super().__init__(basis, averages, torch.device("cpu"))
        self.levels = len(self.sizes)

    def score(self, clock: Clock, table: Table) -> OperatorScore:
        """Return the score as a series of the basis."""
        constant = self.basis.process.has_constant_noise
        kind = SeriesScore if constant else ReversibleScore
        return kind(self.basis, clock, table, self.without_folds())

    def without_folds(self) -> ProductSystem:
        """Return the system with the averages over all rows only."""
        return ProductSystem(self.basis, Averages.of_all(self.averages.total))

    def to_config(self) -> dict[str, Any]:
        """Return the basis and the averages over all rows."""
        return {"basis": self.basis, "means": self.averages.total}

    @classmethod
    def from_config(cls, *, basis: Basis, means: Tensor) -> ProductSystem:
        """Return the system of averages over all rows."""
        return cls(basis, Averages.of_all(means))

    @cached_property
    def sizes(self) -> list[int]:
        """The number of functions at each level, the richest first."""
        rates = -self.basis.eigenvalues
        octaves = math.floor(math.log2(float(rates[-1] / rates[0])) + 1e-9)
        found = [int((rates <= rates[-1] * 2.0**-level).sum()) for level in range(octaves + 1)]
        return sorted(set(found), reverse=True)

    @cached_property
    def _parts(self) -> dict[str, ProductEquations]:
        names = ("total", "training", "heldout")
        return {name: ProductEquations(self.basis, getattr(self.averages, name)) for name in names}

    @property
    def _entries(self) -> int:
        return (1 + self.basis.size) ** 2

    def _equations(self, part: str, t: Tensor) -> tuple[Tensor, Tensor]:
        equations = self._parts[part]
        return equations.energies(t), equations.right(t)[..., 1:]

    def _penalty(self, t: Tensor) -> Tensor:  # noqa: ARG002 (the same at all times)
        rates = -self.basis.eigenvalues
        return rates.square() / rates[0]

    def norm(self, t: Tensor, alpha: Tensor) -> Tensor:
        """Return (αᵀA_tα)^½: ``(T,)``."""
        matrix, _ = self._equations("total", t)
        return (alpha * (matrix @ alpha[..., None])[..., 0]).sum(dim=-1).clamp(min=0).sqrt()
