"""Networks of diffusers as predictors: noise levels, predictions, storage, training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from diffusers import DDIMScheduler, DDPMScheduler
from hypothesis import given, settings
from hypothesis import strategies as st

import oism
from oism import Combined, Diffusion, VariancePreserving, train
from oism.diffusers import UNetPredictor, predictor
from oism.diffusers._timesteps import Timesteps, schedule_for, schedule_of
from oism.flow import Pixels, TensorSpec
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.process import Noising, OrnsteinUhlenbeck
from oism.storage import StorageError
from oism.training import TrainingConfig
from tests.diffusers.small import digits, digits_prior, normal, small_unet

NOISING = Noising(OrnsteinUhlenbeck(), VariancePreserving())
SCHEDULES: list[dict[str, Any]] = [
    {},
    {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012},
    {"beta_schedule": "squaredcos_cap_v2"},
    {"num_train_timesteps": 50, "beta_end": 0.3},
    {"trained_betas": [0.1, 0.2, 0.3]},
]
SCHEDULERS = [
    "DDPMScheduler",
    "DDIMScheduler",
    "PNDMScheduler",
    "DPMSolverMultistepScheduler",
    "UniPCMultistepScheduler",
    "DEISMultistepScheduler",
    "EulerDiscreteScheduler",
]


def log_snr(time: torch.Tensor) -> torch.Tensor:
    return -torch.log(torch.expm1(2 * time))


@pytest.mark.parametrize("settings", SCHEDULES)
@pytest.mark.parametrize("kind", SCHEDULERS)
def test_timesteps_have_the_noise_of_their_scheduler(kind: str, settings: dict[str, Any]) -> None:
    scheduler = getattr(diffusers, kind)(**settings)
    table = Timesteps(schedule_of(scheduler))
    wanted = scheduler.alphas_cumprod.double()
    found = torch.exp(-2 * table.time(torch.arange(len(wanted))))
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-7), "diffusers' are in float32"


def test_any_scheduler_with_its_own_noise_is_read() -> None:
    scheduler = DDPMScheduler()
    scheduler.alphas_cumprod = torch.tensor([0.9, 0.5, 0.2])
    assert schedule_of(scheduler)["num_train_timesteps"] == 3
    found = torch.exp(-2 * Timesteps(schedule_of(scheduler)).time(torch.arange(3)))
    assert torch.allclose(found, torch.tensor([0.9, 0.5, 0.2]).double())


def test_a_last_timestep_without_signal_is_left_out() -> None:
    table = Timesteps(schedule_of(DDPMScheduler(rescale_betas_zero_snr=True)))
    assert table.last == 998
    assert table.timestep(torch.tensor(1e3)) == 998


@given(st.floats(-1, 999))
@settings(max_examples=100, deadline=None)
def test_fractional_timesteps_and_times_are_inverse(timestep: float) -> None:
    table = Timesteps({"num_train_timesteps": 1000})
    given_one = torch.tensor(timestep, dtype=torch.float64)
    assert torch.allclose(table.timestep(table.time(given_one)), given_one, atol=1e-9)


@pytest.mark.parametrize("count", [1000, 10_000])
def test_the_default_clock_is_the_limit_of_linear_betas(count: int) -> None:
    """From 0.1/T to 20/T they become VariancePreserving(): the difference, Σβ²/2, is 67/T."""
    table = Timesteps(
        {"num_train_timesteps": count, "beta_start": 0.1 / count, "beta_end": 20 / count}
    )
    timesteps = torch.arange(count // 50, count, 7)
    tau = (timesteps.double() + 1) / count
    wanted = NOISING.log_snr(tau)
    assert torch.allclose(log_snr(table.time(timesteps)), wanted, rtol=0, atol=68 / count)


@pytest.mark.parametrize("clock", [VariancePreserving(), VariancePreserving(0.2, 10.0)])
def test_a_schedule_for_a_clock_has_its_noise(clock: VariancePreserving) -> None:
    table, tau = Timesteps(schedule_for(clock)), torch.arange(1, 1001).double() / 1000
    assert torch.allclose(table.time(torch.arange(1000)), clock.time(tau), rtol=1e-12)
    float32 = DDPMScheduler(**schedule_for(clock)).alphas_cumprod.double()
    assert torch.allclose(float32, torch.exp(-2 * clock.time(tau)), atol=1e-5)


def taus_of(net: UNetPredictor, timesteps: torch.Tensor) -> torch.Tensor:
    return net.clock.inverse(net.timesteps.time(timesteps))


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize("betas", ["linear", "squaredcos_cap_v2"])
def test_predictions_at_timesteps_are_those_of_diffusers(prediction: str, betas: str) -> None:
    """The oracle is the denoised image of DDIMScheduler.step."""
    unet = small_unet()
    scheduler = DDIMScheduler(
        prediction_type=prediction, beta_schedule=betas, clip_sample=False, set_alpha_to_one=False
    )
    net, x = predictor(unet, scheduler), normal(1, 1, 8, 8)
    scheduler.set_timesteps(1000)
    for j in (3, 250, 700, 950):
        cumulative = scheduler.alphas_cumprod[j]
        with torch.no_grad():
            output = unet(x, j).sample
            clean = scheduler.step(output, j, x).pred_original_sample
            found = net(x, taus_of(net, torch.tensor([j])))
        wanted = (x - cumulative.sqrt() * clean) / (1 - cumulative).sqrt()
        assert torch.allclose(found, wanted, rtol=1e-3, atol=2e-3 if j == 3 else 2e-4), j


@torch.no_grad()
def test_between_timesteps_the_prediction_is_continuous() -> None:
    net, x = predictor(small_unet(), DDPMScheduler()), normal(1, 1, 8, 8)
    at = [net(x, taus_of(net, torch.tensor([j]))) for j in (500.0, 500.5, 501.0)]
    assert not torch.equal(at[0], at[2])
    assert torch.allclose(at[1], (at[0] + at[2]) / 2, atol=0.2 * float((at[2] - at[0]).abs().max()))


@torch.no_grad()
def test_levels_outside_of_the_timesteps_have_the_nearest_prediction() -> None:
    unet, x = small_unet(), normal(1, 1, 8, 8)
    net = predictor(unet, DDPMScheduler())
    assert torch.equal(net(x, torch.tensor([1e-5])), unet(x, torch.tensor([0.0])).sample)
    cut = predictor(unet, DDPMScheduler(num_train_timesteps=500))
    assert torch.equal(cut(x, torch.ones(1)), unet(x, torch.tensor([499.0])).sample)
    assert net.first == pytest.approx(float(NOISING.tau_of_log_snr(9.2102)), rel=1e-3)
    wider = predictor(unet, DDPMScheduler(), lowest=-1.0)
    assert not torch.equal(wider(x, torch.tensor([1e-4])), net(x, torch.tensor([1e-4])))
    assert wider.first == 1e-5


@torch.no_grad()
def test_of_a_network_with_variances_the_noise_is_taken() -> None:
    unet, x = small_unet(out_channels=2), normal(2, 1, 8, 8)
    net = predictor(unet, DDPMScheduler(variance_type="learned_range"))
    found = net(x, taus_of(net, torch.tensor([400, 400])))
    assert torch.allclose(found, unet(x, 400).sample[:, :1], atol=1e-5)


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_a_file_holds_network_schedule_and_prediction(prediction: str, tmp_path: Path) -> None:
    scheduler = DDPMScheduler(prediction_type=prediction, beta_schedule="scaled_linear")
    prior = digits_prior()
    model = Diffusion(Combined(predictor(small_unet(), scheduler), prior))
    model.informed.share.fill_(0.5)  # type: ignore[union-attr, operator]
    state = torch.random.get_rng_state()
    model.save(tmp_path / "model")
    again = oism.load(tmp_path / "model")
    assert torch.equal(torch.random.get_rng_state(), state)
    x, tau = normal(3, 1, 8, 8), torch.tensor([0.01, 0.5, 0.99])
    assert torch.equal(again.noise(x, tau), model.noise(x, tau))
    assert again.net.to_config() == model.net.to_config()  # type: ignore[operator]
    model.save(tmp_path / "twice")
    assert (tmp_path / "twice").read_bytes() == (tmp_path / "model").read_bytes()


def test_a_share_is_calibrated_and_bits_are_finite() -> None:
    prior, unet = digits_prior(), small_unet()
    combined = Combined(predictor(unet, DDPMScheduler()), prior)
    loss = DenoisingScoreMatching(UniformLogSNR(prior.noising))
    x = prior.prepare(digits(100), torch.Generator().manual_seed(0))
    tau = loss.levels.draw(len(x), generator=torch.Generator().manual_seed(1))
    noise = normal(*x.shape, seed=2)
    combined.calibrate([(loss.noised(x, tau, noise), tau, noise)])
    assert float(combined.share.max()) < 0.5, "random weights predict little"
    bits = Diffusion(combined).bits_per_dim(digits(3))
    assert bits.shape == (3,)
    assert bits.isfinite().all()


def test_a_network_of_diffusers_is_trained(tmp_path: Path) -> None:
    unet = small_unet()
    before = {name: part.clone() for name, part in unet.state_dict().items()}
    net = predictor(unet, DDPMScheduler(), clock=VariancePreserving(0.1, 10.0), lowest=-1.0)
    config = TrainingConfig(steps=6, batch=16, rate=1e-2, warmup=0, decay=0.0, sample_every=0)
    model = train(net, digits(64), tmp_path / "run", config)
    assert model.clock == net.clock, "a network with a clock is trained on its noise levels"
    assert any(not torch.equal(part, before[name]) for name, part in unet.state_dict().items())
    again = oism.load(tmp_path / "run")
    x = normal(2, 1, 8, 8)
    assert torch.equal(again.noise(x, 0.3), model.noise(x, 0.3))


def test_mistakes_are_named() -> None:
    unet, scheduler = small_unet(), DDPMScheduler()
    cases: list[tuple[str, Any, Any]] = [
        ("unet must be", torch.nn.Identity(), scheduler),
        ("without classes", small_unet(num_class_embeds=10), scheduler),
        ("by position", small_unet(time_embedding_type="fourier"), scheduler),
        ("as many channels", small_unet(out_channels=3), scheduler),
        ("alphas_cumprod", unet, diffusers.FlowMatchEulerDiscreteScheduler()),
        ("prediction type", unet, diffusers.EulerDiscreteScheduler(prediction_type="flow")),
    ]
    for message, one, other in cases:
        with pytest.raises((TypeError, ValueError), match=message):
            predictor(one, other)
    with pytest.raises(ValueError, match="lowest must be"):
        predictor(unet, scheduler, lowest=1.0)
    still = DDPMScheduler(trained_betas=[0.1, 0.0, 0.1])
    with pytest.raises(ValueError, match="noise that increases"):
        predictor(unet, still)
    slow = predictor(unet, scheduler, clock=VariancePreserving(0.1, 10.0))
    with pytest.raises(ValueError, match="net must have the clock of the prior"):
        Combined(slow, digits_prior())
    with pytest.raises(ValueError, match="predictor must have the clock of the spec"):
        Diffusion(slow, TensorSpec((1, 8, 8), VariancePreserving(), Pixels()))


def test_a_damaged_description_is_an_error(tmp_path: Path) -> None:
    net = predictor(small_unet(), DDPMScheduler())
    described, tensors = oism.storage.describe(net)
    for name, value in (("prediction", "both"), ("lowest", 3.0), ("network", {"layers": 1})):
        changed = {**described, "config": {**described["config"], name: value}}
        with pytest.raises(StorageError, match="cannot be built"):
            oism.storage.restore(changed, tensors)


def fresh(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_library_does_not_import_diffusers_and_names_the_extra(tmp_path: Path) -> None:
    predictor(small_unet(), DDPMScheduler())
    oism.storage.save(predictor(small_unet(), DDPMScheduler()), tmp_path / "net")
    ended = fresh(
        "import sys, oism\n"
        "[getattr(oism, name) for name in oism.__all__]\n"
        "assert 'diffusers' not in sys.modules\n"
        "sys.modules['diffusers'] = None\n"
        f"oism.load({str(tmp_path / 'net')!r})"
    )
    assert ended.returncode != 0
    assert "oism.diffusers needs diffusers: pip install 'oism[diffusers]'" in ended.stderr


@pytest.mark.slow
def test_a_file_loads_where_nothing_is_imported(tmp_path: Path) -> None:
    oism.storage.save(predictor(small_unet(), DDPMScheduler()), tmp_path / "net")
    ended = fresh(f"import oism; print(oism.load({str(tmp_path / 'net')!r}).shape)")
    assert ended.stdout.strip() == "(1, 8, 8)", ended.stderr
