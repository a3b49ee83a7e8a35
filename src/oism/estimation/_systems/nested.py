"""Solutions of all leading blocks of small positive definite systems.

With M = LLᵀ the factor of a leading block of M is the leading block of L, so one factorisation is
sufficient for all truncations: for W = L⁻¹ and y = Wg, the solution of the leading k equations is
Σ_{i≤k} y_i W[i, :].
"""

from __future__ import annotations

import torch
from torch import Tensor

JITTER = 1e-13
"""Added to the unit diagonal, so that rounding does not make a matrix indefinite."""


def nested_solve(matrix: Tensor, right: Tensor, sizes: list[int]) -> Tensor:
    """Return the solutions of the leading blocks of given sizes: ``(..., len(sizes), n)``.

    Matrices are scaled to a unit diagonal first. The solution of a leading block that is not
    positive definite is NaN.
    """
    scale = matrix.diagonal(dim1=-2, dim2=-1).clamp(min=1e-300).rsqrt()
    scaled = scale[..., None] * matrix * scale[..., None, :]
    scaled.diagonal(dim1=-2, dim2=-1).add_(JITTER)
    factor, failed = torch.linalg.cholesky_ex(scaled)
    n, device = matrix.shape[-1], matrix.device
    place, ends = torch.arange(n, device=device), torch.tensor(sizes, device=device)
    sound = torch.where(failed > 0, failed - 1, n)[..., None]  # the rows before the failing one
    eye = torch.eye(n, dtype=matrix.dtype, device=device)
    factor = torch.where((place < sound)[..., None], factor, eye)
    inverse = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
    along = inverse @ (scale * right)[..., None]
    inside = place < ends[:, None]
    solutions = scale[..., None, :] * ((inside * along.mT) @ inverse)
    return torch.where((ends <= sound)[..., None], solutions, torch.nan)
