"""Fits and densities at once, in threads and processes, compared with one thread, bit by bit.

Also copies of a model: pickled, cloned, copied deeply, mapped from a file by joblib.

    differs   a result is not that of one thread
"""

from __future__ import annotations

import copy
import multiprocessing as mp
import pickle
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from campaign.columns import Array
from oism import OISM

THREADS = 8


def judged(seed: int) -> dict[str, Any]:
    """Return the record of a case."""
    name = list(CASES)[seed % len(CASES)]
    rng = np.random.default_rng([seed, 4])
    # Alternately one or several threads inside of a fit as well.
    before = torch.get_num_threads()
    torch.set_num_threads(1 + seed // len(CASES) % 2)
    try:
        passed = CASES[name](rng)
    finally:
        torch.set_num_threads(before)
    return {"case": name, "failed": [] if passed else ["differs"]}


def tables(rng: np.random.Generator, *columns: int) -> list[Array]:
    """Return tables with these numbers of columns."""
    return [rng.normal(size=(int(rng.integers(40, 120)), dim)) for dim in columns]


def result(table: Array) -> Array:
    """Return densities and samples of the model of a table, as one array."""
    model = OISM().fit(table)
    return np.concatenate((model.score_samples(table), model.sample(20, 0).ravel()))


def _all_equal(found: Sequence[Array], expected: Sequence[Array]) -> bool:
    return len(found) == len(expected) and all(map(np.array_equal, found, expected))


def _fits_in_threads(rng: np.random.Generator) -> bool:
    data = tables(rng, 1, 2, 1, 1, 3, 1, 2, 1)
    with ThreadPoolExecutor(THREADS) as pool:
        return _all_equal(list(pool.map(result, data)), [result(table) for table in data])


def _one_model_in_threads(rng: np.random.Generator) -> bool:
    model, rows = OISM().fit(rng.normal(size=(100, 2))), tables(rng, 1)[0]
    parts = [rng.normal(size=(50, 2)) for _ in range(THREADS)]
    expected = [model.score_samples(part) for part in parts]
    drawn = [model.sample(30, seed) for seed in range(THREADS)]
    with ThreadPoolExecutor(2 * THREADS) as pool:
        densities = pool.map(model.score_samples, parts)
        samples = pool.map(partial(model.sample, 30), range(THREADS))
        other = pool.submit(result, rows)  # while another model is fitted
        same = _all_equal(list(densities), expected) and _all_equal(list(samples), drawn)
        return same and np.array_equal(other.result(), result(rows))


def _in_processes(method: str, rng: np.random.Generator) -> bool:
    data = tables(rng, 1, 2, 1, 3)
    expected = [result(table) for table in data]  # before: a fork inherits what is running
    with ProcessPoolExecutor(2, mp.get_context(method)) as pool:
        return _all_equal(list(pool.map(result, data)), expected)


def _grid_search(rng: np.random.Generator) -> bool:
    rows = rng.normal(size=(90, 2))
    found = []
    for jobs in (1, 2):
        search = GridSearchCV(
            OISM(flow_steps=16), {"max_eigenvalue": [9.0, 36.0]}, cv=3, n_jobs=jobs
        ).fit(rows)
        found.append((search.cv_results_["mean_test_score"], search.score(rows)))
    return np.array_equal(found[0][0], found[1][0]) and bool(found[0][1] == found[1][1])


def _copies(rng: np.random.Generator) -> bool:
    for table in tables(rng, 1, 2, 4):
        model = OISM().fit(table)
        expected = model.score_samples(table), model.sample(20, 0)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.joblib"
            joblib.dump(model, path)
            mapped = joblib.load(path, mmap_mode="r")
            found = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model), mapped]
            found.append(clone(model).fit(table))
            for other in found:
                if not _all_equal((other.score_samples(table), other.sample(20, 0)), expected):
                    return False
    return True


def _read_only_rows(rng: np.random.Generator) -> bool:
    """Rows that joblib maps into memory cannot be written to, and a fit must not try."""
    for table in tables(rng, 1, 2, 4):
        expected, kept = result(table.copy()), table.copy()
        table.flags.writeable = False
        if not np.array_equal(result(table), expected) or not np.array_equal(table, kept):
            return False
    return True


CASES: dict[str, Callable[[np.random.Generator], bool]] = {
    "eight threads that fit": _fits_in_threads,
    "threads with one model": _one_model_in_threads,
    "forked processes": partial(_in_processes, "fork"),
    "spawned processes": partial(_in_processes, "spawn"),
    "GridSearchCV with two jobs": _grid_search,
    "copies": _copies,
    "rows that cannot be written to": _read_only_rows,
}
"""The cases, in turn."""
