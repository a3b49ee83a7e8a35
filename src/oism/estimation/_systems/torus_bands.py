"""Bands of functions on the torus: which functions a system at a time needs, and batches of times.

The penalty on Λ^{½}α grows with the eigenvalue,

    ε P,    P = |λ| (1 + (|λ|/c²)⁶),

so ε|λ| penalises second derivatives of the score's potential, and the cutoff c truncates the
spectrum smoothly: beyond it the penalty grows like the twelfth power of the frequency √|λ|.

Functions with negligible coefficients are left out: those far above the cutoff, where the penalty
is large, and those that have decayed. The others form a *band*. Times with the same band are solved
together.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import lru_cache

import torch
from torch import Tensor

from oism._core.transforms import on_host, threads_apart
from oism.basis import Averages, Fourier
from oism.estimation._equations.fourier import FourierEquations
from oism.estimation._equations.fourier_band import FourierBand
from oism.estimation._systems.matrix_free import KEPT, MatrixFreeSystem

DENSE, DENSE_SOLVE = 300, 512
"""The largest numbers of functions in a band for dense algebra: for a solution with extreme
eigenvalues, and for a solution (benchmarks/torus.py)."""

BANDS = 8
"""The number of bands per octave."""

SMALLEST_CUTOFF = 3.0

GAUSSIAN_DECAY = 80.0
"""The functions that are kept have ‖ξ‖²t ≤ 80, or twice as much."""

CHUNK, DEVICE_CHUNK = 2**16, 2**26
"""The number of grid points per batch, on the CPU and on other devices."""

PARALLEL = 2**14
"""The number of points of the grid from which times are solved in parallel."""

SHARED = 2**22
"""The number of grid points up to which a GPU takes one band for all times: launching operations
takes longer than they do."""

TIMES = 3
"""The largest number of times per batch on the CPU: those that have converged wait for others."""

MANY_ROWS = 5000
"""Above so many rows only some folds are judged."""

FEW_ROWS, FEW_FUNCTIONS = 500, 200
"""Up to so many rows, and up to ``MANY_ROWS`` with so few functions, choices are made at all times,
and tolerances are smaller: these systems are fast. On a GPU, where iterations depend on rounding,
all systems of at most ``MANY_ROWS`` rows are treated so."""

JUDGED = ((20_000, 2), (MANY_ROWS, 3))
"""Above so many rows, this many folds are judged; the first pair that applies."""

INTERPOLATED = 1e-8
"""The decay of frequencies of ρ_t that are left out of losses and of interpolated coefficients."""


class TorusBands(MatrixFreeSystem[FourierEquations]):
    """The averages of a torus, their equations by band, and batches of times.

    ``shares`` are those of the rows in the folds that are judged.
    """

    basis: Fourier
    caches = ("_equations", "_bands")

    def __init__(
        self, basis: Fourier, lattice: Tensor, averages: Averages, *, dense: bool | None = None
    ) -> None:
        super().__init__()
        self.basis, self.lattice, self.averages = basis, lattice, averages
        self._dense = dense
        # Numbers that are needed hundreds of times, each a few operations.
        self._squares = basis.frequencies.square().sum(dim=1).numpy()  # increasing
        self.radius = math.sqrt(self._squares[-1])
        self._rows = float(averages.counts[0]) if len(averages.counts) else 0.0
        judged = next((folds for most, folds in JUDGED if self._rows > most), None)
        self.shares = averages.shares[:judged] / averages.shares[:judged].sum()
        self.levels = 1 + max(0, math.floor(2 * math.log2(self.radius / SMALLEST_CUTOFF) + 1e-9))

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
            return threads_apart(1)  # what is left for the CPU is short
        points = (4 * self.radius + 1) ** self.basis.dim
        return threads_apart(None if points >= PARALLEL else 1)

    def _forget(self) -> None:
        super()._forget()
        self._bands = lru_cache(maxsize=KEPT)(self._make_band)

    @property
    def device(self) -> torch.device:
        """The device on which the equations are solved; arguments and results are on the CPU."""
        return self.averages.total.device

    def _make_equations(self, part: str, band: float) -> FourierEquations:
        means = getattr(self.averages, part)
        judged = slice(None) if part == "total" else slice(len(self.shares))
        return FourierEquations(self._bands(band), means[judged])

    def _make_band(self, bound: float) -> FourierBand:
        return FourierBand(self.basis, self.lattice, bound, self.device)

    def _band(self, reach: float, late: float) -> float:
        """Return the radius within which functions are kept, at least min(reach, late).

        Rounded up to one of eight per octave, so that few sets of equations are needed.
        """
        wanted = min(reach, late)
        if wanted >= self.radius:
            return math.inf
        least = max(4.0, math.sqrt(self._squares[0]))
        steps = math.floor(BANDS * math.log2(self.radius / max(wanted, 1.0)) + 1e-9)
        return max(self.radius * 2 ** (-steps / BANDS), least) + 1e-9

    def _is_large(self, functions: int) -> bool:
        """Return whether choices among so many functions are made at fewer times.

        Their systems are then solved to a larger tolerance.
        """
        if self._rows > MANY_ROWS:
            return True
        on_cpu = on_host(self.averages.total)
        return on_cpu and self._rows > FEW_ROWS and functions > FEW_FUNCTIONS

    def _times_per_path(self, functions: int) -> int:
        """Return the largest number of times per batch of ridge paths, which end at the same ridge.

        The best ridges of two times may differ by several steps.
        """
        return 1 if self._is_large(functions) else CHUNK

    def is_dense(self, band: float, most: int = DENSE) -> bool:
        """Return whether dense algebra is used for the functions of a band."""
        if self._dense is not None:
            return self._dense
        return 2 * bisect.bisect_right(self._squares, band**2) <= most

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
                most = min(most, TIMES if folds == 1 else self._times_per_path(equations.size))
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
