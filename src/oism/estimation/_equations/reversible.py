"""The equations of any symmetric process without a matrix, for a basis with fast transforms.

With the density ratio r_t = ρ_t/π = 1 + Σ_n e^{λ_n t} E[φ_n(X_0)] φ_n over a basis that spans the
products of two functions, and Γ(f, g) = ½(L(fg) - fLg - gLf), for f and g in the span

    E_t Γ(f, g) = ∫ r_t Γ(f, g) dπ = ∫ g A_t f dπ,    A_t f = ½ [f L r_t - r_t L f - L(r_t f)],

projected to the span: L is diagonal on coefficients, products are taken at the points of a rule
that is exact for them. No gradients appear, so the same lines serve every space.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oism._core.transforms import on_host
from oism.basis import Basis, Transform

NEGLIGIBLE = 40.0
"""Terms of the series of r_t with |λ|t above this are left out: e^{-40} is 4e-18."""

REACHES = 4
"""The number of lengths of the series of r_t per octave of √|λ|, so that transforms are shared."""

PIECE, DEVICE_PIECE = 2**18, 2**26
"""The number of values per batch of systems, on the CPU and on other devices.

On the CPU so few that the allocator reuses their memory: fields of several megabytes are returned
to the system after every use, and fresh pages cost several times the transforms.
"""


class ReversibleOperator:
    """α ↦ A_tα for S density ratios at once: ``(..., S, size)`` to the same shape, in float64."""

    def __init__(self, own: Transform, rates: Tensor, ratio: Tensor, generated: Tensor) -> None:
        self._own, self._rates = own, rates
        self._ratio, self._generated = ratio, generated

    def __call__(self, alpha: Tensor) -> Tensor:
        """Return A_tα."""
        piece = PIECE if on_host(alpha) else DEVICE_PIECE
        step = max(1, piece // (self._own.points * math.prod(alpha.shape[:-2])))
        pieces = [
            self._apply(alpha[..., start : start + step, :], slice(start, start + step))
            for start in range(0, alpha.shape[-2], step)
        ]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-2)

    def _apply(self, alpha: Tensor, where: slice) -> Tensor:
        ratio, generated = self._ratio[where], self._generated[where]
        both = self._own.synthesise(torch.stack((alpha, self._rates * alpha)))
        mixed, (f, lf) = torch.empty_like(both), both
        torch.mul(f, generated, out=mixed[0]).addcmul_(ratio, lf, value=-1)
        torch.mul(ratio, f, out=mixed[1])
        mixed, product = self._own.analyse(mixed)
        image: Tensor = 0.5 * (mixed - self._rates * product)
        return image


class ReversibleEquations:
    """A_t and b_t for averages of ``basis.doubled()``, ``(*batch, wide)``.

    ``band`` is a prefix of ``basis``, see `Basis.truncated`.
    """

    def __init__(self, band: Basis, rates: Tensor, means: Tensor) -> None:
        self.basis = band
        self._rates, self._means = rates, means

    def right(self, t: Tensor) -> Tensor:
        """Return b_t for times ``(T,)``: ``(T, *batch, size)``."""
        rates = self.basis.eigenvalues
        decay = rates * torch.exp(t[:, None] * rates)
        return (
            decay.reshape(len(t), *[1] * (self._means.ndim - 1), -1)
            * self._means[..., : len(rates)]
        )

    def reach(self, t: float) -> float:
        """Return the largest |λ| of the series of r_t: the same for close times."""
        most = 4 * -float(self.basis.eigenvalues[-1])
        wanted = NEGLIGIBLE / max(t, 1e-300)
        if wanted >= most:
            return math.inf
        return most * 4 ** (-math.floor(REACHES * math.log(most / wanted, 4)) / REACHES)

    def operator(self, t: Tensor, where: Tensor | slice = slice(None)) -> ReversibleOperator:
        """Return α ↦ A_tα for times of one reach, each with all rows of the averages: T·batch."""
        own, wide = self.basis.transforms(self.reach(float(t.min())))
        rates = self._rates[: wide.size]
        means = self._means.reshape(-1, self._means.shape[-1])[where, : wide.size]
        evolved = (torch.exp(t[:, None] * rates)[:, None] * means).flatten(0, 1)
        ratio = wide.synthesise(evolved).add_(1.0)
        return ReversibleOperator(
            own, self.basis.eigenvalues, ratio, wide.synthesise(rates * evolved)
        )
