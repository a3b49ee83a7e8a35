"""The speed of OISM: fits, samples and densities, compared with scikit-learn's KernelDensity.

10,000 rows in two dimensions (moons) and in three (moons, and a third column that depends on the
first), with the defaults of OISM, and with the paper's 400 functions in two dimensions. The width
of the KDE is chosen among 30 by cross-validation with exact sums, which counts as its fit. Ratios
are to the KDE. Then the memory of a million samples, and a profile of densities: the share of the
time in the interpreter instead of compiled code.

With ``--one-dimension``: fits of one column, in CPU and wall-clock seconds, with the held-out
negative log-likelihood in nats, mean over seeds. ``--record FILE`` stores them, and ``--baseline
FILE`` prints those of another version of the library beside.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from baselines import KDE, Array
from sklearn.neighbors import KernelDensity

from oism import OISM
from oism.data.toys import PLANE

GIGABYTE = 1e6  # in the kilobytes that the system reports


@dataclass(frozen=True)
class Sizes:
    """The sizes of the benchmark."""

    rows: int = 10_000
    samples: int = 10_000
    queries: int = 5_000
    many: int = 1_000_000
    threads: int = 2
    """The number of threads of torch."""
    one_dimension: bool = False
    """Fits of one column instead."""
    lengths: tuple[int, ...] = (500, 10_000, 46_434)
    """The numbers of rows of one column."""
    seeds: int = 3
    """The number of samples of each distribution of one column."""
    record: Path | None = None
    """Where results of one column are stored."""
    baseline: Path | None = None
    """Stored results of another version."""


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def plane(n: int, seed: int) -> Array:
    rows: Array = PLANE["moons"].sample(n, torch.Generator().manual_seed(seed)).numpy()
    return rows


def space(n: int, seed: int) -> Array:
    flat, noise = plane(n, seed), np.random.default_rng(seed).normal(size=n)
    third = np.sin(2 * flat[:, 0]) + 0.3 * noise
    return np.column_stack((flat, third))


def measure(model: Any, train: Array, test: Array, sizes: Sizes) -> list[float]:  # noqa: ANN401
    """Return the seconds of a fit, of samples and of densities; the first calls warm up."""
    fit = seconds(lambda: model.fit(train))
    model.score_samples(test[:10])
    model.sample(10, random_state=0)
    draw = seconds(lambda: model.sample(sizes.samples, random_state=0))
    return [fit, draw, seconds(lambda: model.score_samples(test))]


def kde(train: Array, test: Array, sizes: Sizes) -> list[float]:
    chooser = KDE()
    choosing = seconds(lambda: chooser.fit(train))
    fit, draw, density = measure(KernelDensity(bandwidth=chooser.bandwidth_), train, test, sizes)
    return [choosing + fit, draw, density]


def compare(name: str, draw: Callable[[int, int], Array], sizes: Sizes, bounds: list[Any]) -> None:
    train, test = draw(sizes.rows, 0), draw(sizes.queries, 1)
    base = kde(train, test, sizes)
    print(f"{name + ', KDE':<34}" + "".join(f"{s:>9.2f} (1×)    " for s in base))
    for bound in bounds:
        model = OISM(max_eigenvalue=bound, process="torus")
        took = measure(model, train, test, sizes)
        label = f"{name}, {model.model_.operator_score.basis.size:,} functions"
        ratios = "".join(
            f"{own:>9.2f} ({own / other:.3g}×)".ljust(18)
            for own, other in zip(took, base, strict=True)
        )
        print(f"{label:<34}{ratios}")


def interpreted(model: OISM, test: Array) -> float:
    """Return the share of the time of densities that is spent in Python functions."""
    profile = cProfile.Profile()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the profiler sees one thread
    profile.runcall(model.score_samples, test)
    torch.set_num_threads(threads)
    stats: Any = pstats.Stats(profile)
    # finufft is called through ctypes, which the profiler counts as Python: execute and setpts.
    own = sum(
        row[2]
        for (file, _, name), row in stats.stats.items()
        if file != "~" and not ("finufft" in file and name in ("execute", "setpts"))
    )
    return float(own / stats.total_tt)


def combs(rng: np.random.Generator, n: int) -> Array:
    """Return rows of the claw density: a normal with five narrow components."""
    narrow = rng.integers(0, 5, n) / 2 - 1 + 0.1 * rng.normal(size=n)
    return np.where(rng.random(n) < 0.5, rng.normal(size=n), narrow)


LINE: dict[str, tuple[Callable[[np.random.Generator, int], Array], dict[str, Any]]] = {
    "normal": (lambda rng, n: rng.normal(size=n), {}),
    "skewed": (lambda rng, n: rng.lognormal(0, 0.7, size=n), {}),
    "bounded": (lambda rng, n: rng.beta(0.8, 2.5, size=n), {"bounds": {0: (0.0, 1.0)}}),
    "heavy-tailed": (lambda rng, n: rng.standard_t(2.5, size=n), {}),
    "claw": (combs, {}),
    "angles": (
        lambda rng, n: np.where(
            rng.random(n) < 0.7, rng.vonmises(-2, 8, n), rng.vonmises(1, 60, n)
        ),
        {"periodic": 2 * np.pi},
    ),
}
"""Distributions of one column, and what is declared of it."""


def one_column(name: str, n: int, seed: int) -> dict[str, float]:
    """Return CPU and wall-clock seconds of a fit, and the held-out loss with its error."""
    draw, declared = LINE[name]
    rng = np.random.default_rng(seed)
    train, test = (draw(rng, size)[:, None] for size in (n, 10_000))
    start, cpu = time.perf_counter(), time.process_time()
    model = OISM(**declared).fit(train)
    took = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - start}
    loss = -model.score_samples(test)
    return {**took, "nll": float(loss.mean()), "error": float(loss.std() / np.sqrt(len(loss)))}


def compare_one_dimension(sizes: Sizes) -> None:
    """Print fits of one column, beside those of a baseline."""
    OISM().fit(np.random.default_rng(0).normal(size=(300, 1)))  # imports
    before = {} if sizes.baseline is None else json.loads(sizes.baseline.read_text())
    found: dict[str, dict[str, float]] = {}
    columns = ("cpu, s", "wall, s", "nll") + ("cpu before", "nll before", "change") * bool(before)
    print(f"{'1-D':<22}" + "".join(f"{column:>12}" for column in columns))
    for n in sizes.lengths:
        for name in LINE:
            runs = [one_column(name, n, seed) for seed in range(sizes.seeds)]
            mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
            found[f"{name}, {n:,}"] = mean
            values = [
                f"{mean[key]:.{digits}f}" for key, digits in (("cpu", 2), ("wall", 2), ("nll", 4))
            ]
            if other := before.get(f"{name}, {n:,}"):
                values += [f"{other['cpu']:.2f}", f"{other['nll']:.4f}"]
                values += [f"{mean['nll'] - other['nll']:+.4f}"]
            print(f"{f'{name}, {n:,}':<22}" + "".join(f"{v:>12}" for v in values), flush=True)
    if sizes.record is not None:
        sizes.record.write_text(json.dumps(found, indent=1))


def main(sizes: Sizes) -> None:
    torch.set_num_threads(sizes.threads)
    if sizes.one_dimension:
        compare_one_dimension(sizes)
        return
    heads = ("fit, s", f"{sizes.samples:,} samples", f"{sizes.queries:,} densities")
    print(f"{sizes.rows:,} rows".ljust(34) + "".join(f"{head:>18}" for head in heads))
    compare("2-D", plane, sizes, ["auto", 125])
    compare("3-D", space, sizes, ["auto"])
    model = OISM(max_eigenvalue=125).fit(plane(sizes.rows, 0))
    took = seconds(lambda: model.sample(sizes.many, random_state=0))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIGABYTE
    print(f"{sizes.many:,} samples: {took:.1f} s; the most memory of this run {peak:.2f} GB")
    share = interpreted(model, plane(sizes.queries, 1))
    print(f"densities: {share:.0%} of the profiled time in the interpreter")


if __name__ == "__main__":
    main(tyro.cli(Sizes))
