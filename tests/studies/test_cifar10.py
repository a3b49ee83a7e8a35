"""The study cifar10: its quick form, its variants, and stored results."""

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

from oism.images import DEFAULT_GATE, ByError, Open, fit_prior
from oism.nn import Combined, DDPMpp, OperatorInformed
from studies.cifar10 import __main__ as command
from studies.cifar10 import variants
from studies.cifar10.study import SMALL, TOGETHER, Cifar10
from studies.cifar10.variants import (
    COMBINED,
    DDPM,
    Mark,
    Result,
    Setup,
    Variant,
    predictor_of,
    read,
    train,
    write,
)
from studies.images import image_sets
from studies.study import Results
from studies.training.step_time import FAST, PLAIN
from studies.training.trainings import ALONE, PAPER, RESIDUAL, SIXTHS

Runs = Callable[[str], Any]

STUDY = Cifar10.quick()


@pytest.fixture
def results(runs: Runs) -> Results:
    found: Results = runs("cifar10").results
    return found


@pytest.fixture
def numbers(runs: Runs) -> Any:
    return runs("cifar10").numbers


@pytest.mark.study
def test_figures_are_not_empty(results: Results) -> None:
    assert len(results.claims) == 2 * len(STUDY.marks) + 1
    for name in ("figure", "sixths", "samples"):
        picture = matplotlib.image.imread(results.folder / f"{name}.png")
        assert picture.std() > 0.02


@pytest.mark.study
def test_all_variants_were_measured_at_their_marks(numbers: Any) -> None:
    keys = [(one["name"], one["seed"], one["warmup"]) for one in numbers["variants"]]
    assert len(keys) == len(set(keys)) == len(STUDY.variants) == 9
    for one in numbers["variants"]:
        steps = [mark["step"] for mark in one["marks"]]
        assert steps == [mark for mark in STUDY.marks if mark <= one["steps"]]
        assert one["losses"][-1][0] == one["steps"]
        for mark in one["marks"]:
            assert len(mark["errors"]) == 6
            assert mark["mean"] == pytest.approx(np.mean(mark["errors"]), rel=1e-4)
            assert (mark["bits"] is not None) == one["bits"]


@pytest.mark.study
def test_a_long_warm_up_favours_the_prior(numbers: Any) -> None:
    loss = {
        (one["name"], one["warmup"]): one["marks"][0]["mean"]
        for one in numbers["variants"]
        if one["seed"] == 0
    }
    short, long = STUDY.warmup, STUDY.long_warmup
    assert loss[TOGETHER, long] / loss[DDPM, long] < loss[TOGETHER, short] / loss[DDPM, short]


@pytest.mark.study
def test_steps_are_timed_by_name(numbers: Any) -> None:
    steps = numbers["steps"]
    assert {PLAIN, FAST, "fast, OISM(3)"} < set(steps["rounds"])
    assert sum("solved in every step" in name for name in steps["rounds"]) == 2
    assert min(map(min, steps["rounds"].values())) > 0


