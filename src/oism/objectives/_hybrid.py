"""Hybrid score matching: denoising for a damped process, given the data but not their velocities.

Given a position x at the start, with its velocity N(0, γI) integrated out, position and velocity at
time t are normal with the lower triangular root (ℓ₁₁ 0; ℓ₂₁ ℓ₂₂) of their covariance P_t,

    X_t = a x + ℓ₁₁ε₁,    V_t = a' x + ℓ₂₁ε₁ + ℓ₂₂ε₂,    ∇_v log ρ_t(x_t, v_t | x) = -ε₂/ℓ₂₂:

the score along velocities, all that the reverse process needs, is the noise that velocities do not
share with positions. The minimiser of E‖ε̂(X_t, V_t, τ) - ε₂‖² is ε̂ = -ℓ₂₂∇_v log ρ_t. Denoising
given the initial velocity as well has the same minimiser, and targets that vary more (Dockhorn,
Vahdat, Kreis, 2022). As t → 0 the displacement from x to X_t determines the velocity, and
ℓ₂₂² = (2c/3)t + O(t²): at t = 0 there is no such noise, so training starts at a positive time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oism._core import checks
from oism._core.draws import normal
from oism._core.transforms import per_row
from oism.flow import NoisePredictor
from oism.flow._noise import noise_residual
from oism.objectives._levels import low_discrepancy
from oism.process import Clock, PhaseSpace, first_time

FIRST_WITH_VELOCITIES = 1e-3
"""The smallest clock time by default: at t = 0 the velocity has no noise of its own."""


class HybridScoreMatching:
    """The loss of a predictor of the velocities' noise, with clock times drawn uniformly.

    Parameters
    ----------
    space
        The damped process, and the variance of initial velocities.
    clock
        The noise levels.
    first
        The smallest clock time, where t must be positive.

    Examples
    --------
    >>> from oism import CriticallyDamped, Logarithmic
    >>> from oism.process import PhaseSpace
    >>> from oism.nn import MLP
    >>> space = PhaseSpace(CriticallyDamped(dim=2), gamma=0.04)
    >>> loss = HybridScoreMatching(space, Logarithmic(first=0.1, last=12.0))
    >>> network = MLP(2, extra=2)  # takes positions and velocities, returns noise of velocities
    >>> loss(network, torch.zeros(64, 2), torch.Generator().manual_seed(0)).item() < 1.5
    True
    """

    def __init__(
        self, space: PhaseSpace, clock: Clock, first: float = FIRST_WITH_VELOCITIES
    ) -> None:
        checks.instance(space, PhaseSpace, "space")
        checks.instance(clock, Clock, "clock")
        self.space, self.clock, self.first = space, clock, first_time(first, clock)

    def __call__(
        self, predictor: NoisePredictor, x: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the loss on positions ``(n, dim)`` for one draw of times and noise."""
        x = checks.points(x, dim=self.space.dim)
        share = low_discrepancy(len(x), generator, x.device)
        tau = self.first + (self.clock.horizon - self.first) * share
        shape = (len(x), self.space.size)
        noise = normal(shape, generator, dtype=x.dtype, device=x.device)
        return self.errors(predictor, x, tau, noise).mean()

    def errors(self, predictor: NoisePredictor, x: Tensor, tau: Tensor, noise: Tensor) -> Tensor:
        """Return ‖ε̂ - ε₂‖²/dim for times ``(n,)`` and noise (ε₁, ε₂) ``(n, 2·dim)``: ``(n,)``."""
        wanted = noise[:, self.space.dim :]
        state = self.noised(x, tau, noise)
        residual = noise_residual(predictor, state, tau, wanted, ", that of velocities")
        return residual.square().mean(dim=1)

    def noised(self, x: Tensor, tau: Tensor, noise: Tensor) -> Tensor:
        """Return (X_t, V_t) at clock times ``(n,)``, given the noise: ``(n, 2·dim)``."""
        x = checks.points(x, dim=self.space.dim)
        if noise.shape != (len(x), self.space.size):
            raise ValueError(
                f"noise must have shape ({len(x)}, {self.space.size}), one entry for each of a "
                f"position and a velocity, got {tuple(noise.shape)}"
            )
        mean, root = self.space._law(self.clock._time(tau.double()))
        first, second = noise[:, : self.space.dim], noise[:, self.space.dim :]
        position = per_row(mean[..., 0], x, "tau") * x + per_row(root[..., 0, 0], x) * first
        velocity = per_row(mean[..., 1], x, "tau") * x + per_row(root[..., 1, 0], x) * first
        return torch.cat((position, velocity + per_row(root[..., 1, 1], x) * second), dim=1)
