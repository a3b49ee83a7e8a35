"""Conjugate gradients for batches of symmetric positive definite systems.

`RidgePath` solves (B + εI) y = g for many shifts ε in one Krylov space: the spaces of B and B + εI
are the same, so one product with B per step is sufficient for all ε (multi-shift conjugate
gradients; Jegerlehner, hep-lat/9612014, 1996). This requires a zero start. The basis of the space
is stored and combined for each ε, instead of updating a solution for every ε in every step; so the
space can be extended for a smaller ε after the solutions for larger ones are known.
`conjugate_gradients` solves for one shift per system with any start, for example the solution at a
neighbouring time, and with a preconditioner M ≈ (B + εI)⁻¹. Residuals r are then measured by
(rᵀMr)^½, which is close to the error of y in the norm of B + εI. Residuals of different steps are
orthogonal, rⱼᵀMr = 0, but rounding errors grow until they are not; this can be corrected in every
step.

SciPy's solvers take one system and one shift, hence this implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import scipy.linalg
import torch
from torch import Tensor

from oism._core.repetition import Repeated
from oism._core.transforms import on_host

Operator = Callable[[Tensor], Tensor]

LOOK = 8
"""The number of steps between looks at the residual on a GPU."""

ENTRIES = 2**26
"""The largest number of entries of the matrices T + εI that are solved together: 0.5 GB."""

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


def _within(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return Σ_j (x·l_j) r_j for x ``(S, n)`` and vectors l, r ``(S, k, n)``: ``(S, n)``.

    As products of rows: those with columns take four times as long on the CPU.
    """
    found: Tensor = (x[:, None] @ left.mT @ right)[:, 0]
    return found


