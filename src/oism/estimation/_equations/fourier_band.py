"""The functions on the torus with ‖ξ‖ up to a bound, and the lattice of their products.

All that equations need besides averages: positions of frequencies in the lattice, and transforms.
Equations of different averages share it.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from oism.basis import Fourier, TorusTransform
from oism.basis._fourier import leading


class FourierBand:
    """The functions with ‖ξ‖ ≤ ``bound``, a prefix of the basis, on a device.

    Of ``lattice``, a half lattice, those ζ are ``needed`` whose entries are at most twice the
    largest of the functions.
    """

    def __init__(
        self, basis: Fourier, lattice: Tensor, bound: float, device: torch.device | None = None
    ) -> None:
        inside = basis.frequencies.square().sum(dim=1) <= bound**2
        if not bool(inside.any()):
            raise ValueError(f"band must hold at least one frequency, got {bound!r}")
        frequencies = basis.frequencies[inside]
        # Internally ξ is the one of ±ξ that is in the lattice; sin changes its sign with it.
        canonical, flip = _canonical(frequencies)
        self.reach = int(frequencies.abs().max())
        needed = (lattice.abs() <= 2 * self.reach).all(dim=1)
        self.frequencies, self.lattice = frequencies.to(device), lattice[needed].to(device)
        self.canonical, self.flip = canonical.to(device), None if flip is None else flip.to(device)
        self.needed = needed.nonzero()[:, 0].to(device)
        self.eigenvalues = basis.eigenvalues[: self.size].to(device)
        self.squares = self.lattice.square().sum(dim=1)
        self._kept: dict[tuple[int, int], tuple[TorusTransform, TorusTransform, Tensor]] = {}

    @property
    def size(self) -> int:
        """The number of functions."""
        return 2 * len(self.frequencies)

    @cached_property
    def first(self) -> Tensor:
        """The positions of the functions' frequencies in the lattice: ``(size/2,)``."""
        return self._find(self.canonical)[0]

    @cached_property
    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """The positions of all ξ - η and ξ + η in the lattice, and their signs.

        That of 0 is the length of the lattice.
        """
        xi = self.frequencies
        return [self._find(xi[:, None] + side * xi) for side in (-1, 1)]

    def _find(self, xi: Tensor) -> tuple[Tensor, Tensor]:
        """Return the position of ±ξ in the lattice, and the sign."""
        table, sign = self._places
        keys = self._keys(xi)
        return table[keys], sign[keys]

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor]:
        """The position and the sign of every ζ and -ζ of the lattice, by its key."""
        count = (4 * self.reach + 1) ** self.lattice.shape[1]
        table = torch.full((count,), -1, device=self.lattice.device)
        sign = torch.zeros_like(table)
        number = torch.arange(len(self.lattice), device=self.lattice.device)
        for side in (1, -1):
            keys = self._keys(side * self.lattice)
            table[keys], sign[keys] = number, side
        table[count // 2] = len(self.lattice)  # 0
        return table, sign

    def _keys(self, xi: Tensor) -> Tensor:
        """Return the number of each frequency in the box of all: ``(...)``."""
        key, side = xi[..., 0].long() + 2 * self.reach, 4 * self.reach + 1
        for j in range(1, xi.shape[-1]):
            key = key * side + (xi[..., j].long() + 2 * self.reach)
        return key

    def transforms(
        self, width: int, points: int | None = None
    ) -> tuple[TorusTransform, TorusTransform, Tensor]:
        """Return the transforms of f and of ρ_t with frequencies up to k, and which ζ these are.

        By default the grid has as many points as exact products need.
        """
        points = 2 * self.reach + width + 1 if points is None else points
        if (width, points) not in self._kept:
            kept = (self.lattice.abs() <= width).all(dim=1)
            own, wide = (TorusTransform(xi, points) for xi in (self.canonical, self.lattice[kept]))
            self._kept[width, points] = own, wide, kept
        return self._kept[width, points]


def _canonical(xi: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return frequencies with a positive first non-zero entry, and ±1 for (cos, sin) of each.

    The signs are None if nothing changes, as for a lattice.
    """
    signs = leading(xi).sign()
    if bool((signs > 0).all()):
        return xi, None
    return signs[:, None] * xi, torch.stack((torch.ones_like(signs), signs), dim=1).flatten()
