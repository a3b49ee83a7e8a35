"""Classes at the command line: training with labels, sampling by class, evaluation in features."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from oism import load
from oism.data.files import open_images, write_images
from oism.images import ClassPrior
from oism.nn import Combined, DDPMpp, Parametrised
from oism.training import read_settings

Run = Callable[..., Any]
TINY = "--width 4 --batch 16 --sample-every 0 --no-flip"
NAMES = ("cat", "dog", "owl")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, command: Run) -> Iterator[Path]:
    """Folders of digits by class, an NPZ file of some to test, and a run of four steps."""
    folder, before = tmp_path_factory.mktemp("classes"), Path.cwd()
    digits = load_digits()
    images = (digits.images * 15).astype(np.uint8)
    (folder / "images").mkdir()
    for k, name in enumerate(NAMES):
        write_images(str(folder / "images" / name), images[digits.target == k][:40, None])
    chosen = np.isin(digits.target, (0, 2))  # one class is missing: numbers are those of names
    names = np.array(NAMES)[digits.target[chosen][-30:]]
    np.savez(folder / "test.npz", images=images[chosen][-30:], labels=names)
    os.chdir(folder)
    ended = command(f"train images -o run --labels --steps 4 {TINY}")
    assert ended.code == 0, ended.err
    yield folder
    os.chdir(before)


def test_a_run_with_labels(place: Path, command: Run) -> None:
    model = load(place / "run")
    assert model.classes == 3
    assert isinstance(model.predictor, Combined)
    assert isinstance(model.predictor.prior, ClassPrior)
    assert isinstance(model.net, Parametrised)
    assert isinstance(model.net.net, DDPMpp)
    settings = read_settings(place / "run")
    assert settings["notes"]["classes"] == list(NAMES)
    assert settings["config"]["dropped_labels"] == 0.1
    text = command("info run").text
    assert "classes 3" in text
    assert "Gaussians by class, 3 classes" in text
    shutil.copytree(place / "run", place / "more")
    assert command("train --resume more --steps 6").code == 0
    ended = command("train --resume more --steps 7 --dropped-labels 0.3")
    assert "--dropped-labels 0.1 (not 0.3)" in ended.err


def test_samples_by_class(place: Path, command: Run) -> None:
    model = load(place / "run")
    for word, label in (("2", 2), ("owl", 2), ("cat", 0)):
        ended = command(f"sample run -n 5 --label {word} --guidance 2 --seed 0 -o x.npy --json")
        assert ended.code == 0, ended.err
        assert json.loads(ended.text)["guidance"] == 2
        x = model.sample(5, torch.Generator().manual_seed(0), labels=label, guidance=2.0)
        assert np.array_equal(np.load("x.npy"), model.pixels.values(x)[:, 0].numpy())
    assert command("sample run -n 6 --label all --seed 0 -o y.npy").code == 0
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    x = model.sample(6, torch.Generator().manual_seed(0), labels=labels)
    assert np.array_equal(np.load("y.npy"), model.pixels.values(x)[:, 0].numpy())
    assert command("sample run -n 6 --seed 0 -o z.npy").code == 0
    assert not np.array_equal(np.load("y.npy"), np.load("z.npy"))


def test_priors_by_class(place: Path, command: Run) -> None:
    ended = command("fit-images images --labels -o prior.safetensors")
    assert ended.code == 0, ended.err
    assert "3 classes" in ended.text
    prior = load(place / "prior.safetensors")
    assert command("sample prior.safetensors --label 1 -n 4 --seed 0 -o p.npy").code == 0
    x = prior.given(1).sample(4, torch.Generator().manual_seed(0))
    assert np.array_equal(np.load("p.npy"), prior.pixels.values(x)[:, 0].numpy())
    assert command("sample prior.safetensors --label all -n 7 -o q.npy").code == 0
    assert len(np.load("q.npy")) == 7
    ended = command(f"train images -o own --prior prior.safetensors --labels --steps 2 {TINY}")
    assert ended.code == 0, ended.err


def test_evaluation_with_labels_and_features(place: Path, command: Run) -> None:
    words = "evaluate run test.npz --no-bits --features classifier --samples 24 --evaluations 6"
    ended = command(f"{words} --labels --nearest near.png --json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.text)
    assert found["labels"]
    assert found["frechet"]["features"] == "classifier"
    assert found["frechet"]["distance"] > 0
    assert 0 <= found["precision"] <= 1
    assert 0 <= found["recall"] <= 1
    assert found["neighbours"] == 3
    assert found["nearest"]["samples"] > 0
    with Image.open("near.png") as picture:
        assert picture.size == (8 * 8 + 7 * 2, 10 * 8 + 9 * 2) or picture.size[0] > 64
    stored = (place / "run" / "classifier.safetensors").stat().st_mtime_ns
    again = command(f"{words} --intervals 0 --json")
    assert json.loads(again.text)["frechet"] == found["frechet"]  # with the stored classifier
    assert (place / "run" / "classifier.safetensors").stat().st_mtime_ns == stored
    net = load(place / "run" / "classifier.safetensors")
    images = open_images("images")
    values = torch.from_numpy(np.concatenate(list(images)))
    assert net.accuracy(values, torch.from_numpy(images.labels().numbers)) > 0.95
    # The labels of the test images are found by name, although a class is missing.
    free = command("evaluate run test.npz --no-bits --json")
    assert json.loads(free.text)["noise"][2]["error"] != found["noise"][2]["error"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sample run --label 5 -o x.npy", "--label: expected a class from 0 to 2: cat, dog, owl"),
        ("sample run --guidance 2 -o x.npy", "--guidance: guides towards a class"),
        ("sample run --label 0 --guidance -1 -o x.npy", "--guidance: expected a number from 0"),
        (f"train images -o new --labels --order 4 {TINY}", "--order: with --labels"),
        (f"train images -o new --dropped-labels 0.2 {TINY}", "--dropped-labels: labels are used"),
        (f"train test.npz -o new --labels --label-column kind {TINY}", "there is no column 'kind'"),
        ("fit-images images --labels --order 3 -o x.safetensors", "--order: not for a Gaussian"),
        ("evaluate run test.npz --nearest a.png", "--nearest: nearest in features"),
        ("evaluate run test.npz --labels --label-column kind --no-bits", "no column 'kind'"),
    ],
)
def test_mistakes(place: Path, command: Run, words: str, message: str) -> None:
    ended = command(words)
    assert ended.code != 0
    assert message in ended.err
    assert not (place / "new").exists()


def test_models_without_classes(place: Path, command: Run) -> None:
    ended = command(f"train images -o plain --steps 2 {TINY}")
    assert ended.code == 0, ended.err
    ended = command("sample plain --label 0 -o x.npy")
    assert "--label: plain has no classes" in ended.err
    ended = command("evaluate plain test.npz --labels --no-bits")
    assert "--labels: plain has no classes" in ended.err
    shutil.copy(place / "plain" / "model.safetensors", place / "alone.safetensors")
    ended = command("evaluate alone.safetensors test.npz --features classifier --no-bits")
    assert "--features classifier: needs the images that the model was trained on" in ended.err
