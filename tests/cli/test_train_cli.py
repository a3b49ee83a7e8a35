"""Training at the command line: from images to a run, and from a run to samples and numbers."""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from oism import VariancePreserving, fit_mixture, fit_prior, load, train
from oism.basis import IdentityFrame
from oism.cli import parse, train_parts, train_plan
from oism.cli.exit_codes import Terminated
from oism.cli.options import ImageFiles, given
from oism.cli.reports import decimals
from oism.cli.train import Train
from oism.cli.train_form import FORM, SIZES, complete_form
from oism.cli.train_plan import CONFIG, config_of
from oism.cli.train_progress import Lines
from oism.data.files import write_images
from oism.flow import Adams, Adaptive, TensorSpec
from oism.images import DEFAULT_GATE, ByError, Open, Prior, as_images
from oism.nn import (
    MLP,
    Combined,
    DDPMpp,
    Diffusion,
    Informed,
    OperatorInformed,
    Parametrised,
    predicting,
    unet_for,
)
from oism.objectives import OutputMatching, errors_by_level
from oism.sampling import Polynomial
from oism.training import (
    CHANGEABLE,
    Loop,
    TrainingConfig,
    bits_per_dim,
    read_metrics,
    read_settings,
)
from oism.training import _checkpoint as checkpoint
from oism.training._folder import write_settings

Run = Callable[..., Any]

TINY = "--width 4 --batch 16 --sample-every 0"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, command: Run) -> Path:
    """A folder with 100 digits to train on, 30 to test, a prior of another clock, and a run."""
    folder = tmp_path_factory.mktemp("train")
    digits = (load_digits().images[:130] * 15).astype(np.uint8)
    np.savez(folder / "digits.npz", images=digits[:100])
    write_images(str(folder / "test"), digits[100:, None])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in (
            f"train digits.npz -o run --steps 6 {TINY}",
            f"train digits.npz -o bare --prior none --steps 4 {TINY}",
            "fit-images test -o test.safetensors --order 2",
            "fit-images digits.npz -o fast.safetensors --order 2 --clock vp:0.1:10",
            "fit-images digits.npz -o sharp.safetensors --order 2 --no-dequantise",
            "data moons -n 40 -o moons.csv",
            "fit moons.csv -o moons.safetensors --max-eigenvalue 25 --flow-steps 16",
        ):
            ended = command(words)
            assert ended.code == 0, ended.err
        Diffusion(MLP(2), TensorSpec((2,), VariancePreserving())).save("plane")
    return folder


