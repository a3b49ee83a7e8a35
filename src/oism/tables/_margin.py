"""The distribution of one column, tabulated: density, distribution function and quantiles.

Between nodes x_0 < … < x_m log p is linear. With y = log p_{i+1} - log p_i, h = x_{i+1} - x_i and
s = (x - x_i)/h

    p(x) = p_i e^{sy},    F(x) = F_i + p_i h (e^{sy} - 1)/y,
    F⁻¹(F_i + p_i h r) = x_i + h log(1 + ry)/y.

So the density is positive, F' = p holds exactly, and the inverse needs no iteration. The table is
divided by its integral: the mass is 1. Beyond an end that is not a bound there is a tail of mass q,

    P(X > x_m + d) = q (1 + d/s)^{-a},

so log-densities are finite at any distance. `oism.tables._margin_fit` fits a margin to rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from oism.storage import storable
from oism.tables._tensors import check_tensor

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

    >>> from oism.tables import fit_margin
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


def _areas(nodes: Tensor, log_values: Tensor) -> Tensor:
    return log_values[:-1].exp() * nodes.diff() * _expm1_ratio(log_values.diff())


def _expm1_ratio(y: Tensor) -> Tensor:
    """Return (e^y - 1)/y, 1 at 0."""
    return torch.where(y.abs() < 1e-9, 1 + 0.5 * y, y.expm1() / y)


def _log1p_ratio(y: Tensor) -> Tensor:
    """Return log(1 + y)/y, 1 at 0."""
    return torch.where(y.abs() < 1e-9, 1 - 0.5 * y, y.log1p() / y)
