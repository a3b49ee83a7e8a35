"""Threads, processes and copies give the results of one thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from campaign import concurrency
from oism import OISM


def test_differences_are_seen() -> None:
    x = [np.arange(3.0), np.ones(2)]
    assert concurrency._all_equal(x, [one.copy() for one in x])
    assert not concurrency._all_equal(x, x[:1])
    assert not concurrency._all_equal(x, [x[0], x[1] + 2e-16])


def test_threads_with_one_model() -> None:
    rng = np.random.default_rng(0)
    model, part = OISM(max_eigenvalue=9.0, flow_steps=16).fit(rng.normal(size=(50, 1))), x_axis()
    expected = [model.score_samples(part), model.sample(9, 1).ravel()]
    with ThreadPoolExecutor(concurrency.THREADS) as pool:
        densities = [pool.submit(model.score_samples, part) for _ in range(8)]
        samples = [pool.submit(model.sample, 9, 1) for _ in range(8)]
        for one, other in zip(densities, samples, strict=True):
            assert concurrency._all_equal([one.result(), other.result().ravel()], expected)


def x_axis() -> np.ndarray:
    return np.linspace(-2, 2, 30)[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 4])
def test_cases(seed: int) -> None:
    assert concurrency.judged(seed)["failed"] == []
