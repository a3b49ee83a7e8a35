"""The system of any functions, from A_t and b_t at a table of times.

Ridge and truncation need an order of the functions. With A and the covariance C of the functions at
the last time T, the Rayleigh-Ritz method gives combinations ψ = Σ v_k φ_k of the functions with

    A v = μ C v,    vᵀCv = 1,    0 < μ_1 ≤ μ_2 ≤ …

If X_T is in equilibrium these are the best approximations of eigenfunctions of the process in the
span, and eigenfunctions with -λ = μ where the span contains them: for a basis of eigenfunctions,
the system is that of ``oism.estimation._systems.products``. In the coordinates of ψ the penalty is
ε μ²/μ_1 and level ℓ keeps μ ≤ 2^{-ℓ} μ_max. Combinations with a relative variance below 1e-10 are
left out: constants and dependent functions.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from oism.basis import Averages, Functions
from oism.estimation._systems.nested_system import NestedSystem
from oism.process import Clock
from oism.score import (
    Advance,
    Curve,
    FeatureScore,
    OperatorScore,
    SeriesScore,
    Solved,
    Table,
    ignore,
)
from oism.storage import storable

DEPENDENT = 1e-10
"""The smallest relative variance of a combination of functions."""


@storable
class SimulatedSystem(NestedSystem):
    """A_t and b_t of functions, interpolated over the clock: α is ``(T, size)``.

    ``averages`` are ``(times, size, 1 + size)`` each, b in the first column, at evenly spaced clock
    times; ``covariance`` ``(size, size)`` is that of the functions at the last time. ``groups``
    ``(g, times, size, 1 + size)`` are the averages of parts of the draws, or None for a quadrature
    rule. ``error`` ``(times,)`` is the standard error of the score due to simulation, in L²(ρ_t),
    or NaN if it is not known; it is 0 for a quadrature rule.
    """

    basis: Functions

    def __init__(
        self,
        basis: Functions,
        clock: Clock,
        averages: Averages,
        covariance: Tensor,
        groups: Tensor | None = None,
        error: Tensor | None = None,
    ) -> None:
        super().__init__(basis, averages, torch.device("cpu"))
        self.clock, self.covariance, self.groups = clock, covariance, groups
        count = len(averages.total)
        self.tau = torch.linspace(0, clock.horizon, count, dtype=torch.float64)
        self.error = torch.full_like(self.tau, torch.nan) if error is None else error
        self.levels = len(self.sizes)

    def score(self, clock: Clock, table: Table) -> OperatorScore:
        """Return the score as a series of the functions."""
        kind = SeriesScore if self.basis.process.has_constant_noise else FeatureScore
        system = self._without_folds(self._error(table))
        return kind(self.basis, clock, table, system)

    def without_folds(self) -> SimulatedSystem:
        """Return the system with the averages over all rows only."""
        return self._without_folds(self.error)

    def _without_folds(self, error: Tensor) -> SimulatedSystem:
        averages = Averages.of_all(self.averages.total)
        return SimulatedSystem(self.basis, self.clock, averages, self.covariance, None, error)

    def to_config(self) -> dict[str, Any]:
        """Return functions, clock, the averages over all rows, and their covariance and error."""
        return {
            "basis": self.basis,
            "clock": self.clock,
            "means": self.averages.total,
            "covariance": self.covariance,
            "error": self.error,
        }

    @classmethod
    def from_config(
        cls, *, basis: Functions, clock: Clock, means: Tensor, covariance: Tensor, error: Tensor
    ) -> SimulatedSystem:
        """Return the system of averages over all rows."""
        return cls(basis, clock, Averages.of_all(means), covariance, None, error)

    @cached_property
    def _ritz(self) -> tuple[Tensor, Tensor]:
        """The values μ ``(r,)`` and the combinations v ``(size, r)``."""
        energy = self.averages.total[-1, :, 1:]
        scale = self.covariance.diagonal().clamp(min=0).sqrt()
        inverse = torch.where(scale > 1e-12 * scale.max(), 1 / scale, torch.zeros_like(scale))
        spread, axes = torch.linalg.eigh(inverse[:, None] * self.covariance * inverse)
        kept = spread > DEPENDENT * spread[-1]
        if not bool(kept.any()) or not float(spread[-1]) > 0:
            raise ValueError("functions must vary: all of them are constant at the last time")
        whiten = inverse[:, None] * axes[:, kept] / spread[kept].sqrt()
        values, turn = torch.linalg.eigh(whiten.mT @ energy @ whiten)
        varying = values > 1e-12 * values[-1]
        return values[varying], whiten @ turn[:, varying]

    @property
    def sizes(self) -> list[int]:
        """The number of combinations at each level, the richest first."""
        rates = self._ritz[0]
        octaves = math.floor(math.log2(float(rates[-1] / rates[0])) + 1e-9)
        found = [
            int((rates <= (1 + 1e-9) * rates[-1] * 2.0**-level).sum())
            for level in range(octaves + 1)
        ]
        return sorted({count for count in found if count}, reverse=True)

    @property
    def _entries(self) -> int:
        return self.basis.size * (1 + self.basis.size)

    @cached_property
    def _curves(self) -> dict[str, Curve]:
        parts = {
            "total": self.averages.total,
            "training": self.averages.training.movedim(0, 1),
            "heldout": self.averages.heldout.movedim(0, 1),
        }
        return {
            name: Curve(self.tau, part, order=4) for name, part in parts.items() if part.numel()
        }

    def _at(self, curve: Curve, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return A_t and b_t in the coordinates of the combinations."""
        both, ritz = curve(self.clock._inverse(t)), self._ritz[1]
        return ritz.mT @ both[..., 1:] @ ritz, both[..., 0] @ ritz

    def _equations(self, part: str, t: Tensor) -> tuple[Tensor, Tensor]:
        return self._at(self._curves[part], t)

    def _penalty(self, t: Tensor) -> Tensor:  # noqa: ARG002 (the same at all times)
        rates = self._ritz[0]
        return rates.square() / rates[0]

    def solve(
        self,
        t: Tensor,
        ridge: Tensor,
        level: Tensor,
        start: Tensor | None = None,
        *,
        advance: Advance = ignore,
    ) -> Solved:
        """Return the coefficients of the functions."""
        found = super().solve(t, ridge, level, start, advance=advance)
        alpha = found.alpha @ self._ritz[1].mT
        return Solved(alpha, found.smallest, found.largest, found.iterations)

    def norm(self, t: Tensor, alpha: Tensor) -> Tensor:
        """Return (αᵀA_tα)^½: ``(T,)``."""
        matrix: Tensor = self._curves["total"](self.clock._inverse(t))[..., 1:]
        return (alpha * (matrix @ alpha[..., None])[..., 0]).sum(dim=-1).clamp(min=0).sqrt()

    def _error(self, table: Table) -> Tensor:
        """Return the error of the simulation for the chosen ridge and level: ``(times,)``."""
        if self.groups is None:  # of a quadrature rule, or of a stored system
            return self.error
        t = self.clock._time(self.tau)
        ridge, level = table.schedule.at(self.tau)
        own = [self._part(part).solve(t, ridge, level).alpha for part in self.groups]
        alpha, count = torch.stack(own), len(own)
        deviations = torch.stack([self.norm(t, one) for one in alpha - alpha.mean(dim=0)])
        return (deviations.square().sum(dim=0) / (count * (count - 1))).sqrt()

    def _part(self, means: Tensor) -> SimulatedSystem:
        """Return the system of a part of the draws, with the combinations of all."""
        part = SimulatedSystem(self.basis, self.clock, Averages.of_all(means), self.covariance)
        vars(part)["_ritz"] = self._ritz
        part.levels = self.levels
        return part
