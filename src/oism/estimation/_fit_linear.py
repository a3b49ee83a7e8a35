"""Fitting under a linear SDE, symmetric or not.

data ─► averages of polynomials ─► their values at every t ─► ridge and order over t ─► score

The averages are those of the data alone, whatever the process: what it does to polynomials is known
(``oism.estimation._equations.linear``).
"""

from __future__ import annotations

import math

import torch

from oism._core import checks
from oism._core.progress import progress_bar
from oism.basis import Polynomials, TensorHermite
from oism.estimation._equations.linear import start
from oism.estimation._knots import Knots, PlacedKnots
from oism.estimation._moments.gathering import gather_into
from oism.estimation._moments.hermite import tensor_moments
from oism.estimation._ridge import Ridge, ridge_of
from oism.estimation._shrinkage import SampleMeans, Shrinkage
from oism.estimation._systems.linear import LinearSystem
from oism.estimation._tabulation import tabulate
from oism.process import (
    Clock,
    Linear,
    NotAProbabilityError,
    PhaseSpace,
    VariancePreserving,
    spread,
)
from oism.score import SINGULAR, LinearLaw, LinearScore, Metric

REST = 10.0
"""How many times the slowest decay the default clock runs: about e^{-10} of the data is left."""

EARLY = 0.002
"""The pace of the default clock at its beginning, as a part of that at its end."""


def fit_linear(  # noqa: PLR0913 (the one place where everything is tied together)
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
    """Return the scores of data under a linear process, by polynomials of a total degree.

    Parameters
    ----------
    data
        Rows ``(n, d)``, or an iterable of batches of them: points of a `Linear` process, or the
        positions of a `PhaseSpace`, whose velocities are N(0, γI).
    space
        What diffuses.
    order
        The largest total degree, at least 2; order 2 is the Gaussian with the mean and covariance
        of the data, in any dimension. An upper bound: what is used of it is chosen.
    whole
        Match the whole score ∇log ρ_t. By default only G^{½}∇log ρ_t, all that flow, reverse SDE
        and likelihood need: for a damped process, the derivative along velocities.
    clock
        The range of times; by default that of `default_clock`, which needs a stationary law.
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
    process, width = space.dynamics, space.data_dim
    order = checks.integer(order, "order", minimum=2)
    basis = Polynomials(process, order)
    shrinkage = SampleMeans() if shrinkage is None else shrinkage
    checks.instance(shrinkage, Shrinkage, "shrinkage")
    rule = ridge_of(ridge)
    checks.optional(clock, Clock, "clock")
    if not whole and not process.noise_matrix.any():
        raise ValueError("space must have noise, but its noise_matrix is zero")
    if clock is None:
        _demand_rest(process)
    _demand_width(data, space)
    folds = rule.folds if order > 2 else 1
    eye = torch.eye(process.size, dtype=torch.float64)
    metric = eye if whole else process.diffusion(process.size)
    with progress_bar(progress) as bar:
        bar.stage("rows")
        functions = TensorHermite(width, order)
        moments = tensor_moments(functions, folds, squares=shrinkage.needs_variances)
        gather_into(moments, data, sample_weight, bar.reach)
        moments.demand(folds=folds > 1)
        standard = moments.shrunk(shrinkage)
        law = start(space, standard)
        clock = default_clock(process, law) if clock is None else clock
        system = LinearSystem(basis, law, Metric(metric), standard.averages)
        return system.score(clock, tabulate(system, clock, rule, knots or PlacedKnots(), bar))


def _demand_rest(process: Linear) -> None:
    """Raise unless a process comes to rest, as the default clock takes it to."""
    try:
        _ = process.stationary_covariance
    except NotAProbabilityError as error:
        raise NotAProbabilityError(f"{error}; without one, a clock must be given") from None


def _demand_width(data: object, space: Linear | PhaseSpace) -> None:
    """Raise where rows of an array are not those of the space, with what may have been meant."""
    shape = tuple(getattr(data, "shape", ()))
    if len(shape) != 2 or shape[1] == space.data_dim:
        return  # moments check more
    hint = space.width_hint(shape[1])
    raise ValueError(f"data must have {space.data_dim} columns{hint}, got shape {shape}")


def default_clock(process: Linear, law: LinearLaw) -> VariancePreserving:
    """Return a clock that runs until a linear process has forgotten where it began.

    That takes longer the further data are from the stationary law, in its own units. t grows with
    τ²: slowly where data lose their detail, yet nowhere so fast that a flow would have to turn far
    in a step. An asymmetric process does not rest: at the end, the flow of a damped one still turns
    positions into velocities, one radian in a unit of t.
    """
    values, vectors = torch.linalg.eigh(process.stationary_covariance)
    values = values.clamp(min=SINGULAR * float(values.max()))  # where noise does not reach
    whiten = spread(values.rsqrt()[:, None] * vectors.mT, process.copies)
    away = torch.cat((law.shift[:, None], law.factor), dim=1)
    reach = max(1.0, float((whiten @ away).norm()))
    rate = float(-torch.linalg.eigvals(process.drift_matrix).real.max())
    last = (REST + math.log(reach)) / rate
    return VariancePreserving(beta_0=EARLY * 4 * last, beta_1=(1 - EARLY) * 4 * last)
