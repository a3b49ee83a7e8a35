"""``make bench``: one table of ratios, and an error if one is worse by a third than recorded.

Each task of the library is timed beside something that does not change with it, in alternate
rounds: fits beside scikit-learn's KDE with one of ten bandwidths by five folds, solutions beside
dense algebra, sums beside direct ones, samples beside a product of matrices, the command beside an
empty program. ``--record`` appends the ratios to record.jsonl (`make bench RECORD=1`).
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import ratios
import torch
import tyro
from baselines import Array
from estimator import plane, space
from moments import exponentials
from ratios import Task
from scattered import spectra
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity
from torus import choose, ring

from oism import OISM
from oism.basis import Fourier, ScatteredSeries
from oism.estimation import FourierMoments
from oism.process import VarianceExploding

FILE = Path(__file__).parent / "record.jsonl"
BANDWIDTHS = np.geomspace(0.03, 0.5, 10)


def kde(rows: Array) -> KernelDensity:
    """Return a KDE whose bandwidth is one of ten, by five folds."""
    search = GridSearchCV(KernelDensity(), {"bandwidth": BANDWIDTHS}, cv=5)
    found: KernelDensity = search.fit(rows).best_estimator_
    return found


def line(n: int, seed: int) -> Array:
    """Return rows of one column: two normal distributions."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=n) + 3 * (rng.random(n) < 0.4))[:, None]


def fits(n: int) -> list[Task]:
    """Return fits of one, two, three and six columns; samples and densities of two and three."""
    sets = {"1 column": line(n, 0), "2 columns": plane(n, 0), "3 columns": space(n, 0)}
    models = {name: OISM() for name in sets}
    found = [
        Task(f"fit, {name}", "KDE, GridSearchCV", partial(model.fit, sets[name]),
             partial(kde, sets[name]), rounds)
        for (name, model), rounds in zip(models.items(), (3, 3, 2), strict=True)
    ]  # fmt: skip
    few = np.random.default_rng(0).normal(size=(n // 20, 6)) ** 3
    joint = partial(OISM().fit, few), partial(kde, few)
    found.append(Task("fit, 6 columns, fewer rows", "KDE, GridSearchCV", *joint, 2))
    side = 30 * round(n**0.5 / 3)
    matrix = torch.rand(side, side, dtype=torch.float64)
    product = partial(torch.matmul, matrix, matrix)
    for name in ("2 columns", "3 columns"):
        model, x = models[name], sets[name]  # they are fitted by then
        kernel, half = KernelDensity(bandwidth=0.1).fit(x), x[: n // 2]
        densities = partial(model.score_samples, half), partial(kernel.score_samples, half)
        draw = partial(model.sample, n, 0)
        found += [
            Task(f"samples, {name}", f"product of {side}² numbers", draw, product),
            Task(f"densities, {name}", "KDE", *densities),
        ]
    return found


def parts(n: int, bound: float) -> list[Task]:
    """Return solutions and sums, beside dense algebra and direct sums."""
    x = ring(n, 2)
    basis, fold = Fourier.lattice(2, bound), torch.arange(n) % 5
    moments = FourierMoments(basis).update(x, fold=fold)
    t = VarianceExploding().time(torch.linspace(0, 1, 9, dtype=torch.float64))
    alpha = torch.randn(basis.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    series = ScatteredSeries(basis.frequencies)
    free, dense = (partial(choose, moments, t, dense=dense) for dense in (False, True))
    averages = partial(FourierMoments(basis).update, x, fold=fold)
    sums = partial(exponentials, x, moments.frequencies, fold)
    scores = partial(series, x, spectra(basis, alpha))
    return [
        Task("choice of ridge and cutoff", "dense algebra", free, dense),
        Task("averages", "sums of exponentials", averages, sums, 5),
        Task("scores at scattered points", "sums of exponentials", scores, sums, 5),
    ]


def start() -> list[Task]:
    """Return the start of the command."""

    def program(*words: str) -> None:
        subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)

    empty = partial(program, "-c", "pass")
    return [
        Task("oism --help", "an empty program", partial(program, "-m", "oism", "--help"), empty, 9)
    ]


def main(
    record: bool = False,
    rows: int = 10_000,
    bound: float = 125.0,
    file: Path = FILE,
    threads: int = 2,
) -> None:
    """Print the table; exit with status 1 if a ratio is worse than in the last record by a third.

    Parameters
    ----------
    record
        Append the ratios to the file; not where something has become slower.
    rows
        The number of rows of the fits; records are those of the default.
    bound
        The largest eigenvalue of the solutions.
    file
        The file of the records.
    threads
        The number of threads of torch.
    """
    torch.set_num_threads(threads)
    known = ratios.read(file)
    last = known[-1].ratios if known else {}
    OISM().fit(line(200, 0))  # imports
    tasks = [*start(), *parts(2 * rows, bound), *fits(rows)]
    found, slower = ratios.run(tasks, last)
    if not known:
        print("there is no record to compare with: --record makes one")
    if slower:
        raise SystemExit(f"slower than the record of {known[-1].commit}: {', '.join(slower)}")
    if record:
        ratios.append(file, ratios.Record.of(found))


if __name__ == "__main__":
    tyro.cli(main)
