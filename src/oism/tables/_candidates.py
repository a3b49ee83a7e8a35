"""Candidates for the pool of a `JointModel`, fitted in one system of coordinates.

Mixtures of 1, 2, 3, … components by expectation maximisation, from several starts with two floors
of the variances; and local Gaussians with several widths. For few rows, all problems of a number
of components are solved together; for many, steps over all rows follow steps over a subsample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from oism.tables._gaussians import (
    Gaussians,
    Neighbourhood,
    clusters,
    expectation_maximisation,
    features,
    local_gaussians,
    log_densities,
    maximised,
    neighbours,
    with_levels,
)
from oism.tables._part import Part
from oism.tables._training_rows import VERY_FEW_ROWS, TrainingRows
from oism.tables._whitened_rows import WhitenedRows

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
MANY_COUNTS = (4, 8, 16, 32, 64, 128, 256)
"""The numbers of components for few rows, and for many."""

ROWS_PER_COMPONENT = 3
MANY_ROWS_PER_COMPONENT = 40

LEAST_ROWS = 1.5
"""The least number of rows of a component."""

STARTS, FEWER_STARTS = 4, 2
FLOORS = (1e-4, 1e-6)
"""The least variances, in units of the whitened columns' variance; starts take them in turn."""

STEPS, TOLERANCE = 200, 5e-4
"""The largest number of steps, and the gain in mean log-likelihood below which they end."""

SUBSAMPLE, POLISH, REFIT = 10_000, 30, 10
"""For many rows: the rows of the first steps, and the numbers of steps over all of them."""

NEIGHBOURHOODS = tuple(
    Neighbourhood(count, shrinkage, width, about_mean)
    for count in (10, 20, 40)
    for shrinkage in (0.001, 0.02, 0.3)
    for width, about_mean in ((0.25, False), (1.0, False), (1.75, True))
)
MANY_NEIGHBOURHOODS = (
    Neighbourhood(10, 0.001, 0.25),
    Neighbourhood(40, 0.001, 0.25),
    Neighbourhood(20, 0.001, 1.0),
    Neighbourhood(40, 0.02, 1.0),
    Neighbourhood(10, 0.001, 1.0, about_mean=True),
    Neighbourhood(14, 0.001, 1.75, about_mean=True),
)
"""How local Gaussians are made, for few rows and for many."""

LOCAL_FLOOR = 1e-8
LEAST_LOCAL, MOST_LOCAL = 40, 20_000
"""The numbers of rows between which local Gaussians are tried."""

LOCAL_COST = 100.0
"""The time of local Gaussians, in that of a mixture per component."""


class Member(NamedTuple):
    """A candidate: its held-out log-densities, and the mixture of all rows."""

    name: str
    held_out: Tensor
    mixture: Gaussians | Callable[[], Gaussians]

    @property
    def is_local(self) -> bool:
        """Whether it has a component at every row."""
        return callable(self.mixture)


