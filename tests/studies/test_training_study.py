"""The study of training: trainings, measured forms, stored results, deadlines and the report."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oism.nn import Combined, Diffusion, OperatorInformed, Parametrised
from oism.objectives import OutputMatching, UniformLogSNR, errors_by_level
from oism.training import Loop
from studies.study import Results, plain, run_study
from studies.training import __main__ as command
from studies.training import step_time
from studies.training.answers import answers, forms
from studies.training.claims import claims
from studies.training.measuring import Measured, Replayed
from studies.training.results import Curve, Mark, Result, Store, refined, steps_needed
from studies.training.running import Pace, Runner
from studies.training.savings import Pair, Saving
from studies.training.short import short
from studies.training.step_time import FAST, PLAIN, Times
from studies.training.study import STEPS, TrainingStudy, run_some
from studies.training.summary import Summary
from studies.training.trainings import (
    GAUSSIAN,
    ITSELF,
    OWN,
    PAPER,
    PIXELS_3,
    RESIDUAL,
    SIXTHS,
    Training,
    network_of,
    objective_of,
    predictor_of,
)

QUICK = TrainingStudy.quick()
FULL = TrainingStudy()
TINY = replace(
    replace(QUICK, batch=8, tested=40, likelihoods=2, drawn=4, evaluations=3, shown=2).setup,
    sizes={"width": 8, "multipliers": (1,), "blocks": 1, "attention": ()},
    epochs=2,
)
ONE = Training("noise", "noise", marks=(2, 4), points=(1,), warmup=2)


def names(trainings: list[Training], warmup: int, seed: int = 0) -> list[str]:
    return [one.name for one in trainings if (one.warmup, one.seed) == (warmup, seed)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a classifier, images and priors."""
    place = tmp_path_factory.mktemp("training")
    Runner(TINY, "digits", place, report=lambda _: None).priors[GAUSSIAN]
    return place


def runner_in(folder: Path, base: Path, **settings: Any) -> Runner:
    """Return a runner of another folder, with the same classifier and priors."""
    for path in (*base.glob("classifier.*"), *base.glob("cache/*.oism")):
        copy = folder / path.relative_to(base)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return Runner(TINY, "digits", folder, report=lambda _: None, **settings)


def test_the_trainings_of_the_design_are_there() -> None:
    found = FULL.trainings
    assert len({one.key for one in found}) == len(found) == 19
    assert set(names(found, 5000)) == {"noise", "oism3", "oism6", "paper-principal2"}
    assert names(found, 5000, 1) == ["noise", "oism3"]
    assert len(names(found, 500)) == 10
    assert names(found, 500, 1) == ["noise", "edm-own", "operator-own"]
    for one in found:
        assert one.marks == ((1000, 2500, 6000) if one.warmup == 5000 else (1000, 2500, 5000))
        assert one.measured[0] == 250
        assert one.forms[0] == ITSELF
    assert {one.key for one in QUICK.trainings} == set(QUICK.only)


def test_trainings_of_a_seed_start_with_the_same_weights(folder: Path) -> None:
    priors = Runner(TINY, "digits", folder).priors
    kinds = {
        "noise": Training("a", "", (1,)),
        "v": Training("a", "", (1,), predict="v"),
        "operator": Training("a", "", (1,), predict="operator", prior=GAUSSIAN),
        PAPER: Training("a", "", (1,), form=PAPER, prior=GAUSSIAN),
        RESIDUAL: Training("a", "", (1,), form=RESIDUAL, prior=GAUSSIAN),
    }
    first = network_of((1, 8, 8), 0, TINY.sizes).state_dict()
    for name, training in kinds.items():
        made = predictor_of(training, network_of((1, 8, 8), 0, TINY.sizes), priors)
        net = made if name == "noise" else made.get_submodule("net")
        assert all(torch.equal(part, first[key]) for key, part in net.state_dict().items())
        assert isinstance(made, Parametrised) == (name in ("v", "operator"))
        assert isinstance(made, OperatorInformed) == (name in (PAPER, RESIDUAL))
    other = network_of((1, 8, 8), 1, TINY.sizes).state_dict()
    assert any(not torch.equal(other[key], part) for key, part in first.items())


