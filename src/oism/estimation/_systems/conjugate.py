"""Conjugate gradients for batches of symmetric positive definite systems.

`RidgePath` solves (B + εI) y = g for many shifts ε in one Krylov space: the spaces of B and B + εI
are the same, so one product with B per step is sufficient for all ε (multi-shift conjugate
gradients; Jegerlehner, hep-lat/9612014, 1996). This requires a zero start. The basis of the space
is stored and combined for each ε, instead of updating a solution for every ε in every step; so the
space can be extended for a smaller ε after the solutions for larger ones are known.
`conjugate_gradients` solves for one shift per system with any start, for example the solution at a
neighbouring time, and with a preconditioner M ≈ (B + εI)⁻¹. Residuals r are then measured by
(rᵀMr)^½, which is close to the error of y in the norm of B + εI.

SciPy's solvers take one system and one shift, hence this implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import scipy.linalg
import torch
from torch import Tensor

from oism._core.transforms import on_host

Operator = Callable[[Tensor], Tensor]

LOOK = 8
"""The number of steps between looks at the residual on a GPU."""

NOTHING = 1e-200
"""A right-hand side whose squared norm is below this is treated as zero, to avoid underflow."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Solutions with their diagnostics, one entry per system.

    ``residual`` is relative to the right-hand side. ``smallest`` and ``largest`` are the extreme
    Ritz values of the operator without shift, or with a preconditioner the extreme Rayleigh
    quotients of the search directions. Both lie between its extreme eigenvalues; NaN for a system
    without a step.
    """

    values: Tensor
    iterations: Tensor
    residual: Tensor
    smallest: Tensor
    largest: Tensor


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x[:, None] @ y[..., None])[:, 0, 0]


def _extremes(steps: list[Tensor], ratios: list[Tensor], used: Tensor) -> tuple[Tensor, Tensor]:
    """Return the extreme Ritz values from the steps a and ratios b of conjugate gradients.

    The Lanczos matrix has the diagonal 1/aₙ + bₙ₋₁/aₙ₋₁ and the off-diagonal √bₙ/aₙ.
    """
    ends = torch.full((2, len(used)), math.nan, dtype=torch.float64)
    if not steps:
        return ends[0].to(used.device), ends[1].to(used.device)
    every_a, every_b = (torch.stack(many, dim=1).cpu() for many in (steps, ratios))
    for system, count in enumerate(used.tolist()):
        if count:
            a, b = every_a[system, :count], every_b[system, :count]
            diagonal = 1 / a
            diagonal[1:] += b[:-1] / a[:-1]
            pair = (diagonal.numpy(), (b[:-1].sqrt() / a[:-1]).numpy())
            for end, i in zip(ends, (0, count - 1), strict=True):
                found = scipy.linalg.eigvalsh_tridiagonal(*pair, select="i", select_range=(i, i))
                end[system] = float(found[0])
    return ends[0].to(used.device), ends[1].to(used.device)


def _ends(values: list[Tensor], like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest of values ``(S,)``, NaN where there are none."""
    every = torch.stack((torch.full_like(like, math.nan), *values))
    low = every.nan_to_num(nan=math.inf).amin(dim=0)
    high = every.nan_to_num(nan=-math.inf).amax(dim=0)
    return low.where(low.isfinite(), math.nan), high.where(high.isfinite(), math.nan)


