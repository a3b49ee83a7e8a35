"""Fitting: from data to the scores of every noise level, with no training.

data ─► moments ─► shrinkage ─► equations ─► ridge and truncation over t ─► α(t) ─► score
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from oism import checks
from oism.basis import Basis, Fourier, Hermite
from oism.basis.hermite import HermiteFamily
from oism.clock import Clock, VarianceExploding, VariancePreserving
from oism.moments import (
    FourierMoments,
    GaussianMoments,
    HermiteFamilyMoments,
    HermiteMoments,
    Moments,
    Standardised,
    gather,
)
from oism.progress import Progress, progress_bar
from oism.score import (
    Curve,
    Diagnostics,
    FourierScore,
    HermiteScore,
    OperatorScore,
    TensorHermiteScore,
    place_knots,
)
from oism.shrinkage import SampleMeans, Shrinkage, shrink_fourier, shrink_hermite
from oism.solve import HermiteSystem, Schedule, System, TensorHermiteSystem, TorusSystem, choose
from oism.transforms import threads_apart


@dataclass(frozen=True)
class CrossValidation:
    """Choose ridge and truncation by cross-validation in closed form, at evenly spaced times."""

    folds: int = 5
    times: int = 41

    def __post_init__(self) -> None:
        folds = checks.integer(self.folds, "folds", minimum=2)
        checks.settle(self, folds=folds, times=checks.integer(self.times, "times", minimum=4))


@dataclass(frozen=True)
class EvenKnots:
    """Solve on evenly spaced clock times and join linearly; the paper's 1,000 by default."""

    count: int = 1000

    def __post_init__(self) -> None:
        checks.settle(self, count=checks.integer(self.count, "count", minimum=2))


@dataclass(frozen=True)
class PlacedKnots:
    """Solve where a cubic spline needs it: until no midpoint is off by more than ``tolerance``.

    The error is that of the score in L²(ρ_t), relative to its size. ``most`` bounds the number of
    knots.
    """

    tolerance: float = 1e-3
    most: int = 1025

    def __post_init__(self) -> None:
        tolerance = checks.positive(self.tolerance, "tolerance")
        checks.settle(self, tolerance=tolerance, most=checks.integer(self.most, "most", minimum=8))


NEGLIGIBLE = 1e-2
"""A score of this size in L²(ρ_t) need not be known relatively: it is added to the size."""


def fit(  # noqa: PLR0913 (the one place where everything is tied together)
    data: object,
    basis: Basis,
    *,
    clock: Clock | None = None,
    shrinkage: Shrinkage | None = None,
    ridge: CrossValidation | float | None = None,
    knots: EvenKnots | PlacedKnots | None = None,
    sample_weight: object = None,
    progress: bool | None = None,
) -> OperatorScore:
    """Return the scores of all noise levels of data.

    Parameters
    ----------
    data
        Rows: an array or tensor ``(n, dim)`` or ``(n, *shape)``, or an iterable of batches of rows,
        read once. Any real dtype; sums are kept in float64. On the torus points count modulo 2π.
    basis
        `Fourier`, `Hermite` or `TensorHermite`. Its size is an upper bound: what is used of it is
        chosen by cross-validation.
    clock
        The range of times. `VarianceExploding` for a torus, `VariancePreserving` otherwise.
    shrinkage
        How averages are estimated; `SampleMeans` by default.
    ridge
        `CrossValidation`, the default, or a number ε ≥ 0 for all times (nothing is truncated then).
    knots
        Where coefficients are tabulated: `PlacedKnots` (cubic), or for `Hermite` `EvenKnots`.
    sample_weight
        One weight per row, or for batches an iterable of them.
    progress
        Show a progress bar; by default on a terminal, when a fit takes more than a second.

    Examples
    --------
    >>> from oism import Fourier, fit
    >>> angles = torch.randn(500, 1, generator=torch.Generator().manual_seed(0))
    >>> score = fit(angles, Fourier.lattice(dim=1, max_eigenvalue=100))
    >>> score.score(torch.tensor([[0.5]]), t=0.02)  # the truth is -0.5/(1 + 2·0.02) = -0.48
    tensor([[-0.4...]])
    """
    checks.instance(basis, Basis, "basis")
    shrinkage = SampleMeans() if shrinkage is None else shrinkage
    checks.instance(shrinkage, Shrinkage, "shrinkage")
    ridge = _ridge(ridge)
    folds = ridge.folds if isinstance(ridge, CrossValidation) else 1
    with progress_bar(progress) as bar:
        bar.stage("rows")
        moments = gather(
            data,
            basis,
            folds=folds,
            sample_weight=sample_weight,
            squares=shrinkage.needs_variances,
            after_batch=bar.reach,
        )
        return _fit(moments, clock, shrinkage, ridge, knots, bar)