@pytest.fixture
def here(place: Path, command: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``oism words`` in that folder."""
    monkeypatch.chdir(place)
    return command


def images(place: Path, count: int | None = None) -> torch.Tensor:
    return torch.from_numpy(np.load(place / "digits.npz")["images"][:count, None])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    model: Diffusion = load(folder)
    return model.predictor.state_dict()


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(part.nan_to_num(), second[name].nan_to_num()) for name, part in first.items()
    )


def informed(folder: Path) -> Informed:
    predictor = load(folder).predictor
    assert isinstance(predictor, Informed)
    return predictor


def network_of(folder: Path) -> dict[str, Any]:
    net = informed(folder).net
    assert isinstance(net, Parametrised)
    assert isinstance(net.net, DDPMpp)
    return net.net.to_config()


def started(folder: Path, count: int, begun: int, steps: int) -> str:
    """Return the line on standard error when training starts, if there is no terminal."""
    parameters = json.loads((folder / "settings.json").read_text())["model"]["parameters"]
    return (
        f"oism: training in {folder}: {count} images of 1 × 8 × 8, {parameters:,} "
        f"parameters, steps {begun + 1} to {steps}; metrics in {folder}/metrics.jsonl\n"
    )


def same_prior(found: Prior, expected: Prior) -> None:
    assert found.spec == expected.spec
    assert equal(found.state_dict(), expected.state_dict())


# Training


def test_a_run_and_its_report(here: Run, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = f"train digits.npz -o {out} --steps 5 --log-every 2 --width 4 --batch 16"
    ended = here(f"{words} --sample-every 5 --seed 3 --gate 0.1 2 --dropout 0.2")
    assert ended.code == 0, ended.err
    lines = ended.text.splitlines()
    head = (
        r"100 images of 1 × 8 × 8, mirrored at random; prior Hermite polynomials; [\d,]+ parameters"
    )
    assert re.fullmatch(head, lines[0])
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics] == [2, 4, 5]
    assert re.fullmatch(rf"5 steps in [\d.]+ s, loss {metrics[-1]['loss']:.4f}", lines[1])
    levels = " ".join(map(decimals, metrics[-1]["model_error_by_level"]))
    error = f"error of the model {metrics[-1]['model_error']:.4f}; from low to high noise {levels}"
    assert lines[2] == error
    assert lines[3] == f"model written to {out}/model.safetensors"
    assert lines[4].startswith(f"next: `oism sample {out} -n 64 -o grid.png`")
    assert ended.err == started(out, 100, 0, 5)
    found = json.loads((out / "settings.json").read_text())
    assert found["config"]["seed"] == 3
    assert found["model"]["network"]["dropout"] == 0.2
    assert found["model"]["form"]["gate"] == {"kind": "ByError", "half": 0.1, "sharpness": 2.0}
    assert (out / "samples" / "step-00000005.png").stat().st_size > 0
    predictor = informed(out)
    assert isinstance(predictor, OperatorInformed)
    assert predictor.gate == ByError(0.1, 2.0)
    assert not predictor.condition
    same_prior(predictor.prior, fit_prior(images(place), order=2, flip=True))


def test_every_setting_is_an_option() -> None:
    """The defaults in the help are those of the library, and each option reaches its setting."""
    assert set(CONFIG.values()) == {field.name for field in fields(TrainingConfig)}
    words = (
        "train d -o o --steps 1 --batch 2 --rate 3 --warmup 4 --clip 5 --ema 0.6 --first 0.07 "
        "--no-flip --no-dequantise --seed 8 --precision bf16 --compile --log-every 9 "
        "--save-every 10 --sample-every 11 --keep 12"
    )
    assert config_of(given(parse(words.split())), {}) == TrainingConfig(
        steps=1, batch=2, rate=3.0, warmup=4, clip=5.0, decay=0.6, first=0.07, flip=False,
        dequantise=False, seed=8, precision="bf16", compile=True, log_every=9, save_every=10,
        sample_every=11, keep=12,
    )  # fmt: skip
    assert config_of(given(parse(["train", "d", "-o", "o"])), {}) == TrainingConfig()
    assert set(CHANGEABLE) < set(CONFIG.values())
    source = Path(inspect.getfile(Train)).read_text(encoding="utf-8")
    assert f"as {DEFAULT_GATE.half:g} {DEFAULT_GATE.sharpness:g}" in source


def test_the_help_has_the_defaults_of_the_library(
    here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = here("train --help-all").text
    defaults = dict(re.findall(r"│ (--[a-z-]+) .*\(default: ([^)]*)\)", text))
    library = {
        **vars(TrainingConfig()),
        **complete_form(FORM),
        "dropout": unet_for((1, 8, 8)).to_config()["dropout"],
    }
    own = {**CONFIG, **{name: name for name in ("order", "predict", "loss", "prior", "dropout")}}
    for name in own:
        value = library[own[name]]
        if not isinstance(value, bool):
            shown = defaults[f"--{name.replace('_', '-')}"].replace(",", "")
            assert type(value)(shown) == value, name
    assert {*FORM, *SIZES, *CONFIG} < all_options()


@pytest.mark.parametrize(
    ("options", "predict", "loss"),
    [
        ({}, "edm", "output"),
        ({"loss": "noise"}, "edm", "noise"),
        ({"predict": "operator"}, "operator", "output"),
        ({"predict": "gaussian"}, "gaussian", "output"),
        ({"predict": "v"}, "v", "noise"),
        ({"paper": True}, "noise", "noise"),
        ({"gate": (0.001, 4.0)}, "noise", "noise"),
        ({"network": "folder"}, "noise", "noise"),
        ({"network": "folder", "predict": "edm", "loss": "mixed"}, "edm", "mixed"),
    ],
)
def test_what_is_predicted_and_the_loss_by_default(
    options: dict[str, Any], predict: str, loss: str
) -> None:
    form = complete_form({**FORM, **options})
    assert (form["predict"], form["loss"]) == (predict, loss)


def all_options() -> set[str]:
    """The names of all options of ``oism train``, those of groups included."""
    return {
        option.name
        for field in fields(Train)
        for option in (fields(field.default) if is_dataclass(field.default) else [field])
    }


def test_sizes_reach_the_network(here: Run, place: Path, tmp_path: Path) -> None:
    words = f"train digits.npz --steps 1 --batch 8 --sample-every 0 -o {tmp_path}"
    sizes = "--width 6 --multipliers 1 1 2 --blocks 2 --attention 4 2 --dropout 0"
    assert here(f"{words}/given {sizes}").code == 0
    expected = unet_for(
        (1, 8, 8), width=6, multipliers=(1, 1, 2), blocks=2, attention=(4, 2), dropout=0
    )
    assert network_of(tmp_path / "given") == expected.to_config()
    assert here(f"{words}/chosen --attention").code == 0
    expected = unet_for((1, 8, 8), attention=())
    assert network_of(tmp_path / "chosen") == expected.to_config()


@pytest.mark.slow
def test_priors(here: Run, place: Path, tmp_path: Path) -> None:
    words, data = f"train digits.npz --steps 2 {TINY} --json -o {tmp_path}", images(place)

    def trained(name: str, options: str) -> tuple[Informed, Any]:
        ended = here(f"{words}/{name} {options}")
        assert ended.code == 0, ended.err
        return informed(tmp_path / name), json.loads(ended.text)

    found, report = trained("pixel", "--prior pixel --order 3 --paper --no-flip")
    same_prior(found.prior, fit_prior(data, order=3, frame=IdentityFrame()))
    assert isinstance(found, OperatorInformed)
    assert (found.gate, found.condition) == (Open(), False)
    assert report["prior"]["order"] == 3
    found, _ = trained("file", "--prior test.safetensors")
    same_prior(found.prior, load(place / "test.safetensors"))
    assert isinstance(found, Combined)
    assert found.first == 1e-5
    found, report = trained("mixture", "--components 2 --no-dequantise")
    same_prior(found.prior, fit_mixture(data, components=2, flip=True, dequantise=False))
    assert report["prior"]["components"] == 2
    for name, options in (("clock", "--clock vp:0.1:10 --first 0.01"), ("its-clock", "")):
        found, _ = trained(name, f"--prior fast.safetensors {options}")
        assert found.prior.clock == VariancePreserving(0.1, 10.0)
        assert isinstance(found, Combined)
        model = load(tmp_path / name)
        assert found.first == model.first == (0.01 if options else 1e-5)
        assert model.clock == VariancePreserving(0.1, 10.0)
    ended = here(f"{words}/none --prior none --first 0.001")
    assert json.loads(ended.text)["prior"] is None
    model = load(tmp_path / "none")
    assert not isinstance(model.predictor, Informed)
    assert model.first == 0.001
    assert not (tmp_path / "none" / "prior.safetensors").exists()


@pytest.mark.parametrize("name", ["v", "operator"])
def test_what_the_network_predicts(here: Run, tmp_path: Path, name: str) -> None:
    """It is kept in the model, in its summary, and when the run is resumed."""
    folder = tmp_path / name
    assert here(f"train digits.npz --steps 2 {TINY} --predict {name} -o {folder}").code == 0
    ended = here(f"train --resume {folder} --steps 3")
    assert ended.code == 0, ended.err
    net = informed(folder).net
    assert isinstance(net, Parametrised)
    assert net.parametrisation.name == name
    assert isinstance(net.net, DDPMpp)
    facts = json.loads(here(f"info {folder} --json").text)
    assert facts["network"]["predicts"] == name
    assert here(f"sample {folder} -n 2 --evaluations 2 -o {tmp_path}/two.npy").code == 0
    ended = here(f"train --resume {folder} --predict x0")
    assert f"the run has --predict {name} (not x0)" in ended.err


@pytest.mark.parametrize(
    ("loss", "levels", "form"),
    [
        ("output", "NormalLogSNR", "--predict edm"),
        ("mixed", "MixedLevels", "--predict operator"),
        ("mixed", "MixedLevels", "--predict v --prior none"),
    ],
)
def test_the_loss_of_what_the_network_predicts(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, levels: str, form: str
) -> None:
    """It is kept when the run is resumed; a run without the option has that of the noise."""
    folder = tmp_path / "run"
    words = f"train digits.npz --steps 2 {TINY} {form} --loss {loss} -o {folder}"
    assert here(words).code == 0
    ended = here(f"train --resume {folder} --steps 3")
    assert ended.code == 0, ended.err
    found = checkpoint.read_latest(folder / "checkpoints")
    assert found is not None
    assert found.settings["levels"] == levels
    assert found.settings["objective"]["loss"] == "OutputMatching"
    ended = here(f"train --resume {folder} --loss noise")
    assert f"the run has --loss {loss} (not noise)" in ended.err
    settings = read_settings(folder)
    del settings["notes"]["form"]["loss"], settings["notes"]["form"]["predict"]
    monkeypatch.setattr(train_plan, "read_settings", lambda _: settings)
    old = train_plan.resumed_plan(folder, None, {}, ImageFiles()).form
    assert (old["predict"], old["loss"]) == ("noise", "noise")


@pytest.mark.parametrize("has_prior", [True, False])
def test_the_loss_has_the_outputs_of_the_trained_network(place: Path, has_prior: bool) -> None:
    prior = fit_prior(images(place), order=2)
    net: Any = predicting(unet_for((1, 8, 8), width=8), "edm", prior=prior)
    predictor = Combined(net, prior) if has_prior else net
    found = train_parts._objective(predictor, prior.clock, "mixed", 1e-4)
    assert isinstance(found, OutputMatching)
    assert found.outputs is net
    assert found.levels.first == 1e-4


def test_folders_of_pictures_and_reports(here: Run, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "test", tmp_path / "test")
    (tmp_path / "test" / "bad.png").write_bytes(b"nothing")
    words = f"train {tmp_path}/test -o {tmp_path}/run --steps 2 {TINY}"
    ended = here(words)
    assert (ended.code, ended.text) == (1, "")
    assert "bad.png: damaged" in ended.err
    assert not (tmp_path / "run").exists()
    report = json.loads(here(f"{words} --skip-broken --json").text)
    assert (report["images"], report["skipped"], report["shape"]) == (30, 1, [1, 8, 8])
    assert (report["steps"], report["resumed_from"], report["processes"]) == (2, 0, 1)
    assert report["model"] == f"{tmp_path}/run/model.safetensors"
    assert report["parameters"] == sum(
        part.numel() for part in load(tmp_path / "run").predictor.parameters()
    )
    assert here(f"train --resume {tmp_path}/run --steps 3 --quiet").text == ""
    text = here(f"train --resume {tmp_path}/run --steps 5").text
    assert "30 images of 1 × 8 × 8, 1 skipped" in text
    assert "\n2 steps after 3 in " in text


@pytest.mark.slow
def test_resuming_is_as_if_never_stopped(here: Run, tmp_path: Path) -> None:
    words = f"train digits.npz {TINY} --warmup 2 --rate 0.01"
    assert here(f"{words} -o {tmp_path}/whole --steps 7").code == 0
    resume = f"--resume {tmp_path}/parts"
    assert here(f"{words} {resume} --steps 3").code == 0, "with data, a new run if there is none"
    before = weights(tmp_path / "parts")
    assert here(f"train {resume} --steps 7 --save-every 2").code == 0
    after = weights(tmp_path / "parts")
    assert equal(after, weights(tmp_path / "whole"))
    assert not equal(after, before)
    names = [path.name for path in sorted((tmp_path / "parts" / "checkpoints").iterdir())]
    assert names == [f"step-0000000{k}.safetensors" for k in (6, 7)]


def test_a_resumed_run_needs_nothing_but_its_folder(here: Run, place: Path, tmp_path: Path) -> None:
    """Data, sizes, prior and schedule come from the folder, from any working directory."""
    words = f"train digits.npz -o {tmp_path}/run --steps 2 {TINY} --seed 4 --no-flip"
    assert here(f"{words} --gate 0.1 2 --order 3 --dropout 0.2 --attention 4 --ema 0.9").code == 0
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(elsewhere)
        ended = here(f"train --resume {tmp_path}/run --steps 3")
    assert ended.code == 0, ended.err
    after = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert after.pop("sha256") != settings.pop("sha256")
    assert after == {**settings, "config": {**settings["config"], "steps": 3}}


def test_options_given_again_must_agree(here: Run, tmp_path: Path) -> None:
    """All that differ are named at once; the same values, and those that may change, are fine."""
    shutil.copytree("run", tmp_path / "run")
    ended = here(f"train --resume {tmp_path}/run --rate 0.1 --width 8 --attention 4 --steps 9")
    assert ended.code == 1
    assert "--rate 0.0002 (not 0.1)" in ended.err
    assert "--width 4 (not 8)" in ended.err
    assert "--attention 8 (not 4)" in ended.err
    assert "--steps" not in ended.err
    words = f"train digits.npz -o {tmp_path}/run --resume {tmp_path}/run {TINY} --rate 2e-4"
    ended = here(f"{words} --order 2 --prior pca --steps 7 --keep 1 --save-every 0")
    assert ended.code == 0, ended.err


def test_images_that_moved(here: Run, place: Path, tmp_path: Path) -> None:
    shutil.copy("digits.npz", tmp_path / "old.npz")
    run = f"{tmp_path}/run"
    assert here(f"train {tmp_path}/old.npz -o {run} --steps 1 {TINY}").code == 0
    (tmp_path / "old.npz").rename(tmp_path / "new.npz")
    ended = here(f"train --resume {run} --steps 2")
    assert ended.code == 1
    advice = f"if the images moved: oism train NEW_PATH --resume {run}"
    assert f"{tmp_path}/old.npz: no such file or directory; {advice}" in ended.err
    assert here(f"train {tmp_path}/new.npz --resume {run} --steps 2").code == 0
    assert here(f"train --resume {run} --steps 3").code == 0, "the new path is stored"


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_was_killed_at_its_start(here: Run, tmp_path: Path, *, resume: bool) -> None:
    """It left its lock and drafts, or settings without a prior; the same command starts it."""
    words = f"train digits.npz -o {tmp_path}/run --steps 2 {TINY}"
    assert here(words).code == 0
    expected = weights(tmp_path / "run")
    kept = ["settings.json"] if resume else []
    for path in (tmp_path / "run").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in kept:
            path.unlink()
    for name in ("run.lock", ".oism-0.part"):
        (tmp_path / "run" / name).write_text("")
    ended = here(f"train --resume {tmp_path}/run" if resume else words)
    assert ended.code == 0, ended.err
    assert equal(weights(tmp_path / "run"), expected)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert "prior.safetensors" in names
    assert not names & {"run.lock", ".oism-0.part"}


@pytest.mark.parametrize("kept", [(), ("prior.safetensors",)])
def test_a_prior_that_is_named_by_a_relative_path(
    here: Run, place: Path, tmp_path: Path, kept: tuple[str, ...]
) -> None:
    """The run was killed before its first checkpoint, and is resumed where a file has that name."""
    words, run = f"train digits.npz --prior fast.safetensors --steps 1 {TINY}", tmp_path / "run"
    assert here(f"{words} -o {run}").code == 0
    expected, settings = weights(run), dict(read_settings(run))
    assert settings["notes"]["form"]["prior"] == str(place / "fast.safetensors")

    def begin() -> None:
        for path in run.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in (*kept, "settings.json"):
                path.unlink()

    (tmp_path / "elsewhere").mkdir()
    other = fit_prior(images(place, 50), order=2)
    other.save(tmp_path / "elsewhere" / "fast.safetensors")
    begin()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "elsewhere")
        ended = here(f"train --resume {run}")
        assert ended.code == 0, ended.err
        ended = here(f"train --resume {run} --prior fast.safetensors")
        assert "--prior" in ended.err, "that is another file"
    assert equal(weights(run), expected)
    assert here(f"{words} --resume {run}").code == 0, "the same file"
    begin()
    settings["notes"]["form"]["prior"] = "fast.safetensors"  # as in older runs
    write_settings(run, settings)
    for line in (words, "train"):
        ended = here(f"{line} --resume {run}")
        assert ended.code == 0, ended.err
        assert equal(weights(run), expected)


def test_the_prior_of_the_folder_can_be_named(here: Run, tmp_path: Path) -> None:
    """The run that fitted it was stopped before its first checkpoint."""
    words = f"train digits.npz -o {tmp_path}/run --steps 1 {TINY}"
    assert here(words).code == 0
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    prior = tmp_path / "run" / "prior.safetensors"
    before = prior.stat()
    ended = here(f"{words} --prior {prior}")
    assert ended.code == 0, ended.err
    assert os.path.samestat(prior.stat(), before), "it was there all the time"


def test_a_run_of_python_is_resumed_there(here: Run, place: Path, tmp_path: Path) -> None:
    config = TrainingConfig(steps=1, batch=16, sample_every=0)
    train(unet_for((1, 8, 8), width=4), images(place), tmp_path / "run", config)
    ended = here(f"train --resume {tmp_path}/run --steps 2")
    assert ended.code == 1
    assert "the run was not started by `oism train`" in ended.err
    assert here(f"info {tmp_path}/run").code == 0


def test_lines_about_the_progress(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal there is a line every few seconds, also after the last step."""
    monkeypatch.setattr(Lines, "__init__", lambda self: setattr(self, "seconds", -1.0))
    monkeypatch.setattr(Lines, "last", 0.0, raising=False)
    ended = here(f"train digits.npz -o {tmp_path}/run --steps 2 {TINY}")
    assert ended.code == 0
    assert ended.err == started(tmp_path / "run", 100, 0, 2) + "".join(
        f"oism: {line}\n"
        for line in (
            f"step 2 of 2, loss {read_metrics(tmp_path / 'run')[-1]['loss']:.4f}",
            "calibrating and measuring the model",
            "writing the checkpoint and the model",
        )
    )
    lines = Lines.__new__(Lines)
    lines.seconds, lines.last = 3600.0, time.monotonic()
    lines("not printed")
    ended = here(f"train --resume {tmp_path}/run --steps 3 --quiet")
    assert (ended.code, ended.err) == (0, "")


def test_a_run_that_is_not_over(
    here: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is that of the newest checkpoint: its average weights, and the prior."""
    step = Loop.step

    def stopped(loop: Loop) -> None:
        if loop.step_number == 5:
            raise KeyboardInterrupt
        step(loop)

    for name, options in (("run", ""), ("bare", "--prior none")):
        words = f"train digits.npz --save-every 4 {TINY} {options}"
        with monkeypatch.context() as patch:
            patch.setattr(Loop, "step", stopped)
            assert here(f"{words} -o {tmp_path}/{name} --steps 6").code == 130
        assert here(f"{words} -o {tmp_path}/{name}-4 --steps 4").code == 0
        assert equal(weights(tmp_path / name), weights(tmp_path / f"{name}-4"))
        assert here(f"sample {tmp_path}/{name} -n 2 --evaluations 2 -o {tmp_path}/x.png").code == 0
        assert "run         4 of 6 steps" in here(f"info {tmp_path}/{name}").text
    (tmp_path / "bare" / "model.safetensors").unlink()
    ended = here(f"info {tmp_path}/bare")
    assert ended.code == 1
    assert "is a folder without model.safetensors, which a training run writes with" in ended.err


# Commands for runs


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [(KeyboardInterrupt, 130, "interrupted"), (Terminated, 143, "terminated")],
)
@pytest.mark.parametrize(
    ("last", "way"),
    [(1, "there is no checkpoint yet"), (3, "`oism train --resume {}` continues from {}")],
)
def test_a_stopped_run_names_its_checkpoint(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, error: type[BaseException],
    code: int, word: str, last: int, way: str,
) -> None:  # fmt: skip
    step = Loop.step

    def stopped(loop: Loop) -> None:
        if loop.step_number == last:
            raise error
        step(loop)

    monkeypatch.setattr(Loop, "step", stopped)
    ended = here(f"train digits.npz -o {tmp_path} --steps 4 --save-every 2 {TINY}")
    assert ended.code == code
    error_line = f"oism: error: {word}; {way.format(tmp_path, 'step-00000002.safetensors')}\n"
    assert ended.err == started(tmp_path, 100, 0, 4) + error_line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_stops_a_run_with_a_checkpoint(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int, word: str
) -> None:
    """It comes in the middle of a step, which is taken to its end; nothing is lost by resuming."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    differentiate = Loop.differentiate

    def signalled(loop: Loop, batch: Any) -> Tensor:
        if loop.step_number == 2:
            os.kill(os.getpid(), number)
        return differentiate(loop, batch)

    words = f"train digits.npz -o {tmp_path}/run --steps 6 --save-every 0 {TINY}"
    with monkeypatch.context() as patched:
        patched.setattr(Loop, "differentiate", signalled)
        ended = here(words)
    beginning = started(tmp_path / "run", 100, 0, 6)
    way = f"`oism train --resume {tmp_path}/run` continues from step-00000003.safetensors"
    error_line = f"oism: error: {word}; {way}\n"
    assert (ended.code, ended.err) == (code, beginning + error_line)
    ended = here(f"train --resume {tmp_path}/run")
    assert (ended.code, ended.err) == (0, started(tmp_path / "run", 100, 3, 6))
    ended = here(f"train --resume {tmp_path}/run")
    assert (ended.code, ended.err) == (0, ""), "there was nothing to do"
    assert here(words.replace("/run", "/whole")).code == 0
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    steps = [row["step"] for row in read_metrics(tmp_path / "run")]
    assert steps == sorted(set(steps))


def test_a_second_signal_stops_a_run_at_once(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def signalled(loop: Loop, batch: Any) -> Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("not reached")

    monkeypatch.setattr(Loop, "differentiate", signalled)
    ended = here(f"train digits.npz -o {tmp_path}/run --steps 6 {TINY}")
    error_line = "oism: error: interrupted; there is no checkpoint yet\n"
    assert (ended.code, ended.err) == (130, started(tmp_path / "run", 100, 0, 6) + error_line)


def test_info(here: Run) -> None:
    found = json.loads(here("info run --json").text)
    assert found["network"]["width"] == 4
    assert found["prior"]["order"] == 2
    assert found["form"] == {"kind": "Combined", "first": 1e-5, "intervals": 48}
    assert (found["first"], found["precision"]) == (1e-5, "no")
    assert found["run"] == {"steps": 6, "planned": 6}
    text = here("info run").text
    assert f"{found['parameters']:,} parameters" in text
    assert "prior       Hermite polynomials, order 2, 64 principal directions" in text
    assert "form        average of network and prior, weighted by noise level" in text
    assert "run         6 of 6 steps" in text
    of_file = here("info run/model.safetensors").text
    assert of_file == text.replace("run         6 of 6 steps\n", "")
    assert "prior       none" in here("info bare").text


@pytest.mark.parametrize(
    ("options", "gate", "words"),
    [
        ("--paper", {"kind": "Open"}, ", at all noise levels"),
        (
            "--gate 0.001 4",
            {"kind": "ByError", "half": 0.001, "sharpness": 4.0},
            ", where its error is below 0.001",
        ),
    ],
)
def test_info_of_a_network_for_the_residual(
    here: Run, tmp_path: Path, options: str, gate: object, words: str
) -> None:
    assert here(f"train digits.npz -o {tmp_path}/run --steps 1 {TINY} {options}").code == 0
    found = json.loads(here(f"info {tmp_path}/run --json").text)
    assert found["form"] == {"kind": "OperatorInformed", "gate": gate, "condition": False}
    text = here(f"info {tmp_path}/run").text
    assert f"form        network for the residual of the prior{words}\n" in text


def test_samples_are_those_of_the_model(here: Run, place: Path, tmp_path: Path) -> None:
    model: Diffusion = load(place / "run")
    assert model.statistics is not None
    x = model.sample(3, torch.Generator().manual_seed(5), evaluations=3)
    for source in ("run", "run/model.safetensors"):
        out = tmp_path / "x.npy"
        ended = here(f"sample {source} -n 3 --evaluations 3 --seed 5 -o {out} --device cpu")
        assert ended.code == 0
        assert ended.text.startswith(f"3 images written to {out}: ")
        assert "3 evaluations" in ended.text
        assert np.array_equal(np.load(out), as_images(model.spec, x)[:, 0].numpy())
    assert here(f"sample run -n 2 --evaluations 1 -o {tmp_path}/drawn").code == 0
    assert len(list((tmp_path / "drawn").iterdir())) == 2
    y = model.sample(
        3, torch.Generator().manual_seed(5), evaluations=4, sampler=Polynomial(3, eta=0.5)
    )
    words = f"sample run -n 3 --evaluations 4 --order 3 --eta 0.5 --seed 5 -o {tmp_path}/y.npy"
    assert here(f"{words} --device cpu").code == 0
    found = np.load(tmp_path / "y.npy")
    assert np.array_equal(found, as_images(model.spec, y)[:, 0].numpy())
    assert here(f"sample plane -n 2 -o {tmp_path}/points.npy").code == 0
    assert np.load(tmp_path / "points.npy").shape == (2, 2)


def test_evaluation_is_that_of_the_library(here: Run, place: Path) -> None:
    words = "evaluate run digits.npz -n 20 --seed 3 --json"
    found = json.loads(here(f"{words} --intervals 3 --evaluations 4 --batch 8").text)
    model, data = load(place / "run"), images(place, 20)
    errors = errors_by_level(model, data, intervals=3, seed=3, batch=8)
    assert isinstance(model.predictor, Informed)
    alone = errors_by_level(model.predictor.prior, data, intervals=3, seed=3, batch=8)
    assert found["images"] == 20
    assert [one["error"] for one in found["noise"]] == [one.error.mean for one in errors]
    assert [one["prior"] for one in found["noise"]] == [one.error.mean for one in alone]
    assert found["loss"] == pytest.approx(np.mean([one.error.mean for one in errors]))
    bits = bits_per_dim(model, data, method=Adams(3), seed=3, batch=8)
    report = found["bits_per_dim"]
    assert (report["mean"], report["standard_error"]) == (bits.bits.mean, bits.bits.error)
    assert (report["first"], report["evaluations"], report["probes"]) == (1e-5, 4, 1)
    assert report["method"] == "Adams(steps=3)"
    assert report["dequantisation"] == "uniform"
    assert report["probe_deviation"] == bits.probe_deviation
    assert report["discretisation_error"] == bits.discretisation
    assert report["accurate"] == bits.is_accurate
    found = json.loads(here(f"{words} --intervals 0 --tolerance 1e-4").text)
    assert (found["noise"], found["loss"]) == ([], None)
    bits = bits_per_dim(model, data, method=Adaptive(1e-4, 1e-4), seed=3)
    assert found["bits_per_dim"]["mean"] == bits.bits.mean
    assert found["bits_per_dim"]["evaluations"] == bits.evaluations > 16
    assert found["frechet"] is None


def test_too_few_evaluations_draw_a_warning(here: Run) -> None:
    ended = here("evaluate bare test -n 10 --intervals 0 --evaluations 3 --json")
    assert ended.code == 0
    assert "oism: warning: bits per dimension are about " in ended.err
    assert ": 3 evaluations of the network are too few, use more of them" in ended.err
    report = json.loads(ended.text)["bits_per_dim"]
    assert not report["accurate"]
    assert abs(report["discretisation_error"]) > 0.01


def test_evaluation_as_text(here: Run) -> None:
    text = here("evaluate run test --evaluations 8 --features pixels --samples 4").text
    first, about, heads, *rest = text.splitlines()
    assert first == "30 images of 1 × 8 × 8 evaluated"
    assert about == "error of the predicted noise, per dimension, in equal parts of the log-SNR"
    assert heads.split()[-4:] == ["error", "±", "prior", "alone"]
    assert len(rest) == 6 + 1 + 5
    assert rest[6].split()[0] == "mean"
    assert rest[7].startswith("bits per dimension ")
    assert "from τ = 1e-05, Adams(steps=7), 8 evaluations, 1 probe (± " in rest[8]
    assert ", error of the steps about " in rest[8]
    assert rest[9].startswith("Fréchet distance ")
    assert rest[10].startswith("precision, recall ")
    assert rest[11] == "  features pixels, 30 images, 4 samples"
    bare = here("evaluate bare test --no-bits --intervals 1 -n 1").text.splitlines()
    assert len(bare) == 5
    assert "prior" not in bare[2]
    assert "?" in bare[3], "one image has no standard error"


def test_frechet_distance(here: Run, place: Path) -> None:
    frechet = pytest.importorskip("oism.training._frechet")
    words = "evaluate run digits.npz -n 30 --no-bits --intervals 0 --evaluations 8 --seed 4 --json"
    found = json.loads(here(f"{words} --features pixels").text)["frechet"]
    model, data = load(place / "run"), images(place, 30)
    x = model.sample(30, torch.Generator().manual_seed(4), evaluations=8)
    moments = [
        frechet.features_of(frechet.pixels, [one]) for one in (data, as_images(model.spec, x))
    ]
    expected = frechet.frechet_distance(*moments)
    assert found["distance"] == pytest.approx(expected, rel=1e-9)
    assert (found["features"], found["samples"]) == ("pixels", 30)


# Mistakes

DATA_OR_FILES = [
    ("train nowhere -o new", "nowhere: no such file or directory"),
    ("train moons.csv -o new", "moons.csv: csv holds no images"),
    ("train digits.npz -o new --batch 101", "batch must be at most the 100 rows of data, got 101"),
    (
        f"train digits.npz -o run {TINY}",
        "run holds a run, with step-00000006.safetensors: res",
    ),
    ("train digits.npz -o test", "test is not empty, and holds no run: name another folder"),
    ("train digits.npz -o moons.csv", "moons.csv: is a file, not a folder"),
    (
        "train digits.npz -o new --multipliers 1 1 1 1 1",
        "shape must have sides that are multiples of 16 for 5 levels, got 8 × 8",
    ),
    (
        "train digits.npz -o new --mode RGB --prior test.safetensors",
        "test.safetensors: prior must be for data that are of shape (3, 8, 8), as these, got one",
    ),
    (
        f"train digits.npz -o new {TINY} --prior fast.safetensors --clock vp:0.1:20",
        "fast.safetensors: the prior was fitted for the clock VariancePreserving, beta_0 = 0.1, "
        "beta_1 = 10, and --clock is VariancePreserving, beta_0 = 0.1, beta_1 = 20: they must",
    ),
    (f"train digits.npz -o new {TINY} --prior sharp.safetensors", "data that are not dequantised"),
    ("train digits.npz -o new --prior moons.csv", "moons.csv: is not a safetensors file"),
    ("train digits.npz -o new --prior moons.safetensors", "a model of a table, not a prior of"),
    ("train digits.npz -o new --prior run", "run: a trained model of images, not a prior of im"),
    ("train digits.npz -o new --prior test", "test: is a folder without model.safetensors"),
    ("train digits.npz -o new --device nonsense", "device 'nonsense' cannot be used here"),
    ("train digits.npz -o new --components 999", "components must be at most the number of rows"),
    ("train --resume run --rate 0.1", "the run has --rate 0.0002 (not 0.1), and cannot continue"),
    ("train --resume run --ema 0.9", "the run has --ema 0.9999 (not 0.9)"),
    ("train --resume run --order 3", "the run has --order 2 (not 3)"),
    ("train --resume run --width 8", "the run has --width 4 (not 8)"),
    ("train --resume run --gate 1 1", "the run has --gate None (not 1.0 1.0)"),
    ("train test --resume run", "the run has rows = 100 (not 30), checksum = "),
    ("train --resume bare --prior pca --paper", "--prior none (not pca), --paper False (not True)"),
    ("train --resume run --prior test.safetensors", "--prior pca (not test.safetensors)"),
    ("train --resume run --prior none", "the run has --prior pca (not none)"),
    ("train --resume run --paper", "the run has --paper False (not True)"),
    ("train --resume run --predict v", "the run has --predict edm (not v)"),
    ("train --resume run --no-dequantise", "the run has --no-dequantise False (not True)"),
    ("train --resume run --steps 5", "the run has taken 6 steps, and cannot continue to 5"),
    ("train --resume new", "new: holds no run to resume; `oism train DATA -o` starts one"),
    ("train --resume test", "test: holds no run to resume"),
    ("train --resume broken", "broken/settings.json: damaged"),
    ("evaluate run moons.csv", "moons.csv: csv holds no images"),
    ("evaluate run test --mode RGB", "but run is a model of 1 × 8 × 8"),
    ("evaluate plane test", "plane: a model without pixels, which is not one of images"),
    ("evaluate test digits.npz", "test: is a folder without model.safetensors"),
    ("sample test -o x.png", "test: is a folder without model.safetensors"),
    ("sample run -o x.png --device nonsense", "device 'nonsense' cannot be used here"),
    ("info cut", "cut/model.safetensors: is truncated"),
    ("sample cut/model.safetensors -o x.png", "cut/model.safetensors: is truncated"),
    ("info broken", "broken/settings.json: damaged"),
    ("density run moons.csv", "run: a trained model of images, not a model of a table"),
    ("plot run -o x.png", "run: a trained model of images, not a model of a table"),
]

USAGE = [
    ("train digits.npz -o digits.npz", "-o: digits.npz is the input, and would be overwritten"),
    ("train digits.npz -o -", "-o: a run is a folder, and cannot be written to standard output"),
    ("train test -o test/run", "-o: test/run is within the images of test"),
    ("train digits.npz -o new --prior pcaa", "--prior: expected pca, pixel, none or the file of"),
    ("train digits.npz -o new --order 10", "--order: expected 1 to 9, got 10"),
    ("train digits.npz -o new --prior none --order 3", "--order: an option for priors that are f"),
    ("train digits.npz -o new --prior none --paper", "--paper: an option for priors, and there is"),
    (
        "train digits.npz -o new --prior pixel --components 2",
        "--prior: a mixture (--components) is",
    ),
    ("train digits.npz -o new --order 3 --components 2", "--order: an option for polynomials"),
    ("train digits.npz -o new --components 0", "--components: expected at least 1, got 0"),
    ("train digits.npz -o new --paper --gate 0.1 2", "--gate: the paper's form (--paper) has no"),
    (
        "train digits.npz -o new --paper --predict v",
        "--predict: a network that learns",
    ),
    (
        "train digits.npz -o new --prior none --predict operator",
        "--predict: operator needs a",
    ),
    (
        "train digits.npz -o new --predict noise --loss mixed",
        "--loss: mixed is for networks with --predict v, x0, edm, operator, gaussian",
    ),
    ("train digits.npz -o new --gate 0 2", "--gate: must be a positive finite number, got 0.0"),
    ("train digits.npz -o new --clock ve:1:2", "--clock: the noise of images preserves variance"),
    ("train digits.npz -o new --clock vp:1", "--clock: expected ve:SIGMA_MIN:SIGMA_MAX or vp:"),
    ("train digits.npz -o new --steps 0", "--steps: must be an integer >= 1, got 0"),
    ("train digits.npz -o new --rate -1", "--rate: must be a positive finite number, got -1"),
    ("train digits.npz -o new --ema 1", "--ema: must be in [0, 1), got 1.0"),
    ("train digits.npz -o new --seed -1", "--seed: expected a number from 0 to 4294967295, got -1"),
    ("train digits.npz", "-o: name the folder of the run"),
    ("train -o new", "DATA: name the images to train on"),
    ("train digits.npz -o new --resume run", "--resume: names the folder of the run, and -o an"),
    ("train --resume -", "-o: a run is a folder, and cannot be written to standard output"),
    ("train digits.npz -o new --first 1", "--first: must be less than the clock's horizon 1, got"),
    ("train digits.npz -o new --keep 0", "--keep: must be an integer >= 1, got 0"),
    ("train digits.npz -o new --width 5", "--width: must be even, got 5"),
    ("train digits.npz -o new --width 2", "--width: must be an integer >= 4, got 2"),
    ("train digits.npz -o new --blocks 0", "--blocks: must be an integer >= 1, got 0"),
    ("train digits.npz -o new --multipliers 1 0", "--multipliers: must be an integer >= 1, got 0"),
    ("train digits.npz -o new --attention 3", "--attention: must name rows of the levels, 8, 4"),
    ("train digits.npz -o new --dropout 1", "--dropout: must be in [0, 1), got 1.0"),
    ("evaluate run test --levels 0.1", "--levels: an option for priors, not for run"),
    ("evaluate run test --intervals -1", "--intervals: expected at least 0, got -1"),
    ("evaluate run test --intervals 0 --no-bits", "--intervals: without any and with --no-bits"),
    ("evaluate run test --evaluations 1", "--evaluations: expected at least 2, got 1"),
    ("evaluate run test --probes 0", "--probes: expected at least 1, got 0"),
    ("evaluate run test --tolerance 0", "--tolerance: must be a positive finite number, got 0"),
    ("evaluate run test --tolerance 1 --evaluations 2", "--tolerance: chooses its own steps"),
    ("evaluate run test --samples 9", "--samples: compared in features"),
    ("evaluate run test --features pixels --samples 1", "--samples: expected at least 2, got 1"),
    ("evaluate run test --features nonsense", "--features: must be one of pixels"),
    (
        "evaluate test.safetensors test --evaluations 3",
        "--evaluations: an option for trained models, not for",
    ),
    ("sample run -o x.png --evaluations 0", "--evaluations: expected at least 1, got 0"),
    ("sample run -o x.png --order 4", "--order: must be 1 to 3, got 4"),
    ("sample run -o x.png --eta -1", "--eta: must be at least 0, got -1"),
    ("sample run -o x.png --density", "--density: an option for tables, and run is a trained mod"),
    ("sample run -o x.csv", "-o: x.csv: samples of images go to a grid (.png)"),
    ("sample run", "not to standard output"),
    ("sample plane -o x.png", "are not images; they go to an .npy file"),
    (
        "sample test.safetensors -o x.png --evaluations 3",
        "--evaluations: an option for trained models, not",
    ),
    ("sample moons.safetensors --device cpu", "--device: an option for trained models, not for"),
]


@pytest.fixture
def bad(here: Run, place: Path) -> Run:
    """The command, in a folder that has bad files as well."""
    content = (place / "run" / "model.safetensors").read_bytes()
    (place / "broken").mkdir(exist_ok=True)
    (place / "broken" / "settings.json").write_text("{")
    (place / "broken" / "model.safetensors").write_bytes(content)
    shutil.copytree(place / "run" / "checkpoints", place / "broken" / "checkpoints",
                    dirs_exist_ok=True)  # fmt: skip
    (place / "cut").mkdir(exist_ok=True)
    shutil.copy(place / "run" / "settings.json", place / "cut")
    (place / "cut" / "model.safetensors").write_bytes(content[:-50])
    return here


def listing(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [(*case, 1) for case in DATA_OR_FILES] + [(*case, 2) for case in USAGE],
)
def test_a_mistake(bad: Run, place: Path, words: str, message: str, code: int) -> None:
    before = listing(place)
    ended = bad(words)
    assert ended.code == code, ended.err
    assert ended.out == b""
    assert ended.err.startswith("oism: error: ")
    assert ended.err.count("\n") == 1, "one line, no traceback"
    assert message in ended.err
    assert listing(place) == before, "nothing is written"


def test_a_loss_that_is_no_number(here: Run, tmp_path: Path) -> None:
    words = f"train digits.npz -o {tmp_path}/run {TINY}"
    huge = "--rate 1e30 --clip 1e30 --warmup 0"
    ended = here(f"{words} --steps 1 {huge}")
    assert ended.code == 1, "weights that predict no numbers cannot be combined with a prior"
    assert "predictions were not finite after step 1; there is no checkpoint" in ended.err
    huge += " --gate 0.05 4"
    assert here(f"{words} --steps 1 {huge}").code == 0
    ended = here(f"train --resume {tmp_path}/run --steps 9 --log-every 1 --quiet")
    assert ended.code == 1
    assert (
        "the loss or its gradient was not finite in step 2; the last good checkpoint" in ended.err
    )
    assert ended.err.count("\n") == 1
    assert "step-00000001" in ended.err


def test_a_full_disk(here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if path.parent.name == "checkpoints":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    ended = here(f"train digits.npz -o {tmp_path}/run --steps 2 {TINY} --quiet")
    assert ended.code == 1
    assert "the checkpoint of step 2 could not be written" in ended.err
    assert "No space left on device; there is no earlier one" in ended.err
    assert ended.err.count("\n") == 1


def test_a_damaged_checkpoint(here: Run, tmp_path: Path) -> None:
    shutil.copytree("run", tmp_path / "run")
    (last,) = (tmp_path / "run").glob("checkpoints/*.safetensors")
    content = last.read_bytes()
    for damaged, word in ((content[:-7], "truncated"), (content + b"more", "too long")):
        last.write_bytes(damaged)
        ended = here(f"train --resume {tmp_path}/run --steps 9")
        assert ended.code == 1
        assert f"step-00000006.safetensors: is {word}: " in ended.err


def test_the_folder_is_looked_at_before_the_work(
    here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("too late")

    monkeypatch.setattr("oism.data.files.open_images", work)
    assert "holds a run" in here("train digits.npz -o run").err
    assert "is a file" in here("train digits.npz -o moons.csv/run").err


@pytest.mark.slow
def test_two_processes_train_the_model_of_one(place: Path, tmp_path: Path) -> None:
    words = f"-m oism train digits.npz --steps 4 {TINY} --dropout 0 --device cpu"
    launch = "-m torch.distributed.run --nproc_per_node 2"
    report = []
    for name, before in (("one", ""), ("two", launch)):
        command = [sys.executable, *f"{before} {words} -o {tmp_path / name}".split()]
        done = subprocess.run(command, cwd=place, capture_output=True, check=True, timeout=300)
        report.append(done.stdout.decode().splitlines())
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, part in one.items():
        torch.testing.assert_close(part, two[name], rtol=1e-4, atol=1e-5, equal_nan=True)
    assert [len(lines) for lines in report] == [5, 5], "one process prints"
    assert json.loads((tmp_path / "two" / "settings.json").read_text())["processes"] == 2
