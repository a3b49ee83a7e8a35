"""Averages of Γ(φ_j, φ_k) and ½(L + L*)φ_k over the noised data, at a table of times.

For functions that P_t does not map to known ones, X_t is computed from each row: by the nodes of a
quadrature rule, or by random draws. With L for the noise matrix,

    A_t[j, k] = E_t Γ(φ_j, φ_k) = ½ E⟨Lᵀ∇φ_j, Lᵀ∇φ_k⟩(X_t),    b_t[k] = E_t ½(L + L*)φ_k.

Draws use the same random numbers at all times, so that A_t and b_t are as smooth in t as X_t is,
and are divided into groups: from the differences between the groups follows the error of the
simulation. The covariance of the functions at the last time orders them (see
``oism.estimation._systems.simulated``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Self

import torch
from torch import Tensor

from oism.basis import Functions
from oism.estimation._knots import KnownKnots
from oism.estimation._moments.base import Moments
from oism.estimation._moments.rows import Scratch
from oism.estimation._shrinkage import Shrinkage
from oism.estimation._systems.simulated import SimulatedSystem
from oism.process import Clock, Rule, Transition

GROUPS = 8
"""The number of groups of draws."""

POINTS = 2**21
"""The number of values of derivatives per batch of points."""


class SimulatedMoments(Moments):
    """Sums of A_t and b_t ``(folds, T, size, 1 + size)``, b in the first column.

    ``tau`` ``(T,)`` are the clock times of the table.
    """

    basis: Functions  # type: ignore[assignment]

    def __init__(
        self, functions: Functions, clock: Clock, rule: Rule, *, times: int = 41, folds: int = 5
    ) -> None:
        super().__init__(functions, folds)  # type: ignore[arg-type]
        self.clock, self.rule = clock, rule
        self.tau = torch.linspace(0, clock.horizon, times, dtype=torch.float64)
        self.block = 2**14 * functions.dim
        size = functions.size
        shape = (times, size, 1 + size)
        self._sums = torch.zeros(folds, *shape, dtype=torch.float64)
        self._groups = torch.zeros(groups_of(rule), *shape, dtype=torch.float64)
        self._masses = torch.zeros(len(self._groups), dtype=torch.float64)
        self._last = torch.zeros(1 + size, 1 + size, dtype=torch.float64)

    def _add(self, x: Tensor, weights: Tensor, scratch: Scratch) -> None:  # noqa: ARG002
        process = self.basis.process
        x = process.domain.admit(x.cpu(), "data")
        weights = weights.cpu()
        fold, mass = weights.argmax(dim=0), weights.sum(dim=0)
        state = None if self.rule.generator is None else self.rule.generator.get_state()
        for place, t in enumerate(self.clock._time(self.tau)):
            law = process.transition(t)
            if self.rule.generator is not None and state is not None:
                self.rule.generator.set_state(state)
            for group, points, share in self._nodes(law, x):
                at = process.wrap(points.flatten(0, 1))
                rows = torch.arange(len(x)).repeat(len(points))
                own = (share if share.ndim > 1 else share[:, None].expand(points.shape[:2])) * mass
                self._add_points(place, group, at, own.reshape(-1), fold[rows])
        draws = self.rule.samples or 1
        shares = [len(range(g, draws, len(self._masses))) / draws for g in range(len(self._masses))]
        self._masses += mass.sum() * torch.tensor(shares, dtype=torch.float64)

    def _nodes(self, law: Transition, x: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield the group, nodes ``(m, n, dim)`` and weights of X_t given the rows."""
        width = self.basis.size * max(2, self.basis.dim)
        size = max(len(x), POINTS // width)
        if self.rule.samples is None:
            for points, share in self.rule.nodes_given(law, x, size):
                yield 0, points, share
            return
        # Independent draws for all rows: the error is smaller than with common offsets.
        samples, groups, most = self.rule.samples, len(self._groups), max(1, size // len(x))
        for group in range(groups):
            left = len(range(group, samples, groups))
            while left:
                count = min(left, most)
                starts = x.expand(count, *x.shape).flatten(0, 1)
                points = law.sample(starts, generator=self.rule.generator)
                yield group, points.reshape(count, *x.shape), x.new_full((count,), 1 / samples)
                left -= count

    def _add_points(self, place: int, group: int, x: Tensor, mass: Tensor, fold: Tensor) -> None:
        """Add points with their masses to the sums of a time."""
        step = max(1, POINTS // (self.basis.size * max(2, self.basis.dim)))
        last = place == len(self.tau) - 1
        for start in range(0, len(x), step):
            rows = slice(start, start + step)
            slopes = self.basis.gradients(x[rows])
            noise = self.basis.process.noise_at(x[rows]) / math.sqrt(2)
            fields = torch.matmul(slopes, noise)  # (n, size, k)
            right = self.basis.generated(x[rows])
            for number in sorted(set(fold[rows].tolist())):
                own = fold[rows] == number
                part, weight = fields[own], mass[rows][own]
                flat = (weight.sqrt()[:, None, None] * part).transpose(1, 2).flatten(0, 1)
                both = torch.cat(((weight @ right[own])[:, None], flat.mT @ flat), dim=1)
                self._sums[number, place] += both
                self._groups[group, place] += both
            if last:
                values = torch.nn.functional.pad(self.basis.values(x[rows]), (1, 0), value=1.0)
                self._last += (mass[rows, None] * values).mT @ values

    def _absorb(self, other: Self) -> None:
        for name in ("_sums", "_groups", "_masses", "_last"):
            getattr(self, name).add_(getattr(other, name))

    def _key(self) -> object:
        return type(self.basis), self.basis.size, repr(self.clock), len(self.tau), self.rule

    def default_knots(self) -> KnownKnots:
        """Return the times at which ridge and truncation are chosen."""
        return KnownKnots()

    def system(self, shrinkage: Shrinkage) -> SimulatedSystem:
        """Return the equations, interpolated between the times of the table."""
        if shrinkage.needs_variances:
            raise ValueError("shrinkage must be SampleMeans() for simulated averages")
        averages = self._averages(self._sums)
        mean = self._last / self._last[0, 0]
        covariance = mean[1:, 1:] - mean[1:, :1] * mean[:1, 1:]
        if len(self._groups) > 1:
            groups = self._groups / self._masses.reshape(-1, 1, 1, 1)
            return SimulatedSystem(self.basis, self.clock, averages, covariance, groups)
        # One draw has an error that is not known, a quadrature rule has none.
        value = 0.0 if self.rule.samples is None else torch.nan
        error = torch.full_like(self.tau, value)
        return SimulatedSystem(self.basis, self.clock, averages, covariance, None, error)


def groups_of(rule: Rule) -> int:
    """Return the number of groups of draws: 1 for a quadrature rule or one draw."""
    return 1 if rule.samples is None else min(GROUPS, rule.samples)
