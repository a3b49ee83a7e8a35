"""A run in its folder: what it writes, how it goes on, and how it ends when it cannot."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oism.images import Open, Prior
from oism.nn import Diffusion, OperatorInformed
from oism.objectives import DenoisingScoreMatching, UniformLogSNR, UniformTime
from oism.training import CheckpointError, DivergedError, Rows, Run
from oism.training import _checkpoint as checkpoint
from oism.training import _metrics as lines
from oism.training._loop import Loop, engine

from .small import (
    PIXELS,
    assert_same,
    fitted,
    images,
    predictor,
    short_run,
    state_of,
    steps_and_losses,
    told,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_explains_itself(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    run = short_run(folder)
    run.run()
    wanted = ["checkpoints", "metrics.jsonl", "model.safetensors", "prior.safetensors"]
    assert set(names(folder)) == {*wanted, "settings.json", "tensorboard"}
    assert names(folder / "checkpoints") == ["step-00000008", "step-00000012"]
    settings = json.loads((folder / "settings.json").read_text())
    assert settings["steps"] == 12
    assert settings["net"]["kind"] == "DDPMpp"
    assert settings["torch"] == torch.__version__
    assert settings["parameters"] == sum(part.numel() for part in run.loop.net.parameters())
    found = lines.read(folder / "metrics.jsonl")
    assert [line["step"] for line in found] == list(range(1, 13))
    assert set(found[0]) == {"step", "loss", "gradient", "rate", "seconds"}
    assert [line["rate"] for line in found[:5]] == [0.0025, 0.005, 0.0075, 0.01, 0.01]
    x = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(
        Prior.load(folder / "prior.safetensors").noise(x, 0.5), fitted().noise(x, 0.5)
    )


def test_the_model_has_average_weights(tmp_path: Path) -> None:
    run = short_run(tmp_path)
    run.run()
    model = Diffusion.load(tmp_path / "model.safetensors")
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
    with pytest.raises(CheckpointError, match="has taken 12 steps, and cannot go on to 8"):
        short_run(tmp_path / "one", resume=True, steps=8)


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    short_run(tmp_path).run()
    kept = state_of(tmp_path)
    with pytest.raises(FileExistsError, match="holds a run, with step-00000012: go on with it"):
        short_run(tmp_path)
    assert all(torch.equal(kept[name], value) for name, value in state_of(tmp_path).items())


def test_one_that_was_stopped_before_its_first_checkpoint_begins_anew(tmp_path: Path) -> None:
    run = short_run(tmp_path, save_every=0)
    run.loop.step()  # and no more
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 9.0}\n{"step": 2, "lo')
    short_run(tmp_path).run()
    assert [step for step, _ in steps_and_losses(tmp_path)] == list(range(1, 13))
    assert steps_and_losses(tmp_path)[0][1] != 9


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "rate": ({"rate": 0.5}, "the run has rate = 0.01, and cannot go on with 0.5"),
    "batch": ({"batch": 8}, "the run has batch = 16, and cannot go on with 8"),
    "seed": ({"seed": 3}, "the run has seed = 0, and cannot go on with 3"),
    "flip": ({"flip": False}, "the run has flip = True, and cannot go on with False"),
    "precision": ({"precision": "bf16"}, "the run has precision = 'no', and cannot go on"),
    "data": ({"data": images(50)}, "the run has rows = 90, and cannot go on with 50"),
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
    with pytest.raises(CheckpointError, match=r"the run has net.width = 8"):
        short_run(done, predictor(fitted(), width=12), resume=True)


def test_another_prior_is_another_run(done: Path) -> None:
    """Even where the network is the same: it would learn what is left of something else."""
    prior = fitted(images(seed=5))
    with pytest.raises(CheckpointError, match=r"another prior, that of prior\.safetensors"):
        short_run(done, predictor(prior), resume=True)
    net = predictor(fitted())
    assert isinstance(net, OperatorInformed)
    net.gate = Open()
    with pytest.raises(CheckpointError, match=r"gate.kind = 'ByError', and .* with 'Open'"):
        short_run(done, net, resume=True)


def test_the_paper_s_form_does_not_go_on_without_its_prior(tmp_path: Path) -> None:
    bare = predictor()
    short_run(tmp_path, OperatorInformed.paper(bare, fitted()), steps=2).run()
    with pytest.raises(CheckpointError, match=r"another prior, that of prior.safetensors: load it"):
        short_run(tmp_path, predictor(), resume=True)


def test_the_prior_in_the_folder_serves_to_go_on(done: Path, tmp_path: Path) -> None:
    shutil.copytree(done, tmp_path / "copy")
    prior = Prior.load(tmp_path / "copy" / "prior.safetensors")
    short_run(tmp_path / "copy", predictor(prior), resume=True, steps=13).run()


def test_other_levels_are_another_run(done: Path) -> None:
    prior = fitted()
    with pytest.raises(CheckpointError, match="the run has levels = 'UniformLogSNR'"):
        Run(
            done, predictor(prior), Rows(images(), PIXELS), UniformTime(prior.noising), told(),
            prior.setting, resume=True, accelerator=engine(cpu=True),
        )  # fmt: skip


def test_how_a_run_is_watched_may_change(done: Path, tmp_path: Path) -> None:
    shutil.copytree(done, tmp_path / "copy")
    run = short_run(
        tmp_path / "copy", resume=True, steps=15, log_every=3, save_every=2, keep=1, sample_every=1
    )
    run.run()
    assert names(tmp_path / "copy" / "checkpoints") == ["step-00000015"]
    assert [step for step, _ in steps_and_losses(tmp_path / "copy")][11:] == [12, 14, 15]


def test_a_damaged_checkpoint_is_named_and_so_is_the_way_out(done: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(done, folder)
    last = folder / "checkpoints" / "step-00000012"
    (last / "net.safetensors").write_bytes(b"short")
    message = r"net\.safetensors: truncated.*step-00000008 is whole: remove step-00000012"
    with pytest.raises(CheckpointError, match=message):
        short_run(folder, resume=True)
    shutil.rmtree(last)
    short_run(folder, resume=True).run()
    assert_same(folder, done)
    assert steps_and_losses(folder) == steps_and_losses(done)


def test_pictures_are_of_average_weights_and_change_nothing(tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []

    def picture(path: Path, model: Diffusion) -> None:
        assert isinstance(model.predictor, OperatorInformed)
        own = dict(model.predictor.net.named_parameters())
        averaged = all(torch.equal(own[k], v) for k, v in run.loop.average.state().items())
        seen.append((path.name, averaged))
        model.sample(2, torch.Generator().manual_seed(0))
        torch.rand(100)
        path.write_bytes(b"picture")

    run = short_run(tmp_path / "drawn", sample_every=5, picture=picture)
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
    last = tmp_path / "checkpoints" / f"step-{after // 4 * 4:08d}"
    message = (
        f"the loss or its gradient was not finite in step {after + 1}; the last good checkpoint is "
        f"{last}"
    )
    with pytest.raises(DivergedError, match=re.escape(message)):
        run.run()
    assert checkpoint.latest(tmp_path / "checkpoints") == last
    assert_finite(tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
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
    assert names(tmp_path / "checkpoints") == ["step-00000004"]
    assert_finite(tmp_path)


def test_a_disk_that_fills_up_ends_a_run_and_the_last_checkpoint_serves(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = short_run(tmp_path)
    real = checkpoint._write

    def write(path: Path, content: bytes) -> int:
        if "step-00000008" in str(path) and path.name == "optimiser.safetensors":
            path.write_bytes(content[: len(content) // 2])
            raise OSError(28, "No space left on device")
        return real(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_write", write)
        with pytest.raises(CheckpointError, match=r"step 8 .*No space left.*step-00000004"):
            run.run()
    assert names(tmp_path / "checkpoints") == ["step-00000004"]
    short_run(tmp_path, resume=True).run()
    assert_same(tmp_path, done)


def test_a_loop_trains_what_is_at_rest() -> None:
    """A model from a file is; without dropout it would be another run."""
    prior = fitted()
    net = predictor(prior).eval()
    levels = UniformLogSNR(prior.noising)
    Loop(net, Rows(images(), PIXELS), DenoisingScoreMatching(levels), told(), engine(cpu=True))
    assert net.training