class System:
    """One system of coordinates for all problems, and its candidates."""

    def __init__(self, name: str, table: TrainingRows) -> None:
        self.name, self.table = name, table
        place = {"plain": table.plain, "warped": table.warped}[name]
        problems, (n, dim) = len(table.train), table.x.shape
        self.coordinates = [
            tuple(place(j, problem) for j in range(dim)) for problem in range(problems)
        ]
        y = torch.empty(problems, n, dim, dtype=torch.float64)
        self.log_jacobian = torch.zeros(problems, n, dtype=torch.float64)
        for problem, coordinates in enumerate(self.coordinates):
            for j, one in enumerate(coordinates):
                y[problem, :, j], slope = one.to_normal(table.x[:, j])
                self.log_jacobian[problem] += slope
        linear = torch.tensor([one.is_linear for one in self.coordinates[-1]], dtype=torch.bool)
        self.whitening = WhitenedRows.of(y[-1], linear)
        self.log_jacobian += self.whitening.log_jacobian
        self.z = self.whitening.to_white(y)
        self.levels = table.indicators

    @cached_property
    def phi(self) -> Tensor:
        """The features of all rows of all problems: ``(problems, n, F)``."""
        return features(self.z, self.levels)

    def _features(self, problem: int, rows: Tensor) -> Tensor:
        """Return the features of some rows ``(m, F)``.

        Those of few rows are kept, as many short fits use them. Those of many rows would take
        gigabytes for many columns, and take little time beside a fit.
        """
        if self.table.few:
            return self.phi[problem][rows]
        return features(self.z[problem][rows], self.levels[rows])

    def _held_out(self, mixtures: Sequence[Gaussians]) -> Tensor:
        """Return log-densities of the rows that each problem has held out, in the data's units."""
        train = self.table.train
        result = torch.full((len(self.levels),), math.nan, dtype=torch.float64)
        for problem, mixture in enumerate(mixtures):
            rows = ~train[problem]
            logs = log_densities(self._features(problem, rows), mixture)
            share = 1 / (float(self.table.weights[train[problem]].sum()) + 1)
            wide = self._background(problem, rows) + math.log(share)
            logs = torch.logaddexp(logs + math.log1p(-share), wide)
            result[rows] = logs + self.log_jacobian[problem][rows]
        return result[~result.isnan()]

    def _background(self, problem: int, rows: Tensor) -> Tensor:
        """Return the log-density of the background component of `WhitenedRows.model` at rows."""
        factor = torch.linalg.cholesky(self.whitening.background)
        z = torch.linalg.solve_triangular(factor, self.z[problem][rows].mT, upper=False)
        own = self.table.train[problem]
        usual = (self.levels[own].mean(dim=0)).clamp(min=1e-12).log()
        wide: Tensor = -0.5 * z.square().sum(dim=0) - factor.diagonal().log().sum()
        wide = wide - 0.5 * len(z) * math.log(2 * math.pi)
        return wide + self.levels[rows] @ usual

    def _start(self, problem: int, rows: Tensor, count: int, seed: int) -> Tensor:
        """Return responsibilities ``(n, count)`` of clusters of some rows, 0 for other rows."""
        source = torch.Generator().manual_seed(seed)
        points = with_levels(self.z[problem][rows], self.levels[rows])
        share = self.z.new_zeros(len(rows), count)
        share[rows] = clusters(points, count, source)
        return share

    def few_rows(self, count: int, starts: int, seed: int) -> list[Member]:
        """Return mixtures of a number of components: all folds and starts in one batch."""
        train, weights, dim = self.table.train, self.table.weights, self.z.shape[-1]
        problems = len(train)
        own = range(starts if count > 1 else len(FLOORS))  # one component has one solution
        floors = torch.tensor([FLOORS[start % len(FLOORS)] for start in own], dtype=torch.float64)
        shares = torch.stack(
            [
                torch.stack([self._start(p, train[p], count, seed + start) for start in own])
                for p in range(problems)
            ]
        )
        phi, masked = self.phi[:, None], (train * weights)[:, None]
        first = maximised(phi, shares * masked[..., None], dim, floors)
        solved = expectation_maximisation(
            phi,
            first,
            masked.expand(*shares.shape[:3]),
            floor=floors,
            steps=STEPS,
            tolerance=TOLERANCE,
        )
        solved = solved.without(LEAST_ROWS / len(train[0]))
        found = []
        for start in own:
            mixtures = [solved.one(p, start) for p in range(problems)]
            name = f"{count} components, start {start}, floor {float(floors[start]):g}"
            found.append(Member(name, self._held_out(mixtures[:-1]), mixtures[-1]))
        return found

    def many_rows(self, count: int, floor: float, seed: int) -> list[Member]:
        """Return a mixture: steps over a subsample first, then over the rows of each problem."""
        train, weights, dim = self.table.train, self.table.weights, self.z.shape[-1]
        rows = train[0].nonzero()[:, 0]
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
        some = rows[order[: max(SUBSAMPLE, MANY_ROWS_PER_COMPONENT * count)]]
        chosen = torch.zeros_like(train[0])
        chosen[some] = True
        start = self._start(0, chosen, count, seed)[some]
        run = partial(expectation_maximisation, floor=floor)
        phi = self._features(0, some)
        mixture = maximised(phi, start * weights[some, None], dim, floor)
        mixture = run(phi, mixture, weights[some], steps=STEPS, tolerance=1e-3)
        phi = self._features(0, rows)
        mixture = run(phi, mixture, weights[rows], steps=POLISH, tolerance=TOLERANCE)
        del phi
        held_out = self._held_out([mixture])
        phi = features(self.z[-1], self.levels)
        final = run(phi, mixture, weights, steps=REFIT, tolerance=TOLERANCE)
        return [Member(f"{count} components, floor {floor:g}", held_out, final)]

    def local(self) -> list[Member]:
        """Return local Gaussians for all neighbourhoods."""
        train, weights = self.table.train, self.table.weights
        hows = NEIGHBOURHOODS if self.table.few else MANY_NEIGHBOURHOODS
        most = max(one.rows for one in hows)
        near, parts = [], []
        for problem, rows in enumerate(train):
            z, levels = self.z[problem][rows], self.levels[rows]
            near.append(neighbours(with_levels(z, levels), min(most, len(z) - 1)))
            parts.append((z, levels, weights[rows]))

        def made(problem: int, how: Neighbourhood) -> Gaussians:
            return local_gaussians(*parts[problem], near[problem], how, LOCAL_FLOOR)

        found = []
        for how in hows:
            held_out = self._held_out([made(p, how) for p in range(len(train) - 1)])
            place = "means" if how.about_mean else "rows"
            name = f"local, {how.rows} {place}, shrinkage {how.shrinkage:g}, width {how.width:g}"
            found.append(Member(name, held_out, partial(made, len(train) - 1, how)))
        return found

    def part(self, members: Sequence[tuple[float, Member]]) -> Part:
        """Return the part of the model that has these members with these weights."""
        built = [(w, one.mixture() if callable(one.mixture) else one.mixture) for w, one in members]
        mixture, levels = self.whitening.model(built, float(self.table.weights.sum()))
        tables = torch.split(levels, list(self.table.counts), dim=1) if self.table.counts else ()
        normal = tuple(table - torch.logsumexp(table, dim=1, keepdim=True) for table in tables)
        return Part(self.name, self.coordinates[-1], mixture, normal)


