"""Fits under a linear SDE, symmetric or not.

data ─► averages of polynomials ─► their values at every t ─► ridge and order over t ─► score

The averages over the data do not depend on the process: its action on polynomials is known in
closed form (``oism.estimation._equations.linear``).
"""

from __future__ import annotations

import math

import torch

from oism._core import checks
from oism._core.progress import Progress, progress_bar
from oism.basis import Polynomials, TensorHermite
from oism.estimation._equations.linear import check_size, start
from oism.estimation._knots import Knots, PlacedKnots
from oism.estimation._moments.base import Moments
from oism.estimation._moments.gathering import gather_into
from oism.estimation._moments.hermite import HermiteFamilyMoments
from oism.estimation._moments.tensor_hermite import tensor_moments
from oism.estimation._ridge import Ridge, ridge_of
from oism.estimation._shrinkage import SampleMeans, Shrinkage
from oism.estimation._systems.linear import LinearSystem
from oism.estimation._tabulation import tabulate
from oism.process import Clock, Linear, NotAProbabilityError, PhaseSpace, VariancePreserving
from oism.process._covariance import spread
from oism.score import SINGULAR, LinearLaw, LinearScore, Metric

DECAYS = 10.0
"""The last time of the default clock, in time constants of the slowest decay: e^{-10} remains."""

FIRST_RATE = 0.002
"""The rate t' of the default clock at its start, as a share of that at its end."""


def fit_linear(  # noqa: PLR0913 (one argument for each step of the fit)
    data: object,
    space: Linear | PhaseSpace,
    order: int = 4,
    *,
    whole: bool = False,
    clock: Clock | None = None,
    shrinkage: Shrinkage | None = None,
    ridge: Ridge | float | None = None,
    knots: Knots | None = None,
    sample_weight: object = None,
    progress: bool | None = None,
) -> LinearScore:
    """Return the scores of all noise levels under a linear process, with polynomials.

    Parameters
    ----------
    data
        Rows ``(n, d)``, or an iterable of batches of them: points of a `Linear` process, or the
        positions of a `PhaseSpace`, whose velocities are N(0, γI).
    space
        The process, or positions and velocities under it.
    order
        The largest total degree, at least 2; order 2 is the Gaussian with the mean and covariance
        of the data, in any dimension. An upper bound: the order is chosen by cross-validation.
    whole
        Whether to match the whole score ∇log ρ_t. By default only G^{½}∇log ρ_t is matched, which
        flow, reverse SDE and likelihood need: for a damped process, the derivative along
        velocities.
    clock
        The range of times; by default that of `default_clock`, for which the process must have a
        stationary distribution.
    shrinkage, ridge, knots, sample_weight, progress
        As for `fit`.

    Examples
    --------
    >>> from oism import CriticallyDamped, Flow, fit_linear
    >>> from oism.process import PhaseSpace
    >>> x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)) * 0.5 + 1
    >>> space = PhaseSpace(CriticallyDamped(dim=2), gamma=0.04)
    >>> score = fit_linear(x, space, order=2)
    >>> points = Flow(score).sample(1000, (4,), generator=torch.Generator().manual_seed(0))
    >>> space.positions(points).mean(dim=0), space.positions(points).std(dim=0)
    (tensor([0.9..., 1.0...]), tensor([0.4..., 0.5...]))
    """
    if not isinstance(space, Linear | PhaseSpace):
        raise TypeError(
            f"space must be a Linear process or a PhaseSpace, got {type(space).__name__}"
        )
    order = checks.integer(order, "order", minimum=2)
    shrinkage = SampleMeans() if shrinkage is None else shrinkage
    checks.instance(shrinkage, Shrinkage, "shrinkage")
    rule = ridge_of(ridge)
    _check_process(space, clock, whole=whole)
    _check_order(space, order)
    _check_width(data, space)
    folds = rule.folds if order > 2 else 1
    with progress_bar(progress) as bar:
        bar.stage("rows")
        functions = TensorHermite(space.data_dim, order)
        moments = tensor_moments(functions, folds, squares=shrinkage.needs_variances)
        gather_into(moments, data, sample_weight, bar.reach)
        return _fit(moments, space, whole, clock, shrinkage, rule, knots, bar)


