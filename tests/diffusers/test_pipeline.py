"""Pipelines with a prior: folders, the Hub's rules for code, exported models, statistics."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DDIMScheduler, DDPMPipeline, DDPMScheduler, DiffusionPipeline
from diffusers.pipelines.pipeline_loading_utils import _get_custom_components_and_folders
from torch import Tensor

import oism
from oism import Combined, Diffusion, VariancePreserving, fit_mixture, fit_prior
from oism.diffusers import (
    OperatorNetwork,
    OperatorPipeline,
    OperatorPrior,
    OperatorScheduler,
    pipeline,
    predictor,
    read_model,
)
from oism.flow import Pixels, TensorSpec
from oism.images import GaussianPart, Prior
from oism.nn import unet_for
from oism.sampling import History, Polynomial, Prediction, ResidualStatistics, Span
from oism.storage import StorageError
from tests.diffusers.small import digits, digits_prior, normal, small_unet


@pytest.fixture(scope="module")
def prior() -> Prior:
    return digits_prior()


def quiet(pipe: Any) -> Any:
    pipe.set_progress_bar_config(disable=True)
    return pipe


def loaded(folder: Path) -> Any:
    return quiet(DiffusionPipeline.from_pretrained(folder, trust_remote_code=True))


def images_of(pipe: Any, count: int = 3, **more: Any) -> Tensor:
    source = torch.Generator().manual_seed(0)
    found: Tensor = pipe(count, source, output_type="pt", **more).images
    return found


def library_model(kind: str, prior: Prior) -> Diffusion:
    """Models of the library with random weights and shares."""
    torch.manual_seed(0)
    if kind == "DDPMpp":
        net: Any = unet_for(prior.shape, width=8)
        for part in net.parameters():
            torch.nn.init.normal_(part, std=0.1)
    else:
        net = predictor(small_unet(), DDIMScheduler(prediction_type="v_prediction"))
    if kind == "alone":
        spec = TensorSpec((1, 8, 8), VariancePreserving(), Pixels())
        return Diffusion(net, spec, first=net.first).eval()
    combined = Combined(net, prior)
    combined.share.copy_(torch.linspace(1, 0, len(combined.share)))
    return Diffusion(combined).eval()


def sampled(model: Diffusion, part: GaussianPart, noise: Tensor, evaluations: int) -> Tensor:
    """The library's own loop, without any part of a pipeline."""
    ends = torch.tensor([model.clock.horizon, model.first], dtype=torch.float64)
    span = Span(*(model.noising.log_snr(ends) / 2).tolist())

    def denoiser(x: Tensor, level: Tensor) -> Tensor:
        return model.denoise(x, model.noising.tau_of_log_snr(2 * level))

    return Polynomial().plan(part, span, evaluations).sample(denoiser, noise, progress=False)


@pytest.mark.parametrize("kind", ["DDPMpp", "UNet2DModel", "alone"])
def test_an_exported_model_gives_the_images_of_the_library(
    prior: Prior, kind: str, tmp_path: Path
) -> None:
    model = library_model(kind, prior)
    pipeline(model).save_pretrained(tmp_path)
    pipe = loaded(tmp_path)
    part = GaussianPart.isotropic(64, 0.0) if kind == "alone" else prior.gaussian_part()
    noise = normal(3, 1, 8, 8)
    wanted = (sampled(model, part, noise, 6) / 2 + 0.5).clamp(0, 1)
    found = images_of(pipe, num_inference_steps=6)
    assert float((found == 0.5).float().mean()) < 0.1, "images that are not all alike"
    assert torch.allclose(found, wanted, atol=1e-4)
    assert not torch.allclose(images_of(pipe, num_inference_steps=3), wanted, atol=1e-2)


