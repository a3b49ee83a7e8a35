"""The matrix-free system with a penalty whose order is chosen, instead of a cutoff.

In preconditioned coordinates Λ^{½}α the penalty is ε times a power of the eigenvalue,

    P = |λ| (|λ|/c²)^{¾ℓ},    level ℓ = 0, 1, 2,

with a fixed c, so that ridges of all levels have similar sizes. Level ℓ penalises derivatives of
order 2 + ¾ℓ of log ρ_t. Densities of rotations are smooth, on scales that vary from one place to
another: a high order without a cutoff then has somewhat lower losses than a cutoff. On three
mixtures of isotropic Gaussians on SO(3) it lowered the excess of the negative log-likelihood over
the truth by 3 to 4%. On one of them, orders above four had higher losses and converged slowly.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oism.basis import Averages, Basis
from oism.estimation._systems.choice import choose
from oism.estimation._systems.reversible import BELOW, LEAST_RIDGE, ReversibleSystem
from oism.score import RIDGES, Advance, Losses, ignore
from oism.storage import storable

LEVELS = 3
STEP = 0.75
"""The power of |λ| is 1 + ¾ℓ at level ℓ."""


@storable
class SmoothSystem(ReversibleSystem):
    """A_t and b_t for averages of ``basis.doubled()``, with the order of the penalty as level."""

    untruncated = 0.0

    def __init__(self, basis: Basis, averages: Averages) -> None:
        super().__init__(basis, averages)
        self.levels = LEVELS

    def without_folds(self) -> SmoothSystem:
        """Return the system with the averages over all rows only."""
        return SmoothSystem(self.basis, Averages.of_all(self.averages.total))

    def cutoff(self, level: Tensor) -> Tensor:
        """Return infinity: no level truncates."""
        return torch.full_like(level, math.inf)

    def penalty(self, level: Tensor, eigenvalues: Tensor) -> Tensor:
        """Return P for levels ``(S,)``: ``(S, size)``."""
        relative = -eigenvalues / (0.25 * self.radius**2)
        return -eigenvalues * relative ** (STEP * level[:, None])

    def losses(self, t: Tensor, *, advance: Advance = ignore) -> Losses:
        """Return the held-out losses ``(folds, T, levels, ridges)``; +∞ for those not computed.

        From late to early times, at the last level and its neighbours.
        """
        shares = self._shares
        values = torch.full(
            (len(shares), len(t), self.levels, len(RIDGES)), math.inf, dtype=t.dtype
        )
        lowest = int((LEAST_RIDGE / float(self.averages.counts[0]) > RIDGES).sum())
        level, ridge = 1, lowest + BELOW
        for k in reversed(range(len(t))):
            for one in range(max(0, level - 1), min(self.levels, level + 2)):
                self._fill(values, t, k, one, max(lowest, ridge - BELOW), lowest)
            log_ridge, best, _ = choose(Losses(values[:, k : k + 1], shares))
            level = int(best[0])
            ridge = int((RIDGES.log() - log_ridge[0]).abs().argmin())
            advance(1 / len(t))
        return Losses(values, shares)
