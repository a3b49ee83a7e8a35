"""The distribution of one column, tabulated: density, distribution function and quantiles.

The torus model of one column (`TorusFamily`) is evaluated once, at nodes x_0 < … < x_m. Between
them log p is linear. With y = log p_{i+1} - log p_i, h = x_{i+1} - x_i and s = (x - x_i)/h

    p(x) = p_i e^{sy},    F(x) = F_i + p_i h (e^{sy} - 1)/y,
    F⁻¹(F_i + p_i h r) = x_i + h log(1 + ry)/y.

So the density is positive, F' = p holds exactly, and the inverse needs no iteration. The table is
divided by its integral: the mass is 1.

In the box of the chart the table holds (1 - w) ρ + w N(m, 4S), with the mean m and the variance S
of the rows in the box and w = 1/(n + 1). Beyond an end of the box that is not a bound there is a
tail. Its mass q is that of the Gaussian component there, plus the share of the rows there, and

    P(X > x_m + d) = q (1 + d/s)^{-a},

where a/s, the density per mass at the end, is that of the Gaussian. The power a is 4 if no rows are
beyond the end, and otherwise their estimate by maximum likelihood with one more row of power 4, at
least 1. So log-densities are finite at any distance, and an outlier changes its own tail only.

Where tails are heavy, all of this happens in z = asinh((x - c)/s), with p(x) = p(z) dz/dx: the
box of such a column would be too wide for the waves. A periodic column is cut where its density,
slightly smoothed, is smallest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

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
from oism.storage import storable
from oism.tables._background import WIDENING, Spread
from oism.tables._chart import BoxChart, constant_scale, is_constant
from oism.tables._columns import margin
from oism.tables._folds import folds_by_content, ranges_of
from oism.tables._line import LineFlow
from oism.tables._model import converged_steps
from oism.tables._tensors import check_tensor
from oism.tables._torus import TorusFamily

Bounds = tuple[float | None, float | None]

INTERVALS = 2048
"""The number of intervals of a table."""

FOLDS = 5
FEW_ROWS_RIDGE = 0.1
"""The ridge where rows are too few, or too equal, to fall into two folds."""

POWER, LEAST_POWER = 4.0, 1.0
"""The power of a tail without rows, and the least power of a tail."""

TAIL = 0.005
"""The share of the rows on either side that may lie beyond the box."""

FEW_ROWS_REACH = 5.0
"""How much further than the central rows the box of few rows may extend, times √n."""

HEAVY = 4.5
"""Tails are heavy if the central 99% are so many times as wide as the central half: 3.8 times for
a normal distribution, 4.7 for a Laplace distribution."""

LEAST_SCALE = 0.05
"""The least scale of a `AsinhMap` at a bound, as a fraction of the width of the central half."""

REACH = 5.0
"""The half width of the table of a constant column, in standard deviations."""

TAIL_INTERVALS = 256
"""The number of intervals of the tail of a constant column up to a bound."""

LEAST_LOG = -600.0
"""The least log-density of a node relative to the largest: its exponential stays positive."""


@storable
@dataclass(frozen=True, eq=False)
class Margin:
    """The distribution of one column: log-linear between nodes, a power law beyond them.

    ``nodes`` ``(m + 1,)`` increase and ``log_values`` ``(m + 1,)`` are log p there. ``masses``
    ``(2,)`` are the probabilities below and above the nodes, 0 at a bound; ``scales`` and
    ``powers`` ``(2,)`` are s and a of the tails. A ``periodic`` column is taken modulo the length
    of the table.

    Values may have any shape, dtype and device; results have the same.

    >>> from oism.tables._margin import fit_margin
    >>> margin = fit_margin(torch.linspace(0, 1, 200).square(), bounds=(0.0, 1.0))
    >>> margin.cdf(torch.tensor([0.0, 0.25, 1.0])).round(decimals=1)  # the truth is √x
    tensor([0.0000, 0.5000, 1.0000])
    """

    nodes: Tensor
    log_values: Tensor
    masses: Tensor
    scales: Tensor
    powers: Tensor
    periodic: bool = False

    def __post_init__(self) -> None:
        count = len(self.nodes)
        for name in ("nodes", "log_values"):
            check_tensor(getattr(self, name), name, (count,))
        for name in ("masses", "scales", "powers"):
            check_tensor(getattr(self, name), name, (2,))
        if count < 2 or not bool((self.nodes.diff() > 0).all()):
            raise ValueError("nodes must be at least two increasing numbers")
        if bool((self.masses < 0).any()) or not float(self.masses.sum()) < 1:
            raise ValueError(f"masses must be >= 0 with a sum below 1, got {self.masses.tolist()}")
        if not bool(((self.scales > 0) & (self.powers > 0)).all()):
            raise ValueError("scales and powers must be positive")
        if abs(float(self._steps.sum() + self.masses.sum()) - 1) > 1e-9:
            raise ValueError("log_values must integrate to 1 with masses: see Margin.of")

    @classmethod
    def of(
        cls,
        nodes: Tensor,
        log_values: Tensor,
        masses: Tensor | None = None,
        scales: Tensor | None = None,
        powers: Tensor | None = None,
        *,
        periodic: bool = False,
    ) -> Margin:
        """Return the margin with log-densities at nodes up to a constant; without tails by default.

        >>> ends = torch.tensor([0.0, 2.0], dtype=torch.float64)
        >>> Margin.of(ends, torch.zeros_like(ends)).cdf(torch.tensor([0.5, 3.0]))
        tensor([0.2500, 1.0000])
        """
        pair = torch.ones(2, dtype=torch.float64)
        masses = 0 * pair if masses is None else masses
        top = float(log_values.max())
        raised = (log_values - top).clamp(min=LEAST_LOG)
        total = _areas(nodes, raised).sum().log() - math.log(1 - float(masses.sum()))
        scales, powers = (pair if part is None else part for part in (scales, powers))
        return cls(nodes, raised - total, masses, scales, powers, periodic)

    @cached_property
    def _steps(self) -> Tensor:
        """The mass of each interval: ``(m,)``."""
        return _areas(self.nodes, self.log_values)

    @cached_property
    def _distribution(self) -> Tensor:
        """F at the nodes: ``(m + 1,)``; the last is exactly 1 minus the mass above."""
        steps = self._steps.cumsum(dim=0)
        inside = 1 - self.masses.sum()
        return self.masses[0] + torch.cat((0 * inside[None], steps * (inside / steps[-1])))

    @cached_property
    def start(self) -> float:
        """The first node: where a periodic column is cut."""
        return float(self.nodes[0])

    @property
    def period(self) -> float | None:
        """The period, or None."""
        return float(self.nodes[-1] - self.nodes[0]) if self.periodic else None

    def _wrapped(self, x: Tensor) -> Tensor:
        x = x.double()
        if not self.periodic:
            return x
        period = float(self.nodes[-1] - self.nodes[0])
        return self.start + (x - self.start).remainder(period)

    def _place(self, table: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the interval of each value, its width in x and the rise of log p across it."""
        index = torch.searchsorted(table, x.contiguous(), right=True).sub_(1)
        index = index.clamp_(0, len(table) - 2)
        nodes, logs = (part.to(x.device) for part in (self.nodes, self.log_values))
        return index, (nodes[1:] - nodes[:-1])[index], (logs[1:] - logs[:-1])[index]

    def _beyond(self, x: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return for both ends which values lie beyond it, and (1 + d/s) of these."""
        gaps = (self.start - x, x - float(self.nodes[-1]))
        return tuple(
            (gap > 0, 1 + gap[gap > 0] / scale)
            for gap, scale in zip(gaps, self.scales.tolist(), strict=True)
        )

    def _tail(self, side: int) -> tuple[float, float, float]:
        """Return mass, scale and power of the lower tail, 0, or the upper one, 1."""
        return float(self.masses[side]), float(self.scales[side]), float(self.powers[side])

    def log_density(self, x: Tensor) -> Tensor:
        """Return log p, per unit of the column; -∞ beyond bounds only."""
        z = self._wrapped(x)
        index, width, rise = self._place(self.nodes.to(z.device), z)
        nodes, logs = (part.to(z.device) for part in (self.nodes, self.log_values))
        result = logs[index] + rise * ((z - nodes[index]) / width)
        for side, (where, ratio) in enumerate(self._beyond(z)):
            mass, scale, power = self._tail(side)
            edge = math.log(mass * power / scale) if mass else -math.inf
            result[where] = edge - (power + 1) * ratio.log()
        return result.to(x.dtype)

    def cdf(self, x: Tensor) -> Tensor:
        """Return P(X ≤ x), or P(start ≤ X ≤ x) for a periodic column."""
        z = self._wrapped(x)
        index, width, rise = self._place(self.nodes.to(z.device), z)
        nodes, logs, table = (
            part.to(z.device) for part in (self.nodes, self.log_values, self._distribution)
        )
        share = ((z - nodes[index]) / width).clamp(0, 1)
        result = table[index] + logs[index].exp() * width * share * _expm1_ratio(rise * share)
        result = torch.minimum(result, table[index + 1])
        for side, (where, ratio) in enumerate(self._beyond(z)):
            mass, _, power = self._tail(side)
            tail = mass * ratio**-power
            result[where] = 1 - tail if side else tail
        return result.to(x.dtype)

    def quantile(self, u: Tensor) -> Tensor:
        """Return F⁻¹(u) for u in [0, 1]; infinite at 0 and 1 where there is no bound."""
        v = u.double()
        table = self._distribution.to(v.device)
        index, width, rise = self._place(table, v)
        nodes, logs = (part.to(v.device) for part in (self.nodes, self.log_values))
        share = (v - table[index]).clamp(min=0) / (logs[index].exp() * width)
        place = share * _log1p_ratio((share * rise).clamp(min=-1 + 1e-15))
        result = nodes[index] + width * place.clamp(0, 1)
        low, high = float(table[0]), float(table[-1])
        result = torch.where(v >= high, nodes[-1], result)  # exactly
        for side, where in enumerate((v < low, v > high)):
            mass, scale, power = self._tail(side)
            left = 1 - v[where] if side else v[where]
            gap = scale * ((left.clamp(min=0) / mass) ** (-1 / power) - 1) if mass else 0 * left
            result[where] = float(self.nodes[-1]) + gap if side else self.start - gap
        return result.to(u.dtype)


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
    chart = _chart(z, w, ends[0], ends[1])
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
    """Return the effective number of rows: Σw, or (Σw)²/Σw² where that is more."""
    total = float(w.sum())
    return max(total, total**2 / float(w.square().sum()))


@dataclass(frozen=True)
class AsinhMap:
    """z = asinh((x - centre)/scale) where tails are heavy, z = x where ``scale`` is None."""

    centre: float = 0.0
    scale: float | None = None

    @classmethod
    def of(cls, x: Tensor, w: Tensor, low: float | None, high: float | None) -> AsinhMap:
        """Return the map for rows: logarithmic beyond the quartiles if the range is far wider."""
        if low is not None and high is not None:
            return cls()
        tail = _tail_share(len(x))
        least, first, middle, third, most = quantiles(x, w, (tail, 0.25, 0.5, 0.75, 1 - tail))
        if not most - least > HEAVY * (third - first) > 0:
            return cls()
        if low is not None:
            return cls(low, max(first - low, LEAST_SCALE * (third - first)))
        if high is not None:
            return cls(high, max(high - third, LEAST_SCALE * (third - first)))
        return cls(middle, 0.5 * (third - first))

    def __call__(self, x: Tensor) -> Tensor:
        """Return z."""
        return x if self.scale is None else ((x - self.centre) / self.scale).asinh()

    def inverse(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return x, and log dz/dx."""
        if self.scale is None:
            return z, torch.zeros_like(z)
        return self.centre + self.scale * z.sinh(), -(self.scale * z.cosh()).log()


def _tail_share(n: int) -> float:
    """Return the share of the rows on either side of the central ones: at least one row."""
    return max(TAIL, min(1.001 / n, 0.49))


def quantiles(x: Tensor, w: Tensor, shares: tuple[float, ...]) -> list[float]:
    """Return weighted quantiles."""
    values, order = x.sort()
    total = w[order].cumsum(dim=0)
    wanted = torch.tensor(shares, dtype=torch.float64) * total[-1]
    return values[torch.searchsorted(total, wanted).clamp(max=len(x) - 1)].tolist()


def _chart(z: Tensor, w: Tensor, low: float | None, high: float | None) -> BoxChart:
    """Return the chart to the torus; a column with one bound is reflected at both ends.

    The box holds the rows that are not further from the central 99%, all but at least one row on
    either side, than a half of its width, or more for few rows.
    """
    count = _count(w)
    tail = _tail_share(len(z))
    near, far = quantiles(z, w, (tail, 1 - tail))
    reach = (0.5 + FEW_ROWS_REACH / math.sqrt(count)) * (far - near)
    if reach > 0:
        near, far = max(float(z.min()), near - reach), min(float(z.max()), far + reach)
    else:  # nearly all rows are equal
        near, far = float(z.min()), float(z.max())
    empty = 0.5 * margin(count) * (far - near)
    first = near - empty if low is None else low
    last = far + empty if high is None else high
    flag = torch.tensor([low is not None or high is not None])
    one = torch.ones(1, dtype=torch.float64)
    if bool(flag):
        return BoxChart(first * one, math.pi / (last - first) * one, 0 * one, ~flag & flag, flag)
    centre, scale = 0.5 * (first + last), 2 * math.pi / (last - first)
    return BoxChart(centre * one, scale * one, 0 * one, flag, flag)


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


def _areas(nodes: Tensor, log_values: Tensor) -> Tensor:
    return log_values[:-1].exp() * nodes.diff() * _expm1_ratio(log_values.diff())


def _expm1_ratio(y: Tensor) -> Tensor:
    """Return (e^y - 1)/y, 1 at 0."""
    return torch.where(y.abs() < 1e-9, 1 + 0.5 * y, y.expm1() / y)


def _log1p_ratio(y: Tensor) -> Tensor:
    """Return log(1 + y)/y, 1 at 0."""
    return torch.where(y.abs() < 1e-9, 1 - 0.5 * y, y.log1p() / y)
