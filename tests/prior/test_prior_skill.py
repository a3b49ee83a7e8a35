"""What a prior says it is worth, against what it is worth on new rows."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import PCA, HermitePrior, IdentityFrame, Logarithmic, Prior, fit_mixture, fit_prior
from oism.basis import Frame
from oism.prior.skill import gate, output_scale, unknown_error

DIM, ROWS = 6, 4000
TAUS = (0.02, 0.1, 0.2, 0.4, 0.7)


def skewed(n: int = ROWS, seed: int = 0) -> Tensor:
    """Return independent columns of a skewed law, of several sizes."""
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
    assert float(prior.skill(tau)) == pytest.approx(found, abs=5 * math.sqrt(2) * error + 1e-3)


@pytest.mark.parametrize("tau", TAUS)
def test_the_error_without_folds_is_that_of_the_data(tau: float) -> None:
    prior = fit_prior(skewed(), order=5, frame=IdentityFrame(), ridge=0.01)
    found, error = measured(prior, skewed(seed=1), tau)
    assert float(prior.skill(tau)) == pytest.approx(found, abs=5 * math.sqrt(2) * error + 1e-3)


@pytest.mark.parametrize("tau", TAUS)
def test_the_error_of_a_mixture(tau: float) -> None:
    prior = fit_mixture(skewed(), components=3)
    found, error = measured(prior, skewed(seed=1), tau)
    # It is measured on a thousand rows.
    assert float(prior.skill(tau)) == pytest.approx(found, abs=5 * math.sqrt(5) * error + 1e-3)


@pytest.mark.parametrize("tau", [0.03, 0.06, 0.1])
@pytest.mark.parametrize("ridge", [None, 0.001])
def test_what_the_polynomials_explain_is_what_they_say(tau: float, ridge: float | None) -> None:
    """The errors of two orders on the same rows and noise, whose difference is far less noisy."""
    n = 20_000
    train, test = skewed(n), skewed(n, seed=1)
    two, five = (
        fit_prior(train, order=order, frame=IdentityFrame(), ridge=ridge) for order in (2, 5)
    )
    y, noise = noised(two, test, tau)
    errors = [(noise - p.noise(y, tau)).square().mean(dim=1) for p in (two, five)]
    gain = errors[0] - errors[1]
    said = float(two.skill(tau) - five.skill(tau))
    error = float(gain.std()) * math.sqrt(2 / n)
    assert said == pytest.approx(float(gain.mean()), abs=4 * error)
    assert said > 25 * error, "or nothing would be tested"


def test_a_higher_order_explains_more() -> None:
    tau = torch.tensor([0.1, 0.2, 0.3])
    two, five = prior_of("pixels", 2), prior_of("pixels", 5)
    assert bool((five.skill(tau) < two.skill(tau)).all())


def test_the_error_of_a_gaussian_in_closed_form() -> None:
    prior = fit_prior(normal(), order=2, frame=IdentityFrame(), ridge=0.0)
    variance = normal().var(dim=0, correction=0)
    for tau in TAUS:
        alpha, sigma = float(prior.noising.alpha(tau)), float(prior.noising.sigma(tau))
        signal = alpha**2 * variance
        expected = float((signal / (signal + sigma**2)).mean())
        assert float(prior.skill(tau)) == pytest.approx(expected, abs=2e-4)


def test_without_noise_nothing_is_known_of_it_and_in_the_end_everything() -> None:
    for frame in FRAMES:
        prior = prior_of(frame, 5)
        assert float(prior.skill(0.0)) == pytest.approx(1, abs=1e-6)
        assert float(prior.gate(0.0)) == pytest.approx(0, abs=1e-6)
        assert float(prior.output_scale(0.0)) == pytest.approx(1, abs=1e-6)
        assert float(prior.skill(1.0)) < 1e-3
        assert float(prior.gate(1.0)) > 0.99
        assert float(prior.output_scale(1.0)) < 0.05


@pytest.mark.parametrize("frame", FRAMES)
def test_the_gate_opens_with_noise(frame: str) -> None:
    prior = prior_of(frame, 5)
    tau = torch.linspace(0, 1, 200)
    opening = prior.gate(tau)
    assert opening.shape == (200,)
    assert bool(((opening >= 0) & (opening <= 1)).all())
    assert bool((opening.diff() > -1e-3).all())
    assert bool((prior.gate(tau, sharpness=2.0) >= opening).all()), "less sharp is wider"
    for i in (0, 50, 199):
        assert float(prior.gate(float(tau[i]))) == pytest.approx(float(opening[i]), abs=1e-6)


@pytest.mark.parametrize("tau", [0.05, 0.15, 0.3, 0.6])
@pytest.mark.parametrize("sharpness", [2.0, 8.0])
def test_the_output_scale_is_what_the_gated_prior_leaves(tau: float, sharpness: float) -> None:
    prior = fit_prior(normal(), order=2)
    opening = float(prior.gate(tau, sharpness))
    assert opening == pytest.approx((1 - float(prior.skill(tau))) ** sharpness)
    found, error = measured(prior, normal(seed=1), tau, part=opening)
    expected = float(prior.output_scale(tau, sharpness)) ** 2
    assert expected == pytest.approx(found, abs=5 * math.sqrt(2) * error + 1e-3)


@given(error=st.floats(0, 1), sharpness=st.floats(0.1, 20))
def test_gates_and_scales_stay_in_range(error: float, sharpness: float) -> None:
    m = torch.tensor(error, dtype=torch.float64)
    g, c = float(gate(m, sharpness)), float(output_scale(m, sharpness))
    assert 0 <= g <= 1
    assert 0 <= c <= 1
    assert c**2 == pytest.approx(1 - 2 * g * (1 - error) + g**2 * (1 - error), abs=1e-12)
    assert c**2 >= error - 1e-12, "nothing beats the prior itself"


def test_a_prior_of_which_nothing_is_known() -> None:
    table = Logarithmic(first=1e-4, last=5.0)
    error = unknown_error(table)
    assert error(torch.linspace(0, 1, 5)).exp().tolist() == [1.0] * 5


def test_bad_arguments() -> None:
    prior = prior_of("pixels", 2)
    for part in (prior.skill, prior.gate, prior.output_scale):
        with pytest.raises(ValueError, match=r"tau must be in \[0, 1\], but tau = 1.5"):
            part(1.5)
    for part in (prior.gate, prior.output_scale):
        with pytest.raises(ValueError, match="sharpness must be a positive finite number, got -1"):
            part(0.5, sharpness=-1.0)
