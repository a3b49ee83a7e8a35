"""The equations on the torus: A_t is the Galerkin form of f ↦ -∇·(ρ_t ∇f).

With c_t(ζ) = e^{-‖ζ‖²t} E[e^{-iζ·x}], the density ratio is ρ_t/π = Σ_ζ c_t(ζ) e^{iζ·x}, and

    A_t[k, ℓ] = E_t[∇φ_k·∇φ_ℓ],    b_t[k] = λ_k e^{λ_k t} E[φ_k].

The matrix of n functions has n² entries, but it can be applied by a few Fourier transforms: the
gradient on a grid, times the density, divergence, projection. Products of frequencies of f up to r
and of ρ_t up to 2r have no aliases among those up to r if the grid has at least 4r + 1 points per
axis.

Coefficients are real vectors in the order of the basis, with cos and sin next to each other. With
the complex numbers a = α_cos + i α_sin, f = √2 Re Σ_ξ conj(a_ξ) e^{iξ·x}.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from oism.basis import Fourier, TorusGrid
from oism.basis._fourier import leading


class FourierEquations:
    """A_t and b_t for averages E[e^{-iζ·x}], ``(*batch, m)``, over the extended half lattice.

    ``band`` keeps only the functions with ‖ξ‖ ≤ band, a prefix of the basis.
    """

    def __init__(
        self, basis: Fourier, lattice: Tensor, means: Tensor, band: float = math.inf
    ) -> None:
        inside = basis.frequencies.square().sum(dim=1) <= band**2
        if not bool(inside.any()):
            raise ValueError(f"band must hold at least one frequency, got {band!r}")
        self.basis = basis
        self.frequencies = basis.frequencies[inside]
        # Internally ξ is the one of ±ξ that is in the lattice; sin changes its sign with it.
        self._canonical, self._flip = _canonical(self.frequencies)
        self.reach = int(self.frequencies.abs().max())
        needed = (lattice.abs() <= 2 * self.reach).all(dim=1)
        self.lattice, self.means = lattice[needed], means[..., needed]
        self.squares = self.lattice.square().sum(dim=1)

    @property
    def size(self) -> int:
        """The number of functions."""
        return 2 * len(self.frequencies)

    @cached_property
    def eigenvalues(self) -> Tensor:
        """The eigenvalues of the functions: ``(size,)``."""
        return self.basis.eigenvalues[: self.size]

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
        strides = (2 * reach + 1) ** torch.arange(xi.shape[-1])
        table = torch.full(((2 * reach + 1) ** xi.shape[-1],), -1)
        sign = torch.zeros_like(table)
        for side in (1, -1):
            keys = ((side * self.lattice.long() + reach) * strides).sum(dim=-1)
            table[keys], sign[keys] = torch.arange(len(keys)), side
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

    @cached_property
    def grid(self) -> TorusGrid:
        """The grid on which A_t is applied."""
        return TorusGrid(self.basis.dim, 4 * self.reach + 1, self.reach)

    @cached_property
    def _placed(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.grid.place(self._canonical)

    @cached_property
    def _wide(self) -> tuple[TorusGrid, tuple[Tensor, Tensor, Tensor]]:
        """The same grid with coefficients for all ζ, and their positions."""
        grid = TorusGrid(self.basis.dim, 4 * self.reach + 1, 2 * self.reach)
        return grid, grid.place(self.lattice)

    def density(self, t: Tensor) -> Tensor:
        """Return ρ_t/π on the grid: ``(T, *batch, *grid.shape)``."""
        grid, placed = self._wide
        return grid.density(self.characteristic(t), placed)

    def operator(self, density: Tensor) -> GalerkinOperator:
        """Return α ↦ Aα for densities ``(S, *grid.shape)``."""
        return GalerkinOperator(self, density)


PIECE = 2**19
"""The number of entries of the fields per transform.

Small enough that the allocator reuses their memory: fields of several megabytes are returned to the
system after every use, and fresh pages cost several times the transforms.
"""


class GalerkinOperator:
    """α ↦ Aα for S densities at once: ``(S, …, size)`` to the same shape, in float64.

    Its buffer is reused between calls: only the entries of the functions are written.
    """

    def __init__(self, equations: FourierEquations, density: Tensor) -> None:
        self._grid, self._density = equations.grid, density
        self._slots, self._mirrored, self._images = equations._placed
        self._waves, self._flip = 1j * equations._canonical.mT, equations._flip
        self._buffer: Tensor | None = None

    def __call__(self, alpha: Tensor) -> Tensor:
        """Return Aα for coefficients ``(S, …, size)``."""
        alpha = alpha if self._flip is None else self._flip * alpha
        field = alpha[0].numel() // alpha.shape[-1] * self._grid.dim * self._density[0].numel()
        step = max(1, PIECE // field)
        pieces = [
            self._apply(alpha[start : start + step], self._density[start : start + step])
            for start in range(0, len(alpha), step)
        ]
        result = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        return result if self._flip is None else self._flip * result

    def _apply(self, alpha: Tensor, density: Tensor) -> Tensor:
        a = torch.view_as_complex(alpha.reshape(*alpha.shape[:-1], -1, 2)).conj()
        slopes = self._waves * a[..., None, :]
        shape = (*slopes.shape[:-1], self._grid.slots)
        held = self._buffer
        if held is None or held.shape[1:] != shape[1:] or len(held) < len(slopes):
            held = self._buffer = slopes.new_zeros(shape)
        spectrum = held[: len(slopes)]
        spectrum[..., self._slots] = slopes
        spectrum[..., self._images] = slopes[..., self._mirrored].conj()
        field = self._grid.synthesise(spectrum)
        extra = field.ndim - density.ndim
        flux = self._grid.analyse(
            field.mul_(density.reshape(len(alpha), *[1] * extra, *self._grid.shape))
        )
        out = (self._waves * flux[..., self._slots].conj()).sum(dim=-2)
        return torch.view_as_real(out).flatten(-2)


def _canonical(xi: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return frequencies with a positive first non-zero entry, and ±1 for (cos, sin) of each.

    The signs are None if nothing changes, as for a lattice.
    """
    signs = leading(xi).sign()
    if bool((signs > 0).all()):
        return xi, None
    return signs[:, None] * xi, torch.stack((torch.ones_like(signs), signs), dim=1).flatten()