def fit_moments(
    moments: Moments,
    *,
    clock: Clock | None = None,
    shrinkage: Shrinkage | None = None,
    ridge: CrossValidation | float | None = None,
    knots: EvenKnots | PlacedKnots | None = None,
    progress: bool | None = None,
) -> OperatorScore:
    """Return the scores that follow from moments, for instance merged ones; see `fit`.

    The folds of a cross-validation are those that the moments were gathered with.
    """
    checks.instance(moments, Moments, "moments")
    shrinkage = SampleMeans() if shrinkage is None else shrinkage
    checks.instance(shrinkage, Shrinkage, "shrinkage")
    with progress_bar(progress) as bar:
        return _fit(moments, clock, shrinkage, _ridge(ridge), knots, bar)


def fit_standardised(
    basis: Hermite,
    standard: Standardised,
    *,
    clock: Clock,
    ridge: CrossValidation | float | None = None,
    knots: EvenKnots | PlacedKnots | None = None,
    progress: bool | None = None,
) -> HermiteScore:
    """Return the scores that follow from averages in standardised coordinates, one per direction.

    For averages that did not come from one accumulator. The equations are solved on the device of
    the averages; the score is on the CPU.
    """
    if not _has_choice(basis):
        return HermiteScore(basis, clock, *_nothing(clock), standard).cpu()
    ridge = _ridge(ridge)
    if isinstance(ridge, CrossValidation) and not len(standard.averages.shares):
        raise ValueError(
            "data must fall into at least two folds for cross-validation, but all rows fell into "
            "one (equal rows share a fold): give more rows, or a fixed ridge"
        )
    with progress_bar(progress) as bar:
        return _lines(basis, standard, clock, ridge, knots or PlacedKnots(), bar).cpu()


def _ridge(ridge: CrossValidation | float | None) -> CrossValidation | float:
    if ridge is None:
        return CrossValidation()
    if isinstance(ridge, CrossValidation):
        return ridge
    demand = "CrossValidation(...) or a finite number >= 0"
    number = checks.number(ridge, "ridge", demand)
    if number < 0:
        raise ValueError(f"ridge must be {demand}, got {number!r}")
    return number


def _fit(
    moments: Moments,
    clock: Clock | None,
    shrinkage: Shrinkage,
    ridge: CrossValidation | float,
    knots: EvenKnots | PlacedKnots | None,
    bar: Progress,
) -> OperatorScore:
    moments.demand(folds=isinstance(ridge, CrossValidation) and _has_choice(moments.basis))
    basis = moments.basis
    if clock is None:
        clock = VarianceExploding() if isinstance(basis, Fourier) else VariancePreserving()
    checks.instance(clock, Clock, "clock")
    if isinstance(moments, FourierMoments):
        _warn_of_span(moments)
        averages = shrink_fourier(moments, shrinkage)
        torus = TorusSystem(moments.basis, moments.frequencies, averages)
        with threads_apart():
            parts = _tabulate(moments.basis, torus, clock, ridge, knots or PlacedKnots(), bar)
        return FourierScore(moments.basis, clock, *parts, averages.total)
    assert isinstance(moments, HermiteFamilyMoments)
    standard = shrink_hermite(moments, shrinkage)
    if isinstance(moments, GaussianMoments):
        return _gaussian(moments.basis, clock, standard)
    if isinstance(moments, HermiteMoments):
        return _lines(moments.basis, standard, clock, ridge, knots or EvenKnots(), bar)
    products = TensorHermiteSystem(moments.basis, standard)
    parts = _tabulate(moments.basis, products, clock, ridge, knots or PlacedKnots(), bar)
    return TensorHermiteScore(moments.basis, clock, *parts, standard)


def _has_choice(basis: Basis) -> bool:
    """Tell whether there is anything to choose: below order three Hermite is a Gaussian."""
    return not isinstance(basis, HermiteFamily) or basis.order > 2


def _lines(
    basis: Hermite,
    standard: Standardised,
    clock: Clock,
    ridge: CrossValidation | float,
    knots: EvenKnots | PlacedKnots,
    bar: Progress,
) -> HermiteScore:
    parts = _tabulate(basis, HermiteSystem(basis, standard), clock, ridge, knots, bar)
    return HermiteScore(basis, clock, *parts, standard)


def _warn_of_span(moments: FourierMoments) -> None:
    span = moments.high - moments.low
    if float(span.max()) > 4 * math.pi:
        column = int(span.argmax())
        warnings.warn(
            f"data count modulo 2π on the torus, but column {column} spans "
            f"{float(span[column]):.3g}: scale it into [-π, π) unless it holds unwrapped angles",
            UserWarning,
            stacklevel=4,
        )


