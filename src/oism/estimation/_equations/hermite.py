"""The equations in standardised coordinates of the Ornstein-Uhlenbeck process.

With u = (Vz - m)/s and X_t = e^{-θt}X_0 + … in units of the invariant distribution, the coordinates
at time t, standardised by

    m_t = e^{-θt} m,    s_t² = e^{-2θt} s² + 1 - e^{-2θt},

are u_t = a u + √(1 - a²) ε with a = e^{-θt} s/s_t in each direction: again an Ornstein-Uhlenbeck
process, with its own time in each direction. So E[φ_n(u_t)] = aⁿ E[φ_n(u)]. For
f = Σ α_m φ_m(u_t) = log ρ_t - log N(m_t, s_t²) up to a constant, because φ_n' = √n φ_{n-1},

    A_t[k, ℓ] = Σ_i s_{t,i}⁻² √(k_i ℓ_i) E[φ_{k-e_i} φ_{ℓ-e_i}](u_t),
    b_t[k]    = -Σ_i s_{t,i}⁻² k_i a^k E[φ_k(u)].

For a single direction the factor s_t⁻² cancels. In these coordinates b vanishes for k ≤ 2: order
two is the Gaussian, and any ridge shrinks towards it.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from oism.basis._hermite import TensorGram, gram, lowered, with_constant
from oism.score import Coordinates


class HermiteEquations:
    """For each direction: A ``(T, *folds, dim, order, order)``, b ``(T, *folds, dim, order)``.

    ``means`` are E[φ₀], E[φ₁], … in standardised coordinates, ``(*folds, degrees, dim)``.
    """

    def __init__(self, order: int, coordinates: Coordinates, means: Tensor) -> None:
        self.order, self.coordinates = order, coordinates
        self.means = means[..., : max(order, 2 * order - 2) + 1, :].mT
        degree = torch.arange(1, order + 1, dtype=torch.float64, device=means.device)
        self._roots = degree.sqrt()

    def evolved(self, t: Tensor) -> Tensor:
        """Return E[φ_n(u_t)]: ``(T, *folds, dim, degrees)``."""
        degree = torch.arange(self.means.shape[-1], device=self.means.device)
        powers = self.coordinates.decay(t)[..., None] ** degree
        return powers.reshape(len(t), *[1] * (self.means.ndim - 2), *powers.shape[1:]) * self.means

    def at(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return A_t and b_t."""
        means = self.evolved(t)
        matrix = torch.outer(self._roots, self._roots) * gram(means, self.order - 1)
        return matrix, -self._roots.square() * means[..., 1 : self.order + 1]


class TensorHermiteEquations:
    """All products up to a total degree: A ``(T, *folds, size, size)``, b ``(T, *folds, size)``.

    ``means`` are averages over all |m| ≤ 2·order - 2, ``(*folds, functions)``.
    """

    def __init__(self, order: int, coordinates: Coordinates, means: Tensor) -> None:
        self.order, self.coordinates = order, coordinates
        dim = len(coordinates.scale)
        degree = max(order, 2 * order - 2)
        self._degrees = with_constant(dim, degree)
        self.indices = with_constant(dim, order)[1:]
        self.means = means[..., : len(self._degrees)]
        self._gram = TensorGram(dim, order - 1, degree)

    @cached_property
    def lowered(self) -> tuple[Tensor, Tensor]:
        """The position of m - e_i among the lower indices, and √m_i; 0 and 0 if m_i = 0."""
        places, roots = lowered(with_constant(self.indices.shape[1], self.order))
        return places[1:], roots[1:]

    def evolved(self, t: Tensor) -> Tensor:
        """Return E[φ_m(u_t)]: ``(T, *folds, functions)``."""
        decay = (self.coordinates.decay(t)[:, None] ** self._degrees).prod(dim=-1)
        return decay.reshape(len(t), *[1] * (self.means.ndim - 1), -1) * self.means

    def at(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return A_t and b_t."""
        means = self.evolved(t)
        products = self._gram(means)
        metric = self.coordinates.at(t)[1].pow(-2)
        shape = (len(t), *[1] * (means.ndim - 2))
        places, roots = self.lowered
        matrix = torch.zeros((), dtype=torch.float64)
        for i in range(self.indices.shape[1]):
            own = places[:, i]
            part = products[..., own, :][..., own] * torch.outer(roots[:, i], roots[:, i])
            matrix = matrix + metric[:, i].reshape(*shape, 1, 1) * part
        rates = self.rates(t).reshape(*shape, -1)
        return matrix, -rates * means[..., 1 : len(self.indices) + 1]

    def rates(self, t: Tensor) -> Tensor:
        """Return Σ_i s_{t,i}⁻² m_i, the diagonal of A_t for a Gaussian: ``(T, size)``."""
        return self.coordinates.at(t)[1].pow(-2) @ self.indices.double().mT
