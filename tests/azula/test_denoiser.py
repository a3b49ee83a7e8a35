"""azula's samplers on models of the library, and its denoisers as predictors: Gaussian oracles."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from azula.denoise import GaussianDenoiser, KarrasDenoiser
from azula.linalg.covariance import DiagonalCovariance
from azula.noise import CosineSchedule, DecaySchedule, RectifiedSchedule, VESchedule, VPSchedule
from azula.sample import DDIMSampler, DDPMSampler, HeunSampler
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oism
from oism import Combined, Diffusion, VariancePreserving, fit_prior
from oism.azula import ClockSchedule, DenoiserPredictor, ModelDenoiser
from oism.images import Prior
from oism.process import Noising, OrnsteinUhlenbeck

MEAN = torch.tensor([0.5, -0.3, 0.1], dtype=torch.float64)
VARIANCE = torch.tensor([1.0, 0.09, 0.25], dtype=torch.float64)
SCHEDULES = [VPSchedule(), CosineSchedule(), RectifiedSchedule(), DecaySchedule(), VESchedule()]


@pytest.fixture(scope="module")
def prior() -> Prior:
    z = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return fit_prior(MEAN + VARIANCE.sqrt() * z, order=2)


class Slope(torch.nn.Module):
    """A network that depends on its time."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.weight * t.reshape(-1, 1) * x


def gaussian(schedule: object) -> GaussianDenoiser:
    return GaussianDenoiser(MEAN, DiagonalCovariance(VARIANCE), schedule)


def exact_noise(x: Tensor, tau: Tensor) -> Tensor:
    noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    alpha, sigma = noising.alpha(tau)[:, None], noising.sigma(tau)[:, None]
    return sigma * (x - alpha * MEAN) / (alpha**2 * VARIANCE + sigma**2)


def variances_after(steps: int, eta: float) -> Tensor:
    """The variances that DDIM reaches from N(0, I) along coordinates of a Gaussian.

    Both its mean and its noise are linear, so they follow from one step to the next:
    D = m + k(x - αm) with k = αc/(α²c + σ²), and x_s = α_s D + r(x - αD) + noise.
    """
    t = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
    alpha, sigma = ClockSchedule(VariancePreserving())(t)
    now = alpha[0] ** 2 + sigma[0] ** 2 * torch.ones(3, dtype=torch.float64)
    for (a, b), (c, d) in itertools.pairwise(zip(alpha, sigma, strict=True)):
        fresh = eta * (1 - (a / c * d / b) ** 2)
        k = a * VARIANCE / (a**2 * VARIANCE + b**2)
        slope = c * k + d * (1 - fresh).sqrt() / b * (1 - a * k)
        now = slope**2 * now + d**2 * fresh
    return now


@pytest.mark.parametrize(("kind", "eta"), [(DDPMSampler, 1.0), (DDIMSampler, 0.0)])
@pytest.mark.parametrize("steps", [20, 100])
def test_samplers_of_azula_give_the_moments_of_a_prior(
    prior: Prior, kind: type, eta: float, steps: int
) -> None:
    torch.manual_seed(1)  # azula draws from the global generator
    sampler = kind(ModelDenoiser(prior), steps=steps, silent=True)
    x = sampler(sampler.init((20_000, 3)))
    error = (x.var(dim=0) / variances_after(steps, eta) - 1).abs().max()
    assert error < 0.04, "standard error 0.01 of the samples, and as much of the prior"
    wrong = variances_after(steps, 1 - eta)
    assert (x.var(dim=0) / wrong - 1).abs().max() > 0.04, "the other sampler has another variance"


def test_a_sampler_of_second_order_gives_the_gaussian_itself(prior: Prior) -> None:
    torch.manual_seed(1)
    sampler = HeunSampler(ModelDenoiser(prior), steps=100, silent=True)
    x = sampler(sampler.init((20_000, 3)))
    assert (x.mean(dim=0) - MEAN).abs().max() < 0.03
    assert (x.var(dim=0) / VARIANCE - 1).abs().max() < 0.04


@given(tau=st.floats(1e-5, 1.0), schedule=st.sampled_from(SCHEDULES))
@settings(max_examples=60, deadline=None)
def test_a_denoiser_of_any_schedule_predicts_the_noise_of_its_gaussian(
    tau: float, schedule: object
) -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    times = torch.full((4,), tau, dtype=torch.float64)  # azula's Gaussian takes one time only
    found = DenoiserPredictor(gaussian(schedule))(x, times[0])
    ends = schedule(torch.tensor([0.0, 1.0], dtype=torch.float64))  # type: ignore[operator]
    noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    level = noising.alpha(times[:1]) / noising.sigma(times[:1])
    lowest, highest = (ends[0] / ends[1]).flip(0)
    if lowest <= level <= highest:
        assert torch.allclose(found, exact_noise(x, times), rtol=1e-5, atol=1e-6)
    else:
        assert found.isfinite().all()


def test_denoisers_take_one_time_per_row(prior: Prior) -> None:
    x, t = torch.randn(3, 3), torch.tensor([0.1, 0.5, 0.9])
    together = ModelDenoiser(prior)(x, t).mean
    apart = [ModelDenoiser(prior)(x[i : i + 1], t[i]).mean for i in range(3)]
    assert torch.allclose(together, torch.cat(apart), atol=1e-6)
    predictor = DenoiserPredictor(KarrasDenoiser(Slope(), VPSchedule()))
    alone = torch.cat([predictor(x[i : i + 1].double(), t[i : i + 1].double()) for i in range(3)])
    assert torch.allclose(predictor(x.double(), t.double()), alone)


def test_a_round_trip_is_the_prior(prior: Prior) -> None:
    x, tau = torch.randn(5, 3, dtype=torch.float64), torch.linspace(0.01, 0.99, 5).double()
    again = DenoiserPredictor(ModelDenoiser(prior))
    assert torch.allclose(again(x, tau), prior.noise(x, tau), atol=1e-7)


def test_a_denoiser_beside_a_prior_is_combined_stored_and_sampled(
    prior: Prior, tmp_path: Path
) -> None:
    model = Diffusion(Combined(DenoiserPredictor(ModelDenoiser(prior)), prior))
    model.save(tmp_path / "model")
    with pytest.raises(oism.storage.StorageError, match="'denoiser'"):
        oism.load(tmp_path / "model")
    again = oism.load(tmp_path / "model", given={"denoiser": ModelDenoiser(prior)})
    x = torch.randn(2, 3)
    assert torch.equal(again.noise(x, 0.4), model.noise(x, 0.4))
    assert model.sample(3, torch.Generator().manual_seed(0)).shape == (3, 3)


def test_mistakes_are_named(prior: Prior) -> None:
    with pytest.raises(TypeError, match="denoiser must be"):
        DenoiserPredictor(prior)
    with pytest.raises(TypeError, match="model must be"):
        ModelDenoiser(torch.nn.Identity())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="net must have the clock of the prior"):
        Combined(DenoiserPredictor(ModelDenoiser(prior), VariancePreserving(0.1, 10)), prior)