def _tabulate(
    basis: Basis,
    system: System,
    clock: Clock,
    ridge: CrossValidation | float,
    knots: EvenKnots | PlacedKnots,
    bar: Progress,
) -> tuple[Curve, Schedule, Diagnostics]:
    """Choose ridge and truncation, and solve at the knots."""
    schedule, loss, tau = _schedule(basis, system, clock, ridge, bar)
    t = clock._time(tau)
    chosen, level = schedule.at(tau)
    bar.stage("solving")
    found = system.diagnose(t, chosen, level)
    condition = (found.largest + chosen) / (found.smallest + chosen).clamp(min=1e-300)
    curve, wrong = _curve(system, schedule, clock, knots, found.alpha, bar)
    diagnostics = Diagnostics(
        tau=tau,
        t=t,
        ridge=chosen,
        level=level,
        loss=loss,
        smallest=found.smallest,
        condition=condition,
        iterations=found.iterations,
        interpolation=torch.tensor(wrong, dtype=torch.float64),
    )
    return curve, schedule, diagnostics


def _schedule(
    basis: Basis,
    system: System,
    clock: Clock,
    ridge: CrossValidation | float,
    bar: Progress,
) -> tuple[Schedule, Tensor, Tensor]:
    """Return ridge and level over time, the cross-validated losses, and the times of choice."""
    count = ridge.times if isinstance(ridge, CrossValidation) else CrossValidation().times
    tau = torch.linspace(0, clock.horizon, count, dtype=torch.float64)
    if not isinstance(ridge, CrossValidation) or not system.has_choice:
        value = 0.0 if isinstance(ridge, CrossValidation) else ridge
        schedule = Schedule.constant(value, system.untruncated, system.batch)
        return schedule, torch.full((count, *system.batch), torch.nan, dtype=torch.float64), tau
    bar.stage("choosing ridge and truncation", count)
    picks = []
    step = max(4, 40_000 // basis.size)  # few at a time where they are long
    for run in torch.split(tau, step):
        picks.append([part.cpu() for part in choose(system.losses(clock._time(run)))])
        bar.advance(len(run))
    log_ridge, level, loss = (torch.cat(many) for many in zip(*picks, strict=True))
    return Schedule(tau, log_ridge, level), loss, tau


def _curve(
    system: System,
    schedule: Schedule,
    clock: Clock,
    knots: EvenKnots | PlacedKnots,
    known: Tensor,
    bar: Progress,
) -> tuple[Curve, float]:
    """Return the table of coefficients, and its tested error.

    Placing knots begins with the coefficients that are ``known`` at evenly spaced times.
    """

    def solve(tau: Tensor, guess: Tensor | None) -> Tensor:
        alpha = system.solve(clock._time(tau), *schedule.at(tau), start=guess).alpha
        bar.advance(len(tau))
        return alpha

    if isinstance(knots, EvenKnots):
        tau = torch.linspace(0, clock.horizon, knots.count, dtype=torch.float64)
        return Curve(tau, solve(tau, None), order=2), math.nan
    checks.instance(knots, PlacedKnots, "knots")

    def error(tau: Tensor, exact: Tensor, guess: Tensor) -> Tensor:
        t = clock._time(tau)
        size = system.norm(t, exact) + NEGLIGIBLE
        return system.norm(t, exact - guess) / size

    start = torch.linspace(0, clock.horizon, len(known), dtype=torch.float64)
    return place_knots(solve, error, start, known, tolerance=knots.tolerance, most=knots.most)


def _gaussian(basis: HermiteFamily, clock: Clock, standard: Standardised) -> OperatorScore:
    """Return the Gaussian of mean and covariance."""
    return TensorHermiteScore(basis, clock, *_nothing(clock), standard)


def _nothing(clock: Clock) -> tuple[Curve, Schedule, Diagnostics]:
    """Return the parts of a Gaussian, of which nothing is left to solve or to choose."""
    ends = torch.tensor([0.0, clock.horizon], dtype=torch.float64)
    curve = Curve(ends, torch.zeros(2, 0, dtype=torch.float64), order=2)
    none = torch.zeros(2, dtype=torch.float64)
    unknown = torch.full((2,), torch.nan, dtype=torch.float64)
    diagnostics = Diagnostics(
        ends, clock._time(ends), none, none, unknown, unknown, unknown, none.long(), unknown[0]
    )
    return curve, Schedule.constant(0.0, 0.0, ()), diagnostics
