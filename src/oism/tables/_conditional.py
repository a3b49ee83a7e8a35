"""Conditional samples: some columns given, the others drawn, in at most three dimensions.

For given columns the density of the others is a section of the joint density. It is computed along
the flow on a grid of the torus that resolves the finest wave of the model, in one or two columns.
Samples are drawn from its multilinear interpolant: a grid point by its weight, then a step with a
triangular distribution towards its neighbours, which is exact for that interpolant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from oism.process import wrapped
from oism.tables._model import TableModel

DIM = 3
"""The largest number of columns."""

POINTS_PER_WAVE = {1: 16, 2: 6}
"""How finely sections of one and two columns are resolved."""


def can_condition(model: TableModel) -> bool:
    """Return whether samples can be drawn given some columns."""
    resolved = model.operator_score.bandwidth is not None
    return resolved and model.chart.can_condition and model.dim <= DIM


def sample_given(
    model: TableModel, given: Mapping[int, float], n: int, generator: torch.Generator
) -> Tensor:
    """Return n rows whose columns ``given`` have these values: ``(n, d)``."""
    if not can_condition(model):
        raise ValueError(
            f"given needs the torus in at most {DIM} dimensions; this model has {model.dim} "
            f"columns and process {type(model.process.inner).__name__}"
        )
    chart, dim = model.chart, model.dim
    row = torch.zeros(1, dim, dtype=torch.float64)
    for column, value in given.items():
        row[0, column] = value
    known = torch.tensor([column in given for column in range(dim)])
    if not bool(chart.allows(torch.where(known, row, chart.centre)).all()):
        raise ValueError("given lies outside of the bounds of its columns")
    log_mass, weights, nodes, step = _section(model, row, known)
    wide = 0
    if model.background is not None:
        share = model.background.share
        log_wide = model.background.log_marginal(given) + math.log(share)
        odds = 1 / (1 + math.exp(min(700.0, log_mass + math.log1p(-share) - log_wide)))
        chance = torch.empty(n, dtype=torch.float64).uniform_(generator=generator)
        wide = int((chance < odds).sum())
    rows = row.repeat(n, 1)
    if wide and model.background is not None:
        rows[:wide] = model.background.sample_given(given, wide, generator)
    if wide < n:
        picked = nodes[torch.multinomial(weights, n - wide, True, generator=generator)]
        hats = torch.empty(2, n - wide, dim, dtype=torch.float64).uniform_(generator=generator)
        drawn = chart.to_data(wrapped(picked + step * (hats[0] - hats[1])))
        rows[wide:] = torch.where(known, row, drawn)
    return rows[torch.randperm(n, generator=generator)]


def _section(model: TableModel, row: Tensor, known: Tensor) -> tuple[float, Tensor, Tensor, float]:
    """Return the log-density of the known columns, and the section over the others.

    The latter as weights ``(m,)`` of nodes ``(m, d)`` on the torus, and the distance of the nodes.
    """
    chart, free = model.chart, (~known).nonzero()[:, 0]
    bandwidth = model.operator_score.bandwidth or 0
    side = max(64, POINTS_PER_WAVE[len(free)] * bandwidth)
    step = 2 * math.pi / side
    axis = step * torch.arange(side, dtype=torch.float64) - math.pi
    nodes = chart.to_process(row).repeat(side ** len(free), 1)
    nodes[:, free] = torch.cartesian_prod(*[axis] * len(free)).reshape(-1, len(free))
    # The other columns are at u = 0 here: a node at the face of the box may round out of it.
    if not bool(chart.covers(torch.where(known, row, chart.centre)).all()):
        return -math.inf, torch.ones(1, dtype=torch.float64), nodes[:1], step
    logs = model.flow_density(nodes)
    log_mass = float(torch.logsumexp(logs, dim=0)) + len(free) * math.log(step)
    log_mass += chart.log_jacobian_of(known)
    return log_mass, torch.softmax(logs, dim=0), nodes, step