def test_an_exported_folder_is_a_model_again(prior: Prior, tmp_path: Path) -> None:
    model, x = library_model("DDPMpp", prior), normal(2, 1, 8, 8)
    pipeline(model).save_pretrained(tmp_path)
    again = read_model(tmp_path)
    assert torch.equal(again.noise(x, 0.3), model.noise(x, 0.3))
    file = tmp_path / "unet" / "diffusion_pytorch_model.safetensors"
    assert torch.equal(oism.load(file).noise(x, 0.3), model.noise(x, 0.3))


def test_an_exported_network_has_timesteps_for_other_schedulers(prior: Prior) -> None:
    model, x = library_model("DDPMpp", prior), normal(2, 1, 8, 8)
    network = OperatorNetwork(model)
    for j in (0, 400, 999):
        wanted = model.noise(x, (j + 1) / 1000)
        assert torch.allclose(network(x, j).sample, wanted, atol=1e-6)
        assert torch.equal(network(x, torch.tensor([j, j]), return_dict=False)[0], network(x, j)[0])
    scheduler = DDPMScheduler(**network.timesteps.schedule)
    pipe = quiet(DDPMPipeline(network, scheduler))
    assert images_of(pipe, num_inference_steps=5).isfinite().all()


def test_a_folder_round_trips_to_the_bit(prior: Prior, tmp_path: Path) -> None:
    first = quiet(OperatorPipeline(small_unet(), OperatorScheduler(), OperatorPrior(prior)))
    first.measure(8, torch.Generator().manual_seed(0))
    first.save_pretrained(tmp_path / "first")
    second = loaded(tmp_path / "first")
    assert type(second) is OperatorPipeline
    assert torch.equal(images_of(first), images_of(second))
    second.save_pretrained(tmp_path / "second")
    for name in ("prior", "unet"):
        file = Path(name) / "diffusion_pytorch_model.safetensors"
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()
    settings = Path("scheduler") / "scheduler_config.json"
    assert (tmp_path / "first" / settings).read_text() == (
        tmp_path / "second" / settings
    ).read_text()
    model = read_model(tmp_path / "first")
    assert isinstance(model.predictor, Combined)
    assert bool((model.predictor.share == 1).all()), "the network predicts alone"


def test_code_of_a_folder_is_one_import_and_needs_trust(prior: Prior, tmp_path: Path) -> None:
    OperatorPipeline(small_unet(), OperatorScheduler(), OperatorPrior(prior)).save_pretrained(
        tmp_path
    )
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        DiffusionPipeline.from_pretrained(tmp_path)
    code = list(tmp_path.rglob("*.py"))
    assert len(code) == 3
    for path in code:
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert len(lines) == 1
        assert lines[0].startswith("from oism.diffusers import Operator")


def test_the_hub_accepts_the_index(prior: Prior, tmp_path: Path) -> None:
    """diffusers' own rule for repositories: a file beside each part that is not its own."""
    pipeline(library_model("DDPMpp", prior)).save_pretrained(tmp_path)
    index = json.loads((tmp_path / "model_index.json").read_text())
    names = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
    custom, _ = _get_custom_components_and_folders("user/name", index, names)
    assert custom == {"scheduler": "oism_part", "unet": "oism_part"}
    assert f"{index['_class_name'][0]}.py" in names


def test_an_exported_prior_is_its_own_file(prior: Prior, tmp_path: Path) -> None:
    OperatorPrior(prior).save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "diffusion_pytorch_model.safetensors",
    ]
    part = OperatorPrior.from_pretrained(tmp_path, torch_dtype=torch.float16)
    x = normal(2, 1, 8, 8)
    assert torch.equal(part.prior.noise(x, 0.4), prior.noise(x, 0.4)), "the dtypes of the file"
    with pytest.raises(StorageError, match="not 'oism"):
        OperatorNetwork.from_pretrained(tmp_path)


class Mixture(torch.nn.Module):
    """The exact noise of a mixture of Gaussians as a network with the timesteps of a scheduler."""

    def __init__(self, scheduler: OperatorScheduler, prior: Prior) -> None:
        super().__init__()
        self.table, self.source, self.calls = scheduler.table, prior, 0

    def forward(self, x: Tensor, timestep: Tensor) -> Any:
        self.calls += 1
        tau = self.source.clock.inverse(self.table.time(torch.as_tensor(timestep)))
        return type("Output", (), {"sample": self.source.noise(x, tau)})


