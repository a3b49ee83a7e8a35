"""Contenders are measured alike: likelihoods, masses and seconds, and the network's equal time."""

from __future__ import annotations

import itertools
import math
from functools import partial
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest
import scipy.stats
import torch
from numpy.typing import NDArray

from oism import OISM
from oism.data.toys import PLANE
from oism.plot import limits_of
from oism.studies import contest as contests
from oism.studies.contest import (
    DEFAULT,
    FEWER,
    KERNELS,
    NETWORK,
    PAPER,
    Contest,
    Entry,
    Truth,
    Window,
    contest,
    enter,
)

Array = NDArray[np.float64]
LAW = scipy.stats.multivariate_normal([0.5, -1.0], [[1.0, 0.3], [0.3, 0.5]])


class Normal:
    """A contender that knows one law and remembers what it was fitted to."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def fit(self, X: Array) -> Self:  # noqa: N803
        self.rows = X
        return self

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        log: Array = LAW.logpdf(X)
        return log


def test_the_truth_knows_already() -> None:
    law = PLANE["moons"]
    x = law.sample(20, torch.Generator().manual_seed(0))
    truth = Truth(law)
    assert truth.fit(np.zeros((0, 2))) is truth
    np.testing.assert_array_equal(truth.score_samples(x.numpy()), law.log_density(x).numpy())


def test_the_mass_is_that_of_the_window() -> None:
    window = Window(60, [(-1.0, 3.0), (-2.0, 0.5)])
    rows = np.zeros((3, 2)), LAW.rvs(5, random_state=0)
    entry = enter(Normal(), rows, np.zeros(5), window)
    exact = LAW.cdf([3.0, 0.5], lower_limit=[-1.0, -2.0])
    assert 0.5 < exact < 0.95
    assert entry.mass == pytest.approx(exact, abs=1e-4)
    assert entry.image.shape == (60, 60)
    # The first axis goes upwards.
    low, high = -2 + 2.5 / 120, 0.5 - 2.5 / 120
    left = -1 + 4 / 120
    assert entry.image[0, 0] == pytest.approx(LAW.logpdf([left, low]))
    assert entry.image[-1, 0] == pytest.approx(LAW.logpdf([left, high]))


def test_a_likelihood_is_a_mean_with_the_error_of_its_excess(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train, test = np.ones((4, 2)), LAW.rvs(50, random_state=1)
    exact = LAW.logpdf(test) + np.random.default_rng(0).normal(0.2, 0.1, 50)
    count = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: 2.0 ** next(count))
    monkeypatch.setattr(contests, "time", clock)
    model = Normal()
    entry = enter(model, (train, test), exact, Window(5, [(0, 1), (0, 1)]))
    assert entry.model is model
    assert model.rows is train
    log = LAW.logpdf(test)
    excess = exact - log
    assert entry.nll == pytest.approx(-sum(log) / 50)
    error = math.sqrt(sum((excess - excess.mean()) ** 2) / 49 / 50)
    assert entry.error == pytest.approx(error)
    assert (entry.fit_seconds, entry.density_seconds) == (1.0, 2.0)
    numbers = entry.numbers()
    assert numbers["nll"] == entry.nll
    assert numbers["mass"] == entry.mass
    assert (numbers["fit_seconds"], numbers["density_seconds"]) == (1.0, 2.0)


def test_windows_of_entries_have_areas() -> None:
    image = np.log(np.array([[0.1, 0.2], [0.3, 0.4]]))
    assert Entry(None, 0, 0, 0, 0, image, 8.0).mass == pytest.approx(0.25 * 8)


@pytest.fixture(scope="module")
def found() -> tuple[Contest, list[Normal]]:
    """A contest of a network and kernels that are recorders, and a small number of points."""
    made: list[Normal] = []

    def recorder(**settings: Any) -> Normal:
        made.append(Normal(**settings))
        return made[-1]

    generator = torch.Generator().manual_seed(0)
    rows = tuple(PLANE["moons"].sample(n, generator).numpy() for n in (150, 60))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contests, "DDPM", recorder)
        patch.setattr(contests, "KDE", recorder)
        patch.setattr(contests, "OISM", partial(OISM, n_times=8))  # only for speed
        which = (PAPER, FEWER, NETWORK, DEFAULT, KERNELS)
        result = contest("moons", (rows[0], rows[1]), side=21, seed=5, which=which)
    return result, made


def test_the_network_gets_the_time_of_the_default_fit(found: tuple[Contest, list[Normal]]) -> None:
    result, (network, kernels) = found
    seconds = result.entries[DEFAULT].fit_seconds
    assert seconds > 0
    assert network.settings == {"seconds": seconds, "random_state": 5}
    assert kernels.settings == {}
    assert result.entries[NETWORK].model is network


def test_all_see_the_same_rows_and_the_same_window(found: tuple[Contest, list[Normal]]) -> None:
    result, (network, kernels) = found
    assert list(result.entries) == [PAPER, FEWER, NETWORK, DEFAULT, KERNELS]
    assert network.rows is kernels.rows is result.train
    assert len({entry.area for entry in result.entries.values()}) == 1
    assert result.limits == limits_of(result.entries[DEFAULT].model)
    (left, right), (low, high) = result.limits
    assert result.entries[KERNELS].area == pytest.approx((right - left) * (high - low))
    assert result.entries[NETWORK].nll == pytest.approx(-LAW.logpdf(result.test).mean())
    for name in (FEWER, DEFAULT):
        log = result.entries[name].model.score_samples(result.test)
        assert result.entries[name].nll == pytest.approx(-log.mean())


def test_the_contenders_are_what_they_are_called(found: tuple[Contest, list[Normal]]) -> None:
    paper, fewer, default = (found[0].entries[n].model for n in (PAPER, FEWER, DEFAULT))
    assert paper.model_.score.basis.size == fewer.model_.score.basis.size == 400
    assert (paper.shrinkage, paper.ridge) == ("modulation", 0.0)
    assert (fewer.shrinkage, fewer.ridge) == ("none", "cv")
    assert default.max_eigenvalue == "auto"


def test_the_truth_of_a_contest(found: tuple[Contest, list[Normal]]) -> None:
    result = found[0]
    log = PLANE["moons"].log_density(torch.from_numpy(result.test)).numpy()
    assert result.truth == pytest.approx(-log.mean())
    assert result.ceiling == pytest.approx(np.exp(np.quantile(log, 0.99)))
    numbers = result.numbers()
    assert numbers["truth"] == result.truth
    assert numbers[NETWORK]["nll"] == result.entries[NETWORK].nll
    assert list(numbers) == ["truth", *result.entries]
