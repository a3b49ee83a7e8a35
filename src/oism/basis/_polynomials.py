"""Polynomials under a linear SDE: P_t maps those of total degree ≤ n to themselves.

The generator Lf = ⟨Fx, ∇f⟩ + tr(G∇²f) does not raise the degree, for symmetric and asymmetric
processes and any spectrum of F. On a basis φ of these polynomials it is a matrix M, and

    Lφ_k = Σ_j M_kj φ_j,    P_tφ_k = Σ_j (e^{tM})_kj φ_j,    E[φ(X_t)] = e^{tM} E[φ(X_0)]:

moments of all times follow from those at t = 0. The functions are products of Hermite polynomials
in y = Wx with WΣWᵀ = I, orthonormal under N(0, Σ). With K = WFW⁻¹ and the notation of
``oism.basis._ladder``,

    L = Σ Kᵢⱼaⱼ*aᵢ + Σ Dᵢⱼaᵢaⱼ,    D = WGWᵀ + ½(K + Kᵀ).

For the stationary Σ = Σ∞, D = 0 by Lyapunov's equation: degrees do not mix, L* in L²(π) is the
transpose, and ½(L + L*) = -Σ (WGWᵀ)ᵢⱼaⱼ*aᵢ. If the process is symmetric, so is M. Without a
stationary distribution with a density Σ = I is used; then moments depend on those of lower degree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import matmul
from oism.basis._base import Functions
from oism.basis._hermite import products
from oism.basis._ladder import Ladder
from oism.process import CorrelatedGaussian, Linear, NotAProbabilityError
from oism.process._covariance import act, spread
from oism.storage import storable

ENTRIES = 2**24
"""The number of entries of matrix exponentials per batch."""


@storable
@dataclass(frozen=True, eq=False)
class Polynomials(Functions):
    """All φ_m of total degree ≤ order for a `Linear` process, the constant first.

    ``covariance`` Σ ``(m, m)`` is that of one copy of the process, by default Σ∞, or I if there is
    no stationary distribution with a density. Multi-indices are computed on first use.

    >>> process = Linear(torch.tensor([[-1.0, -3.0], [3.0, -1.0]]), 2**0.5 * torch.eye(2))
    >>> basis = Polynomials(process, order=2)
    >>> basis.generator[1:3, 1:3]  # on linear functions it is F
    tensor([[-1., -3.],
            [ 3., -1.]], dtype=torch.float64)
    >>> means = torch.tensor([1.0, 0.5, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    >>> basis.evolve(means, torch.tensor([1.0]).double())[0, 1]  # ½e^{-t}cos 3t
    tensor(-0.1821, dtype=torch.float64)
    """

    process: Linear
    order: int
    covariance: Tensor | None = None
    dim: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        checks.instance(self.process, Linear, "process")
        order = checks.integer(self.order, "order", minimum=1)
        checks.assign(self, order=order, dim=self.process.size)
        checks.assign(self, covariance=self._reference())
        _ = self._whitener

    def _reference(self) -> Tensor:
        """Return Σ, given or by default."""
        size = len(self.process.drift_matrix)
        if self.covariance is not None:
            given = CorrelatedGaussian(self.covariance).covariance
            if len(given) != size:
                raise ValueError(
                    f"covariance must have shape ({size}, {size}), that of drift_matrix, got "
                    f"{tuple(given.shape)}"
                )
            return given
        try:
            law = CorrelatedGaussian(self.process.stationary_covariance)
            _ = law.whitener
        except ValueError:  # not Hurwitz, or not controllable
            return torch.eye(size, dtype=torch.float64)
        return law.covariance

    def facts(self) -> dict[str, Any]:
        """Return the number of polynomials and their largest degree."""
        return {"kind": "polynomials", "count": self.size, "degree": self.order}

    @cached_property
    def _whitener(self) -> Tensor:
        """W of one copy, ``(m, m)``."""
        assert self.covariance is not None
        return CorrelatedGaussian(self.covariance).whitener[0]

    @cached_property
    def ladder(self) -> Ladder:
        """The multi-indices with their derivatives."""
        return Ladder(self.dim, self.order)

    @property
    def size(self) -> int:
        """The number of functions, C(d + order, d)."""
        return math.comb(self.dim + self.order, self.dim)

    @property
    def indices(self) -> Tensor:
        """The multi-indices m: ``(size, dim)``, int64."""
        return self.ladder.indices

    @cached_property
    def is_stationary(self) -> bool:
        """Whether N(0, Σ) is the stationary distribution, up to rounding."""
        drift, diffusion = self._in_y
        rest = diffusion + 0.5 * (drift + drift.mT)
        scale = drift.norm() + diffusion.norm()
        return bool(rest.norm() <= 1e-10 * scale)

    @cached_property
    def _in_y(self) -> tuple[Tensor, Tensor]:
        """K = WFW⁻¹ and WGWᵀ of one copy."""
        whiten = self._whitener
        noise = whiten @ self.process.noise_matrix
        drift = whiten @ self.process.drift_matrix @ torch.linalg.inv(whiten)
        return drift, 0.5 * noise @ noise.mT

    @cached_property
    def generator(self) -> Tensor:
        """M, the matrix of L, Lφ_k = Σ_j M_kj φ_j: ``(size, size)``, float64."""
        drift, diffusion = (spread(part, self.process.copies) for part in self._in_y)
        matrix = self.ladder.drift(drift)
        if self.is_stationary:
            return matrix
        return matrix + self.ladder.noise(diffusion + 0.5 * (drift + drift.mT))

    @property
    def adjoint(self) -> Tensor:
        """The matrix of L*, the adjoint in L²(π): ``(size, size)``; an error if not stationary."""
        if not self.is_stationary:
            raise NotAProbabilityError(
                "covariance must be the stationary one for the matrix of L*: it is the transpose "
                "of that of L only if the functions are orthonormal under π"
            )
        return self.generator.mT

    def semigroup(self, t: Tensor | float) -> Tensor:
        """Return e^{tM}, the matrix of P_t: ``(*t.shape, size, size)``, float64."""
        t = checks.time(t)
        result: Tensor = torch.linalg.matrix_exp(t[..., None, None] * self.generator.to(t))
        if not checks.holds(result.isfinite()):
            raise ValueError(f"t must be so small that e^(tM) is finite, got {float(t.max()):g}")
        return result

    def evolve(self, means: Tensor, t: Tensor | float) -> Tensor:
        """Return E[φ(X_t)] from E[φ(X_0)] ``(..., size)``: ``(*t.shape, ..., size)``."""
        means, t = checks.vectors(means, "means", dim=self.size).double(), checks.time(t)
        flat = means.reshape(-1, self.size)
        step = max(1, ENTRIES // self.size**2)
        parts = [flat @ self.semigroup(part).mT for part in torch.split(t.reshape(-1), step)]
        return torch.cat(parts).reshape(*t.shape, *means.shape)

    def _table(self, x: Tensor) -> Tensor:
        """Return all φ_m: ``(n, size)``."""
        return products(act(self._whitener, x, self.process.copies), self.indices)

    def _steps(self, table: Tensor) -> Tensor:
        """Return the matrices of ∂/∂xᵢ: ``(dim, size, lower)``."""
        return self.ladder.slopes(spread(self._whitener, self.process.copies).mT).to(table)

    def _values(self, table: Tensor) -> Tensor:
        return table

    def _gradients(self, table: Tensor) -> Tensor:
        steps = self._steps(table)
        return matmul(table[:, : steps.shape[-1]], steps.mT).movedim(0, -1)

    def _laplacians(self, table: Tensor) -> Tensor:
        steps = self._steps(table)
        lower = steps.shape[-1]
        twice = matmul(steps, steps[:, :lower]).sum(dim=0)
        return matmul(table[:, :lower], twice.mT)