@pytest.mark.study
def test_stored_results_are_not_computed_again(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("variants.train", "study.train", "study.step_times"):
        monkeypatch.setattr(f"studies.cifar10.{name}", lambda *_, **__: pytest.fail("run again"))
    again = STUDY.run_in(results.folder)
    assert [str(claim) for claim in again.claims] == [str(claim) for claim in results.claims]


def test_results_with_other_settings_are_not_read(tmp_path: Path) -> None:
    variant = Variant("DDPM", ALONE, None, 3, bits=True)
    samples = np.zeros((1, 2, 1, 8, 8), dtype=np.uint8)
    mark = Mark(3, [0.5] * 6, [3.0, 4.0], 1.0, 2.0)
    setup = Setup(marks=(3,), sizes=SMALL)
    write(Result(variant, [(1, 0.9), (3, 0.5)], [mark], samples), tmp_path, setup)
    found = read(variant, tmp_path, setup)
    assert found is not None
    assert found.at(3) == mark
    assert found.losses == [(1, 0.9), (3, 0.5)]
    assert np.array_equal(found.samples, samples)
    assert read(replace(variant, steps=4), tmp_path, setup) is None
    assert read(replace(variant, seed=1), tmp_path, setup) is None
    assert read(variant, tmp_path, replace(setup, rate=1e-3)) is None


def test_a_residual_variant_with_another_gate_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup, mark = Setup(marks=(3,), sizes=SMALL), Mark(3, [0.5] * 6, None, 1.0, 2.0)
    stored = [Variant(form, form, "PCA", 3) for form in (RESIDUAL, COMBINED)]
    for variant in stored:
        write(Result(variant, [(1, 0.9)], [mark], np.zeros((1, 2), np.uint8)), tmp_path, setup)
    assert all(read(variant, tmp_path, setup) for variant in stored)
    monkeypatch.setattr(variants, "DEFAULT_GATE", ByError(0.5))
    assert read(stored[0], tmp_path, setup) is None
    assert read(stored[1], tmp_path, setup) is not None, "it has no gate"


def test_the_command_draws_stored_variants(tmp_path: Path) -> None:
    study = Cifar10(data="digits", marks=(1, 2))
    mark = [Mark(step, [0.5] * 6, [3.0], 1.0, 2.0) for step in study.marks]
    drawn = np.random.default_rng(0).integers(0, 256, (2, 16, 1, 8, 8), dtype=np.uint8)
    for variant in study.variants[:2]:
        write(Result(variant, [(2, 0.5)], mark, drawn), tmp_path / "variants", study.setup)
    of_study = ["--data", "digits", "--marks", "1", "2"]
    arguments = [str(tmp_path), *of_study, "--only", "combined-0-500", "DDPM-0-500"]
    command.main(arguments)
    assert matplotlib.image.imread(tmp_path / "samples.png").std() > 0.1
    content = json.loads((tmp_path / "variants.json").read_text(encoding="utf-8"))
    found = content["variants"]
    assert [(one["name"], len(one["marks"])) for one in found] == [("combined", 2), ("DDPM", 2)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--marks", "5"], "--marks: must be two or more, increasing"),
        (["--marks", "5", "3"], "--marks: must be two or more, increasing"),
        (["--only", "DDPM-7-500"], "--only: 'DDPM-7-500' is none of combined-0-500, "),
        (["--data", "nowhere"], "no train*.parquet in nowhere: give --data FOLDER"),
    ],
)
def test_a_mistake_is_an_error_before_the_work(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(["folder", *words])
    assert message in capsys.readouterr().err


@pytest.fixture(scope="module")
def both() -> list[Result]:
    sets = image_sets("digits")
    priors = {"PCA": fit_prior(sets.train, order=2, pixels=sets.pixels)}
    setup = Setup(marks=(20, 40), sizes=SMALL, batch=32, rate=2e-3, tested=500, drawn=2, flip=False)
    return train(Variant(TOGETHER, COMBINED, "PCA", 40, seed=3, warmup=10), setup, sets, priors)


@pytest.mark.study
def test_a_combined_variant_is_measured_alone_as_well(both: list[Result]) -> None:
    """With the same weights: its error is at most 0.5% larger in any sixth."""
    own, alone = both
    assert alone.variant == own.variant.alone == Variant(DDPM, ALONE, None, 40, seed=3, warmup=10)
    assert own.losses == alone.losses, "it was trained once"
    assert len(own.marks) == len(alone.marks) == 2
    for first, second in zip(own.marks, alone.marks, strict=True):
        assert (first.step, first.train_seconds) == (second.step, second.train_seconds)
        assert len(first.errors) == len(second.errors) == SIXTHS
        pairs = list(zip(first.errors, second.errors, strict=True))
        assert all(mine <= 1.005 * other for mine, other in pairs), pairs
        assert first.errors[-1] < 0.5 * second.errors[-1]
    assert not np.array_equal(own.samples, alone.samples)


def test_variants_start_with_the_same_weights() -> None:
    sets = image_sets("digits")
    priors = {"PCA": fit_prior(sets.train, order=2, pixels=sets.pixels)}
    setup = Setup(marks=(1,), sizes=SMALL)
    alone, paper, residual, combined = (
        predictor_of(Variant(form, form, None if form == ALONE else "PCA", 1), setup, sets, priors)
        for form in (ALONE, PAPER, RESIDUAL, COMBINED)
    )
    assert isinstance(alone, DDPMpp)
    assert isinstance(paper, OperatorInformed)
    assert isinstance(residual, OperatorInformed)
    assert isinstance(combined, Combined)
    assert (paper.gate, residual.gate) == (Open(), DEFAULT_GATE)
    state = alone.state_dict()
    for net in (paper.net, residual.net, combined.net):
        own = net.state_dict()
        assert own.keys() == state.keys()
        assert all(torch.equal(part, state[name]) for name, part in own.items())
