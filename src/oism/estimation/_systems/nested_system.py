"""Systems with nested truncations, solved by batches of small Cholesky factors over all times.

The computation is done on the device of the averages. Times, ridges and levels may be on the CPU;
solutions are returned on the CPU, losses, which are large, on the device.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor

from oism.basis import Averages, Functions
from oism.estimation._systems.nested import nested_solve
from oism.score import RIDGES, Advance, Losses, Solved, System, ignore

CHUNK = 2**22
"""The number of matrix entries per batch."""

MATRICES = 2**14
"""The number of matrices per batch of eigenvalue problems."""


class NestedSystem(System):
    """Systems whose truncations are leading blocks, all solved with one factorisation.

    Between two levels the solutions are interpolated linearly.
    """

    def __init__(self, basis: Functions, averages: Averages, device: torch.device) -> None:
        self.basis, self.averages, self.device = basis, averages, device

    @property
    def has_coefficients(self) -> bool:
        """Whether there are averages of any functions."""
        return self.averages.total.numel() > 0

    @property
    @abstractmethod
    def sizes(self) -> list[int]:
        """The number of functions at each level, the richest first."""

    @abstractmethod
    def _equations(self, part: str, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return A_t and b_t for a part of the averages."""

    @abstractmethod
    def _penalty(self, t: Tensor) -> Tensor:
        """Return the diagonal that is multiplied by ε: ``(T, size)`` or ``(size,)``."""

    @property
    @abstractmethod
    def _entries(self) -> int:
        """The number of matrix entries per time and fold."""

    def _pieces(self, t: Tensor, folds: int) -> list[Tensor]:
        step = max(1, CHUNK // (folds * self._entries))
        return [torch.arange(len(t))[i : i + step] for i in range(0, len(t), step)]

    def losses(self, t: Tensor, *, advance: Advance = ignore) -> Losses:
        """Return the held-out losses ``(folds, T, *batch, levels, ridges)``."""
        t = t.to(self.device)
        parts = []
        for run in self._pieces(t, len(self.averages.shares)):
            parts.append(self._losses(t[run]))
            advance(len(run) / len(t))
        return Losses(torch.cat(parts).movedim(1, 0), self.averages.shares)

    def _losses(self, t: Tensor) -> Tensor:
        matrix, right = self._equations("training", t)
        judge, held = self._equations("heldout", t)
        penalty = self._aligned(self._penalty(t), right)
        columns = []
        for ridge in RIDGES.tolist():
            alpha = nested_solve(matrix + torch.diag_embed(ridge * penalty), -right, self.sizes)
            quadratic = ((alpha @ judge) * alpha).sum(dim=-1)
            columns.append(quadratic + 2 * (alpha * held[..., None, :]).sum(dim=-1))
        return torch.stack(columns, dim=-1)

    def solve(
        self,
        t: Tensor,
        ridge: Tensor,
        level: Tensor,
        start: Tensor | None = None,  # noqa: ARG002 (direct solves need no guess)
        *,
        advance: Advance = ignore,
    ) -> Solved:
        """Return α, interpolated between the two levels next to ``level``."""
        parts = []
        for run in self._pieces(t, 1):
            parts.append(self._solve(t[run], ridge[run], level[run]))
            advance(len(run) / len(t))
        alpha = torch.cat(parts).cpu()
        unknown = torch.full_like(level, torch.nan)
        return Solved(alpha, unknown, unknown, torch.zeros_like(level, dtype=torch.int64))

    def diagnose(
        self, t: Tensor, ridge: Tensor, level: Tensor, *, advance: Advance = ignore
    ) -> Solved:
        """Return the solution with the extreme eigenvalues of A_t, scaled to a unit diagonal."""
        ends = []
        for run in self._pieces(t, 1):
            matrix = self._equations("total", t[run].to(self.device))[0]
            scale = matrix.diagonal(dim1=-2, dim2=-1).clamp(min=1e-300).rsqrt()
            ends.append(_extremes(scale[..., None] * matrix * scale[..., None, :]))
        low, high = torch.cat(ends, dim=1).cpu()
        solved = self.solve(t, ridge, level, advance=advance)
        return replace(solved, smallest=low, largest=high)

    def _solve(self, t: Tensor, ridge: Tensor, level: Tensor) -> Tensor:
        t, ridge, level = (part.to(self.device) for part in (t, ridge, level))
        matrix, right = self._equations("total", t)
        matrix = matrix + torch.diag_embed(
            ridge[..., None] * self._aligned(self._penalty(t), right)
        )
        alpha = nested_solve(matrix, -right, self.sizes)
        lift = 1e-12
        while not bool(alpha.isfinite().all()):
            # The matrix is not positive definite: the moments are not those of a density, or data
            # have few distinct values. Add the smallest sufficient multiple of the diagonal.
            broken = ~alpha.isfinite().flatten(-2).all(dim=-1)
            more = lift * matrix[broken].diagonal(dim1=-2, dim2=-1).abs().clamp(min=1e-300)
            lifted = matrix[broken] + torch.diag_embed(more)
            alpha[broken] = nested_solve(lifted, -right[broken], self.sizes)
            lift *= 10
            if lift > 1e3:
                raise ArithmeticError("moments exceed float64: lower the order of the basis")
        place = level.clamp(0, self.levels - 1)
        orders = torch.arange(self.levels, dtype=torch.float64, device=level.device)
        weights = (1 - (place[..., None] - orders).abs()).clamp(min=0)
        return (weights[..., None, :] @ alpha)[..., 0, :]

    @staticmethod
    def _aligned(penalty: Tensor, right: Tensor) -> Tensor:
        """Return a penalty ``(T, size)`` or ``(size,)`` that broadcasts with b ``(T, …, size)``."""
        return penalty.reshape(*penalty.shape[:-1], *[1] * (right.ndim - penalty.ndim), -1)


def _extremes(matrix: Tensor) -> Tensor:
    """Return the smallest and the largest eigenvalues of symmetric matrices: ``(2, *batch)``."""
    flat = matrix.flatten(0, -3)
    # In batches, because cuSOLVER fails for fifty thousand matrices.
    values = torch.cat([torch.linalg.eigvalsh(part) for part in torch.split(flat, MATRICES)])
    return torch.stack((values[:, 0], values[:, -1])).reshape(2, *matrix.shape[:-2])
