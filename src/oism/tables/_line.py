"""The probability flow of one column, with its velocity tabulated.

In a coordinate s of the column in which noise has one size κ, the velocity of the flow is

    v(s, τ) = -t'(τ) κ ∂u/∂s,    u = log(ρ_t/π),

and log ρ, with respect to s, changes along it by -∂v/∂s. At each of the few times that Runge and
Kutta's method needs, v is tabulated on a grid and interpolated by cubic Hermite polynomials; the
divergence is the derivative of the interpolant. A step then needs a few operations per point,
whatever the number of functions. The coordinates are

    circle               s = x         κ = 1    u: waves
    Jacobi, [0, 1]       x = sin²(s/2) κ = ½    polynomials of x are waves cos ns
    Laguerre, (0, ∞)     x = s²        κ = ¼    u is evaluated on the grid

With P points for the shortest wave the relative error is (2π/P)⁴/384 for that wave, 2e-4 for 12,
and falls with the fourth power of the frequency.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import singledispatch
from typing import cast

import scipy.fft
import torch
from torch import Tensor

from oism._core.user_warnings import warn
from oism.basis import Fourier, Functions, JacobiPolynomials, LaguerrePolynomials
from oism.score import OperatorScore, ReversibleScore

POINTS = 12
"""The number of grid points for the shortest wave."""

LEAST_REACH = 8
"""The least frequency of a grid."""

NEGLIGIBLE = 1e-9
"""Waves of the velocity below this share of the largest are left out."""

BLOCK = 16
"""The number of steps for which velocities are tabulated at a time."""

ROWS = 2**14
"""The number of points that follow a table at a time."""

PILOTS = 512
"""The number of points, evenly spaced, at which the number of steps is chosen."""

FLAT = 8.0
"""Widths of the soft clamp of Laguerre polynomials beyond which the velocity is 0: e^{-16}."""


class Line(ABC):
    """The coordinate s of a column, from 0 to ``length``, and the velocity there."""

    length: float
    periodic: bool = True

    def to_line(self, x: Tensor) -> Tensor:
        """Return s at points of the process."""
        return x

    def to_process(self, s: Tensor) -> Tensor:
        """Return the points of the process."""
        return s

    def log_slope(self, s: Tensor) -> Tensor:
        """Return log dx/ds."""
        return torch.zeros_like(s)

    @abstractmethod
    def log_base(self, s: Tensor) -> Tensor:
        """Return log π with respect to s."""

    @abstractmethod
    def velocity(self, score: OperatorScore, tau: Tensor, points: int) -> tuple[Tensor, Tensor]:
        """Return v and its slope at the nodes of a grid, both ends included: ``(T, G + 1)``."""

    def pilots(self) -> Tensor:
        """Return evenly spaced places ``(PILOTS,)``, from which the number of steps is chosen."""
        return self.length * (torch.arange(PILOTS).double() + 0.5) / PILOTS


class Waves(Line):
    """A coordinate in which u is a sum of waves: Σ c_n e^{ins} and its conjugate."""

    length = 2 * math.pi

    @abstractmethod
    def coefficients(self, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return κ c ``(T, m)``, complex, and the frequencies n ≥ 0 ``(m,)``, whole numbers."""

    def velocity(self, score: OperatorScore, tau: Tensor, points: int) -> tuple[Tensor, Tensor]:
        """Return v and its slope by fast Fourier transforms."""
        own, order = self.coefficients(score.curve(tau.to(score.device)).double())
        rate = score.clock._rate(tau).to(own)
        waves = -rate[:, None] * 1j * order * own
        size = waves.abs().amax(dim=0)
        kept = size > NEGLIGIBLE * size.max()
        reach = max(LEAST_REACH, int(order[kept].max()) if bool(kept.any()) else 0)
        count = scipy.fft.next_fast_len(points * reach, real=True)
        kept &= order <= reach
        spectrum = waves.new_zeros(2, len(tau), count // 2 + 1)
        spectrum[0, :, order[kept]] = waves[:, kept]
        spectrum[1] = 1j * torch.arange(count // 2 + 1, device=waves.device) * spectrum[0]
        value, slope = torch.fft.irfft(spectrum, n=count, norm="forward")
        return torch.cat((value, value[:, :1]), dim=1), torch.cat((slope, slope[:, :1]), dim=1)


class Circle(Waves):
    """The circle itself."""

    def __init__(self, basis: Fourier) -> None:
        self._frequencies = basis.frequencies[:, 0]

    def log_base(self, s: Tensor) -> Tensor:
        """Return -log 2π."""
        return torch.full_like(s, -math.log(2 * math.pi))

    def coefficients(self, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return those of √2 (a cos + b sin)(ξs) = c e^{iξs} + conjugate: c = (a - ib)/√2."""
        xi, parts = self._frequencies.to(alpha), alpha.reshape(len(alpha), -1, 2)
        own = torch.complex(parts[..., 0], -parts[..., 1]) / math.sqrt(2)
        return torch.where(xi < 0, own.conj(), own), xi.abs().long()


class JacobiLine(Waves):
    """[0, 1] by x = sin²(s/2), s from 0 to π: polynomials of degree n are sums of cos ks, k ≤ n."""

    def __init__(self, basis: JacobiPolynomials) -> None:
        self._measure, count = basis.process.invariant, basis.degree + 1
        s = math.pi * (torch.arange(count).double() + 0.5) / count
        self._order = torch.arange(count)
        cosines = torch.cos(self._order[:, None] * s)
        # φ_k(s) = Σ_n m_nk cos ns, exact from as many places; 2κ c = m, and κ = ½
        self._waves = (0.5 / count) * cosines @ basis.values(self.to_process(s)[:, None])

    def to_line(self, x: Tensor) -> Tensor:
        """Return 2 arcsin √x, with relative accuracy at both ends."""
        return 2 * torch.atan2(x.sqrt(), (1 - x).sqrt())

    def to_process(self, s: Tensor) -> Tensor:
        """Return sin²(s/2)."""
        return torch.sin(0.5 * s).square()

    def log_slope(self, s: Tensor) -> Tensor:
        """Return log sin(s/2) cos(s/2)."""
        return self._logs(s).sum(dim=0)

    def log_base(self, s: Tensor) -> Tensor:
        """Return log Beta(a, b) with respect to s, from x and 1 - x."""
        a, b = self._measure.a, self._measure.b
        powers = torch.tensor([[2 * a - 1], [2 * b - 1]], dtype=torch.float64).to(s)
        norm = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
        return (powers * self._logs(s)).sum(dim=0) - norm

    @staticmethod
    def _logs(s: Tensor) -> Tensor:
        """Return ½ log x and ½ log(1 - x): ``(2, n)``."""
        found: Tensor = torch.stack((torch.sin(0.5 * s), torch.cos(0.5 * s))).abs().log()
        return found

    def coefficients(self, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return those of the cosines."""
        waves = self._waves.to(alpha)
        return (alpha @ waves.mT).to(torch.complex128), self._order.to(alpha.device)

    def pilots(self) -> Tensor:
        """Return evenly spaced places of the half circle."""
        return 0.5 * super().pilots()


class LaguerreLine(Line):
    """(0, ∞) by x = s², up to where the velocity vanishes."""

    periodic = False

    def __init__(self, basis: LaguerrePolynomials) -> None:
        self._measure = basis.process.invariant
        self._degree, self._limits = basis.degree, basis.limits
        t = torch.linspace(0, 8, 129, dtype=torch.float64)
        found = basis.limits(t)
        self.is_limited = found is not None
        _, high, width = found or (t, torch.full_like(t, 4.0 * basis.degree), t)
        self.length = float((high + FLAT * width).max().sqrt())

    def to_line(self, x: Tensor) -> Tensor:
        """Return √x."""
        return x.sqrt()

    def to_process(self, s: Tensor) -> Tensor:
        """Return s²."""
        return s.square()

    def log_slope(self, s: Tensor) -> Tensor:
        """Return log 2s."""
        return torch.log(2 * s)

    def log_base(self, s: Tensor) -> Tensor:
        """Return log Gamma(a) with respect to s."""
        return self._measure.log_density(s.square()[:, None]) + self.log_slope(s)

    def velocity(self, score: OperatorScore, tau: Tensor, points: int) -> tuple[Tensor, Tensor]:
        """Return v and its slope from G∇u = xu' and Lu = xu'' + (a - x)u', without cancellation."""
        # φ_n oscillates like cos 2√n s, and the width of the soft clamp is at least ¼ in s.
        shortest = min(math.pi / math.sqrt(self._degree), 0.5)
        count = math.ceil(points * self.length / shortest)
        s = torch.linspace(0, self.length, count + 1, dtype=torch.float64)
        x = s.square().clamp(min=1e-30).to(score.device)
        t = score.clock._time(tau).to(score.device)
        model = cast("ReversibleScore", score)
        rows, times = x.repeat(len(t))[:, None], t.repeat_interleave(len(x))
        field, generated = model.field_and_generated(rows, times)
        drift = self._measure.a - x
        first = field.reshape(len(t), -1) / x
        rate = -0.25 * score.clock._rate(tau).to(first)[:, None]
        second = 4 * (generated.reshape(len(t), -1) - drift * first) + 2 * first  # ∂²u/∂s²
        value, slope = rate * 2 * s.to(first) * first, rate * second
        value[:, -1] = slope[:, -1] = 0.0
        return value, slope


@singledispatch
def line_of(basis: Functions) -> Line | None:
    """Return the coordinate in which flows of a basis are tabulated; None if there is none."""
    del basis
    return None


@line_of.register
def _(basis: Fourier) -> Line | None:
    return Circle(basis) if basis.dim == 1 else None


@line_of.register
def _(basis: JacobiPolynomials) -> Line | None:
    return JacobiLine(basis)


@line_of.register
def _(basis: LaguerrePolynomials) -> Line | None:
    found = LaguerreLine(basis)
    return found if found.is_limited else None


class LineFlow:
    """The flow of a score of one column between two clock times."""

    def __init__(
        self, score: OperatorScore, span: tuple[float, float], points: int = POINTS
    ) -> None:
        line = line_of(score.basis)
        if line is None:
            raise ValueError(f"score must be one with a line, in one dimension, got {score!r}")
        self.score, self.span, self.points, self.line = score, span, points, line

    @torch.no_grad()
    def log_density(self, u: Tensor, steps: int) -> Tensor:
        """Return log ρ at points ``(n,)`` by Runge and Kutta's 3/8 rule: ``(n,)``, float64."""
        place = self.line.to_line(u.to(self.score.device, torch.float64))
        end, change = self._carry(place, steps, 1)
        return change + self.line.log_base(end) - self.line.log_slope(place)

    @torch.no_grad()
    def pull(self, z: Tensor, steps: int) -> Tensor:
        """Return the points ``(n,)`` from which the flow leads to ``z``, float64."""
        place = self.line.to_line(z.to(self.score.device, torch.float64))
        found = self.line.to_process(self._carry(place, steps, -1)[0])
        return self.score.process.wrap(found[:, None])[:, 0]

    def _carry(self, place: Tensor, steps: int, direction: int) -> tuple[Tensor, Tensor]:
        """Return places at the other end of the flow, and ∫∂v/∂s dτ."""
        change, length = torch.zeros_like(place), self.line.length
        step = (self.span[1] - self.span[0]) / steps
        place = place.remainder(length) if self.line.periodic else place.clone()
        for first in range(0, steps, BLOCK)[::direction]:
            count = min(BLOCK, steps - first)
            # The stages of a step are at 0, 1/3, 2/3 and 1 of it; steps share their ends.
            thirds = torch.arange(3 * first, 3 * (first + count) + 1, dtype=torch.float64)
            stages = self.span[0] + step / 3 * thirds
            table = self._table(stages.clamp(*self.span))
            table = table if direction > 0 else table.flip(0)
            size = table.shape[1] / length
            for start in range(0, len(place), ROWS):
                rows = slice(start, start + ROWS)
                own = place[rows] * size, change[rows]
                ended, change[rows] = _follow(table, *own, direction * step, self.line.periodic)
                place[rows] = ended / size
            if self.line.periodic:
                place = place.remainder(length)
        return place, change

    def _table(self, tau: Tensor) -> Tensor:
        """Return the cubic polynomials of v in each cell of a grid, v in cells per unit of τ.

        ``(T, G, 4)``: v = p₀ + p₁s + p₂s² + p₃s³ at the share s of a cell.
        """
        value, slope = self.line.velocity(self.score, tau, self.points)
        value = (value.shape[1] - 1) / self.line.length * value  # the slope is per cell already
        rise = value.diff(dim=1)
        value, slope, next_slope = value[:, :-1], slope[:, :-1], slope[:, 1:]
        table = value.new_empty(*value.shape, 4)
        table[..., 0], table[..., 1] = value, slope
        table[..., 2] = 3 * rise - 2 * slope - next_slope
        table[..., 3] = slope + next_slope - 2 * rise
        return table


def _follow(
    table: Tensor, place: Tensor, change: Tensor, h: float, periodic: bool
) -> tuple[Tensor, Tensor]:
    """Return places, in cells, and ∫∂v/∂s dτ after the steps of a table of 3 stages each."""
    points = table.shape[1]

    def motion(stage: int, x: Tensor) -> tuple[Tensor, Tensor]:
        if periodic:
            cell = x.floor()
            number = cell.long().remainder(points)
        else:
            x = x.clamp(0, points)
            cell = x.floor().clamp(max=points - 1)
            number = cell.long()
        p0, p1, p2, p3 = table[stage].index_select(0, number).unbind(dim=1)
        s = x - cell
        return p0 + s * (p1 + s * (p2 + s * p3)), p1 + s * (2 * p2 + (3 * s) * p3)

    for stage in range(0, len(table) - 1, 3):
        k1, d1 = motion(stage, place)
        k2, d2 = motion(stage + 1, place + (h / 3) * k1)
        k3, d3 = motion(stage + 2, place + h * (k2 - k1 / 3))
        k4, d4 = motion(stage + 3, place + h * (k1 - k2 + k3))
        place = place + (h / 8) * (k1 + 3 * (k2 + k3) + k4)
        change = change + (h / 8) * (d1 + 3 * (d2 + d3) + d4)
    return place, change


def converged(flow: LineFlow, counts: tuple[int, ...], tolerance: float) -> int:
    """Return the first number of steps at which log-densities have changed by less than that.

    By the root mean square under the density itself, at evenly spaced places of the line.
    """
    s = flow.line.pilots()
    u, slope = flow.line.to_process(s), flow.line.log_slope(s)
    before = flow.log_density(u, counts[0]).cpu()
    for steps in counts[1:]:
        now = flow.log_density(u, steps).cpu()
        change = torch.softmax(now + slope, dim=0) @ (now - before).square()
        if float(change) < tolerance**2:
            return steps
        before = now
    warn_unconverged(counts, float(change) ** 0.5)
    return counts[-1]


def warn_unconverged(counts: tuple[int, ...], change: float) -> None:
    """Warn of log-densities that still change with the last doubling of the steps."""
    warn(
        f"log-densities along the flow still change by {change:.2g} nats on average between "
        f"{counts[-2]} and {counts[-1]} steps, and {counts[-1]} are used: the density has peaks or "
        "gaps that are too sharp; look for repeated values, which discrete=[...] declares, or give "
        "a smaller max_eigenvalue, or flow_steps"
    )