Task = Callable[[], list[Member]]


@dataclass(frozen=True)
class Candidates:
    """Which candidates are tried.

    ``counts`` are the numbers of components, and ``starts`` the random starts of each; by default
    they follow from the number of rows. ``local`` says whether local Gaussians are tried.
    """

    systems: tuple[str, ...] = ("plain", "warped")
    counts: Sequence[int] | None = None
    starts: int | None = None
    local: bool = True

    def tasks(self, system: System, seed: int) -> Iterator[tuple[float, Task]]:
        """Yield functions that fit members in a system of coordinates, each with its cost."""
        table = system.table
        n, least = len(table.x), int(table.train.sum(dim=1).min())
        starts = self.starts or (STARTS if n <= VERY_FEW_ROWS else FEWER_STARTS)
        if table.few:
            for count in self.counts or COUNTS:
                if count == 1 or count * ROWS_PER_COMPONENT <= least:
                    yield count, partial(system.few_rows, count, starts, seed)
        else:
            for count in self.counts or MANY_COUNTS:
                for k, floor in enumerate(FLOORS):
                    if count * MANY_ROWS_PER_COMPONENT <= n and (count >= 32 or k):
                        yield count, partial(system.many_rows, count, floor, seed + k)
        if self.local and LEAST_LOCAL <= n <= MOST_LOCAL and len(table.train) > 1:
            yield LOCAL_COST, system.local
