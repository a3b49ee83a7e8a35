"""The matrix-free system of any basis with fast transforms (``Basis.transforms``).

The equations are those of ``oism.estimation._equations.reversible``. In preconditioned coordinates
Λ^{½}α, where A_t tends to the identity as t grows, the penalty is ε times a power of |λ|,

    P = |λ| (|λ|/c²)^{¾ℓ},    level ℓ = 0, 1, 2,

with a fixed c. Level ℓ penalises derivatives of order 2 + ¾ℓ of log ρ_t. Smooth densities have
lower losses with a high order, densities that are sharp in few places with a low one: the order is
chosen together with ε. With D = (ΛP)^{-½} the scaled system is (D A D + εI) y = -D b, α = D y, and
all ridges share one Krylov space.

b_t decays like e^{-|λ|t}, so functions with |λ|t above a bound are left out: a *band* is a prefix
of the basis, rounded up to one of eight per octave.

Ridge and level are chosen from late to early times. Late, few functions matter and all candidates
are cheap. From one time to the next the best candidates change little, so only ridges around the
last choice are tried, and its neighbouring levels at every second time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from oism._core.transforms import in_parallel, threads_apart
from oism.basis import Averages, Basis
from oism.estimation._equations.reversible import ReversibleEquations
from oism.estimation._systems.choice import choose
from oism.estimation._systems.conjugate import RidgePath, conjugate_gradients
from oism.estimation._systems.matrix_free import MatrixFreeSystem, Scaled, Solutions
from oism.process import Clock
from oism.score import RIDGES, Advance, Losses, ScatteredScore, Solved, Table, ignore
from oism.storage import storable

LEVELS, STEP = 3, 0.75
"""The power of |λ| in the penalty is 1 + ¾ℓ at level ℓ."""

REFERENCE = 16.0
"""The frequency √|λ| = c at which ridges of all levels penalise alike, the same for every basis."""

SWEEP_DECAY, FINAL_DECAY = 16.0, 40.0
"""Functions with |λ|t above these are left out: for losses, and for solutions."""

BANDS = 8
"""The number of bands per octave."""

LEAST_BAND = 4.0
"""The smallest band: √|λ| up to this is kept."""

BELOW = 2
"""The number of ridges below the last choice that are tried first; larger ones cost nothing."""

LEAST_RIDGE = 0.03
"""Ridges below this share of 1/n are not tried."""

SWEEP_TOLERANCE = 1e-2
KNOT_TOLERANCE = 1e-4
FINAL_TOLERANCE = 1e-10
"""Relative residuals: of a ridge path, of interpolated coefficients, of exact ones."""

SWEEP_ITERATIONS, FINAL_ITERATIONS = 200, 3000

MANY_ROWS, MANY_FUNCTIONS = 5000, 8000
"""Above these, only three and only two folds are judged."""

KRYLOV = 2**26
"""The largest number of entries of a Krylov space: half a gigabyte."""

TOGETHER = 4
"""The largest number of times that are solved in one batch."""


@storable
class ReversibleSystem(MatrixFreeSystem[ReversibleEquations]):
    """A_t and b_t for averages of ``basis.doubled()``, and with each fold left out."""

    basis: Basis
    whole_sweep = True
    untruncated = 0.0
    levels = LEVELS

    def __init__(self, basis: Basis, averages: Averages) -> None:
        self.basis, self.averages = basis, averages
        self.radius = math.sqrt(-float(basis.eigenvalues[-1]))
        self._wide = basis.doubled().eigenvalues
        if averages.total.shape != self._wide.shape:
            raise ValueError(
                f"means must hold one average for each of the {len(self._wide)} functions of "
                f"basis.doubled(), got shape {tuple(averages.total.shape)}"
            )
        super().__init__()

    def score(self, clock: Clock, table: Table) -> ScatteredScore:
        """Return the score as a series of the basis."""
        return ScatteredScore(self.basis, clock, table, self.without_folds())

    def without_folds(self) -> ReversibleSystem:
        """Return the system with the averages over all rows only."""
        return ReversibleSystem(self.basis, Averages.of_all(self.averages.total))

    def to_config(self) -> dict[str, Any]:
        """Return the basis and the averages over all rows."""
        return {"basis": self.basis, "means": self.averages.total}

    @classmethod
    def from_config(cls, *, basis: Basis, means: Tensor) -> ReversibleSystem:
        """Return the system of averages over all rows."""
        return cls(basis, Averages.of_all(means))

    def workers(self) -> AbstractContextManager[None]:
        """Return a context in which folds and times are solved in parallel, on one thread each."""
        return threads_apart()

    def density_ratio(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ρ_t/π = 1 + Σ e^{λt} E[φ(X)] φ(x), which converges for t > 0."""
        wide = self.basis.doubled()
        evolved = torch.exp(t * self._wide) * self.averages.total
        return 1 + wide._series(x, evolved.to(x), 0)

    def _make_equations(self, part: str, band: float) -> ReversibleEquations:
        prefix = self.basis.truncated(band**2)
        return ReversibleEquations(prefix, self._wide, getattr(self.averages, part))

    def _band(self, t: float, decay: float) -> float:
        """Return the largest √|λ| that is kept, rounded up."""
        wanted = max(math.sqrt(decay / max(t, 1e-300)), LEAST_BAND)
        if wanted >= self.radius:
            return math.inf
        steps = math.floor(BANDS * math.log2(self.radius / wanted) + 1e-9)
        return self.radius * 2 ** (-steps / BANDS) + 1e-9

    @staticmethod
    def penalty(level: Tensor, eigenvalues: Tensor) -> Tensor:
        """Return P for levels ``(S,)``: ``(S, size)``."""
        return -eigenvalues * (-eigenvalues / REFERENCE**2) ** (STEP * level[:, None])

    def losses(self, t: Tensor, *, advance: Advance = ignore) -> Losses:
        """Return the held-out losses ``(folds, T, levels, ridges)``; +∞ for those not computed."""
        shares = self._shares
        values = torch.full((len(shares), len(t), LEVELS, len(RIDGES)), math.inf, dtype=t.dtype)
        lowest = int((LEAST_RIDGE / float(self.averages.counts[0]) > RIDGES).sum())
        level, ridge = 1, lowest + BELOW
        for step, k in enumerate(reversed(range(len(t)))):
            beside = 1 - step % 2
            for one in range(max(0, level - beside), min(LEVELS, level + beside + 1)):
                self._fill(values, t, k, one, max(lowest, ridge - BELOW), lowest)
            log_ridge, best, _ = choose(Losses(values[:, k : k + 1], shares))
            level = int(best[0])
            ridge = int((RIDGES.log() - log_ridge[0]).abs().argmin())
            advance(1 / len(t))
        return Losses(values, shares)

    @property
    def _judged(self) -> int:
        """The number of folds whose losses are computed."""
        folds = len(self.averages.shares)
        if self.basis.size > MANY_FUNCTIONS:
            return min(folds, 2)
        return min(folds, 3) if float(self.averages.counts[0]) > MANY_ROWS else folds

    @property
    def _shares(self) -> Tensor:
        own = self.averages.shares[: self._judged]
        return own / own.sum()

    def _fill(self, values: Tensor, t: Tensor, k: int, level: int, first: int, lowest: int) -> None:
        """Fill in the losses of one level at one time, extended while small ridges are better."""
        while True:
            values[:, k, level, first:] = self._path(t[k : k + 1], level, RIDGES[first:])
            mean = self._shares @ values[:, k, level]
            if first == lowest or int(mean.argmin()) > first:
                return
            first = max(lowest, first - BELOW)

    def _path(self, t: Tensor, level: int, ridges: Tensor) -> Tensor:
        """Return the losses of a ridge path at one time: ``(folds, ridges)``."""
        band = self._band(float(t), SWEEP_DECAY)
        training, heldout = (self._equations(part, band) for part in ("training", "heldout"))
        rates = training.basis.eigenvalues
        penalty = self.penalty(torch.tensor([float(level)], dtype=t.dtype), rates)[0]
        scale = (-rates * penalty).rsqrt()
        right, judged = -scale * training.right(t)[0, : self._judged], heldout.right(t)[0]
        steps = max(1, min(SWEEP_ITERATIONS, KRYLOV // right.numel()))

        def work(fold: Tensor) -> Tensor:
            path = RidgePath(
                Scaled(training.operator(t, fold), scale),
                right[fold],
                ridges,
                tolerance=SWEEP_TOLERANCE,
                iterations=steps,
            )
            judge, found = heldout.operator(t, fold), []
            for number in range(len(ridges)):  # the smallest first: all use the same space
                alpha = scale * path.solve(path.ready([number]))[0]
                found.append((alpha * (judge(alpha) + 2 * judged[fold])).sum(dim=-1))
            return torch.stack(found, dim=1).nan_to_num(nan=math.inf)

        halves = torch.arange(len(right)).tensor_split(min(2, len(right)))
        return torch.cat(in_parallel(work, halves))

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
        return self._solve(t, ridge, level, start, exact=start is None, advance=advance)

    def diagnose(
        self, t: Tensor, ridge: Tensor, level: Tensor, *, advance: Advance = ignore
    ) -> Solved:
        """Return the solution with estimates of the extreme eigenvalues from the iteration."""
        return self._solve(t, ridge, level, None, exact=False, advance=advance)

    def _batches(self, t: Tensor) -> Iterator[tuple[float, list[int]]]:
        """Yield consecutive times with the same band and the same series of the density."""
        keys = []
        for one in t.tolist():
            band = self._band(one, FINAL_DECAY)
            keys.append((band, self._equations("total", band).reach(one)))
        start = 0
        for stop in range(1, len(keys) + 1):
            if stop == len(keys) or keys[stop] != keys[start] or stop - start == TOGETHER:
                yield keys[start][0], list(range(start, stop))
                start = stop

    def _solve(
        self,
        t: Tensor,
        ridge: Tensor,
        level: Tensor,
        start: Tensor | None,
        *,
        exact: bool,
        advance: Advance,
    ) -> Solved:
        kept = Solutions(len(t), self.basis.size)

        def work(batch: tuple[float, list[int]]) -> None:
            band, run = batch
            equations = self._equations("total", band)
            rates = equations.basis.eigenvalues
            scale = (-rates * self.penalty(level[run], rates)).rsqrt()
            found = conjugate_gradients(
                Scaled(equations.operator(t[run]), scale),
                -scale * equations.right(t[run]),
                ridge[run],
                start=None if start is None else start[run, : len(rates)] / scale,
                tolerance=FINAL_TOLERANCE if exact else KNOT_TOLERANCE,
                iterations=FINAL_ITERATIONS,
            )
            kept.record(run, found, 1.0 if exact else 1e-2)
            kept.alpha[run, : len(rates)] = scale * found.values
            advance(len(run) / len(t))

        in_parallel(work, list(self._batches(t)))
        return kept.solved(t)

    def norm(self, t: Tensor, alpha: Tensor) -> Tensor:
        """Return (αᵀA_tα)^½: ``(T,)``, with the functions of the bands of solutions."""
        size = torch.zeros(len(t), dtype=torch.float64)

        def work(batch: tuple[float, list[int]]) -> None:
            band, run = batch
            equations = self._equations("total", band)
            own = alpha[run, : equations.basis.size]
            found = (own * equations.operator(t[run])(own)).sum(dim=-1)
            size[run] = found.clamp(min=0).sqrt()

        in_parallel(work, list(self._batches(t)))
        return size