def ended(scheduler: OperatorScheduler, network: Any, noise: Tensor, count: int) -> Tensor:
    scheduler.set_timesteps(count)
    x = noise
    for timestep in scheduler.timesteps:
        x = scheduler.step(network(x, timestep).sample, timestep, x).prev_sample
    return x


@torch.no_grad()
def test_a_measured_residual_makes_fewer_evaluations_enough() -> None:
    """The exact denoiser of a mixture in the coordinates of one Gaussian, the data's own."""
    values = digits(800)
    gauss, network_prior = fit_prior(values, order=2), fit_mixture(values, components=4)
    scheduler = OperatorScheduler(beta_end=0.0195, prior=gauss)
    network, noise = Mixture(scheduler, network_prior), normal(64, 1, 8, 8)
    reference = ended(scheduler, network, noise, 200)
    plain = [float((ended(scheduler, network, noise, n) - reference).std()) for n in (4, 8, 16)]
    assert plain == sorted(plain, reverse=True)
    assert scheduler.method(8) == scheduler.polynomial
    scheduler.measure(network, 64, torch.Generator().manual_seed(1))
    assert isinstance(scheduler.method(8), Prediction)
    network.calls = 0
    better = [float((ended(scheduler, network, noise, n) - reference).std()) for n in (4, 8, 16)]
    assert network.calls == 4 + 8 + 16
    assert scheduler.timesteps[0] == scheduler.table.last, "a pipeline begins with pure noise"
    assert better[0] < plain[0]
    assert better[1] < plain[1]
    scheduler.set_timesteps(150)
    assert len(scheduler.timesteps) == 150
    scheduler.set_timesteps(8, from_noise=False)
    assert scheduler.timesteps[0] < scheduler.table.last
    x = scheduler.start(noise)
    for timestep in scheduler.timesteps:
        x = scheduler.step(network(x, timestep).sample, timestep, x).prev_sample
    assert float((x - reference).std()) < better[1], "all eight evaluations are used"


@torch.no_grad()
@pytest.mark.parametrize("count", [12, 20])
def test_images_noised_to_the_first_level_are_no_noise_moved_to_it(count: int) -> None:
    """Image to image, after a measurement. The oracle is a method with many levels from there."""
    values = digits(800)
    gauss, network_prior = fit_prior(values, order=2), fit_mixture(values, components=4)
    scheduler = OperatorScheduler(beta_end=0.0195, prior=gauss)
    network = Mixture(scheduler, network_prior)
    scheduler.measure(network, 64, torch.Generator().manual_seed(1))
    assert isinstance(scheduler.method(count), Prediction)
    scheduler.set_timesteps(count)
    assert scheduler.timesteps[0] == scheduler.table.last, "that of the noise that is moved"
    later = scheduler.timesteps[1:]
    x = scheduler.add_noise(values[:64] / 127.5 - 1, normal(64, 1, 8, 8), later[:1])

    span, part = scheduler.span, gauss.gaussian_part()
    first = -0.5 * float(torch.log(torch.expm1(2 * scheduler.table.time(later[0]))))
    levels = torch.linspace(first, span.last, 201, dtype=torch.float64)
    plan = Polynomial(levels=tuple(levels.tolist())).plan(part, span, 200)
    wanted, history = x, History()
    for k, level in enumerate(plan.levels[:-1]):
        noise = network(wanted, scheduler._timesteps(level)).sample
        denoised = scheduler._denoised(noise, wanted, level)
        wanted, history = plan.step(k, wanted, denoised, history)

    for timestep in later:
        x = scheduler.step(network(x, timestep).sample, timestep, x).prev_sample
    error = float((x - wanted).square().mean().sqrt())
    assert error < 0.002


