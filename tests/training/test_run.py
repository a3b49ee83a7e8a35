"""A run in its folder: what it writes, how it is resumed, and how it ends with an error."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oism import OrnsteinUhlenbeck, VariancePreserving, load
from oism.flow import Pixels
from oism.images import Open, Prior
from oism.nn import Diffusion, OperatorInformed, predicting
from oism.objectives import (
    DenoisingScoreMatching,
    NormalLogSNR,
    OutputMatching,
    UniformLogSNR,
    UniformTime,
    Weighting,
)
from oism.process import Noising
from oism.training import (
    CheckpointError,
    DivergedError,
    Loop,
    Rows,
    Run,
    check_not_running,
    new_accelerator,
    read_metrics,
    train,
)
from oism.training import _checkpoint as checkpoint

from .small import (
    PIXELS,
    SHAPE,
    assert_same,
    config,
    fitted,
    images,
    predictor,
    short_run,
    state_of,
    steps_and_losses,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def file(step: int) -> str:
    return f"step-{step:08d}.safetensors"


def test_the_files_of_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    run = short_run(folder)
    run.run()
    wanted = ["checkpoints", "metrics.jsonl", "model.safetensors", "prior.safetensors"]
    assert set(names(folder)) == {*wanted, "settings.json", "tensorboard"}
    assert names(folder / "checkpoints") == [file(8), file(12)]
    settings = json.loads((folder / "settings.json").read_text())
    assert settings["config"]["steps"] == 12
    assert settings["model"]["network"]["kind"] == "DDPMpp"
    assert settings["torch"] == torch.__version__
    parameters = sum(part.numel() for part in run.loop.net.parameters())
    assert settings["model"]["parameters"] == parameters
    found = read_metrics(folder)
    assert [line["step"] for line in found] == list(range(1, 13))
    every = {"step", "loss", "gradient", "rate", "seconds"}
    assert set(found[0]) == every
    assert set(found[-1]) == {*every, "model_error", "model_error_by_level"}
    assert [line["rate"] for line in found[:5]] == [0.0025, 0.005, 0.0075, 0.01, 0.01]
    x = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(load(folder / "prior.safetensors").noise(x, 0.5), fitted().noise(x, 0.5))


def test_the_model_has_average_weights(tmp_path: Path) -> None:
    run = short_run(tmp_path)
    run.run()
    model = load(tmp_path)
    assert isinstance(model.predictor, OperatorInformed)
    net = dict(model.predictor.net.named_parameters())
    for name, value in run.loop.average.state().items():
        assert torch.equal(net[name], value)
    moved = [
        part for name, part in run.loop.net.named_parameters() if not torch.equal(part, net[name])
    ]
    assert moved, "weights themselves are elsewhere, and are not lost"
    assert run.loop.predictor.training


def test_training_learns(tmp_path: Path) -> None:
    short_run(tmp_path, predictor(), steps=60, save_every=0).run()
    losses = [loss for _, loss in steps_and_losses(tmp_path)]
    assert sum(losses[-10:]) < 0.85 * sum(losses[:10])


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 4, 11])
def test_a_run_in_parts_is_the_run_at_once(stop: int, tmp_path: Path) -> None:
    """Bit for bit, with dropout, flips and dequantisation; metrics included."""
    short_run(tmp_path / "whole", save_every=5).run()
    short_run(tmp_path / "parts", save_every=5, steps=stop).run()
    torch.manual_seed(1234)
    other = predictor(fitted())
    with torch.no_grad():
        for part in other.parameters():
            part.add_(1)  # what a new process starts from does not matter
    short_run(tmp_path / "parts", other, save_every=5, resume=True).run()
    assert_same(tmp_path / "whole", tmp_path / "parts")
    assert steps_and_losses(tmp_path / "whole") == steps_and_losses(tmp_path / "parts")


def test_resuming_what_is_done_and_what_never_began(tmp_path: Path) -> None:
    short_run(tmp_path / "one", resume=True).run()
    before = (tmp_path / "one" / "model.safetensors").read_bytes()
    (tmp_path / "one" / "model.safetensors").unlink()
    short_run(tmp_path / "one", resume=True).run()
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == before
    assert len(steps_and_losses(tmp_path / "one")) == 12
    with pytest.raises(CheckpointError, match="has taken 12 steps, and cannot continue to 8"):
        short_run(tmp_path / "one", resume=True, steps=8)


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    short_run(tmp_path).run()
    kept = state_of(tmp_path)
    with pytest.raises(FileExistsError, match="holds a run, with step-00000012"):
        short_run(tmp_path)
    assert all(torch.equal(kept[name], value) for name, value in state_of(tmp_path).items())


def test_two_runs_at_once_in_one_folder(tmp_path: Path) -> None:
    run = short_run(tmp_path)
    before = (tmp_path / "settings.json").read_bytes()
    for resume in (False, True):
        with pytest.raises(OSError, match=f"in use by a run, held by process {os.getpid()} on"):
            short_run(tmp_path, seed=5, resume=resume)
    with pytest.raises(OSError, match="wait until it ends, or name another folder"):
        check_not_running(tmp_path)
    assert (tmp_path / "settings.json").read_bytes() == before
    run.run()
    check_not_running(tmp_path)
    short_run(tmp_path, resume=True).run()
    assert not (tmp_path / "run.lock").exists()


def test_a_run_that_was_stopped_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    run = short_run(tmp_path, save_every=0)
    run.loop.step()  # and no more
    run.close()
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 9.0}\n{"step": 2, "lo')
    short_run(tmp_path).run()
    assert [step for step, _ in steps_and_losses(tmp_path)] == list(range(1, 13))
    assert steps_and_losses(tmp_path)[0][1] != 9


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "rate": (
        {"rate": 0.5},
        "has rate = 0.01 (not 0.5), and cannot continue with other values",
    ),
    "batch": ({"batch": 8}, "the run has batch = 16 (not 8), and"),
    "seed": ({"seed": 3}, "the run has seed = 0 (not 3), and"),
    "flip": ({"flip": False}, "the run has flip = True (not False), and"),
    "precision": ({"precision": "bf16"}, "the run has precision = 'no' (not 'bf16'), and"),
    "data": ({"data": images(50)}, "the run has rows = 90 (not 50), checksum = "),
    "several": ({"rate": 0.5, "seed": 3}, "rate = 0.01 (not 0.5), seed = 0 (not 3), and cannot"),
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is never changed."""
    folder = tmp_path_factory.mktemp("run")
    short_run(folder).run()
    return folder


