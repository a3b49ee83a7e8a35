"""Folders of diffusers at the command line: info, evaluate, sample, train --network, export."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, DDPMPipeline, DiffusionPipeline
from sklearn.datasets import load_digits

import oism
from oism.diffusers import UNetPredictor, predictor, read_model
from oism.nn import Diffusion
from tests.diffusers.small import small_unet

os.environ["HF_HUB_OFFLINE"] = "1"

Run = Callable[..., Any]
TINY = "--batch 16 --sample-every 0"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 digits, 20 to test, a pipeline, and a network without weights."""
    folder = tmp_path_factory.mktemp("diffusers")
    digits = (load_digits().images[:120] * 15).astype(np.uint8)
    np.savez(folder / "digits.npz", images=digits[:100])
    np.savez(folder / "test.npz", images=digits[100:])
    np.savez(folder / "wide.npz", images=np.zeros((20, 8, 12), np.uint8))
    scheduler = DDIMScheduler(prediction_type="v_prediction")
    DDPMPipeline(small_unet(7), scheduler).save_pretrained(folder / "pipeline")
    small_unet().save_config(folder / "new")
    return folder


@pytest.fixture
def here(place: Path, command: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``oism words`` in that folder."""
    monkeypatch.chdir(place)
    return command


def test_a_pipeline_is_described(here: Run) -> None:
    ended = here("info pipeline --json")
    assert ended.code == 0, ended.err
    facts = json.loads(ended.text)
    assert facts["network"]["prediction"] == "v_prediction"
    assert facts["shape"] == [1, 8, 8]
    assert facts["pixels"] == [0, 255]
    text = here("info pipeline").text
    assert "UNetPredictor" in text
    assert "block_out_channels 8 16" in text


def test_a_pipeline_is_evaluated_and_sampled(here: Run, place: Path, tmp_path: Path) -> None:
    ended = here("evaluate pipeline test.npz -n 4 --intervals 2 --no-bits --json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.text)
    assert found["images"] == 4
    lowest = float(read_model(place / "pipeline").noising.log_snr(found["noise"][0]["tau"][0]))
    assert lowest == pytest.approx(9.21, abs=0.01), "that of timestep 0, log(0.9999/0.0001)"
    ended = here(f"sample pipeline -n 3 --seed 0 --evaluations 2 -o {tmp_path / 'drawn.npy'}")
    assert ended.code == 0, ended.err
    assert np.load(tmp_path / "drawn.npy").shape == (3, 8, 8)


def test_the_model_of_a_pipeline_is_its_network(place: Path) -> None:
    model = read_model(place / "pipeline")
    scheduler = DDIMScheduler(prediction_type="v_prediction")
    x = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    wanted = Diffusion(predictor(small_unet(7), scheduler), model.spec)
    assert torch.equal(model.noise(x, 0.3), wanted.noise(x, 0.3))


@pytest.mark.parametrize("network", ["pipeline", "pipeline/unet", "new"])
def test_a_network_of_a_folder_is_trained(here: Run, tmp_path: Path, network: str) -> None:
    run = tmp_path / "run"
    ended = here(f"train digits.npz -o {run} --network {network} --steps 2 --no-flip {TINY}")
    assert ended.code == 0, ended.err
    net = oism.load(run).net
    assert isinstance(net, UNetPredictor)
    assert net.lowest == -1
    assert net.prediction == ("v_prediction" if network == "pipeline" else "epsilon")


def test_training_starts_from_the_weights_of_a_folder(here: Run, tmp_path: Path) -> None:
    words = f"--steps 1 --warmup 100000 --prior none --no-flip {TINY}"
    for network, same in (("pipeline", True), ("new", False)):
        run = tmp_path / network
        assert here(f"train digits.npz -o {run} --network {network} {words}").code == 0
        found = oism.load(run).net.unet.conv_in.weight
        assert torch.allclose(found, small_unet(7).conv_in.weight, atol=1e-4) == same


def test_a_run_resumes_without_the_folder_and_to_the_same_weights(
    here: Run, place: Path, tmp_path: Path
) -> None:
    shutil.copytree(place / "pipeline", tmp_path / "gone")
    words = f"train digits.npz --network {tmp_path / 'gone'} {TINY} --no-flip"
    assert here(f"{words} -o {tmp_path / 'run'} --steps 2").code == 0
    assert here(f"{words} -o {tmp_path / 'whole'} --steps 4").code == 0
    shutil.rmtree(tmp_path / "gone")
    ended = here(f"train --resume {tmp_path / 'run'} --steps 4")
    assert ended.code == 0, ended.err
    first, second = (oism.load(tmp_path / name).net.state_dict() for name in ("run", "whole"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_that_was_killed_at_its_start_finds_its_network(
    here: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was named by a relative path, and the run is resumed elsewhere."""
    run = tmp_path / "run"
    assert here(f"train digits.npz --network pipeline --steps 1 {TINY} -o {run}").code == 0
    expected = oism.load(run).net.state_dict()
    shutil.rmtree(run / "checkpoints")
    monkeypatch.chdir(tmp_path)
    ended = here(f"train --resume {run}")
    assert ended.code == 0, ended.err
    found = oism.load(run).net.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("train digits.npz -o x --network nowhere", 2, "--network: expected the folder"),
        ("train digits.npz -o x --network new --width 8", 2, "--width: not together with"),
        ("train wide.npz -o x --network new", 1, "new: a network for images of 1 × 8 × 8"),
        ("train digits.npz -o x --network .", 1, "no folder of diffusers"),
        ("evaluate pipeline wide.npz", 1, "but pipeline is a model of 1 × 8 × 8"),
        ("evaluate broken test.npz", 1, "broken"),
        ("sample other -n 1 -o x.png", 1, "oism reads UNet2DModel"),
        ("sample partial -n 1 -o x.png", 1, "a pipeline without scheduler"),
        ("sample flow -n 1 -o x.png", 1, "alphas_cumprod"),
        ("density pipeline test.npz", 1, "a trained model of images, not a model of a table"),
    ],
)
def test_mistakes_are_named_in_one_line(
    here: Run, place: Path, words: str, code: int, message: str
) -> None:
    pipeline = place / "pipeline"
    for name in ("broken", "other", "partial", "flow"):
        shutil.copytree(pipeline, place / name, dirs_exist_ok=True)
    (place / "broken" / "model_index.json").write_text("[")
    config = json.loads((pipeline / "unet" / "config.json").read_text())
    changed = {**config, "_class_name": "UNet3D"}
    (place / "other" / "unet" / "config.json").write_text(json.dumps(changed))
    shutil.rmtree(place / "partial" / "scheduler", ignore_errors=True)
    scheduler = {"_class_name": "FlowMatchEulerDiscreteScheduler"}
    (place / "flow" / "scheduler" / "scheduler_config.json").write_text(json.dumps(scheduler))
    ended = here(words)
    assert ended.code == code
    assert message in ended.err
    assert ended.err.count("\n") == 1, ended.err


