"""The matrix-free system of any basis with fast transforms (``Basis.transforms``).

Penalty and cutoffs are those of ``oism.estimation._systems.spectral``, the equations those of
``oism.estimation._equations.reversible``.

b_t decays like e^{-|λ|t}, so functions with |λ|t above a bound are left out, as are those far above
the cutoff: a *band* is a prefix of the basis, rounded up to one of eight per octave.

Ridge and cutoff are chosen from late to early times. Late, few functions matter and all candidates
are cheap. From one time to the next the best candidates change little, so only the neighbours of
the last choice are tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from oism._core.transforms import in_parallel, threads_apart
from oism.basis import Averages, Basis
from oism.estimation._equations.reversible import ReversibleEquations
from oism.estimation._systems.choice import choose
from oism.estimation._systems.conjugate import conjugate_gradients, ridge_path
from oism.estimation._systems.spectral import SMOOTHED, Scaled, SpectralSystem
from oism.process import Clock
from oism.score import RIDGES, Advance, Losses, ScatteredScore, Solved, Table, ignore
from oism.storage import storable

SWEEP_DECAY, FINAL_DECAY = 16.0, 40.0
"""Functions with |λ|t above these are left out: for losses, and for solutions."""

BANDS = 8
"""The number of bands per octave."""

LEAST_BAND = 4.0
"""The smallest band: √|λ| up to this is kept."""

BELOW = 2
"""The number of ridges below the last choice that are tried first; larger ones cost nothing."""

MOST_LOSS = 0.1
"""Cutoffs that were worse by this share of the loss are not tried at earlier times."""

LEAST_RIDGE = 0.03
"""Ridges below this share of 1/n are not tried."""

SWEEP_TOLERANCE = 1e-2
KNOT_TOLERANCE = 1e-4
FINAL_TOLERANCE = 1e-10
"""Relative residuals: of a ridge path, of interpolated coefficients, of exact ones."""

SWEEP_ITERATIONS, FINAL_ITERATIONS = 200, 3000

MANY_ROWS, FEW_FOLDS = 5000, 3
"""Above this number of rows only so many folds are judged."""

KRYLOV = 2**26
"""The largest number of entries of a Krylov space: half a gigabyte."""

TOGETHER = 4
"""The largest number of times that are solved in one batch."""


@storable
class ReversibleSystem(SpectralSystem):
    """A_t and b_t for averages of ``basis.doubled()``, and with each fold left out."""

    whole_sweep = True

    def __init__(self, basis: Basis, averages: Averages) -> None:
        super().__init__(basis)
        self.averages = averages
        self._wide = basis.doubled().eigenvalues
        if averages.total.shape != self._wide.shape:
            raise ValueError(
                f"means must hold one average for each of the {len(self._wide)} functions of "
                f"basis.doubled(), got shape {tuple(averages.total.shape)}"
            )
        self._equations = lru_cache(maxsize=64)(self._make_equations)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the cached equations."""
        return {name: part for name, part in vars(self).items() if name != "_equations"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._equations = lru_cache(maxsize=64)(self._make_equations)

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

    def _band(self, t: float, cutoff: float, decay: float) -> float:
        """Return the largest √|λ| that is kept, rounded up."""
        wanted = max(min(cutoff, math.sqrt(decay / max(t, 1e-300))), LEAST_BAND)
        if wanted >= self.radius:
            return math.inf
        steps = math.floor(BANDS * math.log2(self.radius / wanted) + 1e-9)
        return self.radius * 2 ** (-steps / BANDS) + 1e-9

    def losses(self, t: Tensor, *, advance: Advance = ignore) -> Losses:
        """Return the held-out losses ``(folds, T, levels, ridges)``; +∞ for those not computed."""
        folds, shares = self._judged, self.averages.shares[: self._judged]
        values = torch.full((folds, len(t), self.levels, len(RIDGES)), math.inf, dtype=t.dtype)
        least = LEAST_RIDGE / float(self.averages.counts[0])
        lowest = int((least > RIDGES).sum())  # the first ridge that may be tried
        level, ridge = 0, lowest + BELOW
        squares = self.cutoff(torch.arange(self.levels).double()).square()
        close = True  # whether a cutoff was nearly as good as none
        for k in reversed(range(len(t))):
            offered = set((squares * t[k] <= SMOOTHED).nonzero()[:, 0].tolist())
            tried = {level - 1, level, level + 1} & offered
            if level == 0 or not tried:  # without a cutoff so far: the largest that have an effect
                tried = {0} | (set(sorted(offered)[:2]) if close else set())
            for one in sorted(tried):
                self._fill(values, t, k, one, max(lowest, ridge - BELOW), lowest)
            log_ridge, best, _ = choose(Losses(values[:, k : k + 1], shares))
            level = int(best[0])
            ridge = int((RIDGES.log() - log_ridge[0]).abs().argmin())
            mean = torch.tensordot(shares, values[:, k], dims=1).amin(dim=-1)
            if tried - {0}:
                close = level > 0 or bool(mean[1:].min() - mean[0] < MOST_LOSS * mean[0].abs())
            advance(1 / len(t))
        return Losses(values, shares)

    @property
    def _judged(self) -> int:
        """The number of folds whose losses are computed."""
        folds = len(self.averages.shares)
        return min(folds, FEW_FOLDS) if float(self.averages.counts[0]) > MANY_ROWS else folds

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
        cutoff = float(self.cutoff(torch.tensor(float(level))))
        limit = 1.5 * cutoff if level else math.inf
        band = self._band(float(t), limit, SWEEP_DECAY)
        training, heldout = (self._equations(part, band) for part in ("training", "heldout"))
        rates = training.basis.eigenvalues
        penalty = self.penalty(torch.tensor([float(level)], dtype=t.dtype), rates)[0]
        scale = (-rates * penalty).rsqrt()
        right, judged = -scale * training.right(t)[0, : self._judged], heldout.right(t)[0]
        steps = max(1, min(SWEEP_ITERATIONS, KRYLOV // right.numel()))

        def work(fold: Tensor) -> Tensor:
            solution = ridge_path(
                Scaled(training.operator(t, fold), scale),
                right[fold],
                ridges,
                tolerance=SWEEP_TOLERANCE,
                iterations=steps,
            )
            alpha = scale * solution.values  # (folds, ridges, size)
            judge = heldout.operator(t, fold)
            images = torch.stack([judge(own) for own in alpha.unbind(dim=1)], dim=1)
            return (images * alpha).sum(dim=-1) + 2 * (alpha * judged[fold, None]).sum(dim=-1)

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

    def _batches(self, t: Tensor, level: Tensor) -> Iterator[tuple[float, list[int]]]:
        """Yield consecutive times with the same band and the same series of the density."""
        pairs = zip(t.tolist(), self.cutoff(level).tolist(), strict=True)
        keys = []
        for one, cutoff in pairs:
            band = self._band(one, 3 * cutoff, FINAL_DECAY)
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
        alpha = torch.zeros(len(t), self.basis.size, dtype=torch.float64)
        low, high, left = torch.full((3, len(t)), torch.nan, dtype=torch.float64)
        iterations = torch.zeros(len(t), dtype=torch.int64)

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
            low[run], high[run] = found.smallest, found.largest
            iterations[run] = found.iterations
            left[run] = found.residual * (1.0 if exact else 1e-2)
            alpha[run, : len(rates)] = scale * found.values
            advance(len(run) / len(t))

        in_parallel(work, list(self._batches(t, level)))
        self._warn(left, t)
        return Solved(alpha, low, high, iterations)

    def norm(self, t: Tensor, alpha: Tensor) -> Tensor:
        """Return (αᵀA_tα)^½: ``(T,)``, with the functions of the bands of solutions."""
        size = torch.zeros(len(t), dtype=torch.float64)

        def work(batch: tuple[float, list[int]]) -> None:
            band, run = batch
            equations = self._equations("total", band)
            own = alpha[run, : equations.basis.size]
            found = (own * equations.operator(t[run])(own)).sum(dim=-1)
            size[run] = found.clamp(min=0).sqrt()

        in_parallel(work, list(self._batches(t, torch.full_like(t, self.untruncated))))
        return size
