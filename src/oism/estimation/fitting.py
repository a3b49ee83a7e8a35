"""Fitting: from data to the scores of every noise level, with no training.

data ─► moments ─► shrinkage ─► equations ─► ridge and truncation over t ─► α(t) ─► score
"""

from __future__ import annotations

import math
import warnings

from oism import checks
from oism.basis import Basis, Fourier, Hermite
from oism.basis.hermite import HermiteFamily
from oism.clock import Clock, VarianceExploding, VariancePreserving
from oism.estimation.tables import (
    CrossValidation,
    EvenKnots,
    PlacedKnots,
    checked_ridge,
    nothing_to_solve,
    tabulate,
)
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
from oism.score import FourierScore, HermiteScore, OperatorScore, TensorHermiteScore
from oism.shrinkage import SampleMeans, Shrinkage, shrink_fourier, shrink_hermite
from oism.solve import HermiteSystem, TensorHermiteSystem, TorusSystem
from oism.transforms import threads_apart


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
    >>> import torch
    >>> from oism import Fourier, fit
    >>> angles = torch.randn(500, 1, generator=torch.Generator().manual_seed(0))
    >>> score = fit(angles, Fourier.lattice(dim=1, max_eigenvalue=100))
    >>> score.score(torch.tensor([[0.5]]), t=0.02)  # the truth is -0.5/(1 + 2·0.02) = -0.48
    tensor([[-0.4...]])
    """
    checks.instance(basis, Basis, "basis")
    shrinkage = SampleMeans() if shrinkage is None else shrinkage
    checks.instance(shrinkage, Shrinkage, "shrinkage")
    ridge = checked_ridge(ridge)
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
        return _fit(moments, clock, shrinkage, checked_ridge(ridge), knots, bar)


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
        return HermiteScore(basis, clock, *nothing_to_solve(clock), standard).cpu()
    ridge = checked_ridge(ridge)
    if isinstance(ridge, CrossValidation) and not len(standard.averages.shares):
        raise ValueError(
            "data must fall into at least two folds for cross-validation, but all rows fell into "
            "one (equal rows share a fold): give more rows, or a fixed ridge"
        )
    with progress_bar(progress) as bar:
        return _lines(basis, standard, clock, ridge, knots or PlacedKnots(), bar).cpu()


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
            parts = tabulate(moments.basis, torus, clock, ridge, knots or PlacedKnots(), bar)
        return FourierScore(moments.basis, clock, *parts, averages.total)
    assert isinstance(moments, HermiteFamilyMoments)
    standard = shrink_hermite(moments, shrinkage)
    if isinstance(moments, GaussianMoments):
        return _gaussian(moments.basis, clock, standard)
    if isinstance(moments, HermiteMoments):
        return _lines(moments.basis, standard, clock, ridge, knots or EvenKnots(), bar)
    products = TensorHermiteSystem(moments.basis, standard)
    parts = tabulate(moments.basis, products, clock, ridge, knots or PlacedKnots(), bar)
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
    parts = tabulate(basis, HermiteSystem(basis, standard), clock, ridge, knots, bar)
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


def _gaussian(basis: HermiteFamily, clock: Clock, standard: Standardised) -> OperatorScore:
    """Return the Gaussian of mean and covariance."""
    return TensorHermiteScore(basis, clock, *nothing_to_solve(clock), standard)
