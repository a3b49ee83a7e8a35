"""The scheduler under pipelines of diffusers: exact for Gaussians, linear in predictions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from diffusers import DDIMPipeline, DDPMPipeline, DDPMScheduler
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

from oism import fit_prior
from oism.basis import IdentityFrame
from oism.diffusers import OperatorPipeline, OperatorPrior, OperatorScheduler
from oism.diffusers._timesteps import Timesteps
from oism.flow import Flow, RungeKutta4
from oism.images import Prior
from oism.process import Logarithmic, OrnsteinUhlenbeck
from tests.diffusers.small import digits, digits_prior, normal, small_unet

BETAS = {"num_train_timesteps": 1000, "beta_end": 0.0195}  # ends within the clock of the priors
TABLE = Timesteps(BETAS)
PROCESS = OrnsteinUhlenbeck()
SCHEDULERS = ["DDPMScheduler", "DDIMScheduler", "DPMSolverMultistepScheduler", "PNDMScheduler"]


@pytest.fixture(scope="module")
def prior() -> Prior:
    return digits_prior()


class OfPrior(diffusers.ModelMixin, diffusers.ConfigMixin):  # type: ignore[misc]
    """A network of a pipeline that predicts what a prior does, in one of the three forms."""

    config_name = "config.json"

    def __init__(self, prior: Prior, prediction: str = "epsilon", factor: float = 1.0) -> None:
        super().__init__()
        self.register_to_config(sample_size=8, in_channels=1)
        self.source, self.prediction, self.factor = prior, prediction, factor
        self.seen: list[float] = []

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def forward(self, x: Tensor, timestep: Tensor) -> Any:
        self.seen.append(float(timestep))
        time = TABLE.time(torch.as_tensor(timestep))
        alpha, sigma = PROCESS.alpha(time).to(x), PROCESS.variance(time).sqrt().to(x)
        noise = self.factor * self.source.noise(x, self.source.clock.inverse(time))
        clean = (x - sigma * noise) / alpha
        forms = {"epsilon": noise, "v_prediction": alpha * noise - sigma * clean, "sample": clean}
        return SimpleNamespace(sample=forms[self.prediction])


def quiet(pipe: Any) -> Any:
    pipe.set_progress_bar_config(disable=True)
    return pipe


def images_of(pipe: Any, count: int = 3, **more: Any) -> Any:
    return pipe(count, torch.Generator().manual_seed(0), output_type="pt", **more).images


def flow_of(prior: Prior, noise: Tensor) -> Tensor:
    """The flow of a Gaussian prior from pure noise to the lowest timestep, by many small steps."""
    times = TABLE.time(torch.tensor([0.0, 999.0]))
    even = Logarithmic(first=float(times[0]), last=float(times[1]))
    flow = Flow(prior, clock=even, span=(float(even.inverse(float(times[0]))), even.horizon))
    return flow.pull(noise, method=RungeKutta4(200))


@pytest.mark.parametrize("steps", [1, 2, 5, 8])
@pytest.mark.parametrize("settings", [{}, {"solver_order": 3}, {"corrector": False}])
def test_a_gaussian_is_sampled_exactly_at_any_number_of_steps(
    steps: int, settings: dict[str, Any]
) -> None:
    """In the coordinates of the prior nothing moves: the oracle is a fine Runge-Kutta flow."""
    prior = digits_prior(frame=IdentityFrame())  # its directions have no rounding
    scheduler = OperatorScheduler(**BETAS, prior=prior, **settings)
    pipe = quiet(DDPMPipeline(OfPrior(prior), scheduler))
    noise = normal(3, 1, 8, 8).double()  # ε̂ is divided by α, which is 0.007 at the first step
    scheduler.set_timesteps(steps)
    x = noise
    for timestep in scheduler.timesteps:
        x = scheduler.step(pipe.unet(x, timestep).sample, timestep, x).prev_sample
    assert torch.allclose(x, flow_of(prior, noise), atol=2e-6)
    found = images_of(pipe, num_inference_steps=steps)
    assert torch.allclose(found, (x / 2 + 0.5).clamp(0, 1).float(), atol=1e-3)


def test_another_prior_is_not_exact(prior: Prior) -> None:
    """The test above can fail: the network of one prior, the coordinates of another."""
    other = fit_prior(255 - digits(), order=2)
    pipes = [
        quiet(DDPMPipeline(OfPrior(prior), OperatorScheduler(prior=p))) for p in (prior, other)
    ]
    first, second = (images_of(pipe, num_inference_steps=2) for pipe in pipes)
    assert (first - second).abs().max() > 0.02


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
def test_all_predictions_give_the_same_images(prior: Prior, prediction: str) -> None:
    unets = [OfPrior(prior, form, factor=0.9) for form in ("epsilon", prediction)]
    schedulers = [
        OperatorScheduler(**BETAS, prior=prior, prediction_type=form)
        for form in ("epsilon", prediction)
    ]
    first, second = (
        images_of(quiet(DDPMPipeline(*parts)), num_inference_steps=5)
        for parts in zip(unets, schedulers, strict=True)
    )
    assert torch.allclose(first, second, atol=2e-4)


@given(weight=st.floats(-2, 8), steps=st.integers(1, 6))
def test_a_step_is_affine_in_the_prediction(weight: float, steps: int) -> None:
    """So classifier-free guidance, e_0 + w(e_1 - e_0), needs nothing of the scheduler."""
    prior = fit_prior(normal(100, 1, 2, 2), order=2)
    x, predictions = normal(2, 1, 2, 2), normal(steps, 2, 2, 1, 2, 2, seed=1)

    def after(outputs: Tensor) -> Tensor:
        scheduler = OperatorScheduler(prior=prior)
        scheduler.set_timesteps(6)
        now = x.double()
        for output, timestep in zip(outputs, scheduler.timesteps, strict=False):
            now = scheduler.step(output.double(), timestep, now).prev_sample
        return now

    first, second = (after(predictions[:, i]) for i in (0, 1))
    guided = after(predictions[:, 0] + weight * (predictions[:, 1] - predictions[:, 0]))
    scale = float(first.abs().max() + second.abs().max())
    assert torch.allclose(guided, first + weight * (second - first), atol=1e-5 * scale)


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_the_settings_of_other_schedulers_are_taken(prior: Prior, kind: str) -> None:
    other = getattr(diffusers, kind)(
        beta_schedule="scaled_linear", beta_end=0.012, prediction_type="v_prediction"
    )
    found = OperatorScheduler.from_config(other.config, prior=prior, solver_order=3)
    assert found.config.prediction_type == "v_prediction"
    assert torch.allclose(found.alphas_cumprod, other.alphas_cumprod, atol=1e-6)
    back = DDPMScheduler.from_config(found.config)
    assert torch.allclose(back.alphas_cumprod, other.alphas_cumprod, atol=1e-6)


def test_settings_round_trip_and_the_prior_is_given_again(prior: Prior, tmp_path: Path) -> None:
    scheduler = OperatorScheduler(prior=prior, solver_order=3, trained_betas=[0.1, 0.2, 0.3])
    scheduler.save_pretrained(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["scheduler_config.json"]
    found = OperatorScheduler.from_pretrained(tmp_path)
    assert dict(found.config) | {"_use_default_values": []} == dict(scheduler.config) | {
        "_use_default_values": []
    }
    assert torch.equal(found.table.times, scheduler.table.times)
    with pytest.raises(ValueError, match="set_prior"):
        found.set_timesteps(4)
    found.set_prior(OperatorPrior(prior))
    found.set_timesteps(4)
    scheduler.set_timesteps(4)
    assert torch.equal(found.timesteps, scheduler.timesteps)


def test_noise_is_that_of_diffusers() -> None:
    x, noise, timesteps = digits(4) / 255.0, normal(4, 1, 8, 8), torch.tensor([0, 3, 500, 999])
    wanted = DDPMScheduler().add_noise(x, noise, timesteps)
    assert torch.allclose(OperatorScheduler().add_noise(x, noise, timesteps), wanted, atol=2e-5)
    one = OperatorScheduler().add_noise(x, noise, timesteps[2:3])
    assert torch.allclose(one[2], wanted[2], atol=2e-5)


def test_images_do_not_depend_on_the_pipeline(prior: Prior) -> None:
    """`DDIMPipeline` passes eta, and pipelines of latents scale their input."""
    unet, noise = small_unet(), normal(2, 1, 8, 8)
    with torch.no_grad():
        first = images_of(quiet(DDPMPipeline(unet, OperatorScheduler(prior=prior))), 2,
                          num_inference_steps=4)  # fmt: skip
        other = quiet(DDIMPipeline(unet, diffusers.DDIMScheduler()))
        other.scheduler = OperatorScheduler(prior=prior)
        images = other(2, torch.Generator().manual_seed(0), num_inference_steps=4, output_type="np")
        assert np.allclose(images.images, first.permute(0, 2, 3, 1).numpy(), atol=1e-6)
        scheduler = OperatorScheduler(prior=prior)
        scheduler.set_timesteps(4, "cpu")
        x = noise * scheduler.init_noise_sigma
        for timestep in scheduler.timesteps:
            output = unet(scheduler.scale_model_input(x, timestep), timestep).sample
            x = scheduler.step(output, timestep, x, return_dict=False)[0]
    assert torch.allclose((x / 2 + 0.5).clamp(0, 1), first, atol=1e-6)


def test_a_second_call_begins_again(prior: Prior) -> None:
    pipe = quiet(DDPMPipeline(small_unet(), OperatorScheduler(prior=prior)))
    first, second = (images_of(pipe, num_inference_steps=n) for n in (4, 4))
    assert torch.equal(first, second)


def test_noise_of_half_precision_is_moved_in_float32(prior: Prior) -> None:
    scheduler = OperatorScheduler(**BETAS, prior=prior)
    scheduler.set_timesteps(4, from_noise=False)
    noise = normal(64, 1, 8, 8).bfloat16()
    found = scheduler.start(noise)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, scheduler.start(noise.float()).bfloat16()), "rounded once"


class Copies(TorchFunctionMode):
    """Records the shapes of tensors that are copied from the CPU to another device."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is torch.Tensor.to and found.device != args[0].device:
            self.shapes.append(tuple(args[0].shape))
        return found


