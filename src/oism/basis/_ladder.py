"""Ladder operators on products of Hermite polynomials: derivatives, drifts and Gaussian noise.

On φ_m = φ_{m₁}(u₁) ⋯ φ_{m_d}(u_d) of total degree ≤ n, the constant first, differentiation and its
adjoint under N(0, I) lower and raise the degree:

    aᵢ = ∂ᵢ:         φ_m ↦ √mᵢ φ_{m-eᵢ},
    aᵢ* = uᵢ - ∂ᵢ:   φ_m ↦ √(mᵢ+1) φ_{m+eᵢ}.

The generator of a linear process is a combination of these: a drift is ⟨Ku, ∇⟩ =
Σ Kᵢⱼ(aⱼ* + aⱼ)aᵢ, noise tr(G∇²) = Σ Gᵢⱼaᵢaⱼ. If u' = Bu + noise, and u and u' have mean 0 and
covariance I, the conditional expectation of a polynomial of u' preserves the degree,

    E[φ_k(u') | u] = Σ_j Γ(B)[k, j] φ_j(u),    √kᵢ Γ[k, j] = Σ_ℓ B_iℓ √j_ℓ Γ[k - eᵢ, j - e_ℓ],

the symmetric powers of B, one for each degree (Mehler's formula if B is a number). B may be
rectangular: u may have fewer entries than u'. Row k of a matrix belongs to φ_k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import matmul
from oism.basis._hermite import check_few, lowered, with_constant


@dataclass(frozen=True, eq=False)
class Ladder:
    """The φ_m of ``dim`` variables and total degree ≤ ``degree``, the constant first.

    >>> Ladder(dim=2, degree=1).drift(torch.tensor([[-1.0, 3.0], [0.0, -2.0]]).double())
    tensor([[ 0.,  0.,  0.],
            [ 0., -1.,  3.],
            [ 0.,  0., -2.]], dtype=torch.float64)
    """

    dim: int
    degree: int
    indices: Tensor = field(init=False, repr=False)
    """The multi-indices m, degree by degree: ``(size, dim)``, int64."""
    _places: Tensor = field(init=False, repr=False)
    _roots: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        checks.integer(self.degree, "degree", minimum=0)
        check_few(checks.integer(self.dim, "dim", minimum=1), self.degree)
        indices = with_constant(self.dim, self.degree)
        places, roots = lowered(indices)
        checks.assign(self, indices=indices, _places=places, _roots=roots)

    def count(self, degree: int) -> int:
        """Return the number of functions of total degree ≤ ``degree``, which are the first ones."""
        return math.comb(self.dim + degree, self.dim) if degree >= 0 else 0

    def slopes(self, direction: Tensor) -> Tensor:
        """Return Σ nᵢaᵢ for directions n ``(..., dim)``, derivatives along them: ``(..., s, l)``.

        Rows are the s functions, columns the l of lower degree (the constant, at degree 0).
        """
        size, lower = len(self.indices), max(1, self.count(self.degree - 1))
        at = (torch.arange(size)[:, None] * lower + self._places).flatten().to(direction.device)
        terms = (direction[..., None, :] * self._roots.to(direction)).flatten(-2)
        out = direction.new_zeros(*direction.shape[:-1], size * lower)
        flat = out.scatter_add(-1, at.expand_as(terms), terms)
        return flat.reshape(*direction.shape[:-1], size, lower)

    def drift(self, matrix: Tensor) -> Tensor:
        """Return Σ Kᵢⱼaⱼ*aᵢ for K ``(dim, dim)``, the part of ⟨Ku, ∇⟩ that preserves the degree."""
        steps = self.slopes(torch.eye(self.dim).to(matrix))
        return (self.slopes(matrix.mT) @ steps.mT).sum(dim=0)

    def noise(self, matrix: Tensor) -> Tensor:
        """Return Σ Gᵢⱼaᵢaⱼ = tr(G∇²) for G ``(dim, dim)``, which lowers the degree by two."""
        steps = self.slopes(torch.eye(self.dim).to(matrix))
        lower = steps.shape[-1]
        twice = (self.slopes(matrix.mT) @ steps[:, :lower]).sum(dim=0)
        return torch.nn.functional.pad(twice, (0, len(self.indices) - lower))

    def spread(self, matrix: Tensor, means: Tensor, source: Ladder) -> Tensor:
        """Return E[φ_k(u')] = Γ(B) E[φ_j(u)] for B ``(T, dim, source.dim)``: ``(T, ..., size)``.

        ``means`` are those of u, ``(..., source size)``, of at least this degree.
        """
        device = matrix.device
        block, parts = (
            matrix.new_ones(len(matrix), 1, 1),
            [means[..., :1].expand(len(matrix), *means.shape[:-1], 1)],
        )
        for n in range(1, self.degree + 1):
            rows, columns = self._level(n), source._level(n)
            first = (self.indices[rows] > 0).int().argmax(dim=1)
            parents = self._places[rows].gather(1, first[:, None])[:, 0] - self.count(n - 2)
            down = (source._places[columns] - source.count(n - 2)).clamp(min=0).to(device)
            roots = source._roots[columns].to(matrix)
            above = block[:, parents.to(device)]
            total = matrix.new_zeros(())
            for l in range(source.dim):  # noqa: E741 (the letter of the formula)
                weights = matrix[:, first.to(device), l, None] * roots[:, l]
                total = total + weights * above[:, :, down[:, l]]
            block = total / self._roots[rows].gather(1, first[:, None]).to(matrix)
            own = means[..., columns]
            moved = matmul(own.reshape(1, -1, own.shape[-1]), block.mT)
            parts.append(moved.reshape(len(matrix), *own.shape[:-1], -1))
        return torch.cat(parts, dim=-1)

    def _level(self, degree: int) -> slice:
        return slice(self.count(degree - 1), self.count(degree))