@pytest.mark.parametrize("name", CHANGED)
def test_other_settings_are_another_run(name: str, done: Path) -> None:
    changes, message = CHANGED[name]
    with pytest.raises(CheckpointError, match=re.escape(message)):
        short_run(done, resume=True, **changes)


def test_another_network_is_another_run(done: Path) -> None:
    with pytest.raises(CheckpointError, match=r"the run has network.width = 8 \(not 12\)"):
        short_run(done, predictor(fitted(), width=12), resume=True)


def test_another_prior_is_another_run(done: Path) -> None:
    """Even where the network is the same: it would learn what is left of something else."""
    prior = fitted(images(seed=5))
    with pytest.raises(CheckpointError, match=r"another prior, that of prior\.safetensors"):
        short_run(done, predictor(prior), resume=True)
    net = predictor(fitted())
    assert isinstance(net, OperatorInformed)
    net.gate = Open()
    with pytest.raises(CheckpointError, match=r"gate.kind = 'ByError' \(not 'Open'\)"):
        short_run(done, net, resume=True)


def test_the_form_of_the_paper_is_not_resumed_without_its_prior(tmp_path: Path) -> None:
    bare = predictor()
    short_run(tmp_path, OperatorInformed.paper(bare, fitted()), steps=2).run()
    with pytest.raises(CheckpointError, match=r"another prior, that of prior.safetensors"):
        short_run(tmp_path, predictor(), resume=True)


def test_a_run_is_resumed_with_the_prior_in_its_folder(done: Path, tmp_path: Path) -> None:
    shutil.copytree(done, tmp_path / "copy")
    prior: Prior = load(tmp_path / "copy" / "prior.safetensors")
    short_run(tmp_path / "copy", predictor(prior), resume=True, steps=13).run()


def test_other_levels_are_another_run(done: Path) -> None:
    prior = fitted()
    with pytest.raises(CheckpointError, match="the run has levels = 'UniformLogSNR'"):
        Run(
            done, predictor(prior), Rows(images(), PIXELS), config(), resume=True,
            levels=UniformTime(prior.noising), accelerator=new_accelerator(cpu=True),
        )  # fmt: skip