def test_a_loss_is_that_of_the_noise_or_of_what_is_predicted(folder: Path) -> None:
    priors = Runner(TINY, "digits", folder).priors
    noising = priors[GAUSSIAN].noising
    for loss, kind in (("noise", UniformLogSNR), (OWN, None)):
        training = Training("edm", "", (1,), predict="edm", loss=loss)
        made = predictor_of(training, network_of((1, 8, 8), 0, TINY.sizes), priors)
        found = objective_of(training, made, noising, 1e-5)
        assert isinstance(found, OutputMatching) == (loss == OWN)
        assert found.levels.is_uniform_in_log_snr == (kind is UniformLogSNR)


def test_outputs_are_kept_for_later_passes() -> None:
    class Counted(nn.Module):
        calls = 0

        def forward(self, x: Tensor, tau: Tensor) -> Tensor:
            self.calls += 1
            return x * tau[:, None] + self.calls

    net = Counted()
    replayed, x, tau = Replayed(net), torch.ones(2, 3), torch.ones(2)
    with replayed.recorded():
        first = [replayed(x, tau), replayed(x, tau)]
        replayed.rewind()
        again = [replayed(x, tau), replayed(x, tau)]
    assert net.calls == 2
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    replayed(x, tau)
    assert net.calls == 3


