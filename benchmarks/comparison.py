"""Comparison of density estimates on the same points: times, paired differences, tables.

A record holds one split of one set. Tables average records over seeds. A difference is that of mean
negative log-likelihoods on the same test points; its standard error is over test points, with the
fits given. As many points are drawn as are tested.
"""

from __future__ import annotations

import importlib
import json
import math
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from baselines import KDE, Array, Flow, check_zuko

PHASES = ("fit", "sample", "density")
KERNEL = "KDE"


class Estimator(Protocol):
    """The interface of a density estimate."""

    def fit(self, X: Array) -> object:  # noqa: N803
        """Fit."""

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return log-densities."""

    def sample(self, n: int, random_state: int) -> object:
        """Draw points."""


@dataclass(frozen=True)
class Options:
    """The options of every comparison."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """The seeds; tables average over them."""
    model: str | None = "oism:OISM"
    """The model to compare with the others, as MODULE:NAME; None omits it."""
    flow: bool = True
    """Train a flow."""
    flow_seconds: float = 60.0
    """The time of its training."""
    threads: int = 1
    """The number of threads of torch."""
    json: Path | None = None
    """A file for the records, saved after each."""


@dataclass
class Outcome:
    """The results of one method on one split, its seconds, and its notes."""

    nll: float
    fit: float
    sample: float
    density: float
    lowest: float  # log-density of a test point
    notes: dict[str, float] = field(default_factory=dict)


@dataclass
class Record:
    """One split: exact values, outcomes by method, differences by pair."""

    name: str
    seed: int
    known: dict[str, float] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    differences: dict[str, tuple[float, float]] = field(default_factory=dict)


def estimator(path: str, **settings: object) -> Estimator:
    """Return an instance of a class given as ``module:name``."""
    module, _, name = path.partition(":")
    kind = getattr(importlib.import_module(module), name, None)
    if kind is None:
        raise SystemExit(f"{module} has no {name!r}: --model MODULE:NAME, or None to omit it")
    made: Estimator = kind(**settings)
    return made


def methods_of(options: Options, seed: int, **settings: Any) -> dict[str, Estimator]:  # noqa: ANN401
    """Return the methods by name; ``settings`` go to all of them."""
    methods: dict[str, Estimator] = {}
    if options.model is not None:
        methods[options.model.rpartition(":")[2]] = estimator(options.model, **settings)
    methods[KERNEL] = KDE(**settings)
    if options.flow:
        methods["flow"] = Flow(seconds=options.flow_seconds, random_state=seed, **settings)
    return methods


def measure(method: Estimator, train: Array, test: Array) -> tuple[Array, Outcome]:
    """Fit, draw, and return the log-densities of the test points with the times."""
    clock = [time.perf_counter()]
    method.fit(train)
    clock.append(time.perf_counter())
    method.sample(len(test), random_state=0)
    clock.append(time.perf_counter())
    log = np.asarray(method.score_samples(test), dtype=np.float64)
    clock.append(time.perf_counter())
    fit, sample, density = np.diff(clock).tolist()
    notes = getattr(method, "notes_", {})
    return log, Outcome(-float(log.mean()), fit, sample, density, float(log.min()), notes)


def difference(first: Array, second: Array) -> tuple[float, float]:
    """Return the mean of NLL(first) - NLL(second) and its standard error."""
    gap = second - first
    return float(gap.mean()), float(gap.std(ddof=1)) / math.sqrt(len(gap))


def compare(record: Record, methods: Mapping[str, Estimator], train: Array, test: Array) -> None:
    """Add the outcomes to the record, and differences of the first method from the others."""
    logs = {}
    for name, method in methods.items():
        logs[name], record.outcomes[name] = measure(method, train, test)
    first, *others = logs
    for other in others:
        record.differences[f"{first}-{other}"] = difference(logs[first], logs[other])


def save(records: Iterable[Record], options: Options) -> None:
    """Write the records so far as JSON."""
    if options.json is not None:
        versions = {"python": platform.python_version(), "torch": torch.__version__}
        rows = [asdict(record) for record in records]
        content = {"options": asdict(options), "versions": versions, "records": rows}
        options.json.write_text(json.dumps(content, indent=1, default=str) + "\n", encoding="utf-8")


def average(records: list[Record]) -> Record:
    """Return the mean over seeds; independent errors of differences add up in squares."""
    first = records[0]
    mean = Record(first.name, seed=-1)
    mean.known = {k: float(np.mean([r.known[k] for r in records])) for k in first.known}
    for name in first.outcomes:
        rows = [[o.nll, o.fit, o.sample, o.density] for o in (r.outcomes[name] for r in records)]
        nll, fit, sample, density = np.mean(rows, axis=0).tolist()
        lowest = min(r.outcomes[name].lowest for r in records)
        mean.outcomes[name] = Outcome(nll, fit, sample, density, lowest)
    for pair in first.differences:
        gaps, errors = np.array([r.differences[pair] for r in records]).T
        error = math.sqrt(float(np.square(errors).sum())) / len(records)
        mean.differences[pair] = float(np.mean(gaps)), error
    return mean


def groups(records: Iterable[Record]) -> list[Record]:
    """Return one average for every set."""
    sets: dict[str, list[Record]] = {}
    for record in records:
        sets.setdefault(record.name, []).append(record)
    return [average(group) for group in sets.values()]


def heading(record: Record) -> str:
    """Return the head of the table of likelihoods."""
    columns = "".join(f"{name:>15}" for name in [*record.known, *record.outcomes])
    return f"{'set':<20}{columns}" + "".join(f"{pair:>24}" for pair in record.differences)


def line(record: Record) -> str:
    """Return a row of the table of likelihoods."""
    values = [*record.known.values(), *(outcome.nll for outcome in record.outcomes.values())]
    row = f"{record.name:<20}" + "".join(f"{value:>15.4f}" for value in values)
    gaps = [f"{gap:+.4f} ± {error:.4f}" for gap, error in record.differences.values()]
    return row + "".join(f"{gap:>24}" for gap in gaps)


def times(record: Record, unit: str) -> list[str]:
    """Return rows of the table of times: seconds, and multiples of the method ``unit``."""
    rows = []
    for name, outcome in record.outcomes.items():
        row = f"{record.name:<20}{name:<15}"
        for phase in PHASES:
            taken, other = (getattr(o, phase) for o in (outcome, record.outcomes[unit]))
            row += f"{taken:>10.3f} {f'({taken / other:.3g}×)':<9}"
        rows.append(row.rstrip())
    return rows


def summary(means: list[Record], pair: str, allowed: float) -> str:
    """Return a line: on how many sets the first of a pair is at most ``allowed`` worse."""
    gaps = [record.differences[pair][0] for record in means]
    good = sum(gap <= allowed for gap in gaps)
    words = f"within {allowed:g} or below" if allowed else "at or below zero"
    return f"{pair}: mean {np.mean(gaps):+.4f}; {words} on {good} of {len(gaps)}"


def report(records: list[Record], allowed: float) -> None:
    """Print the mean of the rows of likelihoods, a summary and times.

    ``allowed`` is the difference from KDE up to which the first method counts as not worse.
    """
    means = groups(records)
    total = average([Record("mean", 0, r.known, r.outcomes, r.differences) for r in means])
    print(line(total))
    print("negative log-likelihoods in nats; ± one standard error of the test points")
    lowest = [f"{name} {outcome.lowest:.1f}" for name, outcome in total.outcomes.items()]
    print(f"lowest log-density of a test point: {', '.join(lowest)}\n")
    for pair in total.differences:
        print(summary(means, pair, allowed if pair.endswith(f"-{KERNEL}") else 0.0))
    print(f"\n{'seconds':<35}" + "".join(f"{phase:>10}{'':<10}" for phase in PHASES))
    for record in [*means, total]:
        print("\n".join(times(record, KERNEL)))
    print(f"in brackets: multiples of {KERNEL}")
    edges = sum(record.outcomes[KERNEL].notes["at an end"] for record in records)
    print(f"the smallest or largest width was chosen {edges:g} times")


def run(
    options: Options, names: Iterable[str], split: Callable[[str, int], Record]
) -> list[Record]:
    """Return the records of all sets and seeds, and print a row for each set."""
    torch.set_num_threads(options.threads)
    if options.flow:
        check_zuko()  # a missing package is an error before the first fit
    records: list[Record] = []
    for name in names:
        for seed in options.seeds:
            records.append(split(name, seed))
            save(records, options)
        if len(records) == len(options.seeds):
            print(heading(records[0]))
        print(line(average(records[-len(options.seeds) :])), flush=True)
    return records