@pytest.mark.parametrize("settings", [{}, {"eta": 1.0}])
def test_directions_are_copied_to_a_device_once(prior: Prior, settings: dict[str, Any]) -> None:
    """The device "meta" has no values, and as a GPU it computes with tensors of its own only."""
    scheduler = OperatorScheduler(**BETAS, prior=prior, **settings)
    x = torch.empty(2, 1, 8, 8, device="meta")
    with Copies() as seen:
        for count in (4, 4, 5):
            scheduler.set_timesteps(count, "meta")
            scheduler.set_begin_index(0)  # otherwise the first timestep is read
            for timestep in scheduler.timesteps:
                x = scheduler.step(torch.empty_like(x), timestep, x).prev_sample
    assert x.device.type == "meta"
    assert seen.shapes.count((64, 64)) == 1
    assert scheduler.part is not None
    assert scheduler.part.mean.device.type == "cpu", "the prior stays where it is"


def test_samples_after_a_move_are_the_same(prior: Prior) -> None:
    """Here from a device to the same one, by its name; a new prior replaces the moved one."""
    scheduler, noise = OperatorScheduler(**BETAS, prior=prior), normal(2, 1, 8, 8)
    other = fit_prior(255 - digits(), order=2)

    def started(device: str | None) -> Tensor:
        scheduler.set_timesteps(4, device, from_noise=False)
        found: Tensor = scheduler.start(noise)
        return found

    first = started(None)
    assert torch.equal(started("cpu"), first)
    scheduler.set_prior(other)
    assert not torch.allclose(started("cpu"), first, atol=1e-2)


