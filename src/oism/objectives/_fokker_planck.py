"""The Fokker-Planck equation of log-densities and of scores: how noise levels depend on each other.

From ∂_t(ρ_t/π) = L*(ρ_t/π) and the diffusion property, for f = log(ρ_t/π), s̃ = ∇f and s = ∇log ρ_t,

    ∂_t f = L*f + Γ(f)
    ∂_t s̃ = ∇[∇·(Gs̃) + ⟨b* - ∇·G, s̃⟩ + ⟨s̃, Gs̃⟩]
    ∂_t s = ∇[∇·(Gs) - ⟨b - ∇·G, s⟩ + ⟨s, Gs⟩ - ∇·(b - ∇·G)]

with b* = 2(G∇log π + ∇·G) - b the drift run backwards; ∇·G = 0 for constant noise. For the
Ornstein-Uhlenbeck process b* = b = -x, and the second line is the paper's; in the third the drift
has the other sign, so the two must not be taken for each other. The gradient of ⟨s, Gs⟩ is 2JᵀGs
for constant G, which is 2JGs only for gradients of functions: a network's J need not be symmetric.
On a manifold in embedding coordinates only the tangent part of a residual of scores has a meaning.

The equations hold at every point, so a residual can be evaluated, and made small, wherever one
likes. It does not determine initial conditions: scores of other data have no residual either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from oism._core import checks
from oism.objectives._models import Model, derivative_in_time, field, gradient, scalar
from oism.objectives._sliced import Probes, inner, weighted_divergence
from oism.process import AdjointGenerator, CarreDuChamp, Function, Process

Rate = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class FokkerPlanckResidual:
    """The residual of the Fokker-Planck equation: zero for the exact energy or score.

    Parameters
    ----------
    process
        The noising process.
    probes
        Random directions for the divergence of scores, in high dimensions; exact by default. The
        residual is then right in the mean, its square is too large.

    Examples
    --------
    >>> import torch
    >>> from oism import OrnsteinUhlenbeck
    >>> process, x = OrnsteinUhlenbeck(), torch.linspace(-2, 2, 5, dtype=torch.float64)[:, None]
    >>> def score(x, t):  # of N(0, 4) noised
    ...     return -x / (1 + 3 * torch.exp(-2 * t))[:, None]
    >>> residual = FokkerPlanckResidual(process)
    >>> residual.score(score, x, 0.3).abs().max() < 1e-14
    tensor(True)
    >>> residual.ratio(score, x, 0.3).abs().max() > 1  # it is no ∇log(ρ_t/π)
    tensor(True)
    """

    process: Process
    probes: Probes | None = None

    def __post_init__(self) -> None:
        checks.instance(self.process, Process, "process")
        checks.optional(self.probes, Probes, "probes")

    def energy(self, energy: Model, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∂_t f - L*f - Γ(f) of an energy f = log(ρ_t/π), normalised at each t: ``(n,)``."""
        x, f = checks.points(x), scalar(energy, t)
        change = derivative_in_time(energy, t, "energy", field=False)(x)
        return change - AdjointGenerator(self.process)(f)(x) - CarreDuChamp(self.process)(f)(x)

    def ratio(self, score: Model, x: Tensor, t: Tensor | float) -> Tensor:
        """Return the residual of s̃ = ∇log(ρ_t/π), of the shape of ``x``."""
        return self._residual(
            score,
            x,
            t,
            lambda y, s: inner(s, self.process.diffuse(s, y) + self._adjoint_flow_drift(y)),
        )

    def score(self, score: Model, x: Tensor, t: Tensor | float) -> Tensor:
        """Return the residual of s = ∇log ρ_t, of the shape of ``x``; π may be any measure."""

        def rate(y: Tensor, s: Tensor) -> Tensor:
            moved = inner(s, self.process.diffuse(s, y) - self.process.flow_drift(y))
            return moved - self.process._flow_drift_divergence(y)

        return self._residual(score, x, t, rate)

    def _adjoint_flow_drift(self, y: Tensor) -> Tensor:
        """Return b* - ∇·G."""
        process = self.process
        if process.has_constant_noise:
            return process.adjoint_drift(y)
        return process.adjoint_drift(y) - process.drift(y) + process.flow_drift(y)

    def _residual(self, score: Model, x: Tensor, t: Tensor | float, rate: Rate) -> Tensor:
        x, s = checks.points(x), field(score, t)
        directions = None if self.probes is None else self.probes.draw(self.process, x)
        change = derivative_in_time(score, t, "score", field=True)(x)
        return change - gradient(self._potential(s, rate, directions))(x)

    def _potential(self, s: Function, rate: Rate, directions: Tensor | None) -> Function:
        """Return ∂_t log-density by the equation, up to a number."""

        def potential(y: Tensor) -> Tensor:
            return weighted_divergence(self.process, s, y, directions) + rate(y, s(y))

        return potential
