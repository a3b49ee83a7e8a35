"""The equations on the torus: A_t is the Galerkin form of f ↦ -∇·(ρ_t ∇f).

With c_t(ζ) = e^{-‖ζ‖²t} E[e^{-iζ·x}], the density ratio is ρ_t/π = Σ_ζ c_t(ζ) e^{iζ·x}, and

    A_t[k, ℓ] = E_t[∇φ_k·∇φ_ℓ],    b_t[k] = λ_k e^{λ_k t} E[φ_k].

The matrix of n functions has n² entries, but it can be applied by Fourier transforms, as
-½[Δ(ρf) + ρΔf - fΔρ] on a grid (see `ReversibleOperator`): two each way, in every dimension.
Products of frequencies of f up to r and of ρ_t up to k ≤ 2r have no aliases among those up to r if
the grid has at least 2r + k + 1 points per axis. c_t(ζ) decays like e^{-‖ζ‖²t}, so k falls with t.

Coefficients are real vectors in the order of the basis, with cos and sin next to each other. With
the complex numbers a = α_cos + i α_sin, f = √2 Re Σ_ξ conj(a_ξ) e^{iξ·x}.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from oism.basis import Fourier
from oism.estimation._equations.fourier_band import FourierBand
from oism.estimation._equations.reversible import ReversibleOperator

Operator = Callable[[Tensor], Tensor]

NEGLIGIBLE = 1e-17
"""The decay e^{-‖ζ‖²t} below which terms of ρ_t are left out: below rounding."""


class FourierEquations:
    """A_t and b_t of the functions of a band, for averages E[e^{-iζ·x}] over a half lattice.

    ``means`` ``(*batch, m)`` are those of the whole lattice.
    """

    def __init__(self, band: FourierBand, means: Tensor) -> None:
        self.band, self.reach = band, band.reach
        self.frequencies, self.lattice, self.squares = band.frequencies, band.lattice, band.squares
        self.size, self.eigenvalues = band.size, band.eigenvalues
        self.means = means[..., band.needed]

    @classmethod
    def of(
        cls, basis: Fourier, lattice: Tensor, means: Tensor, bound: float = math.inf
    ) -> FourierEquations:
        """Return those of the functions with ‖ξ‖ ≤ bound, a prefix of the basis."""
        return cls(FourierBand(basis, lattice, bound, means.device), means)

    def characteristic(self, t: Tensor) -> Tensor:
        """Return c_t(ζ) for times ``(T,)``: ``(T, *batch, m)``."""
        decay = torch.exp(-t[:, None] * self.squares)
        return decay.reshape(len(t), *[1] * (self.means.ndim - 1), -1) * self.means

    def right(self, t: Tensor) -> Tensor:
        """Return b_t: ``(T, *batch, size)``."""
        means = math.sqrt(2) * self.characteristic(t)[..., self.band.first].conj()
        waves = torch.view_as_real(means.resolve_conj()).flatten(-2)
        flip = self.band.flip
        return self.eigenvalues * (waves if flip is None else flip * waves)

    @cached_property
    def active(self) -> slice:
        """The functions that are not zero by symmetry: all, or cos only for an even density.

        Then all averages are real, A_t has no entries between cos and sin, and b_t none for sin.
        """
        return slice(None) if bool((self.means.imag != 0).any()) else slice(None, None, 2)

    def active_matrix(self, t: Tensor, used: slice | None = None) -> Tensor:
        """Return A_t among functions: ``(T, *batch, size, size)``, or half of it.

        ``used`` are the `active` ones by default, or all.
        """
        if (self.active if used is None else used).step is None:
            return self.dense(t)
        c = self.characteristic(t).real
        c = torch.cat((c, torch.ones_like(c[..., :1])), dim=-1)
        minus, plus = (c[..., position] for position, _ in self.band.pairs)
        return minus.sub_(plus).mul_(self.frequencies @ self.frequencies.mT)

    def dense(self, t: Tensor) -> Tensor:
        """Return A_t: ``(T, *batch, size, size)``."""
        c = self.characteristic(t)
        c = torch.cat((c, torch.ones_like(c[..., :1])), dim=-1)

        def wave(position: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
            """Return E[cos ξ·x] and E[sin ξ·x]."""
            return c.real[..., position], -sign * c.imag[..., position]

        xi = self.frequencies
        minus, plus = (wave(*pair) for pair in self.band.pairs)
        blocks = c.real.new_empty(*c.shape[:-1], len(xi), 2, len(xi), 2)
        # ∇φ for φ = √2 cos is -ξ√2 sin, for √2 sin it is ξ√2 cos; 2 sin·sin = cos(-) - cos(+), …
        blocks[..., :, 0, :, 0] = minus[0] - plus[0]
        blocks[..., :, 1, :, 1] = minus[0] + plus[0]
        blocks[..., :, 0, :, 1] = -(plus[1] + minus[1])
        blocks[..., :, 1, :, 0] = -(plus[1] - minus[1])
        blocks *= (xi @ xi.mT)[:, None, :, None]
        return blocks.flatten(-2).flatten(-3, -2)

    def width(self, t: float, negligible: float = NEGLIGIBLE) -> int:
        """Return k such that c_t(ζ) is negligible where an entry of ζ exceeds k; at most 2r."""
        reach = math.sqrt(-math.log(negligible) / max(t, 1e-300))
        return min(2 * self.reach, math.ceil(reach))

    def _series(self, t: Tensor, where: Tensor | slice, kept: Tensor) -> Tensor:
        """Return the coefficients of ρ_t, without the constant 1, as pairs: ``(S, m, 2)``."""
        means = self.means.reshape(-1, self.means.shape[-1])[where][:, kept]
        evolved = (torch.exp(-t[:, None] * self.squares[kept])[:, None] * means).flatten(0, 1)
        # ρ = 1 + 2 Re Σ c e^{iζ·x}, so the coefficients of √2 cos and √2 sin are √2 (Re c, -Im c).
        return math.sqrt(2) * torch.view_as_real(evolved.conj().resolve_conj())

    def _in_order(self, operator: Operator) -> Operator:
        """Return an operator on canonical frequencies as one on those of the basis."""
        flip = self.band.flip
        return operator if flip is None else lambda alpha: flip * operator(flip * alpha)

    def operator(
        self, t: Tensor, where: Tensor | slice = slice(None), negligible: float = NEGLIGIBLE
    ) -> Operator:
        """Return α ↦ A_tα, ``(S, size)``, for times ``(T,)`` with each row of averages: S systems.

        ``where`` selects rows. Frequencies of ρ_t that have decayed below ``negligible`` at all
        times are left out, and need no points of the grid.
        """
        width = self.width(float(t.min()), negligible)
        own, wide, kept = self.band.transforms(width)
        series = self._series(t, where, kept)
        ratio = wide.synthesise(series.flatten(-2)).add_(1.0)
        generated = wide.synthesise((-self.squares[kept][:, None] * series).flatten(-2))
        return self._in_order(ReversibleOperator(own, self.eigenvalues, ratio, generated))

    def reciprocal(self, t: Tensor, floor: float) -> Operator:
        """Return f ↦ f/(max(ρ_t, 0) + floor), projected to the span: ``(S, size)``, S as above.

        Symmetric and positive definite. On 2r + 1 points, with the frequencies of ρ_t up to r: an
        approximation that is sufficient for a preconditioner.
        """
        own, wide, kept = self.band.transforms(self.reach, 2 * self.reach + 1)
        ratio = wide.synthesise(self._series(t, slice(None), kept).flatten(-2)).add_(1.0)
        weight = ratio.clamp_(min=0.0).add_(floor).reciprocal_()
        return self._in_order(lambda alpha: own.analyse(own.synthesise(alpha).mul_(weight)))
