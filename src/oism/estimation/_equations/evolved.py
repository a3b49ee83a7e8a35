"""A_t and b_t of numerical eigenfunctions, from the density ratio of the noised data.

With the rates μ of a Langevin diffusion (``oism.process._langevin``) and r_t = ρ_t/π,

    r_t = 1 + Σ_n e^{-μ_n t} m_n ψ_n,    m_n = E[ψ_n(X_0)],
    A_t[j, k] = ∫ Γ(φ_j, φ_k) r_t dπ,    b_t[k] = -μ_k e^{-μ_k t} m_k.

All eigenfunctions of the discrete generator would make the sum exact in the space of splines, but
on the plane there are thousands. `reduced` returns few functions ψ for given data: with the forms
K = ∫∇B·∇B dπ and M = ∫BBᵀdπ of the B-splines and g = E[B(X_0)], the Ritz pairs of K in the space
spanned by the eigenfunctions φ of the basis and the resolvents

    (M + γK)⁻¹ g,    γ = γ_0, γ_0 q, γ_0 q², …

for the averages g of each fold. e^{-μt} is approximated by combinations of 1/(1 + γμ) to about 1e-4
for all t from the first time on (q = 1.7), and the φ are Ritz pairs themselves, so that b_t is
exact.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu
from torch import Tensor

from oism.basis import Eigenfunctions

RATIO = 1.7
EARLY, LATE = 0.03, 1.0
"""The range of γ, as shares of the first time and of the last one, 4/μ for the last μ."""

DECAYED = 4.0
DEPENDENT = 1e-9
"""Vectors whose part outside the space is relatively smaller than this are left out."""

ENTRIES = 2**23
"""The number of products of gradients per batch of points."""


def reduced(basis: Eigenfunctions, averages: Tensor, first: float) -> tuple[Tensor, Tensor]:
    """Return rates and spline coefficients of the functions ψ, those of the basis first.

    ``averages`` ``(f, splines)`` are the averages of the B-splines over the rows of each fold,
    ``first`` is the first time.
    """
    stiffness, mass, scale = basis.process.forms
    known = np.concatenate((np.ones((len(scale), 1)), basis.coefficients.numpy()), axis=1)
    space = known / scale[:, None]
    right = scale[:, None] * averages.mT.numpy()
    last = max(DECAYED / float(basis.rates[-1]), first)
    steps = math.ceil(math.log(LATE * last / (EARLY * first)) / math.log(RATIO))
    vectors = [splu(sparse.csc_matrix(mass)).solve(right)]
    for step in range(steps + 1):
        shifted = sparse.csc_matrix(mass + EARLY * first * RATIO**step * stiffness)
        vectors.append(splu(shifted, permc_spec="MMD_AT_PLUS_A").solve(right))
    more = _orthonormal(np.concatenate(vectors[::-1], axis=1), space, mass)  # the smoothest first
    energy = more.T @ (stiffness @ more)
    rates, rotation = np.linalg.eigh(0.5 * (energy + energy.T))
    outside = scale[:, None] * (more @ rotation)
    joined = torch.cat((basis.coefficients, torch.from_numpy(outside)), dim=1)
    # A Ritz value is not below the eigenvalues that are left out, but for rounding.
    floor = basis.rates[-1]
    return torch.cat((basis.rates, torch.from_numpy(rates).clamp(min=float(floor)))), joined


def _orthonormal(
    vectors: NDArray[np.float64], space: NDArray[np.float64], mass: sparse.csc_array
) -> NDArray[np.float64]:
    """Return vectors that, orthonormal in the mass, span what is outside of a space."""
    found: list[NDArray[np.float64]] = []
    whole = space
    for vector in vectors.T:
        size = math.sqrt(vector @ (mass @ vector))
        own = vector / size if size > 0 else vector
        for _ in range(2):  # twice is enough (Kahan)
            own = own - whole @ (whole.T @ (mass @ own))
        rest = math.sqrt(max(0.0, own @ (mass @ own)))
        if rest > DEPENDENT:
            found.append(own / rest)
            whole = np.concatenate((whole, found[-1][:, None]), axis=1)
    return np.stack(found, axis=1) if found else np.zeros((len(vectors), 0))


class EvolvedEquations:
    """A_t and b_t from averages ``(*batch, wide)`` of the functions of ``basis.doubled()``.

    These begin with the functions of the basis; ``forms`` are its `interactions`.
    """

    def __init__(self, basis: Eigenfunctions, means: Tensor, forms: Tensor) -> None:
        self.basis, self.means, self._forms = basis, means.double(), forms
        self._rates = basis.doubled().rates

    def energies(self, t: Tensor) -> Tensor:
        """Return A_t: ``(T, *batch, size, size)``."""
        decay = torch.exp(-t.double()[:, None] * self._rates)
        decay = decay.reshape(len(t), *[1] * (self.means.ndim - 1), -1)
        change = (decay * self.means) @ self._forms[1:].flatten(1)
        return self._forms[0] + change.reshape(*change.shape[:-1], *self._forms.shape[1:])

    def right(self, t: Tensor) -> Tensor:
        """Return b_t: ``(T, *batch, size)``."""
        rates = self.basis.rates
        decay = -rates * torch.exp(-t.double()[:, None] * rates)
        own = self.means[..., : len(rates)]
        return decay.reshape(len(t), *[1] * (self.means.ndim - 1), -1) * own


def interactions(basis: Eigenfunctions) -> Tensor:
    """Return ∫ Γ(φ_j, φ_k) ψ_n dπ for ψ_0 = 1 and all others: ``(1 + wide, size, size)``."""
    points, weights = basis.rule()
    wide, size = basis.doubled(), basis.size
    total = torch.zeros(1 + wide.size, size * size, dtype=torch.float64)
    for rows in torch.split(torch.arange(len(points)), max(1, ENTRIES // size**2)):
        slopes = basis.gradients(points[rows])
        products = (slopes[:, :, None] * slopes[:, None]).sum(dim=-1).flatten(1)
        values = weights[rows, None] * wide.values(points[rows])
        total[0] += weights[rows] @ products
        total[1:] += values.mT @ products
    return total.reshape(-1, size, size)