def test_another_loss_is_another_run(tmp_path: Path) -> None:
    """A run with a loss of its own is resumed with that loss only."""
    noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    net = predicting(predictor(), "edm", clock=noising.clock)

    def run(objective: DenoisingScoreMatching | None, **more: Any) -> Run:
        return Run(
            tmp_path, net, Rows(images(), PIXELS), config(steps=2), objective=objective,
            accelerator=new_accelerator(cpu=True), **more,
        )  # fmt: skip

    loss = OutputMatching(UniformLogSNR(noising), net)  # type: ignore[arg-type]
    first = run(loss)
    assert first.loop.objective is loss
    first.run()
    run(loss, resume=True).close()
    wrong = r"objective.loss = 'OutputMatching' \(not 'DenoisingScoreMatching'\)"
    with pytest.raises(CheckpointError, match=wrong):
        run(None, resume=True)
    with pytest.raises(ValueError, match="levels must not be given beside an objective"):
        run(loss, resume=True, levels=UniformLogSNR(noising))
    with pytest.raises(TypeError, match="objective must be of type DenoisingScoreMatching"):
        run("output", resume=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="clock must be that of the objective"):
        run(loss, resume=True, clock=VariancePreserving(beta_1=10.0))


def test_a_checkpoint_without_a_loss_has_that_of_the_noise(tmp_path: Path) -> None:
    """So have all from before it was a setting: others must not continue them."""
    noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    net = predicting(predictor(), "edm", clock=noising.clock)

    def run(objective: DenoisingScoreMatching, **more: Any) -> Run:
        return Run(
            tmp_path, net, Rows(images(), PIXELS), config(steps=1), objective=objective,
            accelerator=new_accelerator(cpu=True), **more,
        )  # fmt: skip

    levels = UniformLogSNR(noising)
    run(DenoisingScoreMatching(levels)).run()
    found = checkpoint.read_latest(tmp_path / "checkpoints")
    assert found is not None
    kept = {name: value for name, value in found.settings.items() if name != "objective"}
    checkpoint.write(tmp_path / "checkpoints", replace(found, settings=kept), 1)
    run(DenoisingScoreMatching(levels), resume=True).close()
    with pytest.raises(CheckpointError, match=r"'DenoisingScoreMatching' \(not 'OutputMatching'"):
        run(OutputMatching(levels, net), resume=True)  # type: ignore[arg-type]


def test_weights_of_ones_own_have_a_name() -> None:
    """Not an address in memory, which would differ when a run is resumed."""

    class Own(Weighting):
        def __call__(self, noising: Noising, tau: Tensor) -> Tensor:
            return tau

    noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    settings = DenoisingScoreMatching(UniformLogSNR(noising), Own()).settings()
    assert settings == {"loss": "DenoisingScoreMatching", "weighting": "Own()"}


def normal_run(folder: Path, pixels: Pixels, *, resume: bool = True, **levels: float) -> Run:
    noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    return Run(
        folder, predictor(), Rows(images(), pixels), config(steps=1), resume=resume,
        levels=NormalLogSNR(noising, **levels), accelerator=new_accelerator(cpu=True),
    )  # fmt: skip


def test_other_arguments_of_levels_and_pixels_are_another_run(tmp_path: Path) -> None:
    normal_run(tmp_path, Pixels(0, 100), resume=False, mean=-1.2).run()
    normal_run(tmp_path, Pixels(0, 100)).close()  # the defaults are those arguments
    wrong = r"level_arguments.mean = -1.2 \(not 2.0\), level_arguments.deviation = 1.2 \(not 0.3\)"
    with pytest.raises(CheckpointError, match=wrong):
        normal_run(tmp_path, Pixels(0, 100), mean=2.0, deviation=0.3)
    with pytest.raises(CheckpointError, match=r"pixels = \[0, 100\] \(not \[0, 1000\]\)"):
        normal_run(tmp_path, Pixels(0, 1000))