def test_noise_in_the_steps_is_that_of_the_generator(prior: Prior) -> None:
    scheduler = OperatorScheduler(eta=1.0)
    pipe = quiet(OperatorPipeline(small_unet(), scheduler, OperatorPrior(prior)))
    first, second = images_of(pipe), images_of(pipe)
    assert torch.equal(first, second)
    pipe.scheduler = OperatorScheduler(prior=prior)
    assert not torch.allclose(images_of(pipe), first, atol=1e-2)


def test_half_precision_is_that_of_the_network_only(prior: Prior) -> None:
    pipe = quiet(OperatorPipeline(small_unet(), OperatorScheduler(), OperatorPrior(prior)))
    noise = {"num_inference_steps": 3}
    wanted = images_of(pipe, **noise)
    pipe.to(torch.bfloat16)
    assert pipe.unet.dtype == torch.bfloat16
    assert pipe.scheduler.prior.mean.dtype == torch.float32
    found = images_of(pipe, **noise)
    assert found.dtype == torch.bfloat16
    assert found.isfinite().all()
    assert float((found.float() - wanted).abs().mean()) < 0.1


def test_networks_of_half_precision_are_measured_in_float32(prior: Prior) -> None:
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        unet = small_unet().to(dtype)
        pipe = OperatorPipeline(unet, OperatorScheduler(), OperatorPrior(prior))
        found.append(pipe.measure(4, torch.Generator().manual_seed(0)).covariance)
    single, half = found
    assert torch.allclose(half, single, atol=0.1 * float(single.abs().max()))
    assert not torch.equal(half, single)


@pytest.mark.parametrize(("form", "kind"), [("np", "ndarray"), ("pil", "list"), ("pt", "Tensor")])
def test_images_come_in_three_forms(prior: Prior, form: str, kind: str) -> None:
    pipe = quiet(OperatorPipeline(small_unet(), OperatorScheduler(), OperatorPrior(prior)))
    images = pipe(2, num_inference_steps=2, output_type=form, return_dict=False)[0]
    assert type(images).__name__ == kind
    assert len(images) == 2
    with pytest.raises(ValueError, match="output_type must be"):
        pipe(output_type="jpeg")


def test_a_prior_is_kept_in_any_form_and_other_schedulers_are_refused(
    prior: Prior, tmp_path: Path
) -> None:
    pipe = OperatorPipeline(small_unet(), OperatorScheduler(), prior)
    pipe.save_pretrained(tmp_path / "pipe")
    again = DiffusionPipeline.from_pretrained(tmp_path / "pipe", trust_remote_code=True)
    assert again.prior.prior.shape == prior.shape
    with pytest.raises(TypeError, match="prior must be"):
        OperatorPipeline(small_unet(), OperatorScheduler(), torch.nn.Linear(2, 2))
    pipe.scheduler = DDIMScheduler()
    with pytest.raises(TypeError, match="scheduler must be"):
        pipe(1, num_inference_steps=2)


def test_the_prior_of_a_scheduler_is_stored(prior: Prior, tmp_path: Path) -> None:
    scheduler = OperatorScheduler(prior=prior)
    statistics = scheduler.measure(small_unet(), 4, torch.Generator().manual_seed(0))
    pipe = quiet(OperatorPipeline(small_unet(), scheduler))
    assert pipe.scheduler.statistics is statistics
    pipe.save_pretrained(tmp_path)
    again = loaded(tmp_path)
    assert again.prior.prior.shape == prior.shape
    assert_equal_statistics(again.scheduler.statistics, statistics)
    assert torch.equal(images_of(again), images_of(pipe))


def test_statistics_beside_a_prior_of_a_later_scheduler_are_stored(prior: Prior) -> None:
    pipe = quiet(OperatorPipeline(small_unet(), OperatorScheduler()))
    assert pipe.prior is None
    pipe.scheduler = OperatorScheduler(prior=prior)
    found = pipe.measure(4, torch.Generator().manual_seed(0))
    assert pipe.to("cpu").scheduler.statistics is found


