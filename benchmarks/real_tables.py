"""Held-out likelihoods of columns of many tables, against KDE and Gaussian mixtures.

    python benchmarks/real_tables.py FOLDER --json real.jsonl

reads all CSV files of a folder and its subfolders, such as the data sets of R as they are in the
package pydataset. Of each file it takes the numeric columns whose values hardly repeat, in their
order: each of them alone (ten at most), the first two, the first three, and all (ten at most) if
there are four or more; ``--columns 1 2`` takes single columns and pairs only. Columns of
row numbers are left out, and so are tables that were there before. A quarter of the rows is held
out. Prints the differences of the mean log-likelihood of held-out rows, over all tables, and stops
after ``--seconds``. With the file the same command continues; delete it if the code has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from baselines import Array

from oism import OISM
from oism.tables import fit_kde, fit_mixture_by_bic

LEAST_ROWS, MOST_ROWS = 60, 8000
DIFFERENT = 0.8
"""The least share of different values in a column."""

APART = 0.05
"""The difference in nats per row from which a method is counted as ahead."""

FEW = (1, 2, 3)
"""Numbers of columns for which there is a torus."""

MOST = 10
"""The largest number of columns."""

OWN, TORUS = "OISM()", "torus"


def gaussian(rows: Array, test: Array) -> Array:
    """Return the log-densities of the Gaussian of the rows."""
    factor = np.linalg.cholesky(np.atleast_2d(np.cov(rows.T)))
    z = np.linalg.solve(factor, (test - rows.mean(axis=0)).T)
    size = np.log(factor.diagonal()).sum() + 0.5 * len(z) * np.log(2 * np.pi)
    found: Array = -0.5 * (z**2).sum(axis=0) - size
    return found


METHODS: dict[str, Callable[[Array, Array], Array]] = {
    TORUS: lambda rows, test: OISM(process="torus").fit(rows).score_samples(test),
    "Gaussian": gaussian,
    "KDE": lambda rows, test: fit_kde(rows).score_samples(test),
    "Gaussian mixture by BIC": lambda rows, test: fit_mixture_by_bic(rows).score_samples(test),
}


def columns_of(path: Path) -> Array | None:
    """Return the numeric columns of a file whose values hardly repeat, if it has any."""
    try:
        frame = pd.read_csv(path, low_memory=False).select_dtypes("number")
    except (ValueError, UnicodeDecodeError):
        return None
    numbers = [name for name, values in frame.items() if _counts_rows(values.to_numpy())]
    frame = frame.drop(columns=numbers).dropna()
    if len(frame) < LEAST_ROWS:
        return None
    frame = frame.sample(min(len(frame), MOST_ROWS), random_state=0)
    used = [name for name in frame if frame[name].nunique() > DIFFERENT * len(frame)]
    found: Array = frame[used].to_numpy(dtype=np.float64)
    return found if used and bool(np.isfinite(found).all()) else None


def _counts_rows(values: Array) -> bool:
    """Return whether sorted values differ by one each but for gaps, as numbers of rows do."""
    steps = np.diff(np.sort(values))
    whole = bool((steps == np.round(steps)).all())
    return whole and bool((steps > 0).all()) and float(np.mean(steps == 1)) > DIFFERENT


def parts(rows: Array) -> Iterator[Array]:
    """Yield the tables that are taken from the columns of a file."""
    for column in range(min(rows.shape[1], MOST)):
        yield rows[:, [column]]
    for dim in (*FEW[1:], MOST):
        if rows.shape[1] >= min(dim, max(FEW) + 1):
            yield rows[:, :dim]


def tables(folder: Path) -> Iterator[tuple[str, Array]]:
    """Yield names and rows of all tables that differ."""
    known = set()
    for path in sorted(folder.rglob("*.csv")):
        rows = None if path.name.startswith(".") else columns_of(path)
        for k, some in enumerate(() if rows is None else parts(rows)):
            content = hashlib.sha256(np.sort(some, axis=0).tobytes()).hexdigest()
            if content not in known:
                known.add(content)
                which = f"column {k}" if some.shape[1] == 1 else f"{some.shape[1]} columns"
                yield f"{path.relative_to(folder)}, {which}", some


def compare(name: str, rows: Array) -> dict[str, Any]:
    """Return the mean held-out log-likelihoods and seconds of all methods on a table."""
    order = np.random.default_rng(0).permutation(len(rows))
    test, train = np.split(rows[order], [len(rows) // 4])
    found: dict[str, Any] = {"table": name, "rows": len(train), "columns": rows.shape[1]}

    def own(rows: Array, test: Array) -> Array:
        model = OISM().fit(rows)
        found["choice"] = model.facts().get("choice")
        logs: Array = model.score_samples(test)
        return logs

    for method, log_densities in {OWN: own, **_methods(rows.shape[1])}.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found[method] = float(np.mean(log_densities(train, test)))
            except (ValueError, np.linalg.LinAlgError) as error:
                return {**found, "error": f"{method}: {error}"}
        found[f"{method}, seconds"] = time.perf_counter() - start
    return found


def _methods(columns: int) -> dict[str, Callable[[Array, Array], Array]]:
    """Return the methods for so many columns; the torus is for few."""
    return {name: one for name, one in METHODS.items() if name != TORUS or columns in FEW}


def report(records: list[dict[str, Any]]) -> None:
    """Print the differences of the first method from the others, by number of columns."""
    good = [one for one in records if "error" not in one]
    groups = {str(dim): [one for one in good if one["columns"] == dim] for dim in FEW}
    groups[f"{max(FEW) + 1} to {MOST}"] = [one for one in good if one["columns"] not in FEW]
    print("| columns | compared with | tables | mean | median | least | ahead | behind |")
    print("|---|---|---|---|---|---|---|---|")
    for name, own in groups.items():
        for method in _methods(own[0]["columns"]) if own else ():
            gains = np.array([one[OWN] - one[method] for one in own])
            cells = [f"{value:+.3f}" for value in (gains.mean(), np.median(gains), gains.min())]
            counts = [str(int((side > APART).sum())) for side in (gains, -gains)]
            print(f"| {' | '.join([name, method, str(len(own)), *cells, *counts])} |")
    print()
    for name in map(str, FEW):
        taken = sum((one["choice"] or {}).get("taken") == "mixture" for one in groups[name])
        print(f"{name} columns: {taken} of {len(groups[name])} models are mixtures")
    for one in records:
        if "error" in one:
            print(f"{one['table']}: {one['error']}")


def main() -> None:
    """Compare the methods on all tables of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the CSV files are")
    parser.add_argument("--json", type=Path, help="a file for the records, one line each")
    parser.add_argument("--seconds", type=float, default=np.inf, help="when to stop")
    parser.add_argument(
        "--columns", type=int, nargs="+", help="the numbers of columns, by default all"
    )
    parser.add_argument("--threads", type=int, default=1, help="the number of threads of torch")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    end = time.monotonic() + given.seconds
    lines = given.json.read_text().splitlines() if given.json and given.json.exists() else []
    records = [json.loads(line) for line in lines]
    done = {one["table"] for one in records}
    for name, rows in tables(given.folder):
        if time.monotonic() > end:
            break
        if name not in done and (given.columns is None or rows.shape[1] in given.columns):
            records.append(compare(name, rows))
            if given.json:
                with given.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(records[-1]) + "\n")
    report(records)


if __name__ == "__main__":
    main()
