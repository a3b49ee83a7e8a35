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

from oism.basis import Fourier, TorusTransform
from oism.basis._fourier import leading
from oism.estimation._equations.reversible import ReversibleOperator

Operator = Callable[[Tensor], Tensor]

NEGLIGIBLE = 1e-17
"""The decay e^{-‖ζ‖²t} below which terms of ρ_t are left out: below rounding."""


class FourierEquations:
    """A_t and b_t for averages E[e^{-iζ·x}], ``(*batch, m)``, over the extended half lattice.

    ``band`` keeps only the functions with ‖ξ‖ ≤ band, a prefix of the basis.
    """

    def __init__(
        self, basis: Fourier, lattice: Tensor, means: Tensor, band: float = math.inf
    ) -> None:
        inside = basis.frequencies.square().sum(dim=1) <= band**2
        device = means.device
        if not bool(inside.any()):
            raise ValueError(f"band must hold at least one frequency, got {band!r}")
        self.basis = basis
        self.frequencies = basis.frequencies[inside].to(device)
        # Internally ξ is the one of ±ξ that is in the lattice; sin changes its sign with it.
        self._canonical, self._flip = _canonical(self.frequencies)
        self.reach = int(self.frequencies.abs().max())
        needed = (lattice.abs() <= 2 * self.reach).all(dim=1)
        self.lattice, self.means = lattice[needed].to(device), means[..., needed.to(device)]
        self.squares = self.lattice.square().sum(dim=1)
        self._kept: dict[tuple[int, int], tuple[TorusTransform, TorusTransform, Tensor]] = {}

    @property
    def size(self) -> int:
        """The number of functions."""
        return 2 * len(self.frequencies)

    @cached_property
    def eigenvalues(self) -> Tensor:
        """The eigenvalues of the functions: ``(size,)``."""
        return self.basis.eigenvalues[: self.size].to(self.means.device)

    def characteristic(self, t: Tensor) -> Tensor:
        """Return c_t(ζ) for times ``(T,)``: ``(T, *batch, m)``."""
        decay = torch.exp(-t[:, None] * self.squares)
        return decay.reshape(len(t), *[1] * (self.means.ndim - 1), -1) * self.means

    @cached_property
    def _first(self) -> Tensor:
        """The positions of the basis's frequencies in the lattice: ``(size/2,)``."""
        return self._find(self._canonical)[0]

    def _find(self, xi: Tensor) -> tuple[Tensor, Tensor]:
        """Return the position of ±ξ in the lattice (its length for 0), and the sign."""
        reach = 2 * self.reach
        strides = (2 * reach + 1) ** torch.arange(xi.shape[-1], device=xi.device)
        table = torch.full(((2 * reach + 1) ** xi.shape[-1],), -1, device=xi.device)
        sign = torch.zeros_like(table)
        for side in (1, -1):
            keys = ((side * self.lattice.long() + reach) * strides).sum(dim=-1)
            table[keys], sign[keys] = torch.arange(len(keys), device=xi.device), side
        table[(reach * strides).sum()] = len(self.lattice)
        keys = ((xi.long() + reach) * strides).sum(dim=-1)
        return table[keys], sign[keys]

    def right(self, t: Tensor) -> Tensor:
        """Return b_t: ``(T, *batch, size)``."""
        means = math.sqrt(2) * self.characteristic(t)[..., self._first].conj()
        waves = torch.view_as_real(means.resolve_conj()).flatten(-2)
        return self.eigenvalues * (waves if self._flip is None else self._flip * waves)

    @cached_property
    def active(self) -> slice:
        """The functions that are not zero by symmetry: all, or cos only for an even density.

        Then all averages are real, A_t has no entries between cos and sin, and b_t none for sin.
        """
        return slice(None) if bool((self.means.imag != 0).any()) else slice(None, None, 2)

    @cached_property
    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """The positions of all ξ - η and ξ + η in the lattice, and their signs."""
        xi = self.frequencies
        return [self._find(xi[:, None] + side * xi) for side in (-1, 1)]

    def active_matrix(self, t: Tensor) -> Tensor:
        """Return A_t among the `active` functions: ``(T, *batch, size, size)``, or half of it."""
        if self.active.step is None:
            return self.dense(t)
        c = self.characteristic(t).real
        c = torch.cat((c, torch.ones_like(c[..., :1])), dim=-1)
        minus, plus = (c[..., position] for position, _ in self._pairs)
        return minus.sub_(plus).mul_(self.frequencies @ self.frequencies.mT)

    def dense(self, t: Tensor) -> Tensor:
        """Return A_t: ``(T, *batch, size, size)``."""
        c = self.characteristic(t)
        c = torch.cat((c, torch.ones_like(c[..., :1])), dim=-1)

        def wave(position: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
            """Return E[cos ξ·x] and E[sin ξ·x]."""
            return c.real[..., position], -sign * c.imag[..., position]

        xi = self.frequencies
        minus, plus = (wave(*pair) for pair in self._pairs)
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

    def _transforms(
        self, width: int, points: int | None = None
    ) -> tuple[TorusTransform, TorusTransform, Tensor]:
        """Return the transforms of f and of ρ_t with frequencies up to k, and which ζ these are.

        By default the grid has as many points as exact products need.
        """
        points = 2 * self.reach + width + 1 if points is None else points
        if (width, points) not in self._kept:
            kept = (self.lattice.abs() <= width).all(dim=1)
            own, wide = (TorusTransform(xi, points) for xi in (self._canonical, self.lattice[kept]))
            self._kept[width, points] = own, wide, kept
        return self._kept[width, points]

    def _series(self, t: Tensor, where: Tensor | slice, kept: Tensor) -> Tensor:
        """Return the coefficients of ρ_t, without the constant 1, as pairs: ``(S, m, 2)``."""
        means = self.means.reshape(-1, self.means.shape[-1])[where][:, kept]
        evolved = (torch.exp(-t[:, None] * self.squares[kept])[:, None] * means).flatten(0, 1)
        # ρ = 1 + 2 Re Σ c e^{iζ·x}, so the coefficients of √2 cos and √2 sin are √2 (Re c, -Im c).
        return math.sqrt(2) * torch.view_as_real(evolved.conj().resolve_conj())

    def _in_order(self, operator: Operator) -> Operator:
        """Return an operator on canonical frequencies as one on those of the basis."""
        flip = self._flip
        return operator if flip is None else lambda alpha: flip * operator(flip * alpha)

    def operator(
        self, t: Tensor, where: Tensor | slice = slice(None), negligible: float = NEGLIGIBLE
    ) -> Operator:
        """Return α ↦ A_tα, ``(S, size)``, for times ``(T,)`` with each row of averages: S systems.

        ``where`` selects rows. Frequencies of ρ_t that have decayed below ``negligible`` at all
        times are left out, and need no points of the grid.
        """
        width = self.width(float(t.min()), negligible)
        own, wide, kept = self._transforms(width)
        series = self._series(t, where, kept)
        ratio = wide.synthesise(series.flatten(-2)).add_(1.0)
        generated = wide.synthesise((-self.squares[kept][:, None] * series).flatten(-2))
        return self._in_order(ReversibleOperator(own, self.eigenvalues, ratio, generated))

    def reciprocal(self, t: Tensor, floor: float) -> Operator:
        """Return f ↦ f/(max(ρ_t, 0) + floor), projected to the span: ``(S, size)``, S as above.

        Symmetric and positive definite. On 2r + 1 points, with the frequencies of ρ_t up to r: an
        approximation that is sufficient for a preconditioner.
        """
        own, wide, kept = self._transforms(self.reach, 2 * self.reach + 1)
        ratio = wide.synthesise(self._series(t, slice(None), kept).flatten(-2)).add_(1.0)
        weight = ratio.clamp_(min=0.0).add_(floor).reciprocal_()
        return self._in_order(lambda alpha: own.analyse(own.synthesise(alpha).mul_(weight)))


def _canonical(xi: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return frequencies with a positive first non-zero entry, and ±1 for (cos, sin) of each.

    The signs are None if nothing changes, as for a lattice.
    """
    signs = leading(xi).sign()
    if bool((signs > 0).all()):
        return xi, None
    return signs[:, None] * xi, torch.stack((torch.ones_like(signs), signs), dim=1).flatten()
