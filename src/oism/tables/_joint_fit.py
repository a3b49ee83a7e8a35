"""Fits of `JointModel`: candidates in two coordinate systems, pooled by held-out likelihood.

One candidate alone, chosen by a criterion, is fragile: another start or number of components is
better on other rows. So all of them are *pooled*, p = Σ_i v_i p_i, with the weights v that maximise
the likelihood of rows that were held out (themselves found by expectation maximisation; the problem
is concave). See `oism.tables._training_rows` for the coordinates and the rows that are held out,
and `oism.tables._candidates` for the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from oism._core.progress import Progress, progress_bar
from oism._core.transforms import in_parallel, threads_apart
from oism.tables._candidates import Candidates, Member, System, Task
from oism.tables._column import Column
from oism.tables._columns import Columns
from oism.tables._contract import HeldOut
from oism.tables._joint import JointModel
from oism.tables._pool import pool_weights
from oism.tables._training_rows import TrainingRows, problems_of

LEAST_WEIGHT, LEAST_LOCAL_WEIGHT = 1e-3, 0.03
"""Members of the pool below these weights are dropped; a local one has a component at each row."""


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
    train: Tensor | None = None,
) -> tuple[JointModel, HeldOut]:
    """Return the pool of all candidates and what held-out rows show; arguments of `fit_joint`.

    ``train`` ``(p, n)`` marks the rows of each problem, see `TrainingRows`; by default those of
    `problems_of`.
    """
    weights = torch.ones(len(rows), dtype=torch.float64) if weights is None else weights
    numeric = [k for k, one in enumerate(columns) if not one.categorical]
    levelled = [k for k, one in enumerate(columns) if one.categorical]
    if train is None:
        train = problems_of(Columns(tuple(columns)).cells_of(rows, weights))
    table = TrainingRows(
        rows[:, numeric],
        rows[:, levelled].long(),
        weights,
        tuple(columns[k] for k in numeric),
        tuple(len(columns[k].levels) for k in levelled),
        train,
    )
    with threads_apart(), progress_bar(progress) as bar:
        systems = _systems(table, candidates.systems, bar)
        members = _members(systems, candidates, seed, bar)
        chosen, held_out = _pooled(members, table)
        plain = tuple(table.plain_system(problem) for problem in range(len(table.train)))
        bar.stage("pool", 1)
        by_system: dict[System, list[tuple[float, Member]]] = {}
        for weight, system, member in chosen:
            by_system.setdefault(system, []).append((weight, member))
        sums = [sum(w for w, _ in own) for own in by_system.values()]
        shares = torch.tensor(sums, dtype=torch.float64)
        parts = tuple(
            system.part([(w / float(share), one) for w, one in own])
            for (system, own), share in zip(by_system.items(), shares, strict=True)
        )
        bar.advance(1)
    notes: dict[str, Any] = {
        "rows": round(float(table.weights.sum())),
        "held_out": _mean(held_out, table.weights),
        "members": [
            {"name": f"{system.name}: {one.name}", "weight": w}
            for w, system, one in sorted(chosen, key=lambda item: -item[0])
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
    wanted = [
        j
        for j, one in enumerate(table.columns)
        if "warped" in names or one.is_bounded or one.period is not None
    ]
    if wanted:
        bar.stage("margins", len(wanted))

        def fit(column: int) -> None:
            table.margin(column, 0)
            bar.advance(1)

        if table.few:  # operations so short that threads wait for the interpreter
            for column in wanted:
                fit(column)
        else:
            in_parallel(fit, wanted)
    if len(table.columns) == 1 and "warped" in names:  # no dependence: the margin is the model
        names = ("warped",)
    return [System(name, table) for name in names]


def _members(
    systems: Sequence[System], candidates: Candidates, seed: int, bar: Progress
) -> list[tuple[System, Member]]:
    """Return all candidates of all systems, fitted in parallel, the largest first."""
    work = [(*task, system) for system in systems for task in candidates.tasks(system, seed)]
    work.sort(key=lambda item: -item[0])
    bar.stage("mixtures", round(sum(cost for cost, _, _ in work)))

    def run(item: tuple[float, Task, System]) -> list[tuple[System, Member]]:
        cost, task, system = item
        found = [(system, member) for member in task()]
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
