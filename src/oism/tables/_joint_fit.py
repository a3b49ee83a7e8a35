"""Fits of `JointModel`: candidates in two coordinate systems, pooled by held-out likelihood.

Systems of coordinates: *plain* leaves free columns as they are, and maps an interval or a turn to
ℝ by y = Φ⁻¹ of the share of its length; *warped* maps every column by its fitted margin, y =
Φ⁻¹(F(x)), so that only the dependence between columns is left to model. Turns are cut where the
margin has its least density.

Candidates in each system: mixtures of 1, 2, 3, … components by expectation maximisation, from
several starts with two floors of the variances; and local Gaussians with several widths. One of
them alone, chosen by a criterion, is fragile: another start or number of components is better on
other rows. So all of them are *pooled*, p = Σ_i v_i p_i, with the weights v that maximise the
likelihood of rows that were held out (themselves found by expectation maximisation; the problem is
concave). Margins are fitted without the held-out rows too. Up to 3,000 rows, each of some folds is
held out in turn, and all problems of a number of components are solved together; above, one fold
is held out, and steps over all rows follow steps over a subsample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from oism._core.progress import Progress, progress_bar
from oism._core.transforms import in_parallel, threads_apart
from oism.estimation import fold_of
from oism.tables._column import Column
from oism.tables._columns import Columns
from oism.tables._contract import HeldOut
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
from oism.tables._joint import Coordinate, Identity, JointModel, Part, Warp
from oism.tables._margin import Margin
from oism.tables._margin_fit import fit_margins
from oism.tables._pool import pool_weights
from oism.tables._whitened_rows import WhitenedRows

VERY_FEW_ROWS, FEW_ROWS = 300, 3000
FOLDS, FEWER_FOLDS = 5, 3
"""Up to 3,000 rows, each of three folds is held out in turn, of five up to 300; above, one fold."""

HELD_OUT = 2500
"""About the largest number of rows that are held out."""

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

LEAST_WEIGHT, LEAST_LOCAL_WEIGHT = 1e-3, 0.03
"""Members of the pool below these weights are dropped; a local one has a component at each row."""

MOST_ROWS = 50_000
"""Rows of which mixtures are fitted; of more, a random subsample."""


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows of a table without gaps: what all candidates are fitted to.

    ``x`` ``(n, d)`` are continuous columns, ``columns`` their records; ``codes`` ``(n, c)`` are
    those of categorical columns with ``counts`` levels; ``weights`` ``(n,)`` sum to the effective
    number of rows; ``train`` ``(p, n)`` marks the rows of each problem: the last has all of them.
    """

    x: Tensor
    codes: Tensor
    weights: Tensor
    columns: tuple[Column, ...]
    counts: tuple[int, ...]
    train: Tensor
    _margins: dict[int, list[Margin]] = field(default_factory=dict)

    @property
    def indicators(self) -> Tensor:
        """One column for each level of each categorical column: ``(n, l)``."""
        parts = [
            torch.nn.functional.one_hot(self.codes[:, c], count)
            for c, count in enumerate(self.counts)
        ]
        return torch.cat((self.x.new_zeros(len(self.x), 0), *parts), dim=1).double()

    @property
    def few(self) -> bool:
        """Whether each fold is held out in turn."""
        return len(self.x) <= FEW_ROWS

    def margin(self, column: int, problem: int) -> Margin:
        """Return the margin of a column, fitted to the rows of a problem."""
        if column not in self._margins:
            one = self.columns[column]
            self._margins[column] = fit_margins(
                self.x[:, column],
                self.weights,
                self.train,
                period=one.period,
                bounds=(_finite(one.low), _finite(one.high)),
            )
        return self._margins[column][problem]

    def plain(self, column: int, problem: int) -> Coordinate:
        """Return the coordinate of a column in the plain system."""
        one = self.columns[column]
        if one.period is not None:
            start = self.margin(column, problem).start
            return Warp(_uniform(start, start + one.period, periodic=True))
        if math.isfinite(one.low) and math.isfinite(one.high):
            return Warp(_uniform(one.low, one.high))
        return Warp(self.margin(column, problem)) if one.is_bounded else Identity()

    def plain_system(self, problem: int) -> tuple[Coordinate, ...]:
        """Return the coordinates of all columns, with turns cut at one place in all problems."""
        last = len(self.train) - 1
        return tuple(
            self.plain(j, problem if one.period is None else last)
            for j, one in enumerate(self.columns)
        )

    def warped(self, column: int, problem: int) -> Coordinate:
        """Return the coordinate of a column in the warped system."""
        return Warp(self.margin(column, problem))


