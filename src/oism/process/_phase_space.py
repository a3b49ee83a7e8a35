"""Data as positions with random velocities: the start of a damped process.

A `CriticallyDamped` process has points (x, v). Data are positions x; velocities V₀ ~ N(0, γI) are
independent of them. Given the positions, the distribution at time t is therefore

    (X_t, V_t) | x ~ N(S_t (x, 0), P_t),    P_t = Σ_t + S_t diag(0, γ) S_tᵀ,

the same for every coordinate. Covariances are only added, so nothing cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism._core.draws import normal_like
from oism.process._covariance import root
from oism.process._critically_damped import CriticallyDamped
from oism.storage import storable


@storable
@dataclass(frozen=True)
class PhaseSpace:
    """Positions ``(n, dim)`` with velocities of variance γ: points ``(n, 2·dim)``, positions first.

    γ must be positive: for γ = 0 the distribution at t = 0 has no score. With a small γ the score
    of the velocity is large for a short time only.

    >>> space = PhaseSpace(CriticallyDamped(dim=2), gamma=0.04)
    >>> space.lift(torch.zeros(5, 2), torch.Generator().manual_seed(0)).shape
    torch.Size([5, 4])
    """

    process: CriticallyDamped
    gamma: float = 0.04

    def __post_init__(self) -> None:
        checks.instance(self.process, CriticallyDamped, "process")
        checks.assign(self, gamma=checks.positive(self.gamma, "gamma"))

    @property
    def dim(self) -> int:
        """The number of entries of a position."""
        return self.process.dim

    @property
    def size(self) -> int:
        """The number of entries of a point: position and velocity."""
        return self.process.size

    @property
    def dynamics(self) -> CriticallyDamped:
        """The process of the points (x, v)."""
        return self.process

    @property
    def data_dim(self) -> int:
        """The number of entries of a row of data: those of a position."""
        return self.dim

    def unseen_covariance(self) -> Tensor:
        """Return the covariance diag(0, γ) of entries not in the data: ``(size, size)``."""
        seen = torch.zeros(self.dim, dtype=torch.float64)
        return torch.diag(torch.cat((seen, torch.full_like(seen, self.gamma))))

    def width_hint(self, columns: int) -> str:
        """Return a hint for an error message about data with another number of columns."""
        return ": positions only, velocities are integrated out" if columns == self.size else ""

    def lift(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return (x, v) with velocities v sampled from N(0, γI)."""
        x = checks.points(x, dim=self.dim)
        draws = normal_like(x, generator)
        return torch.cat((x, math.sqrt(self.gamma) * draws), dim=1)

    def positions(self, points: Tensor) -> Tensor:
        """Return the positions of points ``(n, 2·dim)``."""
        return checks.points(points, "points", dim=self.size)[:, : self.dim]

    def velocities(self, points: Tensor) -> Tensor:
        """Return the velocities of points ``(n, 2·dim)``."""
        return checks.points(points, "points", dim=self.size)[:, self.dim :]

    def log_density(self, velocities: Tensor) -> Tensor:
        """Return log N(v; 0, γI): ``(n,)``."""
        v = checks.points(velocities, "velocities", dim=self.dim)
        constant = self.dim * math.log(2 * math.pi * self.gamma)
        return -0.5 * (v.square().sum(dim=1) / self.gamma + constant)

    def _law(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors S_t(1, 0) of the mean, ``(..., 2)``, and the root of P_t.

        For t > 0 it is the Cholesky factor ``(..., 2, 2)``: positions depend on the first noise
        variable only.
        """
        law = self.process._transition(t)
        kicked = law.means[..., :, 1]
        spread = law.covariances + self.gamma * kicked[..., :, None] * kicked[..., None, :]
        return law.means[..., :, 0], root(spread)