def test_forms_are_measured_with_the_average_weights(folder: Path) -> None:
    """The form itself has the errors of the network alone, computed without any of this code."""
    runner = Runner(TINY, "digits", folder, report=lambda _: None)
    loop = runner._loop(ONE)
    for _ in range(3):
        loop.step()
    evaluation = runner.evaluation
    training = replace(ONE, combined=(GAUSSIAN, PIXELS_3), marks=(3,), points=())
    found, drawn = evaluation.measure(training, loop)
    assert set(found) == {ITSELF, GAUSSIAN, PIXELS_3}
    spec, images = runner.priors[GAUSSIAN].spec, runner.images.sets.test[: TINY.tested]
    with loop.averaged():
        parts = errors_by_level(Diffusion(loop.net, spec), images, intervals=SIXTHS)
        own = Combined(loop.net, runner.priors[PIXELS_3])
        loop.calibrate(own)
        others = errors_by_level(Diffusion(own), images, intervals=SIXTHS)
    torch.testing.assert_close(found[ITSELF].errors, [part.error.mean for part in parts])
    torch.testing.assert_close(found[PIXELS_3].errors, [part.error.mean for part in others])
    assert found[PIXELS_3].share == own.share.tolist()
    assert found[GAUSSIAN].errors[-1] < 0.1 * found[ITSELF].errors[-1]
    assert [name for name, one in found.items() if one.bits is not None] == [ITSELF, GAUSSIAN]
    assert list(drawn) == [ITSELF, GAUSSIAN]
    assert drawn[ITSELF].shape == (2, 1, 8, 8)
    assert not np.array_equal(drawn[ITSELF], drawn[GAUSSIAN])
    several = replace(training, marks=(3, 4), followed=(GAUSSIAN,))
    assert list(evaluation.measure(several, loop)[1]) == [GAUSSIAN]
    few, nothing = evaluation.measure(replace(training, marks=(4,), points=(3,)), loop)
    assert list(few) == [ITSELF, GAUSSIAN]
    assert few[ITSELF].errors == found[ITSELF].errors
    assert few[ITSELF].bits is None
    assert nothing == {}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the steps that are taken."""
    found: list[int] = []
    step = Loop.step

    def counted(loop: Loop) -> None:
        found.append(loop.step_number)
        step(loop)

    monkeypatch.setattr(Loop, "step", counted)
    return found


def stopped_after(step: int, place: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """Return the result of a run that has no time for anything after a step."""

    def until(_: Pace, __: Training, done: int, ___: list[int]) -> float:
        return math.inf if done >= step else 0.0

    with monkeypatch.context() as patched:
        patched.setattr(Pace, "until", until)
        return runner_in(place, base, deadline=time.perf_counter() + 1000).run(ONE)


def test_a_stopped_training_continues_as_if_it_had_not_been(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[int]
) -> None:
    whole, place = tmp_path / "whole", tmp_path / "stopped"
    whole.mkdir()
    place.mkdir()
    expected = runner_in(whole, folder).run(ONE)
    assert not expected.missing
    first = stopped_after(2, place, folder, monkeypatch)
    assert sorted(first.marks) == [1, 2]
    steps.clear()
    found = runner_in(place, folder).run(ONE)
    assert steps == [2, 3]
    assert not found.missing
    for mark in (1, 2, 4):
        own, other = found.form(mark), expected.form(mark)
        assert own is not None
        assert other is not None
        assert own.errors == pytest.approx(other.errors, rel=1e-5)  # JSON has six digits
        assert (own.bits is None) == (mark == 1)
    assert not list((place / "cache").glob("*.pt"))
    assert set(found.samples) == {f"2|{ITSELF}", f"4|{ITSELF}", f"4|{GAUSSIAN}"}
    steps.clear()
    assert not runner_in(place, folder).run(ONE).missing
    assert steps == [], "it is complete"


def test_weights_after_a_mark_that_lacks_a_form_are_not_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[int]
) -> None:
    stopped_after(2, tmp_path, folder, monkeypatch)
    steps.clear()
    both = replace(ONE, followed=(ITSELF, GAUSSIAN))
    assert not runner_in(tmp_path, folder).run(both).missing
    assert steps == [0, 1, 2, 3]


@pytest.mark.slow
def test_without_its_weights_a_training_is_repeated_and_keeps_its_marks(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[int]
) -> None:
    stopped_after(2, tmp_path, folder, monkeypatch)
    (tmp_path / "cache" / f"{ONE.key}.pt").unlink()
    path = tmp_path / "trainings" / f"{ONE.key}.json"
    before = json.loads(path.read_text())["marks"]
    steps.clear()
    assert not runner_in(tmp_path, folder).run(ONE).missing
    assert steps == [0, 1, 2, 3]
    assert json.loads(path.read_text())["marks"][:2] == before


def test_a_training_that_cannot_reach_a_mark_is_not_begun(
    folder: Path, tmp_path: Path, steps: list[int]
) -> None:
    lines: list[str] = []
    runner = runner_in(tmp_path, folder, deadline=time.perf_counter() + 20)
    runner.say = lines.append
    runner.pace = Pace(ready=5.0, step=1.0, errors=1.0, form=3.0)
    late = replace(ONE, marks=(40, 80))
    assert runner.run(late).missing == [1, 40, 80]
    assert steps == []
    assert lines == [f"{late.key}: 10 s left, 49 s to its next mark"]


def test_the_time_to_a_mark_is_that_of_steps_and_measurements() -> None:
    pace = Pace(ready=100.0, step=0.5, errors=3.0, form=20.0)
    training = Training("a", "", marks=(10, 30), points=(5, 20))
    assert pace.until(training, 0, training.measured) == 5 + 3 + 20
    assert pace.until(training, 10, training.measured) == 10 + 3 + 2 * 20, "two forms at the end"
    assert pace.until(training, 10, [30]) == 10 + 2 * 20
    assert pace.until(training, 30, [30]) == 0


def result_of(
    training: Training, factor: float, late: float | None = None, distance: float = 1.0
) -> Result:
    """Return made-up measurements, which decrease with steps.

    Errors after 1,000 steps are multiplied by ``late``, Fréchet distances by ``distance``.
    """
    marks = {}
    for step in training.measured:
        forms = {}
        for place, form in enumerate(training.forms):
            level = factor * (1 - 0.01 * place) * (0.25 + step**-0.5)
            error = level if late is None or step < 1000 else level / factor * late
            full = step in training.marks and form in (ITSELF, GAUSSIAN)
            forms[form] = Measured(
                [error * 0.3**i * (0.1 if i == 5 and place else 1) for i in range(SIXTHS)],
                [0.01] * SIXTHS,
                None if form == ITSELF else [0.5] * 48,
                [3 + level, 3.1 + level] if full else None,
                40 * level * distance if full else None,
            )
        marks[step] = Mark(step, forms, 0.04 * step, 3.0)
    drawn = np.random.default_rng(0).integers(0, 256, (16, 3, 32, 32), dtype=np.uint8)
    samples = {f"{k}|{form}": drawn for k in training.marks for form in (ITSELF, GAUSSIAN)}
    return Result(training, [(250, 0.5)], marks, samples, 0.038, 20.0)


def times_of() -> Times:
    fast = {f"{FAST}, OISM({order})": [1.01, 1.01, 1.01] for order in (3, 6)}
    slow = {
        f"compiled, not recorded, OISM({order}){more}": [3.0, 3.0, 3.0]
        for order in (3, 6)
        for more in ("", ", solved in every step")
    }
    rounds = {PLAIN: [4.0, 2.5, 3.0], FAST: [1.0, 1.0, 1.0], **fast, **slow}
    return Times(rounds, {}, 1e12, 2e12, {"OISM(3), solved": [0.1, 0.2, 0.3]})


FACTORS = {"edm-own": 1.1, "oism3": 0.9, "v": 0.98, "operator-own": 1.3}
"""How much larger the made-up measurements are than those of the network alone."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with made-up results of the whole study, but for the last training."""
    place = tmp_path_factory.mktemp("stored")
    store = Store(place, FULL.setup)
    for training in FULL.trainings[:-1]:
        late = 1.05 if training.name == "oism3" else None
        distance = 0.8 if training.name in {"v", "edm-own"} else 1.0
        store.write(result_of(training, FACTORS.get(training.name, 1.0), late, distance))
    step_time.write(times_of(), place / STEPS)
    content = {"accuracy": 0.93, "features": 256, "test_distance": 2.0}
    (place / "classifier.json").write_text(json.dumps(content))
    return place


