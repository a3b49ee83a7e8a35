"""The transform of the sphere: Gauss-Legendre rings, equally spaced longitudes.

R rings and N longitudes integrate a harmonic of degree d exactly if d ≤ 2R - 1 and d < N. So do
products φ_kφ_ℓψ of degrees L, L and K with R = L + ⌈(K + 1)/2⌉ and N = 2L + K + 1.
"""

from __future__ import annotations

import functools

import numpy as np
import scipy.fft
import scipy.special
import torch
from torch import Tensor

from oism.basis._sphere_legendre import LegendreTable
from oism.basis._transform import Transform


def gauss_legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return decreasing nodes z in (-1, 1), symmetric to the last digit, and weights of sum 1.

    The weights are 1/Σ_{l < count} (2l + 1) P_l(z)², a sum of positive terms. SciPy's own have
    relative errors of 1e-9 next to the ends for 500 nodes; its nodes are exact to rounding.
    """
    nodes = scipy.special.roots_legendre(count)[0]
    nodes = 0.5 * (nodes[::-1] - nodes)
    z = nodes.astype(np.longdouble)
    before, current, total = np.zeros_like(z), np.ones_like(z), np.zeros_like(z)
    for degree in range(count):
        total += (2 * degree + 1) * current**2
        after = ((2 * degree + 1) * z * current - degree * before) / (degree + 1)
        before, current = current, after
    return nodes, (1 / total).astype(np.float64)


class SphereGrid:
    """Gauss-Legendre rings and longitudes on which harmonics up to a degree integrate exactly."""

    def __init__(self, exact: int) -> None:
        self.rings = exact // 2 + 1
        self.longitudes = scipy.fft.next_fast_len(exact + 1, real=True)
        z, weights = gauss_legendre(self.rings)
        self.z, self.weights = torch.from_numpy(z), torch.from_numpy(weights)

    def rule(self) -> tuple[Tensor, Tensor]:
        """Return the points ``(m, 3)`` and weights ``(m,)`` for the uniform probability."""
        phi = torch.arange(self.longitudes, dtype=torch.float64) * (2 * torch.pi / self.longitudes)
        s = ((1 - self.z) * (1 + self.z)).sqrt()[:, None]
        parts = (s * phi.cos(), s * phi.sin(), self.z[:, None].expand(-1, self.longitudes))
        weights = (self.weights / self.longitudes)[:, None].expand(-1, self.longitudes)
        return torch.stack(parts, dim=-1).flatten(0, 1), weights.flatten()


@functools.lru_cache(maxsize=8)
def grid_of(exact: int) -> SphereGrid:
    """Return the grid that is exact for harmonics up to a degree, cached."""
    return SphereGrid(exact)


@functools.lru_cache(maxsize=8)
def table_of(degree: int, exact: int) -> LegendreTable:
    """Return the table of a degree on the rings of a grid, cached."""
    return LegendreTable(degree, grid_of(exact).z)


class SphereTransform(Transform):
    """Harmonics of degree 1 to ``degree`` on a grid that is exact up to the degree ``exact``."""

    def __init__(self, degree: int, exact: int) -> None:
        self.degree = degree
        self.grid, self.table = grid_of(exact), table_of(degree, exact)
        self.size = (degree + 1) ** 2 - 1
        self.points = self.grid.rings * self.grid.longitudes

    def synthesise(self, coefficients: Tensor) -> Tensor:
        """Return the values on the grid, ring by ring."""
        full = torch.nn.functional.pad(coefficients, (1, 0))
        half = self.table.synthesise(full)
        field: Tensor = torch.fft.irfft(half, n=self.grid.longitudes, norm="forward")
        return field.flatten(-2)

    def analyse(self, values: Tensor) -> Tensor:
        """Return the coefficients, without that of the constant function."""
        field = values.reshape(*values.shape[:-1], self.grid.rings, self.grid.longitudes)
        half = torch.fft.rfft(field, norm="forward")[..., : self.degree + 1]
        return self.table.analyse(half * self.grid.weights[:, None])[..., 1:]
