"""The expected error of a prior, against its error on new rows."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from oism import Logarithmic, fit_mixture, fit_prior
from oism.basis import Frame, IdentityFrame
from oism.images import PCA, ByError, HermitePrior, Prior
from oism.images._error import unit_error

DIM, ROWS = 6, 4000
TAUS = (0.02, 0.1, 0.2, 0.4, 0.7)


def skewed(n: int = ROWS, seed: int = 0) -> Tensor:
    """Return independent columns of a skewed distribution, of several scales."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, DIM, generator=generator, dtype=torch.float64)
    return ((0.6 * z).exp() - 1.2) * torch.linspace(0.2, 1.0, DIM, dtype=torch.float64)


def normal(n: int = ROWS, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(100 + seed)
    z = torch.randn(n, DIM, generator=generator, dtype=torch.float64)
    return z * torch.linspace(0.1, 0.8, DIM, dtype=torch.float64) + 0.3


def noised(prior: Prior, x: Tensor, tau: float, seed: int = 7) -> tuple[Tensor, Tensor]:
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).to(x)
    alpha, sigma = prior.noising.alpha(tau), prior.noising.sigma(tau)
    return alpha * x + sigma * noise, noise


def measured(prior: Prior, x: Tensor, tau: float, part: float = 1.0) -> tuple[float, float]:
    """Return E‖ε - part·ε̂‖²/d over new rows, and its error."""
    y, noise = noised(prior, x, tau)
    errors = (noise - part * prior.noise(y, tau)).square().mean(dim=1)
    return float(errors.mean()), float(errors.std()) / math.sqrt(len(x))


FRAMES: dict[str, Frame | PCA] = {"pixels": IdentityFrame(), "principal": PCA(), "leading": PCA(3)}


@cache
def prior_of(frame: str, order: int) -> HermitePrior:
    return fit_prior(skewed(), order=order, frame=FRAMES[frame])


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("order", [2, 5])
@pytest.mark.parametrize("tau", TAUS)
def test_the_expected_error_is_that_on_new_rows(frame: str, order: int, tau: float) -> None:
    prior = prior_of(frame, order)
    found, error = measured(prior, skewed(seed=1), tau)
    # The rows that were fitted have an error of the same size.
    assert float(prior.expected_error(tau)) == pytest.approx(
        found, abs=5 * math.sqrt(2) * error + 1e-3
    )


@pytest.mark.parametrize("tau", TAUS)
def test_the_error_without_folds_is_that_of_the_data(tau: float) -> None:
    prior = fit_prior(skewed(), order=5, frame=IdentityFrame(), ridge=0.01)
    found, error = measured(prior, skewed(seed=1), tau)
    assert float(prior.expected_error(tau)) == pytest.approx(
        found, abs=5 * math.sqrt(2) * error + 1e-3
    )


@pytest.mark.parametrize("tau", TAUS)
def test_the_error_of_a_mixture(tau: float) -> None:
    prior = fit_mixture(skewed(), components=3)
    found, error = measured(prior, skewed(seed=1), tau)
    # It is measured on a thousand rows.
    assert float(prior.expected_error(tau)) == pytest.approx(
        found, abs=5 * math.sqrt(5) * error + 1e-3
    )


@pytest.mark.parametrize("tau", [0.03, 0.06, 0.1])
@pytest.mark.parametrize("ridge", [None, 0.001])
def test_the_gain_of_the_polynomials_is_the_expected_one(tau: float, ridge: float | None) -> None:
    """The errors of two orders on the same rows and noise, whose difference is far less noisy."""
    n = 20_000
    train, test = skewed(n), skewed(n, seed=1)
    two, five = (
        fit_prior(train, order=order, frame=IdentityFrame(), ridge=ridge) for order in (2, 5)
    )
    y, noise = noised(two, test, tau)
    errors = [(noise - p.noise(y, tau)).square().mean(dim=1) for p in (two, five)]
    gain = errors[0] - errors[1]
    said = float(two.expected_error(tau) - five.expected_error(tau))
    error = float(gain.std()) * math.sqrt(2 / n)
    assert said == pytest.approx(float(gain.mean()), abs=4 * error)
    assert said > 25 * error, "or nothing would be tested"


def test_a_higher_order_explains_more() -> None:
    tau = torch.tensor([0.1, 0.2, 0.3])
    two, five = prior_of("pixels", 2), prior_of("pixels", 5)
    assert bool((five.expected_error(tau) < two.expected_error(tau)).all())


def test_the_error_of_a_gaussian_in_closed_form() -> None:
    prior = fit_prior(normal(), order=2, frame=IdentityFrame(), ridge=0.0)
    variance = normal().var(dim=0, correction=0)
    for tau in TAUS:
        alpha, sigma = float(prior.noising.alpha(tau)), float(prior.noising.sigma(tau))
        signal = alpha**2 * variance
        expected = float((signal / (signal + sigma**2)).mean())
        assert float(prior.expected_error(tau)) == pytest.approx(expected, abs=2e-4)


def test_the_error_is_one_without_noise_and_zero_at_the_end() -> None:
    rule = ByError(half=0.1, sharpness=3.0)
    for frame in FRAMES:
        prior = prior_of(frame, 5)
        assert float(prior.expected_error(0.0)) == pytest.approx(1, abs=1e-6)
        assert float(prior.gate(0.0, rule)) < 0.01
        assert float(prior.output_scale(0.0, rule)) == pytest.approx(1, abs=1e-6)
        assert float(prior.expected_error(1.0)) < 1e-3
        assert float(prior.gate(1.0, rule)) > 0.99
        assert float(prior.output_scale(1.0, rule)) < 0.05


@pytest.mark.parametrize("frame", FRAMES)
def test_the_gate_opens_with_noise(frame: str) -> None:
    prior = prior_of(frame, 5)
    tau = torch.linspace(0, 1, 200)
    opening = prior.gate(tau)
    assert opening.shape == (200,)
    assert bool(((opening >= 0) & (opening <= 1)).all())
    assert bool((opening.diff() > -1e-3).all())
    for i in (0, 50, 199):
        assert float(prior.gate(float(tau[i]))) == pytest.approx(float(opening[i]), abs=1e-6)


@pytest.mark.parametrize("tau", [0.05, 0.15, 0.3, 0.6])
@pytest.mark.parametrize("rule", [ByError(0.3, 2.0), ByError(0.1, 8.0)])
def test_the_output_scale_is_the_deviation_of_the_residual(tau: float, rule: ByError) -> None:
    prior = fit_prior(normal(), order=2)
    opening = float(prior.gate(tau, rule))
    found, error = measured(prior, normal(seed=1), tau, part=opening)
    expected = float(prior.output_scale(tau, rule)) ** 2
    assert expected == pytest.approx(found, abs=5 * math.sqrt(2) * error + 1e-3)


def test_the_error_of_predicting_no_noise() -> None:
    table = Logarithmic(first=1e-4, last=5.0)
    error = unit_error(table)
    assert error(torch.linspace(0, 1, 5)).exp().tolist() == [1.0] * 5


def test_bad_arguments() -> None:
    prior = prior_of("pixels", 2)
    for part in (prior.expected_error, prior.gate, prior.output_scale):
        with pytest.raises(ValueError, match=r"tau must be in \[0, 1\], but tau = 1.5"):
            part(1.5)