@pytest.fixture(scope="module")
def report(stored: Path) -> Results:
    return run_study(command.Stored(), stored)


def test_the_report_is_that_of_what_is_stored(report: Results) -> None:
    assert report.holds
    words = (report.folder / "report.md").read_text()
    numbers = json.loads((report.folder / "numbers.json").read_text(), parse_constant=pytest.fail)
    assert numbers["settings"] == plain(vars(FULL))
    assert len(numbers["trainings"]) == 18
    assert f"Not run: {FULL.trainings[-1].key}." in words
    assert "{" not in words
    assert "nan" not in words
    starts = (
        "Steps saved with the paper's settings", "Steps saved by other parametrisations",
        "Steps saved by predicted noise with a Gaussian", "Steps saved by a Gaussian in addition",
        "The default of", "The best forms", "A higher order",
    )  # fmt: skip
    for start in starts:
        assert words.count(f"- **{start}") == 1
        assert words.index(f"- **{start}") < words.index("## What the paper shows")
    for name in ("figure", "sixths", "samples"):
        assert matplotlib.image.imread(report.folder / f"{name}.png").std() > 0.02


def test_claims_are_those_about_what_was_measured(report: Results, stored: Path) -> None:
    words = [claim.words for claim in report.claims]
    assert sum("of EDM" in one for one in words) == 3
    assert sum("in a sixth" in one for one in words) == 6
    assert len(words) == len(set(words)) == 6 * 3 + 2 + 3 + 4 + 3 + 3
    few = [one for one in FULL.results(stored) if one.training.name == "v"]
    about = Summary(FULL, few, None, {})
    assert claims(about) == []
    assert answers(about).startswith("- **Steps saved by a Gaussian in addition**")
    assert "- **The best forms** after 5000 steps, by loss: velocity " in answers(about)


