"""The speed of OISM: fits, samples and densities, compared with scikit-learn's KernelDensity.

10,000 rows in two dimensions (moons) and in three (moons, and a third column that depends on the
first), with the defaults of OISM, and with the paper's 400 functions in two dimensions. The width
of the KDE is chosen among 30 by cross-validation with exact sums, which counts as its fit. Ratios
are to the KDE. Then the memory of a million samples, and a profile of densities: the share of the
time in the interpreter instead of compiled code.
"""

from __future__ import annotations

import cProfile
import pstats
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
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
        model = OISM(max_eigenvalue=bound)
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


def main(sizes: Sizes) -> None:
    torch.set_num_threads(sizes.threads)
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
