"""Hermite functions up to order 12, compared with NumPy and SciPy in one run.

Two cases, both in float64 and normalised: values and gradients at 10⁶ points of the line, and
values at 10⁵ points with ten coordinates. Rounds are interleaved and medians compared. NumPy and
SciPy use one thread; ``--threads 1`` limits torch to one as well. "write once" fills arrays of the
size of the result: a lower bound for every method.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import scipy.special
import torch
import tyro

from oism.basis import Hermite

Arrays = tuple[np.ndarray, ...]
Method = Callable[[np.ndarray, int], Arrays]


def by_oism(x: np.ndarray, order: int) -> Arrays:
    jet = Hermite(x.shape[1], order).jet(torch.from_numpy(x))
    if x.shape[1] > 1:
        return (jet.values.numpy(),)
    return jet.values.numpy(), jet.gradients[..., 0].numpy()


def _finish(table: np.ndarray, order: int) -> Arrays:
    """Return a table (n, dim, order + 1) and its derivatives, normalised, in the order of oism."""
    n = np.arange(order + 1)
    table /= np.sqrt(scipy.special.factorial(n))
    if table.shape[1] > 1:
        return (np.ascontiguousarray(table[..., 1:].swapaxes(1, 2)).reshape(len(table), -1),)
    return table[:, 0, 1:], table[:, 0, :-1] * np.sqrt(n[1:])


def by_numpy(x: np.ndarray, order: int) -> Arrays:
    return _finish(np.polynomial.hermite_e.hermevander(x, order), order)


def by_scipy(x: np.ndarray, order: int) -> Arrays:
    return _finish(scipy.special.eval_hermitenorm(np.arange(order + 1), x[..., None]), order)


def write_once(x: np.ndarray, order: int) -> Arrays:
    arrays = 2 if x.shape[1] == 1 else 1
    return tuple(np.ones((order, x.size)) for _ in range(arrays))


METHODS: dict[str, Method] = {
    "oism": by_oism,
    "numpy hermevander": by_numpy,
    "scipy eval_hermitenorm": by_scipy,
    "write once (lower bound)": write_once,
}


def compare(points: int, dim: int, order: int, rounds: int) -> None:
    """Print a table of median milliseconds and ratios for one case."""
    x = np.random.default_rng(0).standard_normal((points, dim))
    exact = by_scipy(x[:1000], order)
    for checked in (by_oism, by_numpy):
        for ours, theirs in zip(checked(x[:1000], order), exact, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    for _ in range(rounds):
        for name, method in METHODS.items():
            start = time.perf_counter()
            method(x, order)
            seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    what = "values and gradients" if dim == 1 else "values"
    print(f"\n{what}, {points:,} points, dim {dim}, order {order}, {rounds} rounds")
    print(f"{'method':<26}{'ms':>8}{'times oism':>12}")
    for name, median in medians.items():
        print(f"{name:<26}{1e3 * median:>8.1f}{median / medians['oism']:>12.2f}")


def main(points: int = 1_000_000, order: int = 12, rounds: int = 15, threads: int = 0) -> None:
    """Compare both cases, the second with a tenth of the points; 0 threads: torch's default."""
    if threads:
        torch.set_num_threads(threads)
    print(f"torch uses {torch.get_num_threads()} threads")
    compare(points, 1, order, rounds)
    compare(points // 10, 10, order, rounds)


if __name__ == "__main__":
    tyro.cli(main)
