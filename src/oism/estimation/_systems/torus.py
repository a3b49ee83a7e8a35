"""The system on the torus: dense algebra for bands of few functions, matrix-free for others.

b decays like e^{-‖ξ‖²t}, but the coefficients of a logarithm decay like e^{-‖ξ‖t} (exactly so for a
point mass), so an exact solution keeps ‖ξ‖ ≤ max(√(160/t), 25/t) and 3c. For interpolated
coefficients √(160/t) and 2.5c are sufficient.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from oism._core.transforms import in_parallel
from oism.basis import Averages, Fourier, ScatteredSeries, product_lattice
from oism.estimation._equations.fourier import NEGLIGIBLE, FourierEquations
from oism.estimation._systems.conjugate import Operator, Solution, conjugate_gradients
from oism.estimation._systems.matrix_free import UNSOLVED, Scaled, Solutions
from oism.estimation._systems.torus_bands import (
    DENSE,
    DENSE_SOLVE,
    FEW_FUNCTIONS,
    GAUSSIAN_DECAY,
    INTERPOLATED,
)
from oism.estimation._systems.torus_sweep import TorusSweep
from oism.process import Clock
from oism.score import Advance, FourierScore, Solved, Table, ignore
from oism.storage import storable

EXPONENTIAL_DECAY = 25.0
"""The functions of exact solutions have ‖ξ‖t ≤ 25: see above."""

KNOT_TOLERANCE, LARGE_KNOT_TOLERANCE = 1e-6, 1e-4
FINAL_TOLERANCE = 1e-11
"""Relative residuals of interpolated coefficients, the second of large systems
(`TorusBands._is_large`), and of exact ones. The residual of interpolated coefficients is
preconditioned: errors in the norm of the equations are a few times as much. That is at most a tenth
of the error of interpolation, 1e-3."""

FLOOR = 0.1
"""Added to the density ratio where a preconditioner divides by it."""

RITZ = 24
"""The number of steps without a preconditioner, for Ritz values."""

FINAL_ITERATIONS = 5000

ORTHOGONAL = 64
"""The number of residuals of a system that are kept, to which later ones are made orthogonal. Most
interpolated coefficients need fewer steps; without it they depend on rounding, and so on units.
Systems of at most ``FEW_FUNCTIONS`` need none: they have a small tolerance or dense algebra."""


@storable
class TorusSystem(TorusSweep):
    """A_t and b_t on the torus for averages over all rows, and with each fold left out.

    ``dense`` selects one of the two algorithms; by default each band has the faster one.
    """

    untruncated = -32.0

    def score(self, clock: Clock, table: Table) -> FourierScore:
        """Return the score on the torus."""
        return FourierScore(self.basis, clock, table, self.without_folds())

    def without_folds(self) -> TorusSystem:
        """Return the system with the averages over all rows only."""
        averages = Averages.of_all(self.averages.total.cpu())
        return TorusSystem(self.basis, self.lattice, averages)

    def to_config(self) -> dict[str, Any]:
        """Return the basis and the averages over all rows."""
        return {"basis": self.basis, "means": self.averages.total}

    @classmethod
    def from_config(cls, *, basis: Fourier, means: Tensor) -> TorusSystem:
        """Return the system of averages over all rows."""
        lattice = product_lattice(basis)
        if means.shape != lattice.shape[:1]:
            raise ValueError(f"means must have shape ({len(lattice)},), got {tuple(means.shape)}")
        return cls(basis, lattice, Averages.of_all(means))

    def density_ratio(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ρ_t/π = 1 + Σ e^{-‖ζ‖²t} E[e^{-iζ·X}] e^{iζ·x}, which converges for t > 0."""
        decay = torch.exp(-t * self.lattice.square().sum(dim=1))
        means = self.averages.total * decay
        return 1 + ScatteredSeries(self.lattice)(x.cpu().double(), means[None])[0].to(x)

    def _knot_tolerance(self, functions: int) -> float:
        return LARGE_KNOT_TOLERANCE if self._is_large(functions) else KNOT_TOLERANCE

    def _final_band(self, t: float, cutoff: float, *, exact: bool) -> float:
        t = max(t, 1e-300)
        late = math.sqrt(2 * GAUSSIAN_DECAY / t)
        if exact:
            return self._band(3 * cutoff, max(late, EXPONENTIAL_DECAY / t))
        return self._band(2.5 * cutoff, late)

    def solve(
        self,
        t: Tensor,
        ridge: Tensor,
        level: Tensor,
        start: Tensor | None = None,
        *,
        advance: Advance = ignore,
    ) -> Solved:
        """Return α ``(T, size)`` for ridges and levels ``(T,)``.

        With a guess, to the accuracy needed for interpolation between times; without, exactly.
        """
        exact = start is None
        return self._solve(t, ridge, level, start, DENSE_SOLVE, exact=exact, advance=advance)

    def diagnose(
        self, t: Tensor, ridge: Tensor, level: Tensor, *, advance: Advance = ignore
    ) -> Solved:
        """Return the solution with the extreme eigenvalues, or estimates from the iteration."""
        return self._solve(t, ridge, level, None, DENSE, exact=False, advance=advance)

    def _solve(  # noqa: PLR0913
        self,
        t: Tensor,
        ridge: Tensor,
        level: Tensor,
        start: Tensor | None,
        most_dense: int,
        *,
        exact: bool,
        advance: Advance,
    ) -> Solved:
        kept = Solutions(len(t), self.basis.size)
        pairs = zip(t.tolist(), self.cutoff(level).tolist(), strict=True)
        bands = [self._final_band(one, cutoff, exact=exact) for one, cutoff in pairs]

        def work(chunk: tuple[float, list[int]]) -> None:
            band, run = chunk
            equations = self._equations("total", band)
            times, ridges, levels = (part[run].to(self.device) for part in (t, ridge, level))
            rates = -equations.eigenvalues
            scale = (rates * self.penalty(levels, equations.eigenvalues)).rsqrt()
            right = -scale * equations.right(times)
            if self.is_dense(band, most_dense):
                used = equations.active
                right, scale = right[:, used], scale[:, used]
                matrix = scale[..., None] * equations.active_matrix(times) * scale[:, None]
                if self.is_dense(band):  # few functions: eigenvalues are cheap
                    ends = torch.linalg.eigvalsh(matrix)[:, [0, -1]]
                    kept.smallest[run], kept.largest[run] = ends.cpu().unbind(dim=1)
                matrix.diagonal(dim1=-2, dim2=-1).add_(ridges[:, None])
                y = torch.linalg.solve(matrix, right)
            else:
                negligible = NEGLIGIBLE if exact else INTERPOLATED
                operator = Scaled(equations.operator(times, negligible=negligible), scale)
                if exact:
                    found = conjugate_gradients(
                        operator,
                        right,
                        ridges,
                        tolerance=FINAL_TOLERANCE,
                        iterations=FINAL_ITERATIONS,
                    )
                    kept.record(run, found)
                else:
                    inverse = self._inverse(equations, times, ridges, levels)
                    guess = (
                        None if start is None else start[run, : equations.size].to(scale) / scale
                    )
                    tolerance = self._knot_tolerance(equations.size)
                    found = approximate(operator, right, ridges, guess, inverse, tolerance)
                    kept.record(run, found, UNSOLVED / (10 * tolerance))
                y, used = found.values, slice(None)
            part = right.new_zeros(len(run), equations.size)
            part[:, used] = scale * y
            kept.alpha[run, : equations.size] = part.cpu()
            advance(len(run) / len(t))

        in_parallel(work, list(self._chunks(bands, 1, most_dense)))
        return kept.solved(t)

    def _inverse(
        self, equations: FourierEquations, t: Tensor, ridge: Tensor, level: Tensor
    ) -> Operator:
        """Return M ≈ (DAD + εI)⁻¹ for times ``(T,)``.

        A_t is close to Λ^½ ρ_t Λ^½, and ρ_t to 1 on average, so in the coordinates Λ^½α a product
        of inverses is close to the inverse of A_t + εP: (1 + εP)^-½ (ρ_t + δ)⁻¹ (1 + εP)^-½. Below
        the cutoff c details of ρ_t finer than 1/c do not matter, and the noise of an empirical
        density does harm: ρ at the time t + 1/c² takes its place.
        """
        penalty = self.penalty(level, equations.eigenvalues)
        weight = equations.reciprocal(t + self.cutoff(level).square().reciprocal(), FLOOR)
        return Scaled(weight, (penalty / (1 + ridge[:, None] * penalty)).sqrt())

    def norm(self, t: Tensor, alpha: Tensor) -> Tensor:
        """Return (αᵀA_tα)^½: ``(T,)``."""
        equations = self._equations("total", math.inf)

        def size(chunk: tuple[float, list[int]]) -> Tensor:
            run = chunk[1]
            own = alpha[run].to(self.device)
            image = equations.operator(t[run].to(self.device), negligible=INTERPOLATED)(own)
            return (own * image).sum(dim=-1).clamp(min=0).sqrt().cpu()

        return torch.cat(in_parallel(size, list(self._chunks([math.inf] * len(t), 1, 0))))


