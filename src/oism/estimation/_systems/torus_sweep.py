"""The choice of ridge and cutoff on the torus, by the held-out losses of all candidates.

A cutoff has no effect at scales that diffusion has smoothed: c is a candidate only if c²t ≤ 0.3.
Losses need the functions with ‖ξ‖ ≤ √(80/t) and 1.5c only.
"""

from __future__ import annotations

import itertools
import math
from threading import Lock

import torch
from torch import Tensor

from oism._core.transforms import in_parallel, on_host
from oism.estimation._equations.fourier import FourierEquations
from oism.estimation._systems.choice import choose
from oism.estimation._systems.conjugate import RidgePath
from oism.estimation._systems.direct import DirectPath, solved_for_all
from oism.estimation._systems.matrix_free import Scaled
from oism.estimation._systems.torus_bands import (
    DENSE_SOLVE,
    GAUSSIAN_DECAY,
    INTERPOLATED,
    MANY_ROWS,
    TorusBands,
)
from oism.score import RIDGES, Advance, Losses, ignore

DENSE_SWEEP = 160
"""The largest number of functions in a band for dense algebra with all ridges, for each fold."""

SMOOTHED = 0.3
"""The largest c²t of a candidate cutoff c."""

LARGE_RIDGE = 1e-3
"""Ridges down to this are always tried: they need few iterations. In large systems the loss
decides, see `Descent`."""

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

STRIDE, MANY_STRIDE, CLOSE = 2, 4, 1.5
"""The first times of a sweep of a large system are every second, and every fourth above
``MANY_ROWS`` rows, from which choices vary less; between two whose level and log ε differ by less
than ``CLOSE``, choices are interpolated."""

SWEEP_TOLERANCE, LARGE_SWEEP_TOLERANCE = 5e-6, 3e-3
"""Relative residuals, the second of large systems (`TorusBands._is_large`). Losses have relative
errors of up to ten times as much."""

KRYLOV = 2**26
"""The largest number of entries of the Krylov space of a batch of times: half a gigabyte."""

SWEEP_ITERATIONS = 300


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


class Descent:
    """Whether smaller ridges are worth trying, from the losses of larger ones at T times.

    A path ends when the loss falls at no time, at ridges below ``LARGE_RIDGE``; in large systems
    also at others, after it has risen once if it is above ``lowest`` ``(T,)``, the lowest losses
    of other levels, and twice otherwise.
    """

    def __init__(self, shares: Tensor, lowest: Tensor, is_large: bool) -> None:
        self._shares, self._lowest, self._is_large = shares, lowest, is_large
        self._before, self._rises = torch.full_like(lowest, math.inf), 0

    def ends(self, ridge: float, loss: Tensor) -> bool:
        """Return whether the path ends with a ridge and its losses ``(T, folds)``."""
        mean = loss @ self._shares
        falls = bool((self._before - mean > RIDGE_GAIN * mean.abs()).any())
        self._rises = 0 if falls else self._rises + 1
        enough = 1 if bool((torch.minimum(self._before, mean) > self._lowest).all()) else 2
        self._before = mean
        return not falls and (ridge < LARGE_RIDGE or (self._rises >= enough and self._is_large))