def _extremes(steps: Tensor, ratios: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Return the extreme Ritz values from the steps a and ratios b ``(S, k)``.

    The Lanczos matrix has the diagonal 1/aₙ + bₙ₋₁/aₙ₋₁ and the off-diagonal √bₙ/aₙ.
    """
    ends = torch.full((2, len(used)), math.nan, dtype=torch.float64)
    every_a, every_b = steps.cpu(), ratios.cpu()
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


def _ends(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest of values ``(k, S)``, NaN where there are none."""
    every = torch.nn.functional.pad(values, (0, 0, 1, 0), value=math.nan)
    low = every.nan_to_num(nan=math.inf).amin(dim=0)
    high = every.nan_to_num(nan=-math.inf).amax(dim=0)
    return low.where(low.isfinite(), math.nan), high.where(high.isfinite(), math.nan)


class _Space:
    """The Krylov space of systems g ``(S, n)``, and T + εI = LDLᵀ for all shifts ε ``(E,)``.

    The Lanczos recurrence builds orthonormal v₁, …, v_k with VᵀBV = T tridiagonal. ``residual``
    ``(S, E)`` is that of (B + εI) y = g in the space, relative to ‖g‖: Π β_j/pivot_j.
    """

    def __init__(
        self, operator: Operator, right: Tensor, shifts: Tensor, tolerance: float, most: int
    ) -> None:
        self._operator, self.shifts = operator, shifts.to(right)
        self._tolerance, self._most = tolerance, most
        self._is_orthogonalised = on_host(right)
        self.size = right.norm(dim=1, keepdim=True)
        self._vector = right / self.size.where(self.size > 0, 1.0)
        self._before = torch.zeros_like(right)
        # On a GPU the memory is fixed, because steps are recorded.
        self.vectors = right.new_empty(0 if on_host(right) else most, *right.shape)
        self.diagonal = right.new_zeros(len(right), most)
        self.beside = right.new_zeros(len(right), most + 1)  # β₀ = 0, β₁, …
        self._last = right.new_zeros(len(right), 1)
        self._place = right.new_zeros(1, dtype=torch.int64)
        self._pivot = right.new_ones(len(right), len(shifts))
        self.residual: Tensor = (self.size > 0).to(right).repeat(1, len(shifts))
        self.positive = torch.ones_like(self._pivot, dtype=torch.bool)
        self.iterations = torch.zeros_like(self._pivot, dtype=torch.int64)

    def reserve(self, count: int, used: int) -> None:
        """Make memory for so many vectors: few large allocations, since fresh pages are slow."""
        if count > len(self.vectors):
            size = max(count, min(2 * used + 32, self._most))
            more = self._vector.new_empty(size, *self._vector.shape)
            more[:used] = self.vectors[:used]
            self.vectors = more

    def step(self) -> None:
        """Add a vector."""
        vector, beside = self._vector, self._last
        self.iterations += self.residual > self._tolerance
        self.vectors.index_copy_(0, self._place, vector[None])
        image = self._operator(vector).addcmul_(beside, self._before, value=-1)
        diagonal = _dot(vector, image)[:, None]
        image.addcmul_(diagonal, vector, value=-1)
        if self._is_orthogonalised:
            space = self.vectors[: int(self._place) + 1].movedim(0, 1)
            image -= _within(image, space, space)
        pivot = diagonal + self.shifts - beside.square() / self._pivot
        self.positive &= (pivot > 0) | (self.residual <= 0)
        self._pivot.copy_(pivot.where(pivot > 0, 1.0))
        beside = image.norm(dim=1, keepdim=True)
        # If the space is exhausted, this and all later vectors are zero.
        beside = torch.where(beside > 1e-14 * diagonal.abs(), beside, 0.0)
        self.residual.mul_(beside / self._pivot)
        self.diagonal.index_copy_(1, self._place, diagonal)
        self._place += 1
        self.beside.index_copy_(1, self._place, beside)
        self._last.copy_(beside)
        self._before.copy_(vector)
        torch.div(image, beside.where(beside > 0, math.inf), out=self._vector)


class RidgePath:
    """Solutions y_ε of (B + εI) y_ε = g for systems g ``(S, n)`` and shifts ε ``(E,)``, all ≥ 0.

    With an orthonormal basis V of the Krylov space of g and VᵀBV = T, y_ε = ‖g‖ V (T + εI)⁻¹ e₁ for
    every ε. `ready` extends the space until the residual is below ``tolerance`` ‖g‖ in every
    system, or to ``iterations`` vectors: the larger ε, the fewer are needed. All v are stored:
    k·S·n numbers. Each new v is made orthogonal to all of them: by the recurrence alone
    orthogonality is lost once an eigenvalue of B is found, and then a solution depends on rounding,
    by as much as the tolerance. On a GPU they are not, because steps are recorded. Convergence is
    looked at after every ``LOOK`` steps there, because reading a number waits for all of them, and
    shifts that have converged by then are solved together.
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
        self._tolerance, self._most = tolerance, iterations
        self._look = 1 if on_host(right) else LOOK
        self._zero = torch.zeros_like(right)
        self._space, self._count = _Space(operator, right, shifts, tolerance, iterations), 0
        self._extend = Repeated(self._space.step, right.device)

    @property
    def residual(self) -> Tensor:
        """The relative residuals of systems and shifts: ``(S, E)``."""
        return self._space.residual

    @property
    def iterations(self) -> Tensor:
        """The numbers of vectors that systems and shifts needed: ``(S, E)``."""
        return self._space.iterations

    def ready(self, numbers: Sequence[int]) -> Sequence[int]:
        """Extend the space for the first of some shifts; return the first that have converged.

        On the CPU one, so that solutions which may not be needed are not computed; on a GPU as many
        as memory allows.
        """
        chosen: list[int] = list(numbers[:1] if self._look == 1 else numbers)
        while True:
            left: list[bool] = (self.residual[:, chosen] > self._tolerance).any(dim=0).tolist()
            if not left[0] or self._count == self._most:
                break
            more = min(self._look, self._most - self._count)
            self._space.reserve(self._count + more, self._count)
            self._extend(more)
            self._count += more
        if self._count < self._most and True in left:
            chosen = chosen[: left.index(True)]
        return chosen[: max(1, ENTRIES // max(1, len(self._zero) * self._count**2))]

    def solve(self, numbers: Sequence[int]) -> Tensor:
        """Return y for some of the shifts: ``(E, S, n)``; NaN where B + εI is not positive."""
        space, count, which = self._space, self._count, list(numbers)
        diagonal, beside = space.diagonal[:, :count], space.beside[:, 1:count]
        if not count:
            return self._zero.repeat(len(which), 1, 1)
        # After an exhausted space T continues as a separate block, with copies of its first entry.
        joined = torch.nn.functional.pad((beside > 0).to(diagonal), (1, 0), value=1.0)
        diagonal = diagonal.where(joined.cumprod(dim=1) > 0, diagonal[:, :1])
        matrix = torch.diag_embed(diagonal + space.shifts[which, None, None])
        matrix += torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
        first = torch.nn.functional.pad(space.size, (0, count - 1)).expand(len(which), -1, -1)
        weights = torch.linalg.solve_ex(matrix, first)[0]
        positive = space.positive[:, which].mT[..., None]
        weights = weights.where(positive & weights.isfinite(), math.nan)
        weights = weights.where(space.size > 0, 0.0)
        found: Tensor = weights.movedim(0, 1) @ space.vectors[:count].movedim(0, 1)
        return found.movedim(1, 0)


class _Descent:
    """The state of conjugate gradients for systems g ``(S, n)``; `step` changes it in place."""

    def __init__(  # noqa: PLR0913
        self,
        operator: Operator,
        right: Tensor,
        shift: Tensor,
        *,
        start: Tensor | None,
        preconditioner: Operator | None,
        tolerance: float,
        iterations: int,
        orthogonal: int,
    ) -> None:
        self._operator, self._shift, self._preconditioner = operator, shift, preconditioner
        improved = preconditioner or torch.clone
        self.solution = torch.zeros_like(right) if start is None else start.clone()
        self._residual = right.clone() if start is None else right - self._shifted(self.solution)
        self._direction = improved(self._residual)
        self.energy = _dot(self._residual, self._direction)
        whole = self.energy if start is None else _dot(right, improved(right))
        self.scale = whole.clamp(min=NOTHING)
        self._enough = tolerance**2 * self.scale
        self.used = torch.zeros(len(right), dtype=torch.int64, device=right.device)
        self._going = torch.ones_like(self.used, dtype=torch.bool)
        # Of every step: its length a and the ratio b of energies, or the Rayleigh quotient.
        entries = 2 if preconditioner is None else 1
        self._history = right.new_full((iterations, entries, len(right)), math.nan)
        self._place = self.used.new_zeros(1)
        # Of the first steps, (r, Mr)/(rᵀMr)^½; without a preconditioner both are the same.
        self._most = min(orthogonal, iterations) if on_host(right) else 0
        self._kept = 0
        space = right.new_empty(len(right), self._most, right.shape[1])
        self._residuals = space
        self._improved = space if preconditioner is None else torch.empty_like(space)
        self._keep(self._direction)

    def _keep(self, improved: Tensor) -> None:
        """Keep the residual r and Mr of this step, for later ones."""
        if self._kept < self._most:
            unit = self.energy.clamp(min=NOTHING).rsqrt()[:, None]
            torch.mul(self._residual, unit, out=self._residuals[:, self._kept])
            torch.mul(improved, unit, out=self._improved[:, self._kept])
            self._kept += 1

    def _shifted(self, y: Tensor) -> Tensor:
        return torch.addcmul(self._operator(y), self._shift[:, None], y)

    @property
    def live(self) -> Tensor:
        """Which systems are not solved yet, and can be."""
        return self._going & (self.energy > self._enough)

    def step(self) -> None:
        """Take one step in all live systems."""
        live, direction = self.live, self._direction
        image = self._shifted(direction)
        curvature = _dot(direction, image)
        if self._preconditioner is not None:
            kept = (curvature / _dot(direction, direction)).where(live, math.nan)[None]
        self._going &= ~(live & ~(curvature > 0))  # not positive: there is no further step
        live = live & self._going
        step = torch.where(live, self.energy / curvature.where(live, 1.0), 0.0)
        self.solution.addcmul_(step[:, None], direction)
        self._residual.addcmul_(step[:, None], image, value=-1)
        residual = self._residual
        if self._kept:
            improved, vectors = (
                part[:, : self._kept] for part in (self._improved, self._residuals)
            )
            residual -= _within(residual, improved, vectors)
        ahead = residual if self._preconditioner is None else self._preconditioner(residual)
        new = _dot(residual, ahead)
        ratio = torch.where(live, new / self.energy.where(live, 1.0), 0.0)
        self.energy.copy_(torch.where(live, new, self.energy))
        if self._preconditioner is None:
            kept = torch.stack((step, ratio))
        self._keep(ahead)
        direction.mul_(ratio[:, None]).add_(ahead)
        self.used += live
        self._history.index_copy_(0, self._place, kept[None])
        self._place += 1

    def extremes(self, taken: int) -> tuple[Tensor, Tensor]:
        """Return Ritz values, or with a preconditioner Rayleigh quotients, after all steps."""
        kept = self._history[:taken]
        if self._preconditioner is None:
            return _extremes(kept[:, 0].mT, kept[:, 1].mT, self.used)
        return _ends(kept[:, 0])


def conjugate_gradients(  # noqa: PLR0913
    operator: Operator,
    right: Tensor,
    shift: Tensor,
    *,
    start: Tensor | None = None,
    preconditioner: Operator | None = None,
    tolerance: float,
    iterations: int,
    orthogonal: int = 0,
) -> Solution:
    """Return y with (B + εI) y = g for systems g ``(S, n)``, each with its own shift ``(S,)``.

    A system stops at a direction along which B + εI is not positive; its residual is then large.
    Each residual is made orthogonal to the first ``orthogonal`` ones, which are kept: a solution of
    so many steps does not depend on rounding. On a GPU none are, because steps are recorded.
    """
    descent = _Descent(
        operator,
        right,
        shift,
        start=start,
        preconditioner=preconditioner,
        tolerance=tolerance,
        iterations=iterations,
        orthogonal=orthogonal,
    )
    descend = Repeated(descent.step, right.device)
    look, taken = 1 if on_host(right) else LOOK, 0
    while taken < iterations and bool(descent.live.any()):
        more = min(look, iterations - taken)
        descend(more)
        taken += more
    low, high = descent.extremes(taken)
    left = (descent.energy / descent.scale).sqrt()
    return Solution(descent.solution, descent.used, left, low - shift, high - shift)