def test_timesteps_on_a_device_are_not_read() -> None:
    """The device "meta" has no values: reading one raises."""
    table = Timesteps(BETAS)
    table.times = table.times.to("meta")
    for shape in ((), (3,)):
        timestep = torch.empty(shape, dtype=torch.float64, device="meta")
        assert table.time(timestep).shape == shape
        assert table.timestep(table.time(timestep)).shape == shape


def test_a_pipeline_may_begin_in_the_middle(prior: Prior) -> None:
    """As image-to-image pipelines do, with images that are noised to a timestep."""
    ends = []
    for sets in (True, False):
        scheduler = OperatorScheduler(**BETAS, prior=prior)
        scheduler.set_timesteps(6)
        later = scheduler.timesteps[3:]
        if sets:
            scheduler.set_begin_index(3)
        x = scheduler.add_noise(digits(2) / 127.5 - 1, normal(2, 1, 8, 8), later[:1])
        for timestep in later:
            x = scheduler.step(OfPrior(prior)(x, timestep).sample, timestep, x).prev_sample
        assert scheduler.step_index == 6
        ends.append(x)
    assert torch.equal(*ends)


def test_fractional_timesteps_are_given_to_the_network(prior: Prior) -> None:
    unet = OfPrior(prior)
    images_of(
        quiet(DDPMPipeline(unet, OperatorScheduler(**BETAS, prior=prior))), num_inference_steps=5
    )
    assert len(unet.seen) == 5
    assert unet.seen == sorted(unet.seen, reverse=True)
    assert unet.seen[0] == 999
    assert unet.seen[-1] >= 0


def test_mistakes_are_named(prior: Prior) -> None:
    with pytest.raises(ValueError, match="prediction_type must be one of"):
        OperatorScheduler(prediction_type="flow")
    with pytest.raises(ValueError, match="thresholding must be False"):
        OperatorScheduler(thresholding=True)
    with pytest.raises(TypeError, match="prior must be"):
        OperatorScheduler(prior="prior")
    with pytest.raises(ValueError, match="num_inference_steps must be"):
        OperatorScheduler(prior=prior).set_timesteps(0)
    with pytest.raises(ValueError, match="order must be 1 to 3"):
        OperatorScheduler(solver_order=9)
    with pytest.raises(TypeError, match="scheduler must be"):
        OperatorPipeline(small_unet(), DDPMScheduler())