def _finite(end: float) -> float | None:
    return end if math.isfinite(end) else None


def _uniform(low: float, high: float, *, periodic: bool = False) -> Margin:
    ends = torch.tensor([low, high], dtype=torch.float64)
    return Margin.of(ends, torch.zeros_like(ends), periodic=periodic)


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
        self.phi = features(self.z, self.levels)

    def _held_out(self, mixtures: Sequence[Gaussians]) -> Tensor:
        """Return log-densities of the rows that each problem has held out, in the data's units."""
        train = self.table.train
        result = torch.full((len(self.levels),), math.nan, dtype=torch.float64)
        for problem, mixture in enumerate(mixtures):
            rows = ~train[problem]
            logs = log_densities(self.phi[problem][rows], mixture)
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
        mixture = maximised(self.phi[0][some], start * weights[some, None], dim, floor)
        mixture = run(self.phi[0][some], mixture, weights[some], steps=STEPS, tolerance=1e-3)
        mixture = run(self.phi[0][rows], mixture, weights[rows], steps=POLISH, tolerance=TOLERANCE)
        held_out = self._held_out([mixture])
        final = run(self.phi[-1], mixture, weights, steps=REFIT, tolerance=TOLERANCE)
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


def problems_of(cells: Tensor) -> Tensor:
    """Return the rows of each problem, ``(p, n)``: without one fold each, and all of them.

    ``cells`` ``(n, d)`` are the cells of the rows, see `oism.tables._folds`.
    """
    n = len(cells)
    folds = FOLDS if n <= VERY_FEW_ROWS else FEWER_FOLDS
    fold = fold_of(cells, folds if n <= FEW_ROWS else max(FOLDS, round(n / HELD_OUT)))
    held = [fold == one for one in range(folds if n <= FEW_ROWS else 1)]
    held = [one for one in held if bool(one.any()) and not bool(one.all())]
    return torch.stack([*(~one for one in held), torch.ones_like(fold, dtype=torch.bool)])


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


def fit_joint(
    rows: Tensor,
    columns: Sequence[Column],
    *,
    weights: Tensor | None = None,
    candidates: Candidates = Candidates(),  # noqa: B008 (it is frozen)
    seed: int = 0,
    progress: bool | None = None,
) -> JointModel:
    """Return the pool of all candidates, weighted by the likelihood of held-out rows.

    Parameters
    ----------
    rows
        ``(n, d)`` without gaps; those of categorical columns are codes of levels.
    columns
        One record for each column.
    weights
        Of the rows; by default 1.
    candidates
        What is tried.
    seed
        Of the random starts.
    progress
        Show a bar; by default on a terminal, when a fit takes more than a second.
    """
    return cross_fit_joint(
        rows, columns, weights=weights, candidates=candidates, seed=seed, progress=progress
    )[0]


def cross_fit_joint(  # noqa: PLR0913
    rows: Tensor,
    columns: Sequence[Column],
    *,
    weights: Tensor | None = None,
    candidates: Candidates = Candidates(),  # noqa: B008
    seed: int = 0,
    progress: bool | None = None,
    cells: Tensor | None = None,
) -> tuple[JointModel, HeldOut]:
    """Return the pool of all candidates and what held-out rows show; arguments of `fit_joint`.

    ``cells`` ``(n, d)`` determine the folds; by default they are those of the rows.
    """
    weights = torch.ones(len(rows), dtype=torch.float64) if weights is None else weights
    numeric = [k for k, one in enumerate(columns) if not one.categorical]
    levelled = [k for k, one in enumerate(columns) if one.categorical]
    cells = Columns(tuple(columns)).cells_of(rows, weights) if cells is None else cells
    table = TrainingRows(
        rows[:, numeric],
        rows[:, levelled].long(),
        weights,
        tuple(columns[k] for k in numeric),
        tuple(len(columns[k].levels) for k in levelled),
        problems_of(cells),
    )
    with threads_apart(), progress_bar(progress) as bar:
        places = _systems(table, candidates.systems, bar)
        members = _members(places, candidates, seed, bar)
        chosen, held_out = _pooled(members, table)
        plain = tuple(table.plain_system(problem) for problem in range(len(table.train)))
        bar.stage("pool", 1)
        by_system: dict[System, list[tuple[float, Member]]] = {}
        for weight, place, member in chosen:
            by_system.setdefault(place, []).append((weight, member))
        sums = [sum(w for w, _ in own) for own in by_system.values()]
        shares = torch.tensor(sums, dtype=torch.float64)
        parts = tuple(
            place.part([(w / float(share), one) for w, one in own])
            for (place, own), share in zip(by_system.items(), shares, strict=True)
        )
        bar.advance(1)
    notes: dict[str, Any] = {
        "rows": round(float(table.weights.sum())),
        "held_out": _mean(held_out, table.weights),
        "members": [
            {"name": f"{place.name}: {one.name}", "weight": w}
            for w, place, one in sorted(chosen, key=lambda item: -item[0])
        ],
    }
    model = JointModel(tuple(columns), shares / shares.sum(), parts, notes)
    return model, HeldOut(rows, weights, table.train, held_out, plain)