def fit_linear_moments(  # noqa: PLR0913
    moments: Moments,
    space: Linear | PhaseSpace,
    *,
    whole: bool = False,
    clock: Clock | None = None,
    shrinkage: Shrinkage | None = None,
    ridge: Ridge | float | None = None,
    knots: Knots | None = None,
    progress: bool | None = None,
) -> LinearScore:
    """Return the scores of all noise levels from moments of a `TensorHermite` basis.

    See `fit_linear`. The order is that of the basis, the folds are those of the moments.
    """
    checks.instance(moments.basis, TensorHermite, "moments.basis")
    if not isinstance(moments, HermiteFamilyMoments):
        raise TypeError(f"moments must be those of polynomials, got {type(moments).__name__}")
    if moments.basis.dim != space.data_dim:
        raise ValueError(
            f"moments must be of {space.data_dim} columns, those of the space, got "
            f"{moments.basis.dim}"
        )
    shrinkage = SampleMeans() if shrinkage is None else shrinkage
    checks.instance(shrinkage, Shrinkage, "shrinkage")
    _check_process(space, clock, whole=whole)
    _check_order(space, moments.basis.order)
    with progress_bar(progress) as bar:
        return _fit(moments, space, whole, clock, shrinkage, ridge_of(ridge), knots, bar)


def _fit(  # noqa: PLR0913, PLR0917
    moments: HermiteFamilyMoments,
    space: Linear | PhaseSpace,
    whole: bool,
    clock: Clock | None,
    shrinkage: Shrinkage,
    ridge: Ridge,
    knots: Knots | None,
    bar: Progress,
) -> LinearScore:
    process, order = space.dynamics, moments.basis.order
    moments.check(folds=ridge.folds > 1 and order > 2)
    basis = Polynomials(process, order)
    eye = torch.eye(process.size, dtype=torch.float64)
    metric = eye if whole else process.diffusion(process.size)
    standard = moments.shrunk(shrinkage)
    law = start(space, standard)
    clock = default_clock(process, law) if clock is None else clock
    system = LinearSystem(basis, law, Metric(metric), standard.averages)
    return system.score(clock, tabulate(system, clock, ridge, knots or PlacedKnots(), bar))


def _check_process(space: Linear | PhaseSpace, clock: Clock | None, *, whole: bool) -> None:
    """Raise unless a process has noise, and without a clock a stationary distribution."""
    checks.optional(clock, Clock, "clock")
    if not whole and not space.dynamics.noise_matrix.any():
        raise ValueError("space must have noise, but its noise_matrix is zero")
    if clock is None:
        _check_stationary(space.dynamics)


def _check_order(space: Linear | PhaseSpace, order: int) -> None:
    """Raise, before rows are read, if the equations are too large; a Gaussian has none."""
    if order > 2:
        check_size(space.dynamics.size, order)


def _check_stationary(process: Linear) -> None:
    """Raise unless a process has a stationary distribution, for the default clock."""
    try:
        _ = process.stationary_covariance
    except NotAProbabilityError as error:
        raise NotAProbabilityError(f"{error}; without one, a clock must be given") from None


def _check_width(data: object, space: Linear | PhaseSpace) -> None:
    """Raise unless an array has as many columns as the space, with a hint in the message."""
    shape = tuple(getattr(data, "shape", ()))
    if len(shape) != 2 or shape[1] == space.data_dim:
        return  # moments check more
    hint = space.width_hint(shape[1])
    raise ValueError(f"data must have {space.data_dim} columns{hint}, got shape {shape}")


def default_clock(process: Linear, law: LinearLaw) -> VariancePreserving:
    """Return a clock at whose last time a linear process does not depend on its start.

    The last time is larger the further the data are from the stationary distribution, in its units.
    t grows with τ²: slowly at small t, where the scores change most, and not so fast at large t
    that the flow rotates far in a step. Asymmetric processes rotate at all times: the flow of a
    damped one turns positions into velocities, one radian per unit of t.
    """
    values, vectors = torch.linalg.eigh(process.stationary_covariance)
    values = values.clamp(min=SINGULAR * float(values.max()))  # directions without noise
    whiten = spread(values.rsqrt()[:, None] * vectors.mT, process.copies)
    away = torch.cat((law.shift[:, None], law.factor), dim=1)
    reach = max(1.0, float((whiten @ away).norm()))
    rate = float(-torch.linalg.eigvals(process.drift_matrix).real.max())
    last = (DECAYS + math.log(reach)) / rate
    return VariancePreserving(beta_0=FIRST_RATE * 4 * last, beta_1=(1 - FIRST_RATE) * 4 * last)