@pytest.fixture(scope="module")
def exported(place: Path, command: Run) -> Path:
    """The run of a small network beside a prior, and its pipeline."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for words in (
            f"train digits.npz -o run --steps 4 --width 4 --no-flip {TINY}",
            "export run -o exported --diffusers",
        ):
            ended = command(words)
            assert ended.code == 0, ended.err
    assert "DiffusionPipeline.from_pretrained('exported', trust_remote_code=True)" in ended.text
    return place / "exported"


def test_an_exported_run_is_a_pipeline(here: Run, exported: Path) -> None:
    pipe = DiffusionPipeline.from_pretrained(exported, trust_remote_code=True)
    pipe.set_progress_bar_config(disable=True)
    images = pipe(2, torch.Generator().manual_seed(0), output_type="pt").images
    assert images.shape == (2, 1, 8, 8)
    run, again = oism.load(exported.parent / "run"), read_model(exported)
    x = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(run.noise(x, 0.3), again.noise(x, 0.3))
    facts = [json.loads(here(f"info {name} --json").text) for name in ("run", "exported")]
    assert {**facts[0], "run": None} == {**facts[1], "run": None}


def test_an_exported_folder_samples_and_evaluates_as_its_run(
    here: Run, exported: Path, tmp_path: Path
) -> None:
    for name in ("run", "exported"):
        assert here(f"sample {name} -n 3 --seed 0 -o {tmp_path / name}.npy").code == 0
    first, second = (np.load(tmp_path / f"{name}.npy") for name in ("run", "exported"))
    assert np.array_equal(first, second)
    words = "test.npz --intervals 2 --no-bits --json"
    found = [json.loads(here(f"evaluate {name} {words}").text) for name in ("run", "exported")]
    assert found[0]["noise"] == found[1]["noise"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("export run --diffusers", 2, "-o: name the folder"),
        ("export run -o - --diffusers", 2, "-o: name the folder"),
        ("export run -o new_one", 2, "--diffusers: name the format"),
        ("export run -o exported --diffusers", 1, "exported: the folder is not empty"),
        ("export test.npz -o x --diffusers", 1, "test.npz"),
        ("export nowhere -o x --diffusers", 1, "nowhere: no such file"),
    ],
)
def test_mistakes_of_export(here: Run, exported: Path, words: str, code: int, message: str) -> None:
    ended = here(words)
    assert ended.code == code
    assert message in ended.err
    assert ended.err.count("\n") == 1, ended.err
