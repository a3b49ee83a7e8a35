"""Direct solutions of (B + εI) y = g for one shift ε after another, for few unknowns.

Factors need no more work for small shifts than for large ones; the Krylov space of `RidgePath`
grows like ε^-½.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oism._core.transforms import on_host


def solved_for_all(matrix: Tensor, right: Tensor, shifts: Tensor) -> Tensor:
    """Return y for B ``(*batch, m, m)``, g ``(*batch, m)`` and shifts ``(E,)``: ``(*batch, E, m)``.

    On the CPU by one eigendecomposition, negative eigenvalues being rounding errors of zero. On a
    GPU an eigendecomposition takes many times as long as factors for all shifts; there y is NaN
    where B + εI is not positive.
    """
    if on_host(matrix):
        values, vectors = torch.linalg.eigh(matrix)
        along = (vectors.mT @ right[..., None]).mT
        found: Tensor = along / (values.clamp(min=0)[..., None, :] + shifts[:, None]) @ vectors.mT
        return found
    size = right.shape[-1]
    flat, many = matrix.reshape(-1, size, size), right.reshape(-1, size)
    path = DirectPath(flat, many, shifts, slice(None))
    solutions = torch.stack([path.solve(number) for number in range(len(shifts))], dim=1)
    return solutions.reshape(*right.shape[:-1], *solutions.shape[1:])


class DirectPath:
    """Solutions by Cholesky factors, for matrices B ``(S, m, m)`` among the unknowns ``used``.

    Those left out of g ``(S, n)`` and y are zero.
    """

    def __init__(self, matrix: Tensor, right: Tensor, shifts: Tensor, used: slice) -> None:
        self._matrix, self._right, self._shifts, self._used = matrix, right, shifts, used

    def solve(self, number: int) -> Tensor:
        """Return y for one of the shifts: ``(S, n)``; NaN where B + εI is not positive."""
        shifted = self._matrix.clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(self._shifts[number])
        factor, failed = torch.linalg.cholesky_ex(shifted)
        found = torch.cholesky_solve(self._right[:, self._used, None], factor)[..., 0]
        solution = torch.zeros_like(self._right)
        solution[:, self._used] = found.where(failed[:, None] == 0, math.nan)
        return solution