def test_the_first_paragraph_answers_with_figures(report: Results, stored: Path) -> None:
    lines = (report.folder / "report.md").read_text(encoding="utf-8").splitlines()
    results = {one.training.key: one for one in FULL.results(stored)}
    expected = (
        f"the network alone {results['noise-0-5000'].value(6000, 'frechet'):.0f} after 6000.",
        f" {results['v-0-500'].value(1000, 'frechet'):.0f} with the velocity",
        "OISM(3) saves ",
        "Combined with the velocity, a Gaussian saves ",
        "`Combined` has the lower loss at all marks",
        "OISM(6) has ",
    )
    for words in expected:
        assert words in lines[2]
    assert lines[4].startswith("`python -m studies training`")


def test_the_first_paragraph_leaves_out_what_was_not_measured(stored: Path) -> None:
    few = [one for one in FULL.results(stored) if one.training.name == "v"]
    words = short(Summary(FULL, few, None, {}))
    assert words.startswith(
        "**Other parametrisations.** With a warm-up of 500, the distance after "
    )
    assert "**Form.**" not in words
    assert "Combined with the velocity, a Gaussian saves " in words
    assert "noise" not in words
    assert short(Summary(FULL, [], None, {})) == ""


@pytest.mark.parametrize(("factor", "pays"), [(0.8, True), (1.2, False)])
def test_conclusions_depend_on_the_numbers(factor: float, stored: Path, *, pays: bool) -> None:
    results = {one.training.key: one for one in FULL.results(stored)}
    del results["noise-0-500"]  # whose made-up losses order 9 lowers
    results["oism6-0-5000"] = result_of(results["oism6-0-5000"].training, factor)
    words = short(Summary(FULL, list(results.values()), None, {}))
    assert ("A higher order does not pay: OISM(6)" in words) is not pays
    behind = results["noise-0-5000"].training
    results["noise-0-5000"] = result_of(behind, 0.1)
    words = short(Summary(FULL, list(results.values()), None, {}))
    assert "OISM(3) saves none by loss" in words
    assert "By Fréchet distance they have" in words, "no form saves steps"


@pytest.mark.parametrize(("apart", "pays"), [(1.05, True), (1.2, False), (0.8, False)])
def test_a_gain_that_two_seeds_may_have_is_none(apart: float, stored: Path, *, pays: bool) -> None:
    """Order 6 is better by a tenth; two seeds of order 3 differ by less, or by more."""
    results = {one.training.key: one for one in FULL.results(stored)}
    for key, factor in {
        "noise-1-5000": 1.0,
        "oism3-0-5000": 1.0,
        "oism3-1-5000": apart,
        "oism6-0-5000": 0.9,
    }.items():
        results[key] = result_of(results[key].training, factor)
    del results["noise-0-500"]  # whose made-up losses order 9 lowers
    about = Summary(FULL, list(results.values()), None, {})
    assert about.between_seeds("frechet", 5000, [6000]) == pytest.approx(abs(apart - 1))
    assert math.isnan(about.between_seeds("frechet", 7, [6000]))
    assert ("A higher order does not pay: OISM(6)" in short(about)) is not pays
    assert f"differ by up to {abs(apart - 1):.1%} in loss" in short(about)


def test_the_gated_residual_is_compared(stored: Path) -> None:
    results = {one.training.key: one for one in FULL.results(stored)}
    results["residual-0-500"] = result_of(results["residual-0-500"].training, 0.5)
    about = Summary(FULL, list(results.values()), None, {})
    words = "the gated residual has the lower loss at all marks, fewer bits at all marks"
    assert words in short(about)
    start = "| gated residual | noise combined with a Gaussian | 500 "
    table = [line for line in forms(about).splitlines() if line.startswith(start)]
    assert len(table) == 3


def test_a_claim_needs_all_of_its_numbers(stored: Path) -> None:
    """Not those of some of the networks that it names."""
    some = [one for one in FULL.results(stored) if one.training.name != "edm-own"]
    words = [claim.words for claim in claims(Summary(FULL, some, None, {}))]
    assert not any("velocity and EDM" in one for one in words)


