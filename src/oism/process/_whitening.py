"""Coordinates in which a symmetric linear SDE is a set of independent Ornstein-Uhlenbeck processes.

If FΣ∞ = Σ∞Fᵀ, then K = Σ∞^{-1/2} F Σ∞^{1/2} is symmetric and negative definite, K = -RΘRᵀ with
Θ = diag(θ₁, …, θ_d). In y = RᵀΣ∞^{-1/2} x,

    dyᵢ = -θᵢyᵢ dt + √(2θᵢ) dWᵢ,    π = N(0, I),

with one rate per direction. The eigenfunctions of the process are products of Hermite polynomials
of the yᵢ, with λ = -Σ θᵢnᵢ. Densities and scores transform by W = RᵀΣ∞^{-1/2}:
log ρ(x) = log ρ(y) + log det W and ∇_x log ρ = Wᵀ∇_y log ρ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from oism._core import checks
from oism.process._correlated import CorrelatedGaussian
from oism.process._covariance import act, spread
from oism.process._linear import Linear


@dataclass(frozen=True, eq=False)
class Whitening:
    """The coordinates y = Wx of a symmetric linear process, the slowest direction first.

    >>> process = Linear(torch.tensor([[-2.0, 1.0], [1.0, -2.0]]), 2 * torch.eye(2))
    >>> Whitening(process).rates
    tensor([1.0000, 3.0000], dtype=torch.float64)
    """

    process: Linear
    _parts: tuple[Tensor, Tensor, Tensor] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        checks.instance(self.process, Linear, "process")
        if not self.process.drift_matrix.any():
            raise ValueError("process must have a stationary distribution, got one without drift")
        if not self.process.is_symmetric:
            raise ValueError(
                "process must be symmetric, FΣ∞ = Σ∞Fᵀ: only then are there independent coordinates"
            )
        checks.assign(self, _parts=self._computed())

    def _computed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return W, W⁻¹ and the rates of one copy."""
        # Any A with AAᵀ = Σ∞ can be used: A⁻¹FA is K up to a rotation, which `eigh` finds. The
        # triangular A is accurate for directions of small variance.
        whiten, _ = CorrelatedGaussian(self.process.stationary_covariance).whitener
        unwhiten = torch.linalg.inv(whiten)
        similar = whiten @ self.process.drift_matrix @ unwhiten
        rates, turn = torch.linalg.eigh(-0.5 * (similar + similar.mT))
        return turn.mT @ whiten, unwhiten @ turn, rates

    @property
    def matrix(self) -> Tensor:
        """W, ``(d, d)``, float64."""
        return spread(self._parts[0], self.process.copies)

    @property
    def rates(self) -> Tensor:
        """The rates θᵢ > 0, not decreasing: ``(d,)``, float64."""
        return self._parts[2].repeat_interleave(self.process.copies)

    @property
    def log_det(self) -> float:
        """The number log |det W|."""
        return self.process.copies * float(torch.linalg.slogdet(self._parts[0])[1])

    def analyse(self, x: Tensor) -> Tensor:
        """Return y = Wx for points ``(n, *shape)``."""
        return act(self._parts[0], checks.points(x), self.process.copies)

    def synthesise(self, y: Tensor) -> Tensor:
        """Return x = W⁻¹y."""
        return act(self._parts[1], checks.points(y, "y"), self.process.copies, "y")

    def pull_back(self, score: Tensor) -> Tensor:
        """Return Wᵀs: a score, or any gradient, in x from that in y."""
        return act(self._parts[0].mT, checks.points(score, "score"), self.process.copies, "score")
