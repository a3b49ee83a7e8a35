"""Densities of tables: OISM in closed form and with a network, mixtures, KDE and a spline flow.

    python benchmarks/tables.py --data FOLDER --out tables.jsonl --jobs 8

FOLDER holds ``splits.py`` with ``NAMES`` and ``load(name, seed) -> train, test, truth``: arrays of
standardised columns, and the exact log-densities of the test rows or None. ``NAME-k`` is a table
without its column k (protein9-1: one column of that table is the product of two others, up to
rounding, and its gain is quoted apart). ``--arginine FILE.csv`` adds four and six torsion angles,
``--mixed`` the table of `mixed_table`, whose density is known.

A finished (table, seed, method) is one line of the output file, and is skipped when the command is
run again. With ``--jobs`` above 1 so many processes run at a time, each with ``--threads`` threads.
Nothing is chosen on test rows.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import tyro
from table_methods import BY_HAND, METHODS, Array, Split, angle_masses, bridge, mean_of
from table_report import Record, append, read, report
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tqdm import tqdm

ANGLES = {"arginine4": 4, "arginine6": 6}
ANGLE_METHODS = ("closed", "network", "kde", "flow")
EXTRA = ("protein9-1",)
TIMED = 5000
MIXED_TEST = 20_000


@dataclass(frozen=True)
class Options:
    """Compare densities of tables."""

    data: Path | None = None
    """The folder with splits.py."""
    tables: tuple[str, ...] = ()
    """The tables, by name, separated by spaces or commas; all of splits.py by default."""
    arginine: Path | None = None
    """A CSV file of torsion angles in degrees: fits the first four columns, and six."""
    mixed: bool = False
    """Fit the mixed table."""
    mixed_rows: int = 4000
    """The number of its training rows."""
    seeds: int = 3
    """The number of splits: seeds 0, 1, …; angles have one."""
    methods: tuple[str, ...] = ("closed", "gmm", "kde", "flow", "network")
    """The methods, separated by spaces or commas."""
    network: float = 60.0
    """The seconds of the network."""
    flow_seconds: float = 180.0
    """The longest time of the flow."""
    draws: int = 20_000
    """The number of draws that estimate the mass of a density of angles, and of mixed samples."""
    jobs: int = 1
    """The number of tasks at a time."""
    threads: int = 2
    """The number of threads of each task."""
    out: Path = Path("tables.jsonl")
    """The file of results, one JSON line each."""
    report_only: bool = False
    """Print the results so far, and run nothing."""

    def limit(self, method: str) -> float:
        """Return the seconds of training that a method may take; 0 where it has no limit."""
        return {"network": self.network, "flow": self.flow_seconds}.get(method, 0.0)


@cache
def splits(folder: Path) -> ModuleType:
    """Return the module splits.py of a folder."""
    path = folder / "splits.py"
    spec = importlib.util.spec_from_file_location("splits", path)
    if not path.exists() or spec is None or spec.loader is None:
        raise SystemExit(f"{folder} has no splits.py: give the folder of the tables, --data FOLDER")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mixed() -> ModuleType:
    """Return the module of the mixed table; the other tables do not need pandas."""
    return importlib.import_module("mixed_table")


def words(parts: tuple[str, ...]) -> list[str]:
    """Return words that are separated by commas too."""
    return [word for part in parts for word in part.split(",") if word]


def names_of(options: Options) -> list[str]:
    """Return the names of all tables asked for."""
    names = words(options.tables)
    if options.data is not None and not names:
        known = list(splits(options.data).NAMES)
        names = known + [extra for extra in EXTRA if extra.rpartition("-")[0] in known]
    if names and options.data is None:
        raise SystemExit(f"--tables {' '.join(names)} needs --data, the folder with splits.py")
    names += ANGLES if options.arginine is not None else ()
    names += ["mixed"] if options.mixed else []
    if not names:
        raise SystemExit("nothing to fit: give --data FOLDER, --arginine FILE.csv or --mixed")
    return names


def load(options: Options, name: str, seed: int) -> Split:
    """Return the rows of a table."""
    if name == "mixed":
        rng, mixed_table = np.random.default_rng(seed), mixed()
        train = mixed_table.mixed_table(options.mixed_rows, rng)
        test = mixed_table.mixed_table(MIXED_TEST, rng)
        settings = {"periodic": mixed_table.PERIODIC, "bounds": mixed_table.BOUNDS}
        truth = mixed_table.mixed_log_density(test)
        return Split(train, test, truth, settings, by_hand=True, seed=seed)
    if name in ANGLES:
        assert options.arginine is not None  # `names_of` has the name only then
        rows = np.genfromtxt(options.arginine, delimiter=",", skip_header=1)[:, : ANGLES[name]]
        x = np.radians(rows[np.isfinite(rows).all(axis=1)])
        x = x[np.random.default_rng(seed).permutation(len(x))]
        test, train = np.split(x, [len(x) // 10])
        periods = dict.fromkeys(range(ANGLES[name]), 2 * math.pi)
        return Split(train, test, None, {"periodic": periods}, periods, seed=seed)
    assert options.data is not None
    base, dash, column = name.rpartition("-")
    train, test, truth = splits(options.data).load(base if dash else name, seed)
    if dash:
        train, test = (np.delete(part, int(column), axis=1) for part in (train, test))
        truth = None
    return Split(train, test, truth, seed=seed)


def tasks_of(options: Options, names: list[str]) -> list[Record]:
    """Return empty records of everything asked for, those that take longest first."""
    methods = words(options.methods)
    if unknown := sorted(set(methods) - set(METHODS)):
        raise SystemExit(f"no method {unknown[0]!r}: --methods takes {', '.join(METHODS)}")
    methods.sort(key=lambda method: -options.limit(method))
    return [
        Record(name, seed, method, options.limit(method))
        for method in methods
        for name in reversed(names)
        if name not in ANGLES or method in ANGLE_METHODS
        if name != "mixed" or method in BY_HAND
        for seed in range(1 if name in ANGLES else options.seeds)
    ]


def checks_of(
    options: Options,
    task: Record,
    split: Split,
    model: Any,  # noqa: ANN401
    logs: Array,
) -> dict[str, Any]:
    """Return what is measured beyond likelihoods: masses, and samples outside of bounds."""
    notes: dict[str, Any] = dict(getattr(model, "notes", {}))
    if task.table in ANGLES and task.method in ("closed", "network"):
        masses = angle_masses(model, split.train, options.draws)
        notes |= {name: f"{mass.value:.4f} ± {mass.error:.4f}" for name, mass in masses.items()}
    if split.by_hand and split.truth is not None:
        mass = mean_of(np.exp(logs - split.truth))  # E_truth[q/p] = ∫q
        notes["mass"] = f"{mass.value:.4f} ± {mass.error:.4f}"
        if task.method != "gmm":
            drawn = model.sample(options.draws, random_state=0)
            at_own = model.score_samples(drawn) - mixed().mixed_log_density(drawn)
            mass = bridge(logs - split.truth, at_own)
            notes["mass by both"] = f"{mass.value:.4f} ± {mass.error:.4f}"
            counts = mixed().outside(drawn)
            notes["samples outside"] = sum(counts.values())
            notes["dtypes kept"] = bool((drawn.dtypes == split.train.dtypes).all())
    return notes


def measure(options: Options, task: Record) -> Record:
    """Return the record of one task."""
    split = load(options, task.table, task.seed)
    start, cpu = time.perf_counter(), time.process_time()
    model = METHODS[task.method](split, task.limit)
    spent, cpu = time.perf_counter() - start, time.process_time() - cpu
    logs = np.asarray(model.score_samples(split.test), dtype=np.float64)
    places = np.resize(np.arange(len(split.test)), TIMED)
    many = split.test.iloc[places] if split.by_hand else split.test[places]
    if split.by_hand:
        many = many.reset_index(drop=True)
    start = time.perf_counter()
    model.score_samples(many)
    rate = TIMED / (time.perf_counter() - start)
    if not np.isfinite(logs).all():
        raise ValueError(f"{int((~np.isfinite(logs)).sum())} log-densities are not finite")
    return replace(
        task,
        rows=len(split.train),
        columns=split.train.shape[1],
        fit_seconds=spent,
        cpu_seconds=cpu,
        per_second=rate,
        logs=logs.tolist(),
        truth=[] if split.truth is None else split.truth.tolist(),
        notes=checks_of(options, task, split, model, logs),
    )


def attempt(options: Options, task: Record) -> Record:
    """Return the record of one task, or one with its error, so that the others go on."""
    torch.set_num_threads(options.threads)
    try:
        with threadpool_limits(options.threads):
            return measure(options, task)
    except Exception:
        return replace(task, error=traceback.format_exc())


def run(options: Options, tasks: list[Record]) -> Iterator[Record]:
    """Yield records as they are finished."""
    if options.jobs == 1:  # in this process, so that the bars of single fits are shown
        yield from (attempt(options, task) for task in tasks)
        return
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(options.threads)  # read when the processes start
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, context) as pool:
        open_tasks: set[Future[Record]] = {pool.submit(attempt, options, task) for task in tasks}
        while open_tasks:
            done, open_tasks = wait(open_tasks, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def main(options: Options) -> None:
    names = names_of(options)
    tasks = tasks_of(options, names)
    finished = {record.key for record in read(options.out) if not record.error}
    missing = [] if options.report_only else [t for t in tasks if t.key not in finished]
    failures = 0
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tqdm(total=len(tasks), initial=len(tasks) - len(missing), unit="fit") as bar:
        for record in run(options, missing):
            failures += bool(record.error)
            append(options.out, record)
            what = f"{record.table} seed {record.seed} {record.method}"
            if record.error:
                bar.write(f"{what} failed:\n{record.error}", file=sys.stderr)
            else:
                bar.write(f"{what}: {record.nll:.4f} in {record.fit_seconds:.1f} s")
            bar.update()
    asked = {task.key for task in tasks}
    counted = splits(options.data).NAMES if options.data is not None else []
    report([r for r in read(options.out) if r.key in asked], names, counted)
    if failures:
        raise SystemExit(f"{failures} of {len(missing)} fits failed; run again to repeat them")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