def approximate(
    operator: Operator,
    right: Tensor,
    ridge: Tensor,
    start: Tensor | None,
    inverse: Operator,
    tolerance: float,
) -> Solution:
    """Return solutions for interpolation, from a guess or else with extreme eigenvalues.

    Ritz values need conjugate gradients without a preconditioner. Few steps are sufficient for the
    largest, and they bring the solution as far as those with one do at first.
    """
    orthogonal = ORTHOGONAL if right.shape[1] > FEW_FUNCTIONS else 0
    first = None
    if start is None:
        first = conjugate_gradients(
            operator, right, ridge, tolerance=tolerance, iterations=RITZ, orthogonal=orthogonal
        )
        start = first.values
    found = conjugate_gradients(
        operator,
        right,
        ridge,
        start=start,
        preconditioner=inverse,
        tolerance=tolerance,
        iterations=FINAL_ITERATIONS,
        orthogonal=orthogonal,
    )
    if first is None:
        return found
    # One that stopped before is not positive: then the other solution may be any.
    stopped = (first.iterations < RITZ) & (first.residual > tolerance)
    return replace(
        found,
        iterations=first.iterations + found.iterations,
        residual=first.residual.where(stopped, found.residual),
        smallest=torch.fmin(first.smallest, found.smallest),
        largest=torch.fmax(first.largest, found.largest),
    )
