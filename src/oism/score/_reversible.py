"""The score of any `Basis` under a reversible process: log(ρ_t/π) = u = Σ α_k(t) φ_k.

The flow is -G∇u, and u changes along it by Lu = Σ α_kλ_kφ_k, for any coefficients:

    log ρ(x) = log π(x) - ∫_0^T Lu dt    along the path from x, if ρ_T = π.

So densities need no divergence, and neither flow nor density needs the score ∇u + ∇log π, which is
infinite where π vanishes or diverges. On a manifold gradients are tangent, and points are projected
to it first, so that the error of a solver does not change the functions.

If the basis has `Basis.limits`, as unbounded polynomials of one coordinate do, u = U∘c with the
soft clamp c to the range of the noised data, and with L f = gf'' + bf'

    Lu = g(x)(c'² U''(c) + c'' U'(c)) + b(x) c' U'(c),    g(c) U''(c) = LU(c) - b(c) U'(c).
"""

from __future__ import annotations

import torch
from torch import Tensor

from oism._core.transforms import divergence
from oism.basis import Basis
from oism.score._base import OperatorScore
from oism.score._hermite import soft_clamp
from oism.storage import storable


@storable
class ReversibleScore(OperatorScore):
    """u = log(ρ_t/π) = Σ α_k φ_k up to a constant: α is ``(size,)``."""

    basis: Basis

    @property
    def relative(self) -> ReversibleScore:
        """The model itself: it has G∇u and Lu."""
        return self

    def _gradient(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return ∇u at points of the domain."""
        inside = self._clamped(x, t)
        if inside is None:
            return self.basis._series(x, alpha, 1)
        return inside[1] * self.basis._series(inside[0], alpha, 1)

    def _clamped(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return c(x), c' and c'', or None where functions are bounded."""
        limits = self.basis.limits(t)
        if limits is None:
            return None
        return soft_clamp(x, *(end[..., None].to(x) for end in limits))

    def _field(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        x = self.process._retract(x)
        return self.process._diffuse(self._gradient(x, t, alpha), x)

    def _generated(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        x, rates = self.process._retract(x), self.basis.eigenvalues.to(alpha)
        inside = self._clamped(x, t)
        if inside is None:
            return self.basis._series(x, rates * alpha, 0)
        c, slope, bend = inside
        generated = self.basis._series(c, rates * alpha, 0)
        gradient, drift = self.basis._series(c, alpha, 1), self.process.drift
        there = torch.where(slope < 1, self.process._diffuse(torch.ones_like(c), c), 1.0)
        second = (generated[:, None] - drift(c) * gradient) / there
        outside = self.process._diffuse(slope.square() * second + bend * gradient, x)
        outside = (outside + drift(x) * slope * gradient)[:, 0]
        return torch.where(slope[:, 0] < 1, outside, generated)

    def _field_and_generated(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return G∇u and Lu, ``(n, dim + 1)``; a basis with a faster joint sum may be used."""
        parts = (self._field(x, t, alpha), self._generated(x, t, alpha)[:, None])
        return torch.cat(parts, dim=1)

    def _score(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        x = self.process._retract(x)
        return self.process.invariant.score(x) + self._gradient(x, t, alpha)

    def _divergence(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return the divergence of the score on the domain, by differentiation."""
        return divergence(lambda y: self._score(y, t, alpha), x)

    def _log_ratio(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        x = self.process._retract(x)
        inside = self._clamped(x, t)
        return self.basis._series(x if inside is None else inside[0], alpha, 0)

    def _diffused(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return the score and ∇·(Gs) = Lu - ⟨b - ∇·G, ∇u⟩ + ∇·(b - ∇·G), ``(n, dim + 1)``."""
        x = self.process._retract(x)
        gradient, drift = self._gradient(x, t, alpha), self.process.flow_drift(x)
        spread = self._generated(x, t, alpha) - (drift * gradient).sum(dim=1)
        spread = spread + self.process._flow_drift_divergence(x)
        score = self.process.invariant.score(x) + gradient
        return torch.cat((score, spread[:, None]), dim=1)

    def score_and_diffused_divergence(self, x: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return ∇ log ρ_t, of the shape of ``x``, and ∇·G∇ log ρ_t ``(n,)`` in closed form."""
        both = self._evaluate(self._diffused, x, t)
        return both[:, :-1].reshape(x.shape), both[:, -1]

    def field(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return G∇log(ρ_t/π), of the shape of ``x``: the velocity of the flow with a minus."""
        return self._evaluate(self._field, x, t).reshape(x.shape)

    def field_and_generated(self, x: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return G∇u, of the shape of ``x``, and Lu ``(n,)`` for u = log(ρ_t/π)."""
        both = self._evaluate(self._field_and_generated, x, t)
        return both[:, :-1].reshape(x.shape), both[:, -1]