def _mean(values: Tensor, weights: Tensor) -> float | None:
    """Return the weighted mean of the values that are not NaN, or None without any."""
    there = ~values.isnan()
    if not bool(there.any()):
        return None
    return float(weights[there] @ values[there] / weights[there].sum())


def _systems(table: TrainingRows, names: Sequence[str], bar: Progress) -> list[System]:
    """Return the systems of coordinates; margins are fitted in parallel."""
    free = all(not one.is_bounded and one.period is None for one in table.columns)
    dim = table.x.shape[1]
    if "warped" in names or not free:
        wanted = [
            j
            for j, one in enumerate(table.columns)
            if "warped" in names or one.is_bounded or one.period is not None
        ]
        bar.stage("margins", len(wanted))

        def fit(column: int) -> None:
            table.margin(column, 0)
            bar.advance(1)

        if table.few:  # operations so short that threads wait for the interpreter
            for column in wanted:
                fit(column)
        else:
            in_parallel(fit, wanted)
    if dim == 1 and "warped" in names:  # there is no dependence to model: the margin is the model
        names = ("warped",)
    return [System(name, table) for name in names]


def _members(
    places: Sequence[System], candidates: Candidates, seed: int, bar: Progress
) -> list[tuple[System, Member]]:
    """Return all candidates of all systems, fitted in parallel, the largest first."""
    table = places[0].table
    n, least = len(table.x), int(table.train.sum(dim=1).min())
    starts = candidates.starts or (STARTS if n <= VERY_FEW_ROWS else FEWER_STARTS)
    work: list[tuple[float, System, Callable[[], list[Member]]]] = []
    for place in places:
        if table.few:
            for count in candidates.counts or COUNTS:
                if count == 1 or count * ROWS_PER_COMPONENT <= least:
                    task = partial(place.few_rows, count, starts, seed)
                    work.append((count, place, task))
        else:
            for count in candidates.counts or MANY_COUNTS:
                for k, floor in enumerate(FLOORS):
                    if count * MANY_ROWS_PER_COMPONENT <= n and (count >= 32 or k):
                        task = partial(place.many_rows, count, floor, seed + k)
                        work.append((count, place, task))
        if candidates.local and LEAST_LOCAL <= n <= MOST_LOCAL and len(table.train) > 1:
            work.append((100.0, place, place.local))
    work.sort(key=lambda item: -item[0])
    bar.stage("mixtures", round(sum(cost for cost, _, _ in work)))

    def run(item: tuple[float, System, Callable[[], list[Member]]]) -> list[tuple[System, Member]]:
        cost, place, task = item
        found = [(place, member) for member in task()]
        bar.advance(round(cost))
        return found

    return [pair for found in in_parallel(run, work) for pair in found]


def _pooled(
    members: list[tuple[System, Member]], table: TrainingRows
) -> tuple[list[tuple[float, System, Member]], Tensor]:
    """Return the members that are kept with their weights, and held-out log-densities ``(n,)``."""
    held_out = torch.full_like(table.weights, math.nan)
    if not len(members[0][1].held_out):  # nothing could be held out
        simple = [pair for pair in members if pair[1].name.startswith("1 ")] or members
        return [(1 / len(simple), *pair) for pair in simple], held_out
    train = table.train[:-1]
    rows = (~train).any(dim=0)
    weights, logs = table.weights[rows], torch.stack([one.held_out for _, one in members], dim=1)
    chance, _ = pool_weights(logs, weights)
    least = torch.tensor(
        [LEAST_LOCAL_WEIGHT if one.is_local else LEAST_WEIGHT for _, one in members]
    )
    kept = (chance > torch.minimum(least, chance.max())).nonzero()[:, 0].tolist()
    kept = kept or [int(chance.argmax())]
    chance, held_out[rows] = pool_weights(logs[:, kept], weights)
    chosen = [(float(w), *members[k]) for w, k in zip(chance, kept, strict=True) if w > 0]
    return chosen, held_out
