from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from oism.tables import OISM, Background, Spread

DOUBLE = torch.float64
MIXING = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.3, -0.5, 2.0]], dtype=DOUBLE)


def data(n: int = 400) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 3, generator=generator, dtype=DOUBLE) @ MIXING.mT + 7


def spread(x: Tensor, weights: Tensor | None = None) -> Spread:
    result = Spread(x[0])
    result.update(x, torch.ones(len(x), dtype=DOUBLE) if weights is None else weights)
    return result


def background(free: list[bool]) -> Background:
    low, width = torch.tensor([[1.0, 2.0, 3.0], [5.0, 0.5, 4.0]], dtype=DOUBLE)
    return Background.of(spread(data()), torch.tensor(free), low, width)


def moments(free: list[bool]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the Gaussian part, by NumPy; the ridge is 1e-6 of it."""
    x = data().numpy()[:, free]
    covariance = 4 * np.atleast_2d(np.cov(x.T, bias=True))
    return x.mean(axis=0), covariance + 1e-6 * np.diag(np.diag(covariance))


def test_spread_is_weighted_mean_and_covariance_in_any_batches() -> None:
    x = data()
    weights = torch.rand(400, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    found = Spread(x[:10].mean(dim=0))
    for part, own in zip(x.chunk(6), weights.chunk(6), strict=True):
        found.update(part, own)
    mean = np.average(x.numpy(), axis=0, weights=weights.numpy())
    covariance = np.cov(x.numpy().T, aweights=weights.numpy(), ddof=0)
    np.testing.assert_allclose(found.mean.numpy(), mean, rtol=1e-12)
    np.testing.assert_allclose(found.covariance.numpy(), covariance, rtol=1e-10, atol=1e-12)


def test_weights_count_as_rows() -> None:
    x = data(4)
    assert spread(x).count == 4
    assert spread(x, torch.tensor([3.0, 1.0, 0.0, 2.0], dtype=DOUBLE)).count == 6
    assert spread(x, torch.full((4,), 1e-3, dtype=DOUBLE)).count == pytest.approx(4)
    uneven = torch.tensor([0.1, 0.1, 0.0, 0.2], dtype=DOUBLE)
    assert spread(x, uneven).count == pytest.approx(0.16 / 0.06)


def test_a_far_origin_does_not_cancel() -> None:
    x = data() + 1e8
    found = spread(x).covariance
    torch.testing.assert_close(found, torch.cov(data().mT, correction=0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("free", [[True] * 3, [True, False, True], [False, False, True]])
def test_density_is_scipys(free: list[bool]) -> None:
    found = background(free)
    assert found.share == pytest.approx(1 / 401)
    x = data(20) + 0.5
    mean, covariance = moments(free)
    expected = scipy.stats.multivariate_normal(mean, covariance).logpdf(x.numpy()[:, free])
    expected -= sum(math.log(float(w)) for w in found.width[~torch.tensor(free)])
    np.testing.assert_allclose(found.log_density(x).numpy(), expected, rtol=1e-9)


def test_far_points_have_finite_densities() -> None:
    found = background([True, True, True])
    for far in (1e6, 1e100, 1e200, 1e308):
        value = float(found.log_density(torch.full((1, 3), far, dtype=DOUBLE)))
        assert math.isfinite(value)
        assert value < -1e9


def test_samples_follow_the_density(generator: torch.Generator) -> None:
    found = background([True, False, True])
    x = found.sample(4000, generator)
    mean, covariance = moments([True, False, True])
    error = math.sqrt(covariance.max() / 4000)
    np.testing.assert_allclose(x[:, [0, 2]].mean(dim=0).numpy(), mean, atol=4 * error)
    np.testing.assert_allclose(np.cov(x[:, [0, 2]].numpy().T), covariance, rtol=0.15, atol=0.2)
    assert scipy.stats.kstest(x[:, 1].numpy(), "uniform", args=(2.0, 0.5)).pvalue > 1e-3


@pytest.mark.parametrize("given", [{0: 9.0}, {1: 6.0, 2: 3.0}, {2: 30.0}])
def test_conditional_is_the_textbooks(given: dict[int, float], generator: torch.Generator) -> None:
    found = background([True] * 3)
    mean, covariance = moments([True] * 3)
    known, rest = list(given), [j for j in range(3) if j not in given]
    values = np.array(list(given.values()))
    marginal = scipy.stats.multivariate_normal(mean[known], covariance[np.ix_(known, known)])
    assert found.log_marginal(given) == pytest.approx(float(marginal.logpdf(values)), abs=1e-8)
    precision = np.linalg.inv(covariance)[np.ix_(rest, rest)]
    variance = np.linalg.inv(precision)
    across = np.linalg.inv(covariance)[np.ix_(rest, known)]
    centre = mean[rest] - variance @ across @ (values - mean[known])
    x = found.sample_given(given, 4000, generator).numpy()
    assert (x[:, known] == values).all()
    spread = np.sqrt(np.diag(variance))
    for place, column in enumerate(rest):
        exact = scipy.stats.norm(centre[place], spread[place])
        assert scipy.stats.kstest(x[:, column], exact.cdf).pvalue > 1e-3
    np.testing.assert_allclose(np.cov(x[:, rest].T), np.squeeze(variance), rtol=0.15, atol=0.1)


def test_marginals_of_columns_that_are_not_free() -> None:
    found = background([True, False, False])
    assert found.log_marginal({1: 2.2}) == pytest.approx(-math.log(0.5))
    assert found.log_marginal({1: 2.2, 2: 4.0}) == pytest.approx(-math.log(0.5) - math.log(4.0))
    both = found.log_marginal({0: 8.0, 2: 4.0})
    assert both == pytest.approx(found.log_marginal({0: 8.0}) - math.log(4.0))
    assert found.log_marginal({}) == pytest.approx(0.0)


@pytest.mark.parametrize("case", ["constant", "collinear", "zero", "one row"])
def test_flat_data_have_a_background(case: str, generator: torch.Generator) -> None:
    x = data()
    if case == "constant":
        x[:, 1] = 3.0
    elif case == "collinear":
        x[:, 2] = x[:, 0] - 2 * x[:, 1]
    elif case == "zero":
        x = torch.zeros(5, 3, dtype=DOUBLE)
    else:
        x = x[:1]
    found = Background.of(spread(x), torch.ones(3, dtype=torch.bool), *torch.zeros(2, 3).double())
    assert bool(found.log_density(x).isfinite().all())
    assert bool(found.sample(10, generator).isfinite().all())
    assert math.isfinite(found.log_marginal({1: 3.0}))
    assert bool(found.sample_given({1: 3.0}, 10, generator).isfinite().all())


def test_an_outlier_is_not_the_scale_of_polynomials() -> None:
    """It was, and the density of the other rows, one point to polynomials, had a mass of 1e5."""
    rng = np.random.default_rng(0)
    x, new = rng.normal(size=(220, 2)), rng.normal(size=(400, 2))
    x[0] += 1e5
    found = OISM(process="ou").fit(x).score_samples(new)
    assert found.mean() == pytest.approx(-np.log(2 * np.pi * np.e), abs=0.2)
