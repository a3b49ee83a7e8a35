"""Direct solutions of (B + εI) y = g for one shift ε after another, for few unknowns.

Factors need no more work for small shifts than for large ones; the Krylov space of `RidgePath`
grows like ε^-½.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from oism._core.transforms import on_host

FACTORS = 2**26
"""The largest number of entries of matrices that are factored together on a GPU: 0.5 GB."""


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
    path, left, parts = DirectPath(flat, many, shifts, slice(None)), list(range(len(shifts))), []
    while left:
        parts.append(path.solve(path.ready(left)))
        left = left[len(parts[-1]) :]
    solutions = torch.cat(parts).movedim(0, 1)
    return solutions.reshape(*right.shape[:-1], *solutions.shape[1:])


class DirectPath:
    """Solutions by Cholesky factors, for matrices B ``(S, m, m)`` among the unknowns ``used``.

    Those left out of g ``(S, n)`` and y are zero.
    """

    def __init__(self, matrix: Tensor, right: Tensor, shifts: Tensor, used: slice) -> None:
        self._matrix, self._right, self._shifts, self._used = matrix, right, shifts, used

    def ready(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return as many of the first shifts as are best solved together: on the CPU one."""
        many = 1 if on_host(self._matrix) else max(1, FACTORS // max(1, self._matrix.numel()))
        return numbers[:many]

    def solve(self, numbers: Sequence[int]) -> Tensor:
        """Return y for some of the shifts: ``(E, S, n)``; NaN where B + εI is not positive."""
        shifted = self._matrix.repeat(len(numbers), 1, 1, 1)
        shifted.diagonal(dim1=-2, dim2=-1).add_(self._shifts[list(numbers), None, None])
        factor, failed = torch.linalg.cholesky_ex(shifted)
        right = self._right[:, self._used, None].expand(len(numbers), -1, -1, -1)
        found = torch.cholesky_solve(right, factor)[..., 0]
        solution = self._right.new_zeros(len(numbers), *self._right.shape)
        solution[..., self._used] = found.where(failed[..., None] == 0, math.nan)
        return solution
