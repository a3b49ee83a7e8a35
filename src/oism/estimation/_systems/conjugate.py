"""Conjugate gradients for batches of symmetric positive definite systems.

`ridge_path` solves (B + εI) y = g for many shifts ε in one Krylov space: the spaces of B and B + εI
are the same, so one product with B per step is sufficient for all ε (multi-shift conjugate
gradients; Jegerlehner, hep-lat/9612014, 1996). This requires a zero start. The basis of the space
is stored and combined at the end by one matrix product, instead of updating a solution for every ε
in every step. `conjugate_gradients` solves for one shift per system with any start, for example the
solution at a neighbouring time.

SciPy's solvers take one system and one shift, hence this implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import scipy.linalg
import torch
from torch import Tensor

Operator = Callable[[Tensor], Tensor]

NOTHING = 1e-200
"""A right-hand side whose squared norm is below this is treated as zero, to avoid underflow."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Solutions with their diagnostics, one entry per system.

    ``residual`` is relative to the right-hand side. ``smallest`` and ``largest`` are the extreme
    Ritz values of the operator without shift, which lie between its extreme eigenvalues; NaN for a
    system without a step.
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
    for system, count in enumerate(used.tolist()):
        if count:
            a, b = (torch.stack([s[system] for s in many[:count]]) for many in (steps, ratios))
            diagonal = 1 / a
            diagonal[1:] += b[:-1] / a[:-1]
            pair = (diagonal.numpy(), (b[:-1].sqrt() / a[:-1]).numpy())
            for end, i in zip(ends, (0, count - 1), strict=True):
                found = scipy.linalg.eigvalsh_tridiagonal(*pair, select="i", select_range=(i, i))
                end[system] = float(found[0])
    return ends[0], ends[1]


def _tridiagonal(diagonal: Tensor, beside: Tensor) -> Tensor:
    """Return symmetric tridiagonal matrices ``(S, k, k)`` from ``(S, k)`` and ``(S, k - 1)``."""
    matrix = torch.diag_embed(diagonal)
    matrix += torch.diag_embed(beside, offset=1) + torch.diag_embed(beside, offset=-1)
    return matrix


def ridge_path(
    operator: Operator, right: Tensor, shifts: Tensor, *, tolerance: float, iterations: int
) -> Solution:
    """Return y_ε with (B + εI) y_ε = g for systems g ``(S, n)`` and shifts ε ``(E,)``, all ≥ 0.

    ``values`` is ``(S, E, n)``. The Lanczos recurrence builds orthonormal v₁, …, v_k that span the
    Krylov space of g, with VᵀBV = T tridiagonal; then y_ε = ‖g‖ V (T + εI)⁻¹ e₁ for every ε. It
    runs until the residual for the smallest shift of every system is below ``tolerance`` ‖g‖
    (larger shifts converge earlier) or for ``iterations`` steps. It stores all v: k·S·n numbers.
    """
    seed = float(shifts.min())
    size = right.norm(dim=1, keepdim=True)
    vector, before = right / size.where(size > 0, 1.0), torch.zeros_like(right)
    beside = right.new_zeros(len(right), 1)
    pivot = left = right.new_ones(len(right), 1)  # of T + εI = LDLᵀ, and the seed's residual
    used = torch.zeros(len(right), 1, dtype=torch.int64)
    vectors = right.new_empty(0, *right.shape)
    diagonals: list[Tensor] = []
    besides: list[Tensor] = []
    while len(diagonals) < iterations and bool((left > tolerance).any()):
        used += left > tolerance
        if len(diagonals) == len(vectors):  # few large allocations: fresh pages are slow
            more = right.new_empty(min(2 * len(vectors) + 32, iterations), *right.shape)
            more[: len(vectors)] = vectors
            vectors = more
        vector = vectors[len(diagonals)].copy_(vector)
        image = operator(vector).addcmul_(beside, before, value=-1)
        diagonal = _dot(vector, image)[:, None]
        image.addcmul_(diagonal, vector, value=-1)
        pivot = diagonal + seed - beside.square() / pivot
        beside = image.norm(dim=1, keepdim=True)
        # If the Krylov space is exhausted, this and all later vectors are zero.
        beside = torch.where(beside > 1e-14 * diagonal.abs(), beside, 0.0)
        left = left * beside / pivot.where(pivot > 0, 1.0)
        vector, before = image.div_(beside.where(beside > 0, math.inf)), vector
        diagonals.append(diagonal)
        besides.append(beside)
    if not diagonals:
        zero = used[:, 0].to(right)
        return Solution(right[:, None] * shifts[:, None] * 0, used[:, 0], zero, zero, zero)
    diagonal, beside = torch.cat(diagonals, dim=1), torch.cat(besides, dim=1)[:, :-1]
    # After an exhausted space T continues as a separate block, with copies of its first entry.
    joined = torch.cat((torch.ones_like(diagonal[:, :1]), (beside > 0).to(diagonal)), dim=1)
    live = joined.cumprod(dim=1) > 0
    values, modes = torch.linalg.eigh(_tridiagonal(diagonal.where(live, diagonal[:, :1]), beside))
    bottom = values.clamp(min=0)[:, None] + shifts[:, None]
    weights = size[..., None] * modes[:, :1] / bottom.where(bottom > 0, math.inf)
    solutions = weights @ modes.mT @ vectors[: len(diagonals)].movedim(0, 1)
    low, high = (values[:, end].where(size[:, 0] > 0, math.nan) for end in (0, -1))
    return Solution(solutions, used[:, 0], left[:, 0], low, high)


def conjugate_gradients(
    operator: Operator,
    right: Tensor,
    shift: Tensor,
    *,
    start: Tensor | None = None,
    tolerance: float,
    iterations: int,
) -> Solution:
    """Return y with (B + εI) y = g for systems g ``(S, n)``, each with its own shift ``(S,)``.

    A system stops at a direction along which B + εI is not positive; its residual is then large.
    """

    def shifted(y: Tensor) -> Tensor:
        return torch.addcmul(operator(y), shift[:, None], y)

    solution = torch.zeros_like(right) if start is None else start.clone()
    residual = right.clone() if start is None else right - shifted(solution)
    direction = residual.clone()
    energy, scale = _dot(residual, residual), _dot(right, right).clamp(min=NOTHING)
    used = torch.zeros(len(right), dtype=torch.int64)
    going = torch.ones_like(used, dtype=torch.bool)
    steps: list[Tensor] = []
    ratios: list[Tensor] = []
    for _ in range(iterations):
        live = going & (energy > tolerance**2 * scale)
        if not bool(live.any()):
            break
        image = shifted(direction)
        curvature = _dot(direction, image)
        going = going & ~(live & ~(curvature > 0))  # not positive: there is no further step
        live = live & going
        step = torch.where(live, energy / curvature.where(live, 1.0), 0.0)
        solution.addcmul_(step[:, None], direction)
        residual.addcmul_(step[:, None], image, value=-1)
        new = _dot(residual, residual)
        ratio = torch.where(live, new / energy.where(live, 1.0), 0.0)
        energy = torch.where(live, new, energy)
        direction.mul_(ratio[:, None]).add_(residual)
        used += live
        steps.append(step)
        ratios.append(ratio)
    low, high = _extremes(steps, ratios, used)
    left = (energy / scale).sqrt()
    return Solution(solution, used, left, low - shift, high - shift)
