"""Direct solutions of (B + εI) y = g for one shift ε after another, for few unknowns.

Factors need no more work for small shifts than for large ones; the Krylov space of `RidgePath`
grows like ε^-½.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


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
