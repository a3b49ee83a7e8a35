"""The system of a linear SDE: polynomials of a total degree, with one ridge and one order."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from oism.basis import Averages, Polynomials
from oism.estimation._equations.linear import LinearEquations
from oism.estimation._systems.nested_system import NestedSystem
from oism.process import Clock
from oism.score import LinearLaw, LinearScore, Metric, Table
from oism.storage import storable


@storable
class LinearSystem(NestedSystem):
    """All products that vary along the range of the metric: α is ``(T, size)``, on the CPU.

    The penalty is ε times the degree times the diagonal of A_t for a Gaussian, from degree three
    on, as for an Ornstein-Uhlenbeck process; level ℓ is order n - ℓ.
    """

    basis: Polynomials

    def __init__(
        self, basis: Polynomials, law: LinearLaw, metric: Metric, averages: Averages
    ) -> None:
        super().__init__(basis, averages, torch.device("cpu"))
        self.law, self.metric, self.order = law, metric, basis.order
        self.levels = max(1, basis.order - 1)

    @property
    def has_choice(self) -> bool:
        """Whether the order exceeds that of a Gaussian."""
        return self.order > 2

    def score(self, clock: Clock, table: Table) -> LinearScore:
        """Return the score under the linear process."""
        system = self.without_folds()
        return LinearScore(self.basis, clock, table, system, self.law, self.metric.matrix)

    def without_folds(self) -> LinearSystem:
        """Return the system with the averages over all rows only."""
        averages = Averages.of_all(self.averages.total)
        return LinearSystem(self.basis, self.law, self.metric, averages)

    def to_config(self) -> dict[str, Any]:
        """Return basis, initial moments, metric and the averages over all rows."""
        return {
            "basis": self.basis,
            "law": self.law,
            "metric": self.metric.matrix,
            "means": self.averages.total,
        }

    @classmethod
    def from_config(
        cls, *, basis: Polynomials, law: LinearLaw, metric: Tensor, means: Tensor
    ) -> LinearSystem:
        """Return the system of averages over all rows."""
        return cls(basis, law, Metric(metric), Averages.of_all(means))

    @cached_property
    def _parts(self) -> dict[str, LinearEquations]:
        return {
            part: LinearEquations(self.order, self.law, self.metric, getattr(self.averages, part))
            for part in ("total", "training", "heldout")
        }

    @cached_property
    def _degrees(self) -> Tensor:
        return self._parts["total"].indices.sum(dim=1)

    @property
    def sizes(self) -> list[int]:
        """The numbers of functions up to each degree, the highest first, down to the Gaussian."""
        least = min(2, self.order)
        return [int((self._degrees <= n).sum()) for n in range(self.order, least - 1, -1)]

    @property
    def _entries(self) -> int:
        # The largest tables are those of functions at the nodes of the rule for E[φφᵀ].
        dim = len(self.law.shift)
        return int((2 * self.order - 1) ** dim * math.comb(dim + self.order - 1, dim))

    def _equations(self, part: str, t: Tensor) -> tuple[Tensor, Tensor]:
        return self._parts[part].at(t)

    def _penalty(self, t: Tensor) -> Tensor:
        degree = self._degrees
        return torch.where(degree > 2, self._parts["total"].rates(t) * degree, 0.0)

    def norm(self, t: Tensor, alpha: Tensor) -> Tensor:
        """Return (αᵀA_tα)^½: ``(T,)``."""
        parts = []
        for run in self._pieces(t, 1):
            matrix, _ = self._equations("total", t[run])
            own = alpha[run]
            parts.append((own * (matrix @ own[..., None])[..., 0]).sum(dim=-1))
        return torch.cat(parts).clamp(min=0).sqrt()