@pytest.mark.parametrize("place", ["cpu", torch.bfloat16])
@pytest.mark.parametrize("owner", ["pipeline", "network"])
def test_statistics_of_a_scheduler_are_kept(
    prior: Prior, owner: str, place: str | torch.dtype, tmp_path: Path
) -> None:
    """Those measured by the scheduler, also a second time, and those set on it."""
    if owner == "network":
        pipe = quiet(pipeline(library_model("DDPMpp", prior)))
    else:
        pipe = quiet(OperatorPipeline(small_unet(), OperatorScheduler(), OperatorPrior(prior)))
    for seed in (0, 1):
        found = pipe.scheduler.measure(pipe.unet, 4, torch.Generator().manual_seed(seed))
        assert pipe.to(place).scheduler.statistics is found
        assert pipe.to("cpu").scheduler.statistics is found
    other = dataclasses.replace(found, count=5)
    pipe.scheduler.set_prior(prior, other)
    assert pipe.to(place).scheduler.statistics is other
    last = pipe.scheduler.measure(pipe.unet, 4, torch.Generator().manual_seed(2))
    pipe.save_pretrained(tmp_path)
    assert_equal_statistics(loaded(tmp_path).scheduler.statistics, last)


def test_new_statistics_of_a_part_are_given_to_the_scheduler(prior: Prior) -> None:
    model = library_model("DDPMpp", prior)
    pipe = quiet(pipeline(model))
    pipe.measure(4, torch.Generator().manual_seed(0))
    found = model.measure_residual(4, torch.Generator().manual_seed(1))
    assert pipe.to("cpu").scheduler.statistics is found


def test_statistics_of_a_scheduler_before_the_pipeline_are_kept(prior: Prior) -> None:
    """Unless the prior of the pipeline has its own."""
    scheduler = OperatorScheduler(prior=prior)
    found = scheduler.measure(small_unet(), 4, torch.Generator().manual_seed(0))
    part = OperatorPrior(prior)
    pipe = OperatorPipeline(small_unet(), scheduler, part)
    assert pipe.scheduler.statistics is part.statistics is found
    again = OperatorScheduler(prior=prior)
    again.measure(small_unet(), 4, torch.Generator().manual_seed(1))
    pipe = OperatorPipeline(small_unet(), again, part)
    assert pipe.scheduler.statistics is part.statistics is found


def test_statistics_beside_another_prior_are_not_kept(prior: Prior) -> None:
    pipe = OperatorPipeline(small_unet(), OperatorScheduler(), OperatorPrior(prior))
    pipe.scheduler.set_prior(digits_prior())
    pipe.scheduler.measure(pipe.unet, 4, torch.Generator().manual_seed(0))
    pipe.to("cpu")
    assert pipe.scheduler.prior is prior
    assert pipe.scheduler.statistics is None
    assert pipe.prior.statistics is None


@pytest.mark.parametrize("kind", ["DDPMpp", "classes"])
def test_statistics_of_an_exported_model_are_stored(
    prior: Prior, kind: str, tmp_path: Path
) -> None:
    model = class_model(prior) if kind == "classes" else library_model(kind, prior)
    pipe = quiet(pipeline(model))
    found = pipe.measure(8, torch.Generator().manual_seed(0))
    assert pipe.to("cpu").scheduler.statistics is found
    pipe.save_pretrained(tmp_path)
    assert_equal_statistics(loaded(tmp_path).scheduler.statistics, found)
    own = model.measure_residual(8, torch.Generator().manual_seed(0)).covariance
    assert torch.allclose(own, found.covariance, rtol=1e-2, atol=1e-6), "by class as well"


def assert_equal_statistics(found: ResidualStatistics | None, wanted: ResidualStatistics) -> None:
    assert found is not None
    assert torch.equal(found.covariance, wanted.covariance)
    assert torch.equal(found.trial, wanted.trial)