@pytest.mark.parametrize(
    ("curve", "value", "words", "positive", "negative"),
    [
        ([(10, 3.0), (20, 2.0)], 2.0, "5", True, False),
        ([(10, 3.0), (20, 2.0)], 1.0, "> 5", True, False),
        ([(10, 3.0), (15, 2.0)], 1.0, "> 0", True, False),
        ([(5, 3.0), (10, 2.0)], 1.0, "> -5", False, False),  # it may save some, or none
        ([(10, 3.0), (20, 2.0)], 4.0, "< -5", False, True),
        ([(20, 3.0), (30, 2.0)], 4.0, "< 5", False, False),
        ([(15, 3.0)], 3.0, "0", False, True),
    ],
)
def test_bounds_of_saved_steps(
    curve: Curve, value: float, words: str, *, positive: bool, negative: bool
) -> None:
    saving = Saving.of(curve, 15, value)
    assert (saving.words, saving.is_positive, saving.is_negative) == (words, positive, negative)


def test_a_curve_falls_between_its_points_as_the_training_loss_does() -> None:
    """Linear in the logarithm of steps, the loss would fall too late where it falls fast."""
    truth = {step: 0.3 + math.exp(-step / 60) for step in range(250, 1001)}
    curve, rng = (
        [(250, truth[250]), (500, truth[500]), (1000, truth[1000])],
        np.random.default_rng(0),
    )
    course = [(step, 2 * truth[step] + rng.normal(0, 1e-4)) for step in range(255, 1001, 5)]
    fine = refined(curve, course)
    assert [point for point in fine if point in curve] == curve
    value = truth[320]
    assert steps_needed(fine, value) == pytest.approx(320, abs=6)
    assert steps_needed(curve, value) > 335
    flat = [(step, 1 + rng.normal(0, 0.1)) for step in range(255, 1001, 5)]
    assert refined(curve, flat) == curve, "the course shows nothing"
    assert refined(curve, course[::20]) == curve, "the course has too few points"
    assert refined([], course) == []


def test_a_form_that_was_not_sampled_is_missing() -> None:
    training = Training("a", "", marks=(2, 4), points=(1,), followed=(GAUSSIAN,))
    found = result_of(training, 1.0)
    assert found.missing == []
    bare = replace(found.marks[2].forms[GAUSSIAN], bits=None)
    found.marks[2] = replace(found.marks[2], forms={**found.marks[2].forms, GAUSSIAN: bare})
    assert found.missing == [2]
    itself = replace(training, followed=(ITSELF,))
    assert replace(found, training=itself).missing == []


def test_saved_steps_are_found_by_interpolation(stored: Path) -> None:
    """The combined network has a hundredth less of every error, but for the last sixth."""
    results = {one.training.key: one for one in FULL.results(stored)}
    about, own = Summary(FULL, list(results.values()), None, {}), results["noise-0-500"]
    curve = own.curve("loss")
    assert [step for step, _ in curve] == [250, 500, 1000, 1500, 2500, 3500, 5000]
    found = about.equivalent(own, GAUSSIAN, 1000)
    value = own.value(1000, "loss", GAUSSIAN)
    ends = dict(curve)
    part = (math.log(found) - math.log(1000)) / (math.log(1500) - math.log(1000))
    assert value == pytest.approx(ends[1000] + part * (ends[1500] - ends[1000]))
    assert about.equivalent(own, GAUSSIAN, 5000) == math.inf
    assert about.equivalent(results["edm-own-0-500"], ITSELF, 1000) < 1000
    assert Pair(own, GAUSSIAN, own).savings("loss")[1000] == Saving(1000, round(found) - 1000)
    assert Pair(own, GAUSSIAN, own).savings("loss")[5000].words == "> 0"
    assert math.isnan(steps_needed(curve, 10.0))
    assert steps_needed(curve, ends[250]) == 250


