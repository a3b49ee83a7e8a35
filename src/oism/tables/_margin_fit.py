"""Fits of margins: the torus model of one column (`TorusFamily`), evaluated once at the nodes.

In the box of the chart the table holds (1 - w) ρ + w N(m, 4S), with the mean m and the variance S
of the rows in the box and w = 1/(n + 1). The mass q of a tail is that of the Gaussian component
beyond the end of the box, plus the share of the rows there. With the scale s and the power a of the
tail (see `oism.tables._margin`) a/s is the density per mass at the end, that of the Gaussian. The
power is 4 if no rows are beyond the end, and otherwise their estimate by maximum likelihood with
one more row of power 4, at least 1. So an outlier changes its own tail only.

Where tails are heavy, all of this happens in another coordinate, see `oism.tables._margin_chart`.
A periodic column is cut where its density, slightly smoothed, is smallest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import threads_apart
from oism.estimation import (
    ChosenRidge,
    CrossValidation,
    KnownKnots,
    Ridge,
    SampleMeans,
)
from oism.process import Torus
from oism.score import Schedule
from oism.tables._background import WIDENING, Spread, effective_count
from oism.tables._chart import BoxChart, constant_scale, is_constant
from oism.tables._collector import FEW_ROWS_RIDGE
from oism.tables._folds import folds_by_content, ranges_of
from oism.tables._line import LineFlow
from oism.tables._margin import Margin
from oism.tables._margin_chart import AsinhMap, box_of
from oism.tables._model import converged_steps
from oism.tables._torus import TorusFamily

Bounds = tuple[float | None, float | None]

INTERVALS = 2048
"""The number of intervals of a table."""

FOLDS = 5

POWER, LEAST_POWER = 4.0, 1.0
"""The power of a tail without rows, and the least power of a tail."""

REACH = 5.0
"""The half width of the table of a constant column, in standard deviations."""

TAIL_INTERVALS = 256
"""The number of intervals of the tail of a constant column up to a bound."""


@dataclass
class Choice:
    """What the fit of a margin chooses, to be used again for parts of the same rows."""

    count: float = 0.0
    schedule: Schedule | None = None
    steps: int = 0


def fit_margin(
    values: Tensor,
    weights: Tensor | None = None,
    *,
    period: float | None = None,
    bounds: Bounds = (None, None),
    choice: Choice | None = None,
) -> Margin:
    """Return the distribution of a column ``(n,)``, fitted in closed form.

    ``weights`` ``(n,)`` are those of the rows. A column is periodic, bounded on one side or on
    both, or free. An empty ``choice`` is filled; one that is filled is used, see `fit_margins`.
    """
    choice = Choice() if choice is None else choice
    checks.instance(values, Tensor, "values")
    x = values.detach().cpu().double()
    if x.ndim != 1 or not len(x) or not bool(x.isfinite().all()):
        raise ValueError(f"values must be (n,) and finite, n >= 1, got shape {tuple(values.shape)}")
    w = torch.ones_like(x) if weights is None else weights.detach().cpu().double()
    if w.shape != x.shape or not bool((w >= 0).all()) or not float(w.sum()) > 0:
        raise ValueError("weights must be (n,), not negative, and of a positive sum")
    x, w = x[w > 0], w[w > 0]
    low, high = bounds
    least, most = (float(end) for end in x.aminmax())
    if (low is not None and least < low) or (high is not None and most > high):
        raise ValueError(f"bounds are {bounds}, but values reach from {least:g} to {most:g}")
    if period is not None:
        if low is not None or high is not None:
            raise ValueError("bounds must be (None, None) for a periodic column")
        return _fit_periodic(x, w, checks.positive(period, "period"), choice)
    if bool(is_constant(*x.aminmax())):
        return _constant(least, low, high)
    return _fit(x, w, low, high, choice)


def fit_margins(
    values: Tensor,
    weights: Tensor,
    train: Tensor,
    *,
    period: float | None = None,
    bounds: Bounds = (None, None),
) -> list[Margin]:
    """Return a margin for each set of rows ``train`` ``(p, n)``; the last set has all of them.

    Ridge, truncation and the number of steps are chosen once, for all rows.
    """
    choice = Choice()
    fit = partial(fit_margin, period=period, bounds=bounds, choice=choice)
    whole = fit(values, weights)
    return [*(fit(values[rows], weights[rows]) for rows in train[:-1]), whole]


def _constant(value: float, low: float | None, high: float | None) -> Margin:
    """Return a narrow normal distribution at a value, with tails of power laws up to bounds."""
    deviation = float(constant_scale(torch.tensor(value, dtype=torch.float64)))
    ends = [value - REACH * deviation, value + REACH * deviation]
    for side, bound in enumerate((low, high)):
        # A bound that is just beyond the table is its end: nodes are apart.
        if bound is not None and abs(bound - value) < (REACH + 1) * deviation:
            ends[side] = bound
    nodes = torch.linspace(ends[0], ends[1], INTERVALS + 1, dtype=torch.float64)
    logs = -0.5 * ((nodes - value) / deviation).square()
    logs = logs - math.log(deviation * math.sqrt(2 * math.pi))
    mass, pair = 0.5 * math.erfc(REACH / math.sqrt(2)), torch.ones(2, dtype=torch.float64)
    for side, bound in enumerate((low, high)):
        if bound is not None and bound != ends[side]:  # the tail is tabulated, to end there
            share = torch.linspace(0, 1, TAIL_INTERVALS + 1, dtype=torch.float64)[1:]
            gap = torch.expm1(share * math.log1p(abs(bound - ends[side]) / deviation))
            own = ends[side] + math.copysign(deviation, bound - value) * gap
            own[-1] = bound
            tail = math.log(mass * POWER / deviation) - (POWER + 1) * gap.log1p()
            nodes = torch.cat((nodes, own) if side else (own.flip(0), nodes))
            logs = torch.cat((logs, tail) if side else (tail.flip(0), logs))
    outside = [mass if bound is None else 0.0 for bound in (low, high)]
    masses = torch.tensor(outside, dtype=torch.float64)
    return Margin.of(nodes, logs, masses, deviation * pair, POWER * pair)


def _fit_periodic(x: Tensor, w: Tensor, period: float, choice: Choice) -> Margin:
    flag = torch.ones(1, dtype=torch.bool)
    zero = torch.zeros(1, dtype=torch.float64)
    chart = BoxChart(zero, zero + 2 * math.pi / period, zero, flag, ~flag)
    logs, nodes = _flow_table(x, w, chart, choice, _count(w))
    cut = _emptiest(logs[:-1])
    turned = torch.cat((logs[cut:-1], logs[: cut + 1]))
    return Margin.of(nodes + nodes[cut], turned, periodic=True)


def _emptiest(logs: Tensor) -> int:
    """Return the node of the least density, smoothed over 1/64 of the circle."""
    near = torch.arange(len(logs)) * (2 * math.pi / len(logs))
    kernel = torch.exp((near.cos() - 1) * (64 / math.pi) ** 2)
    density = torch.softmax(logs, dim=0)
    smooth = torch.fft.irfft(torch.fft.rfft(density) * torch.fft.rfft(kernel), n=len(logs))
    return int(smooth.argmin())


def _fit(x: Tensor, w: Tensor, low: float | None, high: float | None, choice: Choice) -> Margin:
    """Return the margin of a column that is not periodic."""
    warp = AsinhMap.of(x, w, low, high)
    z, total, count = warp(x), float(w.sum()), _count(w)
    ends = [
        None if end is None else float(warp(torch.tensor(end, dtype=torch.float64)))
        for end in (low, high)
    ]
    chart = box_of(z, w, ends[0], ends[1], count)
    first, last = float(chart.low), float(chart.low + chart.width)
    used = (z >= first) & (z <= last)
    log_flow, places = _flow_table(z[used], w[used], chart, choice, count)
    # The component that keeps densities positive: a Gaussian of twice the spread.
    spread = Spread(z[used].mean()[None])
    spread.update(z[used][:, None], w[used])
    mean, variance = float(spread.mean), float(spread.covariance)
    deviation = WIDENING * math.sqrt(max(variance, 0.0)) or last - first
    share = 1 / (count + 1)
    away = (places - mean) / deviation
    wide = -0.5 * away.square() - math.log(deviation * math.sqrt(2 * math.pi))
    logs = torch.logaddexp(log_flow + math.log1p(-share), wide + math.log(share))
    nodes, log_slope = warp.inverse(places)
    masses, scales, powers = torch.ones(3, 2, dtype=torch.float64).unbind()
    for side, sign in enumerate((-1, 1)):
        if ends[side] is not None:
            masses[side] = 0.0
            continue
        edge = sign * away[-side] / math.sqrt(2)
        tail = 0.5 * torch.special.erfc(edge)
        hazard = math.sqrt(2 / math.pi) / torch.special.erfcx(edge) / deviation
        scales[side] = POWER / (hazard * log_slope[-side].exp())
        gap = sign * (x - nodes[-side])
        own = w[gap > 0] * (count / total)
        far = (own * torch.log1p(gap[gap > 0] / scales[side])).sum()
        masses[side] = (tail + own.sum()) / (count + 1)
        powers[side] = ((1 + own.sum()) / (1 / POWER + far)).clamp(min=LEAST_POWER)
    # A range of few rounding errors has fewer numbers than nodes.
    apart = torch.cat((nodes.diff() > 0, torch.ones(1, dtype=torch.bool)))
    return Margin.of(nodes[apart], (logs + log_slope)[apart], masses, scales, powers)


def _count(w: Tensor) -> float:
    return effective_count(float(w.sum()), float(w.square().sum()))


@torch.no_grad()
def _flow_table(
    z: Tensor, w: Tensor, chart: BoxChart, choice: Choice, count: float
) -> tuple[Tensor, Tensor]:
    """Return the log-density of the flow at evenly spaced places of the box, and the places."""
    # Parts of rows that are known need no more accuracy than the choice that is used again.
    family = TorusFamily(Torus())
    if choice.schedule is not None:
        family = TorusFamily(Torus(), knots=KnownKnots())
    rows = z[:, None]
    choice.count = choice.count or count
    folds = FOLDS if choice.schedule is None else 1
    moments = family.moments(1, choice.count, folds, squares=False)
    fold = folds_by_content(rows, *ranges_of(chart), folds)
    moments.update(chart.to_process(rows), w, fold=fold)
    moments = moments.reflected(chart.reflections)
    ridge: Ridge | float = FEW_ROWS_RIDGE
    if choice.schedule is not None:
        ridge = ChosenRidge(choice.schedule)
    elif int((moments.weight > 0).sum()) > 1:
        ridge = CrossValidation(FOLDS, family.times)
    score = family.fit(moments, clock=None, shrinkage=SampleMeans(), ridge=ridge)
    span = family.span(score)
    share = torch.linspace(0, 1, INTERVALS + 1, dtype=torch.float64)
    places = float(chart.low) + float(chart.width) * share
    u = (places - float(chart.centre)) * float(chart.scale)
    with threads_apart():
        choice.steps = choice.steps or converged_steps(score, span)
        logs = LineFlow(score, span).log_density(u, choice.steps)
    choice.schedule = score.schedule
    return logs + chart.log_jacobian, places
