"""Eigenfunctions of a symmetric linear SDE: products of Hermite polynomials in whitened directions.

In y = Wx the coordinates are independent Ornstein-Uhlenbeck processes with rates θᵢ (`Whitening`):

    φ_m(x) = φ_{m₁}(y₁) ⋯ φ_{m_d}(y_d),    λ_m = -Σ θᵢmᵢ,    ∂φ_m/∂yᵢ = √mᵢ φ_{m-eᵢ}:

derivatives are functions of the basis or the constant, and are read from the table of values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import matmul
from oism.basis._base import Basis
from oism.basis._hermite import check_few, lowered, multi_indices, products
from oism.process import Linear, Whitening
from oism.storage import storable


@storable
@dataclass(frozen=True, eq=False)
class WhitenedHermite(Basis):
    """All φ_m of total degree 1 ≤ |m| ≤ order for a symmetric `Linear`, slowest decay first.

    With different rates, sorting by eigenvalue differs from sorting by degree. Order 2 spans the
    logarithms of all Gaussians.

    >>> process = Linear(torch.tensor([[-2.0, 1.0], [1.0, -2.0]]), 2 * torch.eye(2))
    >>> WhitenedHermite(process, order=2).eigenvalues.round(decimals=12)
    tensor([-1., -2., -3., -4., -6.], dtype=torch.float64)
    """

    process: Linear
    order: int
    whitening: Whitening = field(init=False, repr=False)
    dim: int = field(init=False, repr=False)
    indices: Tensor = field(init=False, repr=False)
    """The multi-indices m in the order of their eigenvalues: ``(size, dim)``, int64."""
    _decay: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        order, whitening = checks.integer(self.order, "order", minimum=1), Whitening(self.process)
        check_few(self.process.size, order)
        indices = multi_indices(self.process.size, order)
        decay, slowest_first = (indices.double() @ whitening.rates).sort(stable=True)
        checks.assign(self, order=order, whitening=whitening, dim=self.process.size)
        checks.assign(self, indices=indices[slowest_first], _decay=decay)

    @property
    def eigenvalues(self) -> Tensor:
        """-Σ θᵢmᵢ."""
        return -self._decay

    @property
    def _from_constant(self) -> Tensor:
        """The multi-indices of the table, the constant's first."""
        return torch.cat((torch.zeros(1, self.dim, dtype=torch.int64), self.indices))

    @cached_property
    def _lowered(self) -> tuple[Tensor, Tensor]:
        """The position of m - eᵢ in the table, and √mᵢ: ``(size + 1, dim)``."""
        return lowered(self._from_constant)

    def _table(self, x: Tensor) -> Tensor:
        """Return the constant and all φ_m: ``(n, size + 1)``."""
        return products(self.whitening.analyse(x), self._from_constant, self.order)

    def _in_y(self, table: Tensor) -> Tensor:
        """Return ∂/∂yᵢ of every function of the table: ``(n, size + 1, dim)``."""
        places, roots = self._lowered
        return roots.to(table) * table[:, places]

    def _values(self, table: Tensor) -> Tensor:
        return table[:, 1:]

    def _gradients(self, table: Tensor) -> Tensor:
        return matmul(self._in_y(table)[:, 1:], self.whitening.matrix.to(table))

    def _laplacians(self, table: Tensor) -> Tensor:
        # Δ_x = Σᵢⱼ (WWᵀ)ᵢⱼ ∂ᵢ∂ⱼ, direction by direction, without a table of Hessians.
        metric = matmul(self.whitening.matrix, self.whitening.matrix.mT).to(table)
        slopes, total = self._in_y(table), torch.zeros_like(table)
        for i in range(self.dim):
            total = total + (self._in_y(slopes[:, :, i]) * metric[i]).sum(dim=2)
        return total[:, 1:]

    def doubled(self) -> WhitenedHermite:
        """Return the products of twice the total degree."""
        return WhitenedHermite(self.process, 2 * self.order)

    def rule(self) -> tuple[Tensor, Tensor]:
        """Return the Gauss-Hermite rule, exact up to four times the order in each direction."""
        return self.process.invariant.quadrature(self.dim, 2 * self.order + 1)
