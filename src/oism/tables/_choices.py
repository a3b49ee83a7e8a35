"""What `OISM` chooses by itself: process, chart, basis, clock, folds and the defence.

Each is a function of what is known about the columns and of a first look at the rows.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import check_cv
from torch import Tensor

from oism._core import checks
from oism.basis import Basis, Fourier, Hermite
from oism.process import (
    Clock,
    OrnsteinUhlenbeck,
    Process,
    Torus,
    VarianceExploding,
    VariancePreserving,
)
from oism.score import OperatorScore
from oism.tables._background import Defence, Spread
from oism.tables._chart import BoxChart, Chart, WhiteChart
from oism.tables._columns import Columns

TORUS_DIM = 3
"""The largest dimension for which "auto" takes the torus; the number of waves explodes above."""

RESOLUTION = {1: (10_000.0, 0.4), 2: (600.0, 0.4), 3: (80.0, 0.5)}
"""By dimension: the bound on ‖ξ‖² for 10,000 rows, and the power of n by which it grows."""

LEAST_EIGENVALUE = {1: 400.0, 2: 25.0, 3: 4.0}
LARGEST_EIGENVALUE = {1: 40_000.0, 2: 2000.0, 3: 200.0}

ORDER = 6
"""The largest degree of the polynomials, unless given."""

SIGMA_MAX = 5.0
"""The noise at which a law on the torus counts as uniform: waves are down to e^{-12.5}."""

FIRST_SIGMA = 0.01
"""The noise, in whitened units, at which the flow of an Ornstein-Uhlenbeck process ends."""


def choose_process(process: str | Process, columns: Columns) -> Torus | OrnsteinUhlenbeck:
    """Return the process that was asked for, or that suits the columns."""
    if process == "auto":
        narrow = columns.count <= TORUS_DIM or not columns.are_free
        process = "torus" if narrow else "ou"
    if isinstance(process, str):
        process = Torus() if process == "torus" else OrnsteinUhlenbeck()
    if not isinstance(process, Torus | OrnsteinUhlenbeck):
        raise ValueError(
            f"process must be 'auto', 'torus', 'ou', Torus() or OrnsteinUhlenbeck(...), got "
            f"{process!r}: data without a box need an invariant law"
        )
    if isinstance(process, Torus) and columns.count > TORUS_DIM:
        raise ValueError(
            f"the torus serves at most {TORUS_DIM} columns, got {columns.count}, because the "
            "number of waves grows like the volume of a ball: process='ou' serves any number "
            "of columns that are neither periodic nor bounded, and oism.fit(...) with a "
            "Fourier basis of chosen frequencies serves angles"
        )
    if isinstance(process, OrnsteinUhlenbeck) and not columns.are_free:
        raise ValueError(
            "periodic, bounds and box need process='torus' (at most three columns), got 'ou'"
        )
    return process


def choose_chart(
    process: Torus | OrnsteinUhlenbeck, columns: Columns, rows: Tensor, weights: Tensor, frame: str
) -> tuple[Chart, float]:
    """Return the chart for rows of positive weight, and how many rows they are worth."""
    spread = Spread(rows.mean(dim=0))
    spread.update(rows, weights)
    if isinstance(process, Torus):
        return columns.chart(rows, spread.count, weights), spread.count
    chart = WhiteChart.of(spread.mean, spread.covariance, rotate=frame == "pca")
    return chart.scaled(math.sqrt(process.stationary_variance)), spread.count


def choose_basis(
    process: Torus | OrnsteinUhlenbeck,
    dim: int,
    n: float,
    max_eigenvalue: float | str,
    order: int | str,
) -> Fourier | Hermite:
    """Return the functions for n rows."""
    if isinstance(process, OrnsteinUhlenbeck):
        return Hermite(dim, ORDER if isinstance(order, str) else int(order), process)
    if isinstance(max_eigenvalue, str):
        most, power = RESOLUTION[dim]
        bound = most * (n / 10_000) ** power
        max_eigenvalue = min(max(bound, LEAST_EIGENVALUE[dim]), LARGEST_EIGENVALUE[dim])
    return Fourier.lattice(dim, float(max_eigenvalue))


def choose_clock(basis: Basis) -> Clock:
    """Return the range of noise levels that suits the functions."""
    if not isinstance(basis, Fourier):
        return VariancePreserving()
    # Noise well below the finest wave: 0.01 for ‖ξ‖² ≤ 500.
    finest = -float(basis.eigenvalues[-1])
    return VarianceExploding(0.01 * math.sqrt(500 / finest), SIGMA_MAX)


def choose_span(score: OperatorScore) -> tuple[float, float]:
    """Return the clock times of the flow: all of them on the torus.

    The Ornstein-Uhlenbeck process ends at a noise of a hundredth of the data's deviation, for data
    on a plane in space have an infinite score at t = 0.
    """
    process = score.basis.process
    if not isinstance(process, OrnsteinUhlenbeck):
        return 0.0, score.clock.horizon
    t = -math.log1p(-(FIRST_SIGMA**2)) / (2 * process.theta)
    low, high = score.times
    first = score.clock._inverse(torch.tensor(min(max(t, low), high), dtype=torch.float64))
    return float(first), score.clock.horizon


def choose_defence(chart: Chart, spread: Spread, outside: float) -> Defence | None:
    """Return the defence of the free columns, if there are any."""
    free = torch.ones_like(spread.origin, dtype=torch.bool)
    low = width = torch.zeros_like(spread.origin)
    if isinstance(chart, BoxChart):
        free = chart.free
        low = torch.where(chart.periodic, chart.start, chart.centre)
        width = torch.where(chart.periodic, 2.0, 1.0) * math.pi / chart.scale
    if not bool(free.any()):
        return None
    return Defence.of(spread, free, low, width, outside=outside)


def choose_folds(cv: Any, n: int) -> tuple[int, Tensor | None]:  # noqa: ANN401
    """Return the number of folds and the fold of each of n rows; None where content decides."""
    if cv is None or isinstance(cv, Integral):
        folds = 5 if cv is None else checks.integer(cv, "cv", minimum=2)
        return folds, None
    tests = [test for _, test in check_cv(cv).split(np.zeros(n))]
    held = np.concatenate(tests) if tests else np.zeros(0, dtype=np.int64)
    if not np.array_equal(np.sort(held), np.arange(n)):
        raise ValueError("cv must have test sets that hold every row exactly once, as KFold's do")
    fold = np.zeros(n, dtype=np.int64)
    for number, test in enumerate(tests):
        fold[test] = number
    return len(tests), torch.from_numpy(fold)