class RidgePath:
    """Solutions y_ε of (B + εI) y_ε = g for systems g ``(S, n)`` and shifts ε ``(E,)``, all ≥ 0.

    The Lanczos recurrence builds orthonormal v₁, …, v_k that span the Krylov space of g, with
    VᵀBV = T tridiagonal; then y_ε = ‖g‖ V (T + εI)⁻¹ e₁ for every ε. `solve` extends the space
    until the residual is below ``tolerance`` ‖g‖ in every system, or to ``iterations`` vectors: the
    larger ε, the fewer are needed. All v are stored: k·S·n numbers. On a GPU convergence is
    looked at after every ``LOOK`` steps, because reading a number waits for all of them.
    """

    def __init__(
        self,
        operator: Operator,
        right: Tensor,
        shifts: Tensor,
        *,
        tolerance: float,
        iterations: int,
    ) -> None:
        self._operator, self._shifts = operator, shifts.to(right)
        self._tolerance, self._most = tolerance, iterations
        self._look = 1 if on_host(right) else LOOK
        self._size = right.norm(dim=1, keepdim=True)
        self._vector = right / self._size.where(self._size > 0, 1.0)
        self._before = torch.zeros_like(right)
        self._vectors = right.new_empty(0, *right.shape)
        self._diagonal: list[Tensor] = []
        self._beside = [right.new_zeros(len(right), 1)]
        # Of T + εI = LDLᵀ for all ε: the last pivot, and the residual Π β_j/pivot_j.
        self._pivot = right.new_ones(len(right), len(shifts))
        self.residual = (self._size > 0).to(right).expand_as(self._pivot)
        self._positive = torch.ones_like(self._pivot, dtype=torch.bool)
        self.iterations = torch.zeros_like(self._pivot, dtype=torch.int64)

    def solve(self, number: int) -> Tensor:
        """Return y for one of the shifts: ``(S, n)``; NaN where B + εI is not positive."""
        while len(self._diagonal) < self._most:
            if not bool((self.residual[:, number] > self._tolerance).any()):
                break
            for _ in range(min(self._look, self._most - len(self._diagonal))):
                self._extend()
        if not self._diagonal:
            return torch.zeros_like(self._vector)
        count = len(self._diagonal)
        diagonal, beside = (torch.cat(part, dim=1) for part in (self._diagonal, self._beside[:-1]))
        # After an exhausted space T continues as a separate block, with copies of its first entry.
        joined = torch.cat((torch.ones_like(diagonal[:, :1]), (beside[:, 1:] > 0).to(diagonal)), 1)
        diagonal = diagonal.where(joined.cumprod(dim=1) > 0, diagonal[:, :1])
        matrix = torch.diag_embed(diagonal + self._shifts[number])
        matrix += torch.diag_embed(beside[:, 1:], 1) + torch.diag_embed(beside[:, 1:], -1)
        first = torch.nn.functional.pad(self._size, (0, count - 1))
        weights = torch.linalg.solve_ex(matrix, first)[0]
        weights = weights.where(self._positive[:, number, None] & weights.isfinite(), math.nan)
        weights = weights.where(self._size > 0, 0.0)
        solution: Tensor = (weights[:, None] @ self._vectors[:count].movedim(0, 1))[:, 0]
        return solution

    def _extend(self) -> None:
        """Add a vector to the space."""
        count = len(self._diagonal)
        self.iterations += self.residual > self._tolerance
        if count == len(self._vectors):  # few large allocations: fresh pages are slow
            more = self._vector.new_empty(min(2 * count + 32, self._most), *self._vector.shape)
            more[:count] = self._vectors
            self._vectors = more
        vector = self._vectors[count].copy_(self._vector)
        beside = self._beside[-1]
        image = self._operator(vector).addcmul_(beside, self._before, value=-1)
        diagonal = _dot(vector, image)[:, None]
        image.addcmul_(diagonal, vector, value=-1)
        self._pivot = diagonal + self._shifts - beside.square() / self._pivot
        self._positive &= (self._pivot > 0) | (self.residual <= 0)
        beside = image.norm(dim=1, keepdim=True)
        # If the Krylov space is exhausted, this and all later vectors are zero.
        beside = torch.where(beside > 1e-14 * diagonal.abs(), beside, 0.0)
        self._pivot = self._pivot.where(self._pivot > 0, 1.0)
        self.residual = self.residual * beside / self._pivot
        self._vector, self._before = image.div_(beside.where(beside > 0, math.inf)), vector
        self._diagonal.append(diagonal)
        self._beside.append(beside)


def conjugate_gradients(  # noqa: PLR0913
    operator: Operator,
    right: Tensor,
    shift: Tensor,
    *,
    start: Tensor | None = None,
    preconditioner: Operator | None = None,
    tolerance: float,
    iterations: int,
) -> Solution:
    """Return y with (B + εI) y = g for systems g ``(S, n)``, each with its own shift ``(S,)``.

    A system stops at a direction along which B + εI is not positive; its residual is then large.
    """

    def shifted(y: Tensor) -> Tensor:
        return torch.addcmul(operator(y), shift[:, None], y)

    improved = preconditioner or torch.clone
    solution = torch.zeros_like(right) if start is None else start.clone()
    residual = right.clone() if start is None else right - shifted(solution)
    direction = improved(residual)
    energy = _dot(residual, direction)
    whole = energy if start is None else _dot(right, improved(right))
    scale = whole.clamp(min=NOTHING)
    used = torch.zeros(len(right), dtype=torch.int64, device=right.device)
    going = torch.ones_like(used, dtype=torch.bool)
    look = 1 if on_host(right) else LOOK
    steps: list[Tensor] = []
    ratios: list[Tensor] = []
    quotients: list[Tensor] = []
    for number in range(iterations):
        live = going & (energy > tolerance**2 * scale)
        if number % look == 0 and not bool(live.any()):
            break
        image = shifted(direction)
        curvature = _dot(direction, image)
        if preconditioner is not None:
            quotients.append((curvature / _dot(direction, direction)).where(live, math.nan))
        going = going & ~(live & ~(curvature > 0))  # not positive: there is no further step
        live = live & going
        step = torch.where(live, energy / curvature.where(live, 1.0), 0.0)
        solution.addcmul_(step[:, None], direction)
        residual.addcmul_(step[:, None], image, value=-1)
        ahead = residual if preconditioner is None else preconditioner(residual)
        new = _dot(residual, ahead)
        ratio = torch.where(live, new / energy.where(live, 1.0), 0.0)
        energy = torch.where(live, new, energy)
        direction.mul_(ratio[:, None]).add_(ahead)
        used += live
        steps.append(step)
        ratios.append(ratio)
    if preconditioner is None:
        low, high = _extremes(steps, ratios, used)
    else:
        low, high = _ends(quotients, energy)
    left = (energy / scale).sqrt()
    return Solution(solution, used, left, low - shift, high - shift)
