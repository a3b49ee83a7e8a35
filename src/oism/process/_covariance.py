"""Linear algebra of covariance matrices Σ ⊗ I: independent copies of one small distribution.

A point of m·copies entries is a matrix ``(m, copies)`` whose columns are independent N(0, Σ), for
example positions and velocities of many particles. A matrix A acts on it as A ⊗ I: `act`.

Variances may differ by orders of magnitude, so Σ = DCD is first factored into deviations D and
correlations C. Small entries of Σ keep their relative accuracy, and whether Σ is singular is
decided from C, independently of units. Distributions may be degenerate (at t = 0 a transition is a
point mass; noise may not act in every direction): they have samples and quadrature rules, but no
density.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import matmul

SINGULAR = 64
"""The smallest pivot of C, in units of m·ε."""


def act(matrix: Tensor, x: Tensor, copies: int, name: str = "x") -> Tensor:
    """Return (A ⊗ I)x for points ``(n, *shape)`` and A ``(m, m)``, or one per row, ``(n, m, m)``.

    The matrix takes the dtype and device of the data.
    """
    size = matrix.shape[-1]
    if x.shape[1:].numel() != size * copies:
        raise ValueError(
            f"{name} must have {size * copies} entries per point, got shape {tuple(x.shape)}"
        )
    if matrix.ndim == 3 and len(matrix) != len(x):
        raise ValueError(
            f"t must be one number or one per row: {len(x)} rows, {len(matrix)} values"
        )
    # Points on the left: without copies and with one time, this is a single matrix product.
    rows = x.reshape(len(x), size, copies).mT
    return matmul(rows, matrix.mT.to(x)).mT.reshape(x.shape)


def entries(dim: int, size: int, copies: int) -> int:
    """Return ``dim``, checked to be the number of entries of a point."""
    if checks.integer(dim, "dim", minimum=1) != size * copies:
        raise ValueError(f"dim must be {size * copies}, the entries of a point, got {dim}")
    return dim


def spread(matrix: Tensor, copies: int) -> Tensor:
    """Return A ⊗ I as a matrix, or one per leading index."""
    eye = torch.eye(copies).to(matrix)
    return torch.kron(matrix.contiguous(), eye.reshape(*[1] * (matrix.ndim - 2), copies, copies))


def _deviations(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Return D and C of Σ = DCD; an entry of variance 0 has D = 0 and no correlations."""
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    moves = variance > 0
    safe = torch.where(moves, variance, 1.0).sqrt()  # avoids the derivative of √0
    both = moves[..., :, None] & moves[..., None, :]
    correlation = covariance / (safe[..., :, None] * safe[..., None, :])
    eye = torch.eye(covariance.shape[-1]).to(covariance)
    return torch.where(moves, safe, 0.0), torch.where(both, correlation, eye)


def _cholesky(correlation: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factor of C, or the identity, and whether C is definite."""
    factor, failed = torch.linalg.cholesky_ex(correlation.detach())
    pivots = factor.diagonal(dim1=-2, dim2=-1).square().amin(dim=-1)
    limit = SINGULAR * correlation.shape[-1] * torch.finfo(correlation.dtype).eps
    definite = (failed == 0) & (pivots > limit)
    eye = torch.eye(correlation.shape[-1]).to(correlation)
    safe = torch.where(definite[..., None, None], correlation, eye)
    return torch.linalg.cholesky_ex(safe)[0], definite


def _pivoted(correlation: Tensor) -> Tensor:
    """Return A with AAᵀ = C for semidefinite C, by Cholesky decomposition with pivoting."""
    size, rest, columns = correlation.shape[-1], correlation, []
    limit = SINGULAR * size * torch.finfo(correlation.dtype).eps
    for _ in range(size):
        pivot, place = rest.diagonal(dim1=-2, dim2=-1).max(dim=-1, keepdim=True)
        own = (torch.arange(size, device=place.device) == place).to(rest)
        column = (rest * own[..., None, :]).sum(dim=-1)
        more = pivot > limit
        column = torch.where(more, column / torch.where(more, pivot, 1.0).sqrt(), 0.0)
        columns.append(column)
        rest = rest - column[..., :, None] * column[..., None, :]
    return torch.stack(columns, dim=-1)


def root(covariance: Tensor) -> Tensor:
    """Return A with AAᵀ = Σ for semidefinite ``(..., m, m)``; differentiable, also if singular.

    For definite Σ it is the Cholesky factor, a smooth function of Σ.
    """
    deviations, correlation = _deviations(covariance)
    factor, definite = _cholesky(correlation)
    if not (checks.readable(definite) and checks.holds(definite)):
        factor = torch.where(definite[..., None, None], factor, _pivoted(correlation))
    return deviations[..., :, None] * factor


def whitener(covariance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return W with WΣWᵀ = I, log det W, and whether Σ is definite; if not, W is NaN."""
    deviations, correlation = _deviations(covariance)
    factor, definite = _cholesky(correlation)
    definite = definite & (deviations > 0).all(dim=-1)
    factor = deviations[..., :, None] * factor
    safe = torch.where(definite[..., None, None], factor, torch.eye(factor.shape[-1]).to(factor))
    eye = torch.eye(factor.shape[-1]).to(factor).expand_as(factor)
    inverse = torch.linalg.solve_triangular(safe, eye, upper=False)
    log_det = -safe.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
    nan = torch.where(definite, 0.0, torch.nan)
    return inverse + nan[..., None, None], log_det + nan, definite


def log_normal(z: Tensor, log_det: Tensor) -> Tensor:
    """Return log N(z; 0, I) + log det W row by row, for z = Wx: the log-density of x."""
    flat = z.flatten(1)
    constant = 0.5 * flat.shape[1] * math.log(2 * math.pi)
    return -0.5 * flat.square().sum(dim=1) - constant + log_det.to(z)
