from __future__ import annotations

import math
from dataclasses import replace

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
    """Return mean and covariance of the free part, by NumPy; the ridge is 1e-6 of it."""
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
    uniform = sum(math.log(float(w)) for w in found.width[~torch.tensor(free)])
    student = scipy.stats.multivariate_t(mean, covariance / 3, df=3).logpdf(x.numpy()[:, free])
    np.testing.assert_allclose(found.log_density(x).numpy(), student - uniform, rtol=1e-9)
    gaussian = replace(found, factor=found.factor * math.sqrt(3), degrees=math.inf)
    expected = scipy.stats.multivariate_normal(mean, covariance).logpdf(x.numpy()[:, free])
    np.testing.assert_allclose(gaussian.log_density(x).numpy(), expected - uniform, rtol=1e-9)


def test_far_points_have_finite_densities() -> None:
    """A power of the distance, until distances are cut off: of three columns the sixth."""
    found = background([True, True, True])
    values = [
        float(found.log_density(torch.full((1, 3), far, dtype=DOUBLE)))
        for far in (1e6, 1e7, 1e100, 1e200, 1e308)
    ]
    assert all(map(math.isfinite, values))
    assert values[0] - values[1] == pytest.approx(6 * math.log(10), rel=1e-4)
    assert values[2] - values[3] == pytest.approx(6 * 50 * math.log(10), rel=1e-4)
    assert values[3] == values[4]


def test_a_gaussian_background_is_the_limit_of_many_degrees(generator: torch.Generator) -> None:
    found, x = background([True, False, True]), data(20)
    many, none = replace(found, degrees=1e7), replace(found, degrees=math.inf)
    torch.testing.assert_close(many.log_density(x), none.log_density(x), rtol=1e-4, atol=1e-4)
    given = {0: 9.0, 1: 2.2}
    assert many.log_marginal(given) == pytest.approx(none.log_marginal(given), rel=1e-5)
    apart = many.sample_given(given, 500, generator), none.sample_given(given, 500, generator)
    assert scipy.stats.ks_2samp(*(part[:, 2].numpy() for part in apart)).pvalue > 1e-3


def test_degrees_are_positive() -> None:
    with pytest.raises(ValueError, match="degrees must be positive, got 0"):
        replace(background([True] * 3), degrees=0.0)


def test_samples_follow_the_density(generator: torch.Generator) -> None:
    found = background([True, False, True])
    x = found.sample(4000, generator)
    mean, covariance = moments([True, False, True])
    scale = np.sqrt(np.diag(covariance) / 3)
    for place, column in enumerate((0, 2)):
        exact = scipy.stats.t(3, mean[place], scale[place])
        assert scipy.stats.kstest(x[:, column].numpy(), exact.cdf).pvalue > 1e-3
    square = scipy.stats.f(2, 3)  # of δ/2
    z = np.linalg.solve(np.linalg.cholesky(covariance / 3), (x[:, [0, 2]].numpy() - mean).T)
    assert scipy.stats.kstest((z**2).sum(axis=0) / 2, square.cdf).pvalue > 1e-3
    assert scipy.stats.kstest(x[:, 1].numpy(), "uniform", args=(2.0, 0.5)).pvalue > 1e-3


@pytest.mark.parametrize("given", [{0: 9.0}, {1: 6.0, 2: 3.0}, {2: 30.0}])
def test_conditional_is_the_textbooks(given: dict[int, float], generator: torch.Generator) -> None:
    found = background([True] * 3)
    mean, covariance = moments([True] * 3)
    known, rest = list(given), [j for j in range(3) if j not in given]
    values = np.array(list(given.values()))
    marginal = scipy.stats.multivariate_t(mean[known], covariance[np.ix_(known, known)] / 3, df=3)
    assert found.log_marginal(given) == pytest.approx(float(marginal.logpdf(values)), abs=1e-8)
    precision = np.linalg.inv(covariance / 3)[np.ix_(rest, rest)]
    shape = np.linalg.inv(precision)
    across = np.linalg.inv(covariance / 3)[np.ix_(rest, known)]
    centre = mean[rest] - shape @ across @ (values - mean[known])
    gap = values - mean[known]
    distance = gap @ np.linalg.solve(covariance[np.ix_(known, known)] / 3, gap)
    degrees = 3 + len(known)
    scale = np.sqrt((3 + distance) / degrees * np.diag(shape))
    x = found.sample_given(given, 4000, generator).numpy()
    assert (x[:, known] == values).all()
    for place, column in enumerate(rest):
        exact = scipy.stats.t(degrees, centre[place], scale[place])
        assert scipy.stats.kstest(x[:, column], exact.cdf).pvalue > 1e-3


def test_conditionals_do_not_depend_on_units(generator: torch.Generator) -> None:
    units = torch.tensor([1.0, 1e9, 1.0], dtype=DOUBLE)
    free, zero = torch.ones(3, dtype=torch.bool), torch.zeros(3, dtype=DOUBLE)
    wide = Background.of(spread(data() * units), free, zero, zero)
    given, scaled = {0: 9.0, 1: 6.0}, {0: 9.0, 1: 6e9}
    usual = background([True] * 3).sample_given(given, 4000, generator)
    found = wide.sample_given(scaled, 4000, generator)
    assert scipy.stats.ks_2samp(usual[:, 2].numpy(), found[:, 2].numpy()).pvalue > 1e-3


def test_conditional_is_the_joint_density_by_the_marginal() -> None:
    """The density of the others, given some, by quadrature."""
    found, given = background([True] * 3), {1: 6.0, 2: 3.0}
    x = torch.linspace(-3000, 3000, 600_001, dtype=DOUBLE)
    rows = torch.stack((x, torch.full_like(x, 6.0), torch.full_like(x, 3.0)), dim=1)
    mass = torch.trapezoid(found.log_density(rows).exp(), x)
    assert math.log(mass) == pytest.approx(found.log_marginal(given), abs=1e-6)


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
