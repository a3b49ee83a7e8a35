"""Fits: the scores of all noise levels from data, in closed form.

data ─► moments ─► shrinkage ─► equations ─► ridge and truncation over t ─► α(t) ─► score
"""

from __future__ import annotations

from typing import cast

from oism._core import checks
from oism._core.progress import Progress, progress_bar
from oism.basis import Basis, Hermite, Standardised
from oism.estimation._knots import Knots, PlacedKnots
from oism.estimation._moments.base import Moments
from oism.estimation._moments.gathering import gather
from oism.estimation._ridge import Ridge, ridge_of
from oism.estimation._shrinkage import SampleMeans, Shrinkage
from oism.estimation._systems.hermite import HermiteSystem
from oism.estimation._tabulation import tabulate
from oism.process import Clock
from oism.score import HermiteScore, OperatorScore, Table


def fit(  # noqa: PLR0913 (one argument for each step of the fit)
    data: object,
    basis: Basis,
    *,
    clock: Clock | None = None,
    shrinkage: Shrinkage | None = None,
    ridge: Ridge | float | None = None,
    knots: Knots | None = None,
    sample_weight: object = None,
    progress: bool | None = None,
) -> OperatorScore:
    """Return the scores of all noise levels of data.

    Parameters
    ----------
    data
        Rows: an array or tensor ``(n, dim)`` or ``(n, *shape)``, or an iterable of batches of rows,
        read once. Any real dtype; sums are kept in float64. On the torus points are taken modulo
        2π.
    basis
        `Fourier`, `Hermite`, `TensorHermite`, or any other basis with `Basis.doubled` and
        `Basis.rule`. Its size is an upper bound: the truncation is chosen by cross-validation.
    clock
        The range of times; by default that of the basis.
    shrinkage
        The estimator of averages; `SampleMeans` by default.
    ridge
        `CrossValidation`, the default, or a number ε ≥ 0 for all times, without truncation.
    knots
        The times at which coefficients are tabulated: by default `PlacedKnots` (cubic), for
        `Hermite` `EvenKnots`.
    sample_weight
        One weight per row, or for batches an iterable of them.
    progress
        Whether to show a progress bar; by default on a terminal if a fit takes more than a second.

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
    rule = ridge_of(ridge)
    with progress_bar(progress) as bar:
        bar.stage("rows")
        moments = gather(
            data,
            basis,
            folds=rule.folds,
            sample_weight=sample_weight,
            squares=shrinkage.needs_variances,
            after_batch=bar.reach,
        )
        return _fit(moments, clock, shrinkage, rule, knots, bar)


def fit_moments(
    moments: Moments,
    *,
    clock: Clock | None = None,
    shrinkage: Shrinkage | None = None,
    ridge: Ridge | float | None = None,
    knots: Knots | None = None,
    progress: bool | None = None,
) -> OperatorScore:
    """Return the scores of all noise levels from moments, for instance merged ones; see `fit`.

    Cross-validation uses the folds of the moments.
    """
    checks.instance(moments, Moments, "moments")
    shrinkage = SampleMeans() if shrinkage is None else shrinkage
    checks.instance(shrinkage, Shrinkage, "shrinkage")
    with progress_bar(progress) as bar:
        return _fit(moments, clock, shrinkage, ridge_of(ridge), knots, bar)


def fit_standardised(
    basis: Hermite,
    standard: Standardised,
    *,
    clock: Clock,
    ridge: Ridge | float | None = None,
    knots: Knots | None = None,
    progress: bool | None = None,
) -> HermiteScore:
    """Return the scores of all noise levels from averages in standardised coordinates.

    For averages from several accumulators. The equations are solved on the device of the averages;
    the score is on the CPU.
    """
    rule, system = ridge_of(ridge), HermiteSystem(basis, standard)
    if not system.has_choice:
        return system.score(clock, Table.empty(clock))
    if rule.folds > 1 and not len(standard.averages.shares):
        raise ValueError(
            "data must fall into at least two folds for cross-validation, but all rows are in one "
            "(equal rows share a fold): give more rows, or a fixed ridge"
        )
    with progress_bar(progress) as bar:
        return system.score(clock, tabulate(system, clock, rule, knots or PlacedKnots(), bar))


def _fit(
    moments: Moments,
    clock: Clock | None,
    shrinkage: Shrinkage,
    ridge: Ridge,
    knots: Knots | None,
    bar: Progress,
) -> OperatorScore:
    moments.check()
    system = moments.system(shrinkage)
    moments.check(folds=ridge.folds > 1 and system.has_choice)
    if clock is None:  # that of the functions in use, which may be fewer than were asked for
        clock = cast("Basis", system.basis).default_clock()
    checks.instance(clock, Clock, "clock")
    table = tabulate(system, clock, ridge, knots or moments.default_knots(), bar)
    return system.score(clock, table)
