"""Tables under a linear process that is given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

from oism import OISM, CriticallyDamped, Linear, OrnsteinUhlenbeck
from oism.process import NotAProbabilityError

EYE = torch.eye(2)
SWIRL = Linear(torch.tensor([[-1.0, -2.0], [2.0, -1.0]]), math.sqrt(2) * EYE)
STRETCHED = Linear(torch.tensor([[-0.5, 0.2], [0.1, -2.0]]), torch.tensor([[1.0, 0.0], [0.5, 0.7]]))


def rows(n: int, dim: int = 2, seed: int = 0) -> np.ndarray:
    """Return correlated, skewed rows far from zero."""
    z = np.random.default_rng(seed).normal(size=(n, dim))
    mixing = np.tril(np.ones((dim, dim))) * np.array([4.0, 0.3, 2.0, 1.0])[:dim, None]
    x: np.ndarray = z @ mixing.T + 0.4 * z[:, :1] ** 2 + np.arange(10, 10 + dim)
    return x


@pytest.mark.parametrize(
    "process", [SWIRL, STRETCHED, CriticallyDamped(1)], ids=lambda p: repr(p)[:9]
)
def test_order_two_is_the_gaussian_of_the_data(process: Linear) -> None:
    x = rows(300)
    model = OISM(process=process, order=2, flow_steps=128).fit(x)
    moments = x.mean(axis=0), np.cov(x.T, bias=True)
    exact = scipy.stats.multivariate_normal(*moments)
    wide = scipy.stats.multivariate_t(moments[0], 4 / 3 * moments[1], df=3)
    expected = np.logaddexp(exact.logpdf(x) + math.log(300 / 301), wide.logpdf(x) - math.log(301))
    np.testing.assert_allclose(model.score_samples(x), expected, atol=5e-3)
    assert "Linear" in model.summary() or "CriticallyDamped" in model.summary()
    assert "polynomials up to degree 2" in model.summary()


def test_an_ornstein_uhlenbeck_process_written_as_a_linear_one() -> None:
    """Its total-degree polynomials contain those of each coordinate, and no more is in the data."""
    x, y = (np.exp(0.5 * np.random.default_rng(s).normal(size=(800, 2))) for s in (0, 1))
    linear = OISM(process=Linear(-EYE, math.sqrt(2) * EYE), order=5).fit(x)
    own = OISM(process=OrnsteinUhlenbeck(), order=5, frame="identity").fit(x)
    normal = scipy.stats.multivariate_normal(x.mean(axis=0), np.cov(x.T)).logpdf(y).mean()
    gap = linear.score(y) / 800 - own.score(y) / 800
    assert abs(gap) < 0.1
    assert linear.score(y) / 800 > normal + 0.2


def test_scores_are_complete_gradients() -> None:
    """Also where noise acts on velocities alone: OISM fits the whole score."""
    x, t = rows(200), 0.5
    model = OISM(process=CriticallyDamped(1), order=3, flow_steps=8).fit(x)
    score, chart = model.model_.operator_score, model.model_.chart
    process, y = model.model_.process.inner, x[:5]

    def log_noised(x: np.ndarray) -> np.ndarray:
        u = chart.to_process(torch.from_numpy(x))
        log: torch.Tensor = score.log_ratio(u, t) + process.invariant.log_density(u)
        return log.numpy()

    found = model.score_function(y, t)
    for j in range(2):
        step = 1e-4 * np.eye(2)[j]
        slope = (log_noised(y + step) - log_noised(y - step)) / 2e-4
        np.testing.assert_allclose(found[:, j], slope, rtol=1e-4, atol=1e-5)


def test_batches_are_nearly_one_fit() -> None:
    x, y = rows(600), rows(200, seed=1)
    parts = OISM(process=SWIRL, order=3, flow_steps=32).partial_fit(x[:400]).partial_fit(x[400:])
    whole = OISM(process=SWIRL, order=3, flow_steps=32).fit(x)
    assert abs(parts.score(y) - whole.score(y)) / 200 < 0.05
    np.testing.assert_allclose(
        whole.sample(2000, random_state=0).mean(axis=0), x.mean(axis=0), atol=0.5
    )


@pytest.mark.parametrize(
    ("settings", "dim", "message"),
    [
        ({"process": SWIRL}, 3, "one entry for each of the 3 columns, got a Linear process of 2"),
        ({"process": CriticallyDamped(2)}, 2, "got a CriticallyDamped process of 4 entries"),
        ({"process": SWIRL, "bounds": {0: (0, 99)}}, 2, "need process='torus'.* got a Linear proc"),
        ({"process": SWIRL, "periodic": 360}, 2, "need process='torus'.* got a Linear process"),
    ],
)
def test_columns_that_do_not_fit_the_process(
    settings: dict[str, Any], dim: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        OISM(**settings).fit(rows(50, dim))


def test_a_process_without_a_stationary_distribution_is_an_error() -> None:
    for drift in (EYE, torch.zeros(2, 2)):
        with pytest.raises(NotAProbabilityError):
            OISM(process=Linear(drift, EYE)).fit(rows(50))
    with pytest.raises(ValueError, match="positive definite"):
        OISM(process=Linear(-EYE, torch.tensor([[1.0], [0.0]]))).fit(rows(50))
