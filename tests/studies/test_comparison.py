"""All methods are measured alike: likelihoods, masses, seconds, and the training time."""

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
from studies import comparison
from studies.comparison import (
    DEFAULT,
    FEWER,
    KERNEL,
    NETWORK,
    PAPER,
    Comparison,
    Entry,
    Exact,
    Window,
    compare,
    measure,
)

Array = NDArray[np.float64]
NORMAL = scipy.stats.multivariate_normal([0.5, -1.0], [[1.0, 0.3], [0.3, 0.5]])


class Normal:
    """A method with a fixed distribution that stores the rows of its fit."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def fit(self, X: Array) -> Self:  # noqa: N803
        self.rows = X
        return self

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        log: Array = NORMAL.logpdf(X)
        return log


def test_the_exact_density_needs_no_fit() -> None:
    moons = PLANE["moons"]
    x = moons.sample(20, torch.Generator().manual_seed(0))
    truth = Exact(moons)
    assert truth.fit(np.zeros((0, 2))) is truth
    np.testing.assert_array_equal(truth.score_samples(x.numpy()), moons.log_density(x).numpy())


def test_the_mass_is_that_of_the_window() -> None:
    window = Window(60, [(-1.0, 3.0), (-2.0, 0.5)])
    rows = np.zeros((3, 2)), NORMAL.rvs(5, random_state=0)
    entry = measure(Normal(), rows, np.zeros(5), window)
    exact = NORMAL.cdf([3.0, 0.5], lower_limit=[-1.0, -2.0])
    assert 0.5 < exact < 0.95
    assert entry.mass == pytest.approx(exact, abs=1e-4)
    assert entry.image.shape == (60, 60)
    # The first axis points upwards.
    low, high = -2 + 2.5 / 120, 0.5 - 2.5 / 120
    left = -1 + 4 / 120
    assert entry.image[0, 0] == pytest.approx(NORMAL.logpdf([left, low]))
    assert entry.image[-1, 0] == pytest.approx(NORMAL.logpdf([left, high]))


def test_a_likelihood_is_a_mean_with_the_error_of_its_excess(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train, test = np.ones((4, 2)), NORMAL.rvs(50, random_state=1)
    exact = NORMAL.logpdf(test) + np.random.default_rng(0).normal(0.2, 0.1, 50)
    count = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: 2.0 ** next(count))
    monkeypatch.setattr(comparison, "time", clock)
    model = Normal()
    entry = measure(model, (train, test), exact, Window(5, [(0, 1), (0, 1)]))
    assert entry.model is model
    assert model.rows is train
    log = NORMAL.logpdf(test)
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
def found() -> tuple[Comparison, list[Normal]]:
    """A comparison with recorders in place of network and KDE, and few points."""
    made: list[Normal] = []

    def recorder(**settings: Any) -> Normal:
        made.append(Normal(**settings))
        return made[-1]

    generator = torch.Generator().manual_seed(0)
    rows = tuple(PLANE["moons"].sample(n, generator).numpy() for n in (150, 60))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "DDPM", recorder)
        patch.setattr(comparison, "KDE", recorder)
        patch.setattr(comparison, "OISM", partial(OISM, flow_steps=8))  # for speed
        which = (PAPER, FEWER, NETWORK, DEFAULT, KERNEL)
        result = compare("moons", (rows[0], rows[1]), side=21, seed=5, which=which)
    return result, made


@pytest.mark.slow
def test_the_network_gets_the_time_of_the_default_fit(
    found: tuple[Comparison, list[Normal]],
) -> None:
    result, (network, kde) = found
    seconds = result.entries[DEFAULT].fit_seconds
    assert seconds > 0
    assert network.settings == {"seconds": seconds, "random_state": 5}
    assert kde.settings == {}
    assert result.entries[NETWORK].model is network


def test_all_see_the_same_rows_and_the_same_window(found: tuple[Comparison, list[Normal]]) -> None:
    result, (network, kde) = found
    assert list(result.entries) == [PAPER, FEWER, NETWORK, DEFAULT, KERNEL]
    assert network.rows is kde.rows is result.train
    assert len({entry.area for entry in result.entries.values()}) == 1
    assert result.limits == limits_of(result.entries[DEFAULT].model)
    (left, right), (low, high) = result.limits
    assert result.entries[KERNEL].area == pytest.approx((right - left) * (high - low))
    assert result.entries[NETWORK].nll == pytest.approx(-NORMAL.logpdf(result.test).mean())
    for name in (FEWER, DEFAULT):
        log = result.entries[name].model.score_samples(result.test)
        assert result.entries[name].nll == pytest.approx(-log.mean())


def test_methods_have_the_settings_of_their_names(found: tuple[Comparison, list[Normal]]) -> None:
    paper, fewer, default = (found[0].entries[n].model for n in (PAPER, FEWER, DEFAULT))
    assert paper.model_.operator_score.basis.size == fewer.model_.operator_score.basis.size == 400
    assert (paper.shrinkage, paper.ridge) == ("modulation", 0.0)
    assert (fewer.shrinkage, fewer.ridge) == ("none", "cv")
    assert default.max_eigenvalue == "auto"


def test_the_truth_of_a_comparison(found: tuple[Comparison, list[Normal]]) -> None:
    result = found[0]
    log = PLANE["moons"].log_density(torch.from_numpy(result.test)).numpy()
    assert result.truth == pytest.approx(-log.mean())
    assert result.ceiling == pytest.approx(np.exp(np.quantile(log, 0.99)))
    numbers = result.numbers()
    assert numbers["truth"] == result.truth
    assert numbers[NETWORK]["nll"] == result.entries[NETWORK].nll
    assert list(numbers) == ["truth", *result.entries]
