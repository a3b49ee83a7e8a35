"""Fits of any functions under any process that can be simulated or integrated.

data ─► X_t by nodes or draws ─► A_t, b_t at a table of times ─► ridge over t ─► α(t) ─► score
"""

from __future__ import annotations

import torch

from oism._core import checks
from oism._core.progress import progress_bar
from oism.basis import Functions
from oism.estimation._knots import Knots
from oism.estimation._moments.gathering import gather_into
from oism.estimation._moments.simulated import SimulatedMoments
from oism.estimation._ridge import Ridge, ridge_of
from oism.estimation._shrinkage import SampleMeans
from oism.estimation._tabulation import tabulate
from oism.process import Clock, MonteCarlo, Rule, VariancePreserving
from oism.score import OperatorScore

DRAWS = 32
"""The default number of draws of X_t for each row and time."""


def fit_simulated(  # noqa: PLR0913
    data: object,
    functions: Functions,
    *,
    rule: Rule | None = None,
    clock: Clock | None = None,
    times: int = 41,
    ridge: Ridge | float | None = None,
    knots: Knots | None = None,
    sample_weight: object = None,
    progress: bool | None = None,
) -> OperatorScore:
    """Return the scores of all noise levels of data, with X_t computed from every row.

    For functions that are not eigenfunctions, and for processes without any: A_t and b_t are
    averages over the noised data, by quadrature or simulation. The cost is rows × draws × times.
    `fit` is exact and faster where it applies.

    Parameters
    ----------
    data
        Rows: an array or tensor ``(n, dim)``, or an iterable of batches of rows, read once.
    functions
        `Features` of a callable, or any other `Functions`; they have the process.
    rule
        How X_t is computed from each row: `MonteCarlo(samples, generator)` with a number of draws
        per row and time, by default 32 with a fixed seed, or `Quadrature(nodes)`. The error of a
        simulation is in ``score.system.error``.
    clock
        The range of times, by default `VariancePreserving`.
    times
        The number of times of the table; A_t and b_t between them are interpolated by splines.
    ridge, knots, sample_weight, progress
        As for `fit`; by default the knots are the times at which the ridge is chosen.

    Examples
    --------
    >>> from oism import OrnsteinUhlenbeck
    >>> from oism.basis import Features
    >>> x = torch.randn(500, 1, generator=torch.Generator().manual_seed(0)).double()
    >>> functions = Features(lambda x: torch.cat((x, x.cos()), dim=1), OrnsteinUhlenbeck(), 1, 2)
    >>> score = fit_simulated(x, functions)
    >>> score.score(torch.tensor([[0.5]]), t=0.1)  # the truth is -0.5
    tensor([[-0.4...]])
    """
    checks.instance(functions, Functions, "functions")
    checks.optional(rule, Rule, "rule")
    clock = VariancePreserving() if clock is None else clock
    checks.instance(clock, Clock, "clock")
    times = checks.integer(times, "times", minimum=4)
    if rule is None:
        rule = MonteCarlo(DRAWS)
    if rule.samples is not None and rule.generator is None:
        rule = MonteCarlo(rule.samples, torch.Generator().manual_seed(0))
    chosen = ridge_of(ridge)
    with progress_bar(progress) as bar:
        bar.stage("rows")
        moments = SimulatedMoments(functions, clock, rule, times=times, folds=chosen.folds)
        gather_into(moments, data, sample_weight, bar.reach)
        moments.check(folds=chosen.folds > 1)
        system = moments.system(SampleMeans())
        table = tabulate(system, clock, chosen, knots or moments.default_knots(), bar)
        return system.score(clock, table)