def test_results_with_other_settings_are_not_read(tmp_path: Path) -> None:
    training = Training("residual", "", (2, 4), form=RESIDUAL, prior=GAUSSIAN, points=(1,))
    store, result = Store(tmp_path, TINY), result_of(training, 1.0)
    store.write(result)
    found = store.read(training)
    for quantity in ("loss", "bits", "frechet"):
        own, other = (dict(one.curve(quantity, GAUSSIAN)) for one in (found, result))
        assert own == pytest.approx(other, rel=1e-5)
    assert found.samples.keys() == result.samples.keys()
    assert (found.losses, found.step_seconds) == (result.losses, 0.038)
    assert store.read(replace(training, marks=(2, 4, 8))).missing == [8]
    assert store.read(replace(training, seed=1)).missing == [1, 2, 4]
    assert store.read(replace(training, form=PAPER)).missing == [1, 2, 4]
    assert Store(tmp_path, replace(TINY, rate=1.0)).read(training).missing == [1, 2, 4]


def test_times_are_compared_round_by_round() -> None:
    times = times_of()
    assert times.ratios(PLAIN) == (2.75, 3.0, 3.5)
    assert times.ratio(FAST, PLAIN) == pytest.approx(1 / 3)
    assert times.seconds(PLAIN) == 3.0
    assert times.share(FAST) == 0.5


def test_the_command_lists_what_is_missing(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(stored), "--list"]) == command.INCOMPLETE
    lines = capsys.readouterr().err.splitlines()[1:]
    assert sum(line.endswith(": complete") for line in lines) == 18
    assert lines[-1] == f"{FULL.trainings[-1].key}: missing 250, 500, 1000, 1500, 2500, 3500, 5000"
    assert command.main([str(stored), "--list", "--only", "v-0-500"]) == 0


def test_trainings_run_in_the_order_in_which_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def run(_: Runner, training: Training) -> Result:
        begun.append(training.key)
        return Result(training)

    monkeypatch.setattr(Runner, "run", run)
    named = ["v-0-500", "noise-0-5000", "edm-own-1-500"]
    run_some(FULL, tmp_path, named, seconds=1.0)
    assert begun == named
    run_some(FULL, tmp_path, None, seconds=1.0)
    assert begun[len(named) :] == [one.key for one in FULL.trainings]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--marks", "5", "3"], "--marks: must be increasing, got [5, 3]"),
        (["--long-marks", "0", "3"], "--long-marks: must be increasing"),
        (["--only", "noise-7-500"], "--only: 'noise-7-500' is none of noise-0-5000, "),
        (["--data", "nowhere"], "no train*.parquet in nowhere: give --data FOLDER"),
        (["--report"], "no results of trainings in "),
    ],
)
def test_a_mistake_is_an_error_before_the_work(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main([str(tmp_path / "folder"), *words])
    assert message in capsys.readouterr().err


@pytest.mark.study
def test_the_quick_form_is_complete_and_holds(tmp_path: Path) -> None:
    results = run_study(QUICK, tmp_path)
    assert [str(claim) for claim in results.claims if not claim.holds] == []
    assert len(results.claims) == 2 * 5 + 1
    numbers = json.loads((tmp_path / "numbers.json").read_text(), parse_constant=pytest.fail)
    assert [one["key"] for one in numbers["trainings"]] == [one.key for one in QUICK.trainings]
    for one in numbers["trainings"]:
        assert [mark["step"] for mark in one["marks"]] == [8, 15, 30]
    short = numbers["trainings"][2]["marks"][-1]["forms"]
    assert len(short) == 7
    assert {PLAIN, FAST, "fast, EDM", "fast, operator preconditioning"} < set(
        numbers["steps"]["rounds"]
    )
    words = (tmp_path / "report.md").read_text()
    assert "nan" not in words
    assert "{" not in words
    for name in ("figure", "sixths", "samples"):
        assert matplotlib.image.imread(tmp_path / f"{name}.png").std() > 0.02