def test_a_checkpoint_that_does_not_state_them_is_resumed(tmp_path: Path) -> None:
    normal_run(tmp_path, Pixels(0, 100), resume=False).run()
    found = checkpoint.read_latest(tmp_path / "checkpoints")
    assert found is not None
    kept = {k: v for k, v in found.settings.items() if k not in ("pixels", "level_arguments")}
    assert len(kept) == len(found.settings) - 2
    checkpoint.write(tmp_path / "checkpoints", replace(found, settings=kept), 1)
    normal_run(tmp_path, Pixels(0, 100)).close()


def test_settings_that_may_change(done: Path, tmp_path: Path) -> None:
    shutil.copytree(done, tmp_path / "copy")
    run = short_run(
        tmp_path / "copy", resume=True, steps=15, log_every=3, save_every=2, keep=1, sample_every=1
    )
    run.run()
    assert names(tmp_path / "copy" / "checkpoints") == [file(15)]
    assert [step for step, _ in steps_and_losses(tmp_path / "copy")][11:] == [12, 14, 15]


def test_a_damaged_checkpoint_is_named_and_so_is_a_usable_one(done: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(done, folder)
    last = folder / "checkpoints" / file(12)
    last.write_bytes(last.read_bytes()[:-9])
    message = r"12\.safetensors: is truncated.*step-00000008.safetensors can be read: remove step-"
    with pytest.raises(CheckpointError, match=message):
        short_run(folder, resume=True)
    last.unlink()
    short_run(folder, resume=True).run()
    assert_same(folder, done)
    assert steps_and_losses(folder) == steps_and_losses(done)


def test_pictures_are_of_average_weights_and_change_nothing(tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []

    def draw(path: Path, model: Diffusion) -> None:
        assert isinstance(model.predictor, OperatorInformed)
        own = dict(model.predictor.net.named_parameters())
        averaged = all(torch.equal(own[k], v) for k, v in run.loop.average.state().items())
        seen.append((path.name, averaged))
        model.sample(2, torch.Generator().manual_seed(0))
        torch.rand(100)
        path.write_bytes(b"picture")

    run = short_run(tmp_path / "drawn", sample_every=5, draw=draw)
    run.run()
    assert seen == [(f"step-{k:08d}.png", True) for k in (5, 10, 12)]
    assert names(tmp_path / "drawn" / "samples") == [name for name, _ in seen]
    short_run(tmp_path / "plain").run()
    assert_same(tmp_path / "drawn", tmp_path / "plain")


class Poisoned(nn.Module):
    """A network whose answers are not numbers from some step on; it tells what it was shown."""

    def __init__(self, net: nn.Module, after: int) -> None:
        super().__init__()
        self.net, self.after, self.calls = net, after, 0

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        self.calls += 1
        found: Tensor = self.net(x, tau)
        return found * torch.nan if self.calls > self.after else found


def poison(run: Run, after: int) -> None:
    run.loop.model = Poisoned(run.loop.model, after)


def assert_finite(folder: Path) -> None:
    for path in checkpoint.all_of(folder / "checkpoints"):
        found = checkpoint.read(path)
        for part in checkpoint.PARTS:
            for name, value in getattr(found, part).items():
                assert bool(value.isfinite().all()), f"{path} {name}"


@pytest.mark.parametrize("log_every", [1, 5, 100])
@pytest.mark.parametrize("after", [4, 6, 8])
def test_a_loss_that_is_no_number_ends_a_run(log_every: int, after: int, tmp_path: Path) -> None:
    run = short_run(tmp_path, log_every=log_every, steps=50)
    poison(run, after)
    last = tmp_path / "checkpoints" / file(after // 4 * 4)
    message = (
        f"the loss or its gradient was not finite in step {after + 1}; the last good checkpoint is "
        f"{last}"
    )
    with pytest.raises(DivergedError, match=re.escape(message)):
        run.run()
    assert checkpoint.latest(tmp_path / "checkpoints") == last
    assert_finite(tmp_path)
    model = load(tmp_path)
    assert all(bool(part.isfinite().all()) for part in model.parameters())
    kept = checkpoint.read(last).average
    assert all(torch.equal(part, kept[name]) for name, part in model.net.named_parameters())
    assert all(step <= after for step, _ in steps_and_losses(tmp_path))


def test_a_loss_that_is_no_number_from_the_first_step(tmp_path: Path) -> None:
    run = short_run(tmp_path)
    poison(run, 0)
    message = "was not finite in step 1; there is no checkpoint"
    with pytest.raises(DivergedError, match=message):
        run.run()
    assert not (tmp_path / "checkpoints").exists()


def test_weights_that_a_last_step_spoilt_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their loss was finite still: it is that of the weights before."""
    run = short_run(tmp_path)
    real: Callable[[], None] = run.loop.step

    def step() -> None:
        real()
        if run.loop.step_number == 8:
            with torch.no_grad():
                next(run.loop.net.parameters())[0] = torch.inf

    monkeypatch.setattr(run.loop, "step", step)
    message = r"weights were not finite after step 8; the last good checkpoint is .*step-00000004"
    with pytest.raises(DivergedError, match=message):
        run.run()
    assert names(tmp_path / "checkpoints") == [file(4)]
    assert_finite(tmp_path)


def test_a_full_disk_ends_a_run_which_is_resumed_from_the_last_checkpoint(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = short_run(tmp_path)
    real = Path.write_bytes

    def write(path: Path, content: bytes) -> int:
        if run.loop.step_number == 8 and path.parent.name == "checkpoints":
            real(path, content[: len(content) // 2])
            raise OSError(28, "No space left on device")
        return real(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write)
        with pytest.raises(CheckpointError, match=r"step 8 .*No space left.*step-00000004"):
            run.run()
    assert names(tmp_path / "checkpoints") == [file(4)]
    short_run(tmp_path, resume=True).run()
    assert_same(tmp_path, done)


def test_a_loop_trains_a_network_that_was_in_eval_mode() -> None:
    """A model from a file is; without dropout it would be another run."""
    prior = fitted()
    net = predictor(prior).eval()
    levels = UniformLogSNR(prior.noising)
    objective, accelerator = DenoisingScoreMatching(levels), new_accelerator(cpu=True)
    Loop(net, Rows(images(), PIXELS), objective, config(), accelerator)
    assert net.training


def test_train_returns_the_model_of_the_folder(tmp_path: Path) -> None:
    """With average weights, in evaluation mode; data are a tensor, an array or batches of them."""
    data, x = images(), torch.randn(3, *SHAPE)
    tau, found = torch.rand(3), []
    kinds = {"tensor": data, "array": data.numpy(), "batches": [data[:50].numpy(), data[50:]]}
    for name, kind in kinds.items():
        arguments = (predictor(fitted()), kind, tmp_path / name, config(steps=2))
        model = train(*arguments, accelerator=new_accelerator(cpu=True))
        assert not model.training
        assert model.pixels == PIXELS, "those of the prior"
        assert torch.equal(model.noise(x, tau), load(tmp_path / name).noise(x, tau))
        found.append(model.noise(x, tau))
    assert all(torch.equal(one, found[0]) for one in found)


def test_a_resumed_train_continues(tmp_path: Path) -> None:
    accelerator = new_accelerator(cpu=True)
    rows = Rows(images(), PIXELS)
    for steps in (2, 4):
        net = predictor()
        train(net, rows, tmp_path / "parts", config(steps=steps), resume=True,
              accelerator=accelerator)  # fmt: skip
    train(predictor(), rows, tmp_path / "whole", config(steps=4), accelerator=accelerator)
    assert_same(tmp_path / "whole", tmp_path / "parts")


def test_a_network_alone_has_a_clock(tmp_path: Path) -> None:
    clock = VariancePreserving(0.1, 9.0)
    rows, accelerator = Rows(images(), PIXELS), new_accelerator(cpu=True)
    model = train(predictor(), rows, tmp_path / "a", config(steps=1), clock=clock,
                  accelerator=accelerator)  # fmt: skip
    assert model.clock == load(tmp_path / "a").clock == clock
    model = train(predictor(), rows, tmp_path / "b", config(steps=1), accelerator=accelerator)
    assert model.clock == VariancePreserving()
    with pytest.raises(ValueError, match="prior must have been fitted for the clock"):
        train(predictor(fitted()), rows, tmp_path / "c", config(steps=1), clock=clock)
    levels = UniformTime(fitted().noising)
    with pytest.raises(ValueError, match="clock must be that of levels, or not be given"):
        train(predictor(), rows, tmp_path / "c", config(steps=1), clock=clock, levels=levels)
    assert not (tmp_path / "c").exists()
