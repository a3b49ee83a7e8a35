"""The system of numerical eigenfunctions, truncated to prefixes as for every other basis."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from oism._core import checks
from oism.basis import Averages, Eigenfunctions
from oism.estimation._equations.evolved import EvolvedEquations, interactions
from oism.estimation._systems.products import ProductSystem
from oism.storage import storable


@storable
class EigenfunctionSystem(ProductSystem):
    """A_t and b_t from the averages of ``basis.doubled()``, which begins with the basis."""

    basis: Eigenfunctions

    def __init__(self, basis: Eigenfunctions, averages: Averages) -> None:
        checks.instance(basis, Eigenfunctions, "basis")
        super().__init__(basis, averages)

    def without_folds(self) -> EigenfunctionSystem:
        """Return the system with the averages over all rows only."""
        return EigenfunctionSystem(self.basis, Averages.of_all(self.averages.total))

    @cached_property
    def _parts(self) -> dict[str, EvolvedEquations]:  # type: ignore[override]
        names, forms = ("total", "training", "heldout"), interactions(self.basis)
        parts = (getattr(self.averages, name) for name in names)
        return {
            name: EvolvedEquations(self.basis, means, forms)
            for name, means in zip(names, parts, strict=True)
        }

    def _equations(self, part: str, t: Tensor) -> tuple[Tensor, Tensor]:
        equations = self._parts[part]
        return equations.energies(t), equations.right(t)

    def density_ratio(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ρ_t/π = 1 + Σ e^{-μt} E[ψ(X)] ψ(x): ``(n,)``."""
        wide = self.basis.doubled()
        time = torch.as_tensor(t, dtype=torch.float64, device="cpu")
        means = self.averages.total * torch.exp(-time * wide.rates)
        return 1 + wide._series(x, means.to(x), 0)
