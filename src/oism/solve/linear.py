"""The system of a linear SDE: polynomials of a total degree, with one ridge and one order."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from oism.equations.linear import LinearEquations, LinearLaw, Metric
from oism.moments import Averages
from oism.solve.hermite import HermiteFamilySystem


class LinearSystem(HermiteFamilySystem):
    """All products that vary along the range of the metric: α is ``(T, size)``, on the CPU.

    The penalty is ε times the degree times what A_t has on its diagonal for a Gaussian, from degree
    three on, as for an Ornstein-Uhlenbeck process; level ℓ is order n - ℓ.
    """

    def __init__(self, order: int, law: LinearLaw, metric: Metric, averages: Averages) -> None:
        super().__init__(order, averages, torch.device("cpu"))
        self.law, self.metric = law, metric

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
        # The tables behind E[φφᵀ] are larger than it: lower functions at the nodes of a rule.
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