class TorusSweep(TorusBands):
    """The losses of ridges and cutoffs, and the choice among them."""

    @property
    def _stride(self) -> int:
        """The distance of the first times of a sweep."""
        # A GPU solves the systems of all times at once.
        if not on_host(self.averages.total) or not self._is_large(self.basis.size):
            return 1
        return MANY_STRIDE if self._rows > MANY_ROWS else STRIDE

    def _sweep_band(self, t: float, cutoff: float) -> float:
        return self._band(1.5 * cutoff, math.sqrt(GAUSSIAN_DECAY / max(t, 1e-300)))

    def choices(self, t: Tensor, *, advance: Advance = ignore) -> tuple[Tensor, Tensor, Tensor]:
        """Return log ridge, level and loss at increasing times ``(T,)``, each ``(T,)``.

        Choices change little from one time to the next. In large systems they are made at every
        second or fourth time. Where those of two times differ, that of the time half way
        between them is made too, with no finer level than both have but one; where they are close,
        they are interpolated, as the loss is.
        """
        picks = torch.zeros(3, len(t), dtype=torch.float64)
        first = sorted({*range(0, len(t), self._stride), len(t) - 1})
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
            lowest = self.shares @ best[:, where[run]]
            found = self._path(t[where[run]].to(self.device), level, band, lowest)
            values[:, where[run], level] = found.movedim(1, 0)
            work.finish(where[run], level)

        in_parallel(fill, list(self._chunks(bands, len(values), DENSE_SWEEP)))
        work.finish(slice(None), level)  # including times that were skipped

    def _path(self, t: Tensor, level: int, band: float, lowest: Tensor) -> Tensor:
        """Return the losses of a ridge path at times ``(T,)``: ``(T, folds, ridges)``, on the CPU.

        ``lowest`` ``(T,)`` are the lowest losses of other levels.
        """
        training, heldout = (self._equations(part, band) for part in ("training", "heldout"))
        ridges = RIDGES.to(t.device)
        penalty = self.penalty(torch.tensor([float(level)]).to(t), training.eigenvalues)
        scale = (-training.eigenvalues * penalty[0]).rsqrt()
        right, judged = -scale * training.right(t), heldout.right(t)
        if self.is_dense(band, DENSE_SWEEP):
            # Shrinkage can make the averages of one of the two even, and not those of the other.
            used = max(training.active, heldout.active, key=lambda one: one.step is None)
            right, judged, scale = right[..., used], judged[..., used], scale[used]
            matrix = scale[:, None] * training.active_matrix(t, used) * scale
            alpha = scale * solved_for_all(matrix, right, ridges)
            quadratic = ((alpha @ heldout.active_matrix(t, used)) * alpha).sum(dim=-1)
            dense: Tensor = quadratic + 2 * (alpha * judged[..., None, :]).sum(dim=-1)
            return dense.where(~dense.isnan(), math.inf).cpu()
        path = self._ridge_path(training, t, band, scale, right.flatten(0, 1))
        judge = heldout.operator(t, negligible=INTERPOLATED)
        judged = judged.flatten(0, 1)
        least = min(LEAST_RIDGE / float(self.averages.counts[0]), LARGE_RIDGE)
        left = [number for number, ridge in enumerate(RIDGES.tolist()) if ridge >= least][::-1]
        loss = torch.full((len(t), len(self.shares), len(RIDGES)), math.inf, dtype=t.dtype)
        descent = Descent(self.shares, lowest, self._is_large(training.size))
        while left:
            group = path.ready(left)
            alpha = scale * path.solve(group)
            forms = (alpha * (judge(alpha) + 2 * judged)).sum(dim=-1).nan_to_num(nan=math.inf)
            for number, form in zip(group, forms.cpu(), strict=True):
                loss[..., number] = form.reshape(loss.shape[:2])
                if descent.ends(float(RIDGES[number]), loss[..., number]):
                    return loss
            left = left[len(group) :]
        return loss

    def _ridge_path(
        self, training: FourierEquations, t: Tensor, band: float, scale: Tensor, right: Tensor
    ) -> RidgePath | DirectPath:
        """Return the solutions of all folds for one ridge after another."""
        ridges, is_large = RIDGES.to(t), self._is_large(training.size)
        # The smallest ridges, which need many iterations, are tried from many rows only.
        if self._rows > MANY_ROWS and self.is_dense(band, DENSE_SOLVE):
            used = training.active
            own = scale[used]
            matrix = own[:, None] * training.active_matrix(t).flatten(0, 1) * own
            return DirectPath(matrix, right, ridges, used)
        return RidgePath(
            Scaled(training.operator(t, negligible=INTERPOLATED), scale),
            right,
            ridges,
            tolerance=LARGE_SWEEP_TOLERANCE if is_large else SWEEP_TOLERANCE,
            iterations=max(1, min(SWEEP_ITERATIONS, KRYLOV // right.numel())),
        )
