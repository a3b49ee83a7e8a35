from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
from torch.func import jacrev, vmap

from oism.process import Brownian, Gaussian, Lebesgue, Measure, NotAProbabilityError, Uniform
from oism.process._expectation import expectation

LAWS: list[Measure] = [Gaussian(0.4), Gaussian(3.0), Uniform()]
laws = pytest.mark.parametrize("law", LAWS, ids=repr)


def test_gaussian_density_agrees_with_scipy(generator: torch.Generator) -> None:
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    expected = scipy.stats.multivariate_normal(cov=0.4).logpdf(x.reshape(-1))
    ours = Gaussian(0.4).log_density(x)
    torch.testing.assert_close(ours, torch.from_numpy(expected).reshape(20, 3).sum(dim=1))


def test_uniform_density_is_one_over_the_volume() -> None:
    density = Uniform().log_density(torch.zeros(2, 3, dtype=torch.float64)).exp()
    assert density.tolist() == pytest.approx([(2 * math.pi) ** -3] * 2, rel=1e-14)


@laws
def test_score_is_the_gradient(law: Measure, generator: torch.Generator) -> None:
    x = torch.randn(5, 2, 2, generator=generator, dtype=torch.float64)
    gradient = vmap(jacrev(lambda y: law.log_density(y[None])[0]))(x)
    torch.testing.assert_close(law.score(x), gradient)


@laws
def test_samples_have_the_distribution(law: Measure, generator: torch.Generator) -> None:
    x = law.sample((4000, 2, 3), generator=generator, dtype=torch.float64)
    assert x.shape == (4000, 2, 3)
    cdf = (
        scipy.stats.norm(scale=math.sqrt(law.variance)).cdf
        if isinstance(law, Gaussian)
        else scipy.stats.uniform(-math.pi, 2 * math.pi).cdf
    )
    assert scipy.stats.kstest(x.flatten(), cdf).pvalue > 0.01
    assert scipy.stats.kstest(1.1 * x.flatten(), cdf).pvalue < 1e-6  # the test can fail


@laws
def test_samples_are_reproducible(law: Measure) -> None:
    draws = [law.sample((3, 2), generator=torch.Generator().manual_seed(7)) for _ in range(2)]
    assert torch.equal(*draws)
    assert draws[0].dtype == torch.float32
    assert law.sample((3, 2), dtype=torch.float64).dtype == torch.float64
    assert law.sample((0, 2)).shape == (0, 2)


@laws
def test_quadrature_agrees_with_exact_expectations(law: Measure) -> None:
    mass = expectation(lambda x: torch.ones(len(x)).double(), law, (2,))
    second = expectation(lambda x: torch.cos(x).prod(dim=1), law, (2,))
    exact = math.exp(-law.variance) if isinstance(law, Gaussian) else 0.0  # E[cos X]²
    assert float(mass) == pytest.approx(1, abs=1e-13)
    assert float(second) == pytest.approx(exact, abs=1e-13)


def test_lebesgue_measure_is_not_a_probability() -> None:
    measure, x = Lebesgue(), torch.zeros(2, 2)
    assert not measure.is_probability
    assert Brownian().invariant == measure
    assert torch.equal(measure.score(x), x)
    with pytest.raises(
        NotAProbabilityError, match=r"no invariant distribution and no normalised density"
    ):
        measure.log_density(x)
    with pytest.raises(NotAProbabilityError, match=r"no invariant distribution and no sampler"):
        measure.sample((2, 2))
    with pytest.raises(
        NotAProbabilityError, match=r"no invariant distribution and no quadrature rule"
    ):
        measure.quadrature(2, 4)


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="variance must be a positive"):
        Gaussian(0.0)
    for law in LAWS:
        with pytest.raises(ValueError, match="shape must have at least one axis"):
            law.sample(())
        with pytest.raises(TypeError, match=r"dtype must be one of .*got torch.int64"):
            law.sample((2, 2), dtype=torch.int64)
        with pytest.raises(TypeError, match=r"nodes must be an integer >= 1, got float 1.5"):
            law.quadrature(2, 1.5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="x must be a batch"):
            law.log_density(torch.zeros(3))
