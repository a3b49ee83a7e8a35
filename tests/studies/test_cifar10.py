"""The study of head starts in its quick form: its claims, its arms, and what it keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import torch

from oism import fit_prior
from oism.images import ByError, Open
from oism.images._gate import GATE
from oism.nn import Combined, DDPMpp, OperatorInformed
from oism.studies import arms, cifar10
from oism.studies.arms import (
    ALONE,
    COMBINED,
    DDPM,
    PAPER,
    RESIDUAL,
    SIXTHS,
    Arm,
    Bench,
    Mark,
    Result,
    predictor_of,
    read,
    train,
    write,
)
from oism.studies.cifar10 import SMALL, TOGETHER, Cifar10
from oism.studies.images import image_sets
from oism.studies.step_time import FAST, PLAIN, Times
from oism.studies.study import Written

Runs = Callable[[str], Any]

STUDY = Cifar10.quick()


@pytest.fixture
def written(runs: Runs) -> Written:
    found: Written = runs("cifar10").written
    return found


@pytest.fixture
def numbers(runs: Runs) -> Any:
    return runs("cifar10").numbers


def test_its_pictures_are_whole(written: Written) -> None:
    assert len(written.claims) == 2 * len(STUDY.marks) + 1
    for name in ("figure", "sixths", "samples"):
        picture = matplotlib.image.imread(written.folder / f"{name}.png")
        assert picture.std() > 0.02


def test_all_arms_were_measured_at_their_marks(numbers: Any) -> None:
    keys = [(arm["name"], arm["seed"], arm["warmup"]) for arm in numbers["arms"]]
    assert len(keys) == len(set(keys)) == len(STUDY.arms) == 9
    for arm in numbers["arms"]:
        steps = [mark["step"] for mark in arm["marks"]]
        assert steps == [mark for mark in STUDY.marks if mark <= arm["steps"]]
        assert arm["losses"][-1][0] == arm["steps"]
        for mark in arm["marks"]:
            assert len(mark["errors"]) == 6
            assert mark["mean"] == pytest.approx(np.mean(mark["errors"]), rel=1e-4)
            assert (mark["bits"] is not None) == arm["bits"]


def test_a_long_warm_up_flatters_the_head_start(numbers: Any) -> None:
    loss = {
        (arm["name"], arm["warmup"]): arm["marks"][0]["mean"]
        for arm in numbers["arms"]
        if arm["seed"] == 0
    }
    short, long = STUDY.warmup, STUDY.long_warmup
    assert loss[TOGETHER, long] / loss[DDPM, long] < loss[TOGETHER, short] / loss[DDPM, short]


def test_steps_are_timed_by_name(numbers: Any) -> None:
    steps = numbers["steps"]
    assert {PLAIN, FAST, "fast, OISM(3)"} < set(steps["seconds"])
    assert sum("solved in every step" in name for name in steps["seconds"]) == 2
    assert min(steps["seconds"].values()) > 0


def test_what_is_kept_is_not_run_again(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("arms.train", "cifar10.train", "cifar10.step_times"):
        monkeypatch.setattr(f"oism.studies.{module}", lambda *_, **__: pytest.fail("run again"))
    again = STUDY.run_in(written.folder)
    assert [str(claim) for claim in again.claims] == [str(claim) for claim in written.claims]


def test_another_arm_is_run_again(tmp_path: Path) -> None:
    arm = Arm("DDPM", ALONE, None, 3, bits=True)
    samples = np.zeros((1, 2, 1, 8, 8), dtype=np.uint8)
    mark = Mark(3, [0.5] * 6, [3.0, 4.0], 1.0, 2.0)
    bench = Bench(marks=(3,), sizes=SMALL)
    write(Result(arm, [(1, 0.9), (3, 0.5)], [mark], samples), tmp_path, bench)
    found = read(arm, tmp_path, bench)
    assert found is not None
    assert found.at(3) == mark
    assert found.losses == [(1, 0.9), (3, 0.5)]
    assert np.array_equal(found.samples, samples)
    assert read(replace(arm, steps=4), tmp_path, bench) is None
    assert read(replace(arm, seed=1), tmp_path, bench) is None
    assert read(arm, tmp_path, replace(bench, rate=1e-3)) is None


def test_a_residual_arm_of_another_gate_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, mark = Bench(marks=(3,), sizes=SMALL), Mark(3, [0.5] * 6, None, 1.0, 2.0)
    kept = [Arm(form, form, "PCA", 3) for form in (RESIDUAL, COMBINED)]
    for arm in kept:
        write(Result(arm, [(1, 0.9)], [mark], np.zeros((1, 2), np.uint8)), tmp_path, bench)
    assert all(read(arm, tmp_path, bench) for arm in kept)
    monkeypatch.setattr(arms, "GATE", ByError(0.5))
    assert read(kept[0], tmp_path, bench) is None
    assert read(kept[1], tmp_path, bench) is not None, "it has no gate"


def test_arms_of_a_folder_are_drawn_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Cifar10(data="digits", marks=(1, 2))
    mark = [Mark(step, [0.5] * 6, [3.0], 1.0, 2.0) for step in study.marks]
    drawn = np.random.default_rng(0).integers(0, 256, (2, 16, 1, 8, 8), dtype=np.uint8)
    for arm in study.arms[:2]:
        write(Result(arm, [(2, 0.5)], mark, drawn), tmp_path / "arms", study.bench)
    of_study = ["--data", "digits", "--marks", "1", "2"]
    arguments = [str(tmp_path), *of_study, "--only", "combined-0-500", "DDPM-0-500"]
    monkeypatch.setattr("sys.argv", ["cifar10", *arguments])
    cifar10.main()
    assert matplotlib.image.imread(tmp_path / "samples.png").std() > 0.1
    told = json.loads((tmp_path / "arms.json").read_text(encoding="utf-8"))["arms"]
    assert [(arm["name"], len(arm["marks"])) for arm in told] == [("combined", 2), ("DDPM", 2)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--marks", "5"], "--marks: must rise, two or more"),
        (["--marks", "5", "3"], "--marks: must rise, two or more"),
        (["--only", "DDPM-7-500"], "--only: 'DDPM-7-500' is none of combined-0-500, "),
        (["--data", "nowhere"], "no train*.parquet in nowhere: give --data FOLDER"),
    ],
)
def test_a_mistake_is_told_before_the_work(
    words: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["cifar10", "folder", *words])
    with pytest.raises(SystemExit):
        cifar10.main()
    assert told in capsys.readouterr().err


@pytest.fixture(scope="module")
def both() -> list[Result]:
    sets = image_sets("digits")
    priors = {"PCA": fit_prior(sets.train, order=2, pixels=sets.pixels)}
    bench = Bench(marks=(20, 40), sizes=SMALL, batch=32, rate=2e-3, tested=500, drawn=2, flip=False)
    return train(Arm(TOGETHER, COMBINED, "PCA", 40, seed=3, warmup=10), bench, sets, priors)


def test_a_combined_arm_is_measured_alone_as_well(both: list[Result]) -> None:
    """From the same weights: in every sixth it is at most as wrong, but for a hair."""
    own, alone = both
    assert alone.arm == own.arm.alone == Arm(DDPM, ALONE, None, 40, seed=3, warmup=10)
    assert own.losses == alone.losses, "it was trained once"
    assert len(own.marks) == len(alone.marks) == 2
    for first, second in zip(own.marks, alone.marks, strict=True):
        assert (first.step, first.train_seconds) == (second.step, second.train_seconds)
        assert len(first.errors) == len(second.errors) == SIXTHS
        pairs = list(zip(first.errors, second.errors, strict=True))
        assert all(mine <= 1.005 * other for mine, other in pairs), pairs
        assert first.errors[-1] < 0.5 * second.errors[-1]
    assert not np.array_equal(own.samples, alone.samples)


def test_arms_begin_with_the_same_weights() -> None:
    sets = image_sets("digits")
    priors = {"PCA": fit_prior(sets.train, order=2, pixels=sets.pixels)}
    bench = Bench(marks=(1,), sizes=SMALL)
    alone, paper, residual, combined = (
        predictor_of(Arm(form, form, None if form == ALONE else "PCA", 1), bench, sets, priors)
        for form in (ALONE, PAPER, RESIDUAL, COMBINED)
    )
    assert isinstance(alone, DDPMpp)
    assert isinstance(paper, OperatorInformed)
    assert isinstance(residual, OperatorInformed)
    assert isinstance(combined, Combined)
    assert (paper.gate, residual.gate) == (Open(), GATE)
    state = alone.state_dict()
    for net in (paper.net, residual.net, combined.net):
        own = net.state_dict()
        assert own.keys() == state.keys()
        assert all(torch.equal(part, state[name]) for name, part in own.items())


def test_times_are_compared_by_name() -> None:
    times = Times({PLAIN: 4.0, FAST: 2.0}, {}, operations=1e12, matrix_rate=2e12)
    assert times.ratio(PLAIN) == 2
    assert times.ratio(FAST, PLAIN) == 0.5
    assert times.share(FAST) == 0.25