def test_models_that_are_no_images_are_refused() -> None:
    from_rows = Diffusion(oism.nn.MLP(2), TensorSpec((2,), VariancePreserving()))
    with pytest.raises(ValueError, match="model must be one of images"):
        pipeline(from_rows)


@pytest.mark.slow
def test_a_process_that_has_not_imported_the_library_loads_a_folder(
    prior: Prior, tmp_path: Path
) -> None:
    pipeline(library_model("DDPMpp", prior)).save_pretrained(tmp_path)
    code = (
        "from diffusers import DiffusionPipeline\n"
        f"pipe = DiffusionPipeline.from_pretrained({str(tmp_path)!r}, trust_remote_code=True)\n"
        "print(pipe(2, num_inference_steps=2, output_type='np').images.shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.strip() == "(2, 8, 8, 1)", done.stderr


def class_model(prior: Prior) -> Diffusion:
    """A model with four classes and random weights."""
    torch.manual_seed(0)
    net: Any = unet_for(prior.shape, width=8, classes=4)
    for part in net.parameters():
        torch.nn.init.normal_(part, std=0.1)
    torch.nn.init.normal_(net.label.weight, std=5.0)  # so that classes differ
    combined = Combined(net, prior)
    combined.share.copy_(torch.linspace(1, 0, len(combined.share)))
    return Diffusion(combined).eval()


@pytest.mark.parametrize("guidance", [None, 1.0, 2.5, 0.0])
def test_an_exported_model_takes_class_labels(
    prior: Prior, guidance: float | None, tmp_path: Path
) -> None:
    model = class_model(prior)
    pipeline(model).save_pretrained(tmp_path)
    pipe, labels = loaded(tmp_path), [3, 0, 3]
    given = model.given(labels, 1.0 if guidance is None else guidance)
    noise = normal(3, 1, 8, 8)
    wanted = (sampled(given, prior.gaussian_part(), noise, 6) / 2 + 0.5).clamp(0, 1)
    asked: dict[str, Any] = {
        "num_inference_steps": 6,
        "class_labels": labels,
        "guidance_scale": guidance,
    }
    found = images_of(pipe, **asked)
    assert torch.allclose(found, wanted, atol=1e-4)
    other = images_of(pipe, **{**asked, "class_labels": torch.tensor([1, 0, 3])})
    assert torch.allclose(other[1:], found[1:], atol=1e-4)
    assert torch.allclose(other[0], found[0], atol=1e-3) == (guidance == 0.0)
    assert torch.allclose(
        images_of(pipe, **{**asked, "class_labels": 3})[[0, 2]], found[[0, 2]], atol=1e-4
    )


def test_mistakes_with_class_labels_are_named(prior: Prior) -> None:
    pipe = quiet(pipeline(class_model(prior)))
    for words, labels, guidance in (
        ("class_labels must be from 0 to 3, got 4", 4, None),
        ("class_labels must be from 0 to 3, got -1", [0, -1, 2], None),
        ("class_labels must be one number or one per row: 3 rows, 2 labels", [0, 1], None),
        ("guidance_scale must not be given without class_labels", None, 2.0),
    ):
        with pytest.raises(ValueError, match=words):
            images_of(pipe, num_inference_steps=2, class_labels=labels, guidance_scale=guidance)
    plain = quiet(OperatorPipeline(small_unet(), OperatorScheduler(), prior))
    with pytest.raises(ValueError, match="for a network without classes"):
        images_of(plain, num_inference_steps=2, class_labels=1)
    theirs = OperatorPipeline(small_unet(num_class_embeds=4), OperatorScheduler(), prior)
    assert images_of(quiet(theirs), num_inference_steps=2, class_labels=1).isfinite().all()
    with pytest.raises(ValueError, match="guidance_scale must be 1 for a network that does not"):
        images_of(theirs, num_inference_steps=2, class_labels=1, guidance_scale=2.0)
