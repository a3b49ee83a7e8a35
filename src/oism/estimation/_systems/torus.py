"""The system on the torus: dense algebra for bands of few functions, matrix-free for others.

The penalty on Λ^{½}α grows with the eigenvalue,

    ε P,    P = |λ| (1 + (|λ|/c²)⁶),

so ε|λ| penalises second derivatives of the score's potential, and the cutoff c truncates the
spectrum smoothly: beyond it the penalty grows like the twelfth power of the frequency √|λ|. A
cutoff has no effect at scales that diffusion has smoothed: c is a candidate only if c²t ≤ 0.3.

Functions with negligible coefficients are left out: those far above the cutoff, where the penalty
is large, and those that have decayed. b decays like e^{-‖ξ‖²t}, but the coefficients of a logarithm
decay like e^{-‖ξ‖t} (exactly so for a point mass), so an exact solution keeps
‖ξ‖ ≤ max(√(160/t), 25/t) and 3c. For interpolated coefficients √(160/t) and 2.5c are sufficient,
and for losses of candidates √(80/t) and 1.5c.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from oism._core.transforms import in_parallel, on_host, threads_apart
from oism.basis import Averages, Fourier, ScatteredSeries, product_lattice
from oism.estimation._equations.fourier import NEGLIGIBLE, FourierEquations
from oism.estimation._systems.choice import choose
from oism.estimation._systems.conjugate import Operator, RidgePath, Solution, conjugate_gradients
from oism.estimation._systems.direct import DirectPath
from oism.estimation._systems.matrix_free import UNSOLVED, MatrixFreeSystem, Scaled, Solutions
from oism.process import Clock
from oism.score import RIDGES, Advance, FourierScore, Losses, Solved, Table, ignore
from oism.storage import storable

DENSE_SWEEP, DENSE, DENSE_SOLVE = 160, 300, 512
"""The largest numbers of functions in a band for dense algebra: for the paths of ridges of all
folds, for a solution with extreme eigenvalues, and for a solution (benchmarks/torus.py)."""

BANDS = 8
"""The number of bands per octave."""

SMALLEST_CUTOFF = 3.0
SMOOTHED = 0.3
"""The largest c²t of a candidate cutoff c."""

GAUSSIAN_DECAY = 80.0
EXPONENTIAL_DECAY = 25.0
"""The functions that are kept have ‖ξ‖²t ≤ 80, or 160, or ‖ξ‖t ≤ 25: see above."""

CHUNK, DEVICE_CHUNK = 2**16, 2**26
"""The number of grid points per batch, on the CPU and on other devices."""

PARALLEL = 2**14
"""The number of points of the grid from which times are solved in parallel."""

SHARED = 2**22
"""The number of grid points up to which a GPU takes one band for all times: launching operations
takes longer than they do."""

TIMES = 3
"""The largest number of times per batch on the CPU: those that have converged wait for others."""

LARGE_RIDGE = 1e-3
"""Ridges down to this are always tried: they need few iterations. Above ``MANY_ROWS`` rows the loss
decides, see `TorusSystem._path`."""

LEAST_RIDGE = 0.3
"""Matrix-free, ridges below this share of 1/n are not tried: they are slow and not better."""

LEAST_GAIN, RIDGE_GAIN = 1e-3, 1e-4
"""A larger cutoff is better if the loss falls by the first share, and a smaller ridge is tried
while it falls by the second."""

PATIENCE = 2
"""The number of consecutive cutoffs, beyond all frequencies at which the data have structure and
not better by LEAST_GAIN, after which no larger one is tried."""

CHANCE = 0.01
"""The probability that a frequency of uniform data counts as structure."""

MANY_ROWS, JUDGED = 5000, 3
"""Above so many rows only some folds are judged, and choices at some times are interpolated."""

STRIDE, CLOSE = 4, 1.5
"""The first times of a sweep are every fourth; between two whose level and log ε differ by less
than ``CLOSE``, choices are interpolated."""

SWEEP_TOLERANCE, MANY_SWEEP_TOLERANCE = 1e-5, 3e-3
KNOT_TOLERANCE, MANY_KNOT_TOLERANCE = 1e-6, 1e-4
FINAL_TOLERANCE = 1e-11
"""Relative residuals of ridge paths, of interpolated coefficients, and of exact ones; the second of
two above ``MANY_ROWS`` rows. Losses of a path have relative errors of up to five times as much. The
numbers of steps may depend on rounding, and with it on units: so few rows have smaller ones. The
residual of interpolated coefficients is preconditioned: errors in the norm of the equations are a
few times as much. That is at most a tenth of the error of interpolation, 1e-3."""

FLOOR = 0.1
"""Added to the density ratio where a preconditioner divides by it."""

RITZ = 24
"""The number of steps without a preconditioner, for Ritz values."""

INTERPOLATED = 1e-8
"""The decay of frequencies of ρ_t that are left out of losses and of interpolated coefficients."""

KRYLOV = 2**26
"""The largest number of entries of the Krylov space of a batch of times: half a gigabyte."""

SWEEP_ITERATIONS = 300
FINAL_ITERATIONS = 5000


class Work:
    """Progress over parts with known costs.

    Each part is reported once, when it is finished or skipped. Thread-safe.
    """

    def __init__(self, costs: Tensor, advance: Advance) -> None:
        self._left = costs / costs.sum()
        self._advance, self._lock = advance, Lock()

    def finish(self, *index: int | slice | Tensor) -> None:
        """Report the share of the parts at an index that have not been reported yet."""
        with self._lock:
            share = float(self._left[index].sum())
            self._left[index] = 0.0
        self._advance(share)


@storable
class TorusSystem(MatrixFreeSystem[FourierEquations]):
    """A_t and b_t on the torus for averages over all rows, and with each fold left out.

    ``dense`` selects one of the two algorithms; by default each band has the faster one.
    """

    basis: Fourier
    untruncated = -32.0

    def __init__(
        self, basis: Fourier, lattice: Tensor, averages: Averages, *, dense: bool | None = None
    ) -> None:
        super().__init__()
        self.basis, self.lattice, self.averages = basis, lattice, averages
        self._dense = dense
        self.radius = math.sqrt(-float(basis.eigenvalues[-1]))
        self.levels = 1 + max(0, math.floor(2 * math.log2(self.radius / SMALLEST_CUTOFF) + 1e-9))

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

    def cutoff(self, level: Tensor) -> Tensor:
        """Return c = r·2^{-level/2} for real-valued levels; at level 0 it has almost no effect."""
        return self.radius * 2 ** (-level / 2)

    def penalty(self, level: Tensor, eigenvalues: Tensor) -> Tensor:
        """Return P for levels ``(S,)``: ``(S, size)``."""
        return -eigenvalues * (1 + (-eigenvalues / self.cutoff(level).square()[:, None]) ** 6)

    def workers(self) -> AbstractContextManager[None]:
        """Return a context in which times are solved in parallel, each on one thread.

        With few functions all are solved on one: see `threads_apart`.
        """
        if not on_host(self.averages.total):
            return nullcontext()
        points = (4 * self.radius + 1) ** self.basis.dim
        return threads_apart(None if points >= PARALLEL else 1)

    def density_ratio(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ρ_t/π = 1 + Σ e^{-‖ζ‖²t} E[e^{-iζ·X}] e^{iζ·x}, which converges for t > 0."""
        decay = torch.exp(-t * self.lattice.square().sum(dim=1))
        means = self.averages.total * decay
        return 1 + ScatteredSeries(self.lattice)(x.cpu().double(), means[None])[0].to(x)

    @property
    def device(self) -> torch.device:
        """The device on which the equations are solved; arguments and results are on the CPU."""
        return self.averages.total.device

    def _make_equations(self, part: str, band: float) -> FourierEquations:
        means = getattr(self.averages, part)
        judged = slice(None) if part == "total" else slice(len(self.shares))
        return FourierEquations(self.basis, self.lattice, means[judged], band)

    def _band(self, reach: float, late: float) -> float:
        """Return the radius within which functions are kept, at least min(reach, late).

        Rounded up to one of eight per octave, so that few sets of equations are needed.
        """
        wanted = min(reach, late)
        if wanted >= self.radius:
            return math.inf
        least = max(4.0, float(self.basis.frequencies[0].norm()))
        steps = math.floor(BANDS * math.log2(self.radius / max(wanted, 1.0)) + 1e-9)
        return max(self.radius * 2 ** (-steps / BANDS), least) + 1e-9

    @property
    def _has_many_rows(self) -> bool:
        """Whether choices are made with fewer folds and times, and to a larger tolerance."""
        counts = self.averages.counts  # none, where the averages of folds are not kept
        return len(counts) > 0 and float(counts[0]) > MANY_ROWS

    @property
    def _knot_tolerance(self) -> float:
        return MANY_KNOT_TOLERANCE if self._has_many_rows else KNOT_TOLERANCE

    @property
    def _times_per_path(self) -> int:
        """The largest number of times per batch of ridge paths, which end at the same ridge.

        From many rows the best ridges of two times differ by several steps.
        """
        return 1 if self._has_many_rows else CHUNK

    def is_dense(self, band: float, most: int = DENSE) -> bool:
        """Return whether dense algebra is used for the functions of a band."""
        if self._dense is not None:
            return self._dense
        inside = self.basis.frequencies.square().sum(dim=1) <= band**2
        return 2 * int(inside.sum()) <= most

    def _sweep_band(self, t: float, cutoff: float) -> float:
        return self._band(1.5 * cutoff, math.sqrt(GAUSSIAN_DECAY / max(t, 1e-300)))

    def _final_band(self, t: float, cutoff: float, *, exact: bool) -> float:
        t = max(t, 1e-300)
        late = math.sqrt(2 * GAUSSIAN_DECAY / t)
        if exact:
            return self._band(3 * cutoff, max(late, EXPONENTIAL_DECAY / t))
        return self._band(2.5 * cutoff, late)

    def _chunks(
        self, bands: list[float], folds: int, most_dense: int
    ) -> Iterator[tuple[float, list[int]]]:
        """Yield batches of consecutive times with the same band that fit into memory."""
        on_cpu = on_host(self.averages.total)
        bands, start = bands if on_cpu else self._shared(bands, folds), 0
        while start < len(bands):
            dense = self.is_dense(bands[start], most_dense)
            equations = self._equations("training" if folds > 1 else "total", bands[start])
            points = (4 * equations.reach + 1) ** self.basis.dim
            work = folds * (equations.size**2 if dense else points)
            most = max(1, (CHUNK if on_cpu else DEVICE_CHUNK) // work)
            if not dense and on_cpu:
                most = min(most, TIMES if folds == 1 else self._times_per_path)
            stop = start
            while stop < len(bands) and stop - start < most and bands[stop] == bands[start]:
                stop += 1
            yield bands[start], list(range(start, stop))
            start = stop

    def _shared(self, bands: list[float], folds: int) -> list[float]:
        """Return the largest band for all times, if that is little work for a GPU."""
        largest = max(bands, default=0.0)
        reach = min(largest, self.radius)
        points = folds * len(bands) * (4 * reach + 1) ** self.basis.dim
        return [largest] * len(bands) if points <= SHARED else bands

    @property
    def shares(self) -> Tensor:
        """The shares of the rows in the folds that are judged."""
        own = self.averages.shares
        own = own[: JUDGED if self._has_many_rows else len(own)]
        return own / own.sum()

    def choices(self, t: Tensor, *, advance: Advance = ignore) -> tuple[Tensor, Tensor, Tensor]:
        """Return log ridge, level and loss at increasing times ``(T,)``, each ``(T,)``.

        From many rows choices are precise, and change little from one time to the next. Then they
        are made at every fourth time. Where those of two times differ, that of the time half way
        between them is made too, with no finer level than both have but one; where they are close,
        they are interpolated, as the loss is.
        """
        picks = torch.zeros(3, len(t), dtype=torch.float64)
        # On a GPU all times take hardly longer than some of them.
        many = self._has_many_rows and on_host(self.averages.total)
        first = sorted({*range(0, len(t), STRIDE if many else 1), len(t) - 1})
        picks[:, first] = torch.stack(choose(self.losses(t[first], advance=advance)))
        gaps = list(itertools.pairwise(first))
        while gaps := [(low, high) for low, high in gaps if high - low > 1]:
            for low, high in gaps:
                share = torch.linspace(0, 1, high - low + 1, dtype=t.dtype)
                picks[:, low:high] = torch.lerp(picks[:, [low]], picks[:, [high]], share)[:, :-1]
            ends = torch.stack([picks[:2, list(part)] for part in zip(*gaps, strict=True)])
            apart = (ends.diff(dim=0)[0].abs() >= CLOSE).any(dim=0).tolist()
            gaps = list(itertools.compress(gaps, apart))
            middle = [(low + high) // 2 for low, high in gaps]
            if middle:
                finest = ends[:, 1, torch.tensor(apart)].amin(dim=0) - 1
                picks[:, middle] = torch.stack(choose(self.losses(t[middle], finest)))
            gaps = [
                half
                for (low, high), between in zip(gaps, middle, strict=True)
                for half in ((low, between), (between, high))
            ]
        return picks[0], picks[1], picks[2]

    def losses(
        self, t: Tensor, finest: Tensor | None = None, *, advance: Advance = ignore
    ) -> Losses:
        """Return the held-out losses ``(folds, T, levels, ridges)``.

        Candidates that cannot be chosen are not computed. Cutoffs are tried from the smallest, the
        cheapest, upwards, until two in a row are beyond the data's finest structure and no better
        than the best. At late times, at which even the largest is too large, the system without a
        cutoff is tried if no cutoff is offered, or if the last one was better. Ridges are tried
        from the largest downwards while the loss falls; with dense algebra all are tried at once.
        ``finest`` ``(T,)`` bounds the levels from below.
        """
        shares = self.shares
        shape = (len(shares), len(t), self.levels, len(RIDGES))
        values = torch.full(shape, math.inf, dtype=t.dtype)
        number = torch.arange(self.levels)
        offered = self.cutoff(number.double()).square() * t[:, None] <= SMOOTHED
        unlimited = ~offered[:, 0]
        if finest is not None:
            offered &= number >= finest[:, None]
            unlimited &= finest <= 0
        work = Work(self._sweep_costs(t, offered | (unlimited[:, None] & (number == 0))), advance)
        best = torch.full(shape[:2], math.inf, dtype=t.dtype)  # fold by fold
        gains = torch.ones_like(unlimited)  # whether the last cutoff improved the loss
        idle, structure = torch.zeros_like(unlimited, dtype=torch.int64), self._finest()
        for level in reversed(range(self.levels)):
            if level == 0:
                offered[:, 0] |= unlimited & gains
            where = (offered[:, level] & (idle < PATIENCE)).nonzero()[:, 0]
            self._fill(values, t, where, level, best, work)
            mean = torch.einsum("f,fte->te", shares, values[:, where, level])
            place = mean.argmin(dim=1).expand(len(shares), -1)[..., None]
            own = values[:, where, level].gather(2, place)[..., 0]
            centre = shares @ (own - best[:, where])
            gains[where] = centre < -LEAST_GAIN * (shares @ own).abs()
            if float(self.cutoff(torch.tensor(float(level)))) >= structure:
                idle[where] = torch.where(gains[where], 0, idle[where] + 1)
            best[:, where] = torch.where(centre < 0, own, best[:, where])
        return Losses(values, shares)

    def _finest(self) -> float:
        """Return the largest norm of a frequency at which the data differ from uniform ones.

        n|E e^{-iζ·x}|² of n uniform rows has the exponential distribution with mean 1, so the
        largest of m of them exceeds log(m/p) with a probability below p.
        """
        size = self.averages.total.abs().square().cpu() * float(self.averages.counts[0])
        found = size > math.log(len(self.lattice) / CHANCE)
        return float((self.lattice.norm(dim=1) * found).max())

    def _sweep_costs(self, t: Tensor, offered: Tensor) -> Tensor:
        """Return the expected costs of times and levels: ``(T, levels)``."""
        costs = torch.zeros(offered.shape, dtype=torch.float64)
        for level in range(self.levels):
            cutoff = float(self.cutoff(torch.tensor(float(level))))
            for k in offered[:, level].nonzero()[:, 0].tolist():
                band = min(self._sweep_band(float(t[k]), cutoff), self.radius)
                costs[k, level] = band ** (1 + self.basis.dim)  # iterations × points
        return costs

    def _fill(
        self, values: Tensor, t: Tensor, where: Tensor, level: int, best: Tensor, work: Work
    ) -> None:
        """Fill in the losses of one level at some of the times, given the best of others."""
        cutoff = float(self.cutoff(torch.tensor(float(level))))
        bands = [self._sweep_band(one, cutoff) for one in t[where].tolist()]

        def fill(chunk: tuple[float, list[int]]) -> None:
            band, run = chunk
            lowest = (self.shares @ best[:, where[run]]).to(self.device)
            found = self._path(t[where[run]].to(self.device), level, band, lowest)
            values[:, where[run], level] = found.movedim(1, 0).cpu()
            work.finish(where[run], level)

        in_parallel(fill, list(self._chunks(bands, len(values), DENSE_SWEEP)))
        work.finish(slice(None), level)  # including times that were skipped

    def _path(self, t: Tensor, level: int, band: float, lowest: Tensor) -> Tensor:
        """Return the losses of a ridge path at times ``(T,)``: ``(T, folds, ridges)``.

        ``lowest`` ``(T,)`` are the lowest losses of other levels. From many rows a path ends after
        the loss has risen once, if it is above these, and twice otherwise.
        """
        training, heldout = (self._equations(part, band) for part in ("training", "heldout"))
        ridges = RIDGES.to(t.device)
        penalty = self.penalty(torch.tensor([float(level)]).to(t), training.eigenvalues)
        scale = (-training.eigenvalues * penalty[0]).rsqrt()
        right, judged = -scale * training.right(t), heldout.right(t)
        if self.is_dense(band, DENSE_SWEEP):
            used = training.active
            right, judged, scale = right[..., used], judged[..., used], scale[used]
            values, vectors = torch.linalg.eigh(scale[:, None] * training.active_matrix(t) * scale)
            along = (vectors.mT @ right[..., None]).mT
            damped = along / (values.clamp(min=0)[..., None, :] + ridges[:, None])
            alpha = scale * (damped @ vectors.mT)
            quadratic = ((alpha @ heldout.active_matrix(t)) * alpha).sum(dim=-1)
            dense: Tensor = quadratic + 2 * (alpha * judged[..., None, :]).sum(dim=-1)
            return dense
        path = self._ridge_path(training, t, band, scale, right.flatten(0, 1))
        judge = heldout.operator(t, negligible=INTERPOLATED)
        loss = torch.full((*right.shape[:2], len(ridges)), math.inf, dtype=t.dtype, device=t.device)
        least = min(LEAST_RIDGE / float(self.averages.counts[0]), LARGE_RIDGE)
        before, rises = torch.full_like(t, math.inf), 0
        for number, ridge in reversed(list(enumerate(RIDGES.tolist()))):
            if ridge < least:
                break
            alpha = scale * path.solve(number)
            form = (alpha * (judge(alpha) + 2 * judged.flatten(0, 1))).sum(dim=-1)
            loss[..., number] = form.reshape(right.shape[:2]).nan_to_num(nan=math.inf)
            mean = loss[..., number] @ self.shares.to(t)
            falls = bool((before - mean > RIDGE_GAIN * mean.abs()).any())
            rises = 0 if falls else rises + 1
            enough = 1 if bool((torch.minimum(before, mean) > lowest).all()) else 2
            if not falls and (ridge < LARGE_RIDGE or (rises >= enough and self._has_many_rows)):
                break
            before = mean
        return loss

    def _ridge_path(
        self, training: FourierEquations, t: Tensor, band: float, scale: Tensor, right: Tensor
    ) -> RidgePath | DirectPath:
        """Return the solutions of all folds for one ridge after another."""
        ridges = RIDGES.to(t)
        if self._has_many_rows and self.is_dense(band, DENSE_SOLVE):  # small ridges are tried
            used = training.active
            own = scale[used]
            matrix = own[:, None] * training.active_matrix(t).flatten(0, 1) * own
            return DirectPath(matrix, right, ridges, used)
        return RidgePath(
            Scaled(training.operator(t, negligible=INTERPOLATED), scale),
            right,
            ridges,
            tolerance=MANY_SWEEP_TOLERANCE if self._has_many_rows else SWEEP_TOLERANCE,
            iterations=max(1, min(SWEEP_ITERATIONS, KRYLOV // right.numel())),
        )

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
                    found = self._approximate(operator, right, ridges, guess, inverse)
                    kept.record(run, found, UNSOLVED / (10 * self._knot_tolerance))
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

    def _approximate(
        self,
        operator: Operator,
        right: Tensor,
        ridge: Tensor,
        start: Tensor | None,
        inverse: Operator,
    ) -> Solution:
        """Return solutions for interpolation, from a guess or else with extreme eigenvalues.

        Ritz values need conjugate gradients without a preconditioner. Few steps are sufficient for
        the largest, and they bring the solution as far as those with one do at first.
        """
        tolerance, first = self._knot_tolerance, None
        if start is None:
            first = conjugate_gradients(
                operator, right, ridge, tolerance=tolerance, iterations=RITZ
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

    def norm(self, t: Tensor, alpha: Tensor) -> Tensor:
        """Return (αᵀA_tα)^½: ``(T,)``."""
        equations = self._equations("total", math.inf)

        def size(chunk: tuple[float, list[int]]) -> Tensor:
            run = chunk[1]
            own = alpha[run].to(self.device)
            image = equations.operator(t[run].to(self.device), negligible=INTERPOLATED)(own)
            return (own * image).sum(dim=-1).clamp(min=0).sqrt().cpu()

        return torch.cat(in_parallel(size, list(self._chunks([math.inf] * len(t), 1, 0))))
