"""Hermite values and gradients to order 12 on 10⁶ points, against NumPy and SciPy, in one run.

All methods return the normalised φ₁ … φ₁₂ and their derivatives in float64. Rounds are interleaved,
so that a noisy neighbour slows every method alike; medians are compared. "write once" fills two
arrays of the size of the result, which no method can undercut.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import scipy.special
import torch
import tyro

from oism import Hermite

Arrays = tuple[np.ndarray, np.ndarray]


def by_oism(x: np.ndarray, order: int) -> Arrays:
    jet = Hermite(1, order).jet(torch.from_numpy(x)[:, None])
    return jet.values.numpy(), jet.gradients[..., 0].numpy()


def by_numpy(x: np.ndarray, order: int) -> Arrays:
    n = np.arange(1, order + 1)
    table = np.polynomial.hermite_e.hermevander(x, order)
    table /= np.sqrt(scipy.special.factorial(np.arange(order + 1)))
    return table[:, 1:], table[:, :-1] * np.sqrt(n)


def by_scipy(x: np.ndarray, order: int) -> Arrays:
    n = np.arange(order + 1)
    table = scipy.special.eval_hermitenorm(n, x[:, None])
    table /= np.sqrt(scipy.special.factorial(n))
    return table[:, 1:], table[:, :-1] * np.sqrt(n[1:])


def write_once(x: np.ndarray, order: int) -> Arrays:
    return np.ones((order, len(x))), np.ones((order, len(x)))


METHODS: dict[str, Callable[[np.ndarray, int], Arrays]] = {
    "oism": by_oism,
    "numpy hermevander": by_numpy,
    "scipy eval_hermitenorm": by_scipy,
    "write once (the floor)": write_once,
}


def main(points: int = 1_000_000, order: int = 12, rounds: int = 9) -> dict[str, float]:
    """Print a table of median seconds and ratios; return the seconds."""
    x = np.random.default_rng(0).standard_normal(points)
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
    print(f"{points:,} points, order {order}, {torch.get_num_threads()} threads, {rounds} rounds")
    print(f"{'method':<26}{'ms':>8}{'times oism':>12}")
    for name, median in medians.items():
        print(f"{name:<26}{1e3 * median:>8.1f}{median / medians['oism']:>12.2f}")
    return medians


if __name__ == "__main__":
    tyro.cli(main)
