"""The probability flow of one column, with its velocity tabulated.

On the circle the velocity v(u, τ) = -t'(τ) g s(u, t(τ)) is a trigonometric polynomial in u. At each
of the few times that Runge and Kutta's method needs, v and ∂v/∂u are computed on a grid by fast
Fourier transforms, and interpolated by cubic Hermite polynomials; the divergence is the derivative
of the interpolant. A step then needs a few operations per point, whatever the number of waves. With
12 points for the shortest wave the relative error is (2π/12)⁴/384 = 2e-4 for that wave, and falls
with the fourth power of the frequency.
"""

from __future__ import annotations

import math

import scipy.fft
import torch
from torch import Tensor

from oism.score import OperatorScore

POINTS = 12
"""The number of grid points for the shortest wave."""

LEAST_REACH = 8
"""The least frequency of a grid."""

NEGLIGIBLE = 1e-9
"""Waves of the velocity below this share of the largest are left out."""

BLOCK = 16
"""The number of steps for which velocities are tabulated at a time."""

PILOTS = 512
"""The number of points, evenly spaced, at which the number of steps is chosen."""


class LineFlow:
    """Log-densities along the flow of a score on the circle, between two clock times."""

    def __init__(self, score: OperatorScore, span: tuple[float, float]) -> None:
        if score.basis.dim != 1 or score.bandwidth is None:
            raise ValueError(f"score must be one of waves in one dimension, got {score!r}")
        self.score, self.span = score, span

    @torch.no_grad()
    def log_density(self, u: Tensor, steps: int) -> Tensor:
        """Return log ρ at points ``(n,)`` by Runge and Kutta's 3/8 rule: ``(n,)``, float64."""
        place = u.to(self.score.device, torch.float64).remainder(2 * math.pi)
        change = torch.zeros_like(place)
        step = (self.span[1] - self.span[0]) / steps
        for first in range(0, steps, BLOCK):
            count = min(BLOCK, steps - first)
            # The stages of a step are at 0, 1/3, 2/3 and 1 of it; steps share their ends.
            stages = (
                self.span[0] + step * torch.linspace(first, first + count, 3 * count + 1).double()
            )
            table = self._table(stages.clamp(*self.span))
            size = table.shape[1] / (2 * math.pi)
            place, change = _follow(table, place * size, change, step)
            place = (place / size).remainder(2 * math.pi)
        return change - math.log(2 * math.pi)

    def _table(self, tau: Tensor) -> Tensor:
        """Return the cubic polynomials of v in each cell of a grid, v in cells per unit of τ.

        ``(T, G, 4)``: v = p₀ + p₁s + p₂s² + p₃s³ at the share s of a cell.
        """
        score, clock = self.score, self.score.clock
        xi = score.basis.frequencies[:, 0].to(score.device)  # type: ignore[attr-defined]
        parts = score.curve(tau.to(score.device)).double().unflatten(1, (-1, 2))
        rate = clock._rate(tau).to(parts)  # the diffusivity of the torus is 1: dX = √2 dW
        # √2 (a cos + b sin)(ξu) = c e^{iξu} + its conjugate with c = (a - ib)/√2
        log_ratio = torch.complex(parts[..., 0], -parts[..., 1]) / math.sqrt(2)
        waves = -rate[:, None] * 1j * xi * log_ratio
        waves = torch.where(xi < 0, waves.conj(), waves)
        order = xi.abs().long()
        size = waves.abs().amax(dim=0)
        kept = size > NEGLIGIBLE * size.max()
        reach = max(LEAST_REACH, int(order[kept].max()) if bool(kept.any()) else 0)
        points = scipy.fft.next_fast_len(POINTS * reach, real=True)
        kept &= order <= reach
        spectrum = waves.new_zeros(2, len(tau), points // 2 + 1)
        spectrum[0, :, order[kept]] = waves[:, kept]
        spectrum[1] = 1j * torch.arange(points // 2 + 1, device=waves.device) * spectrum[0]
        scale = points / (2 * math.pi)
        value, slope = torch.fft.irfft(spectrum, n=points, norm="forward")
        value = scale * value  # the slope is per cell already: scale · (1/scale)
        after, next_slope = value.roll(-1, dims=1), slope.roll(-1, dims=1)
        rise = after - value
        table = value.new_empty(*value.shape, 4)
        table[..., 0], table[..., 1] = value, slope
        table[..., 2] = 3 * rise - 2 * slope - next_slope
        table[..., 3] = slope + next_slope - 2 * rise
        return table  # type: ignore[no-any-return]


def _follow(table: Tensor, place: Tensor, change: Tensor, h: float) -> tuple[Tensor, Tensor]:
    """Return places, in cells, and ∫∂v/∂u dτ after the steps of a table of 3 stages each."""
    points = table.shape[1]

    def motion(stage: int, x: Tensor) -> tuple[Tensor, Tensor]:
        cell = x.floor()
        p0, p1, p2, p3 = table[stage].index_select(0, cell.long().remainder(points)).unbind(dim=1)
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

    By the root mean square under the density itself, at evenly spaced points.
    """
    u = torch.linspace(0, 2 * math.pi, PILOTS + 1, dtype=torch.float64)[:-1]
    before = flow.log_density(u, counts[0])
    for steps in counts[1:]:
        now = flow.log_density(u, steps)
        change = torch.softmax(now, dim=0) @ (now - before).square()
        if float(change) < tolerance**2:
            return steps
        before = now
    return counts[-1]
