"""The study of sampling: stored weights, counted evaluations, stages that continue, results."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from oism.basis import IdentityFrame
from oism.images import GaussianPart
from oism.nn import Combined
from oism.sampling import Span, alpha_sigma
from studies import classifier, folder_of
from studies.images import image_sets
from studies.labelled import labelled_sets
from studies.sampling import __main__ as command
from studies.sampling import methods, networks, ours, peers, separation, times
from studies.sampling.context import Context, Settings, Table
from studies.sampling.distances import distance
from studies.sampling.frechet import wanted_distances
from studies.sampling.methods import CONVERGED, OWN
from studies.sampling.networks import BARE, CASES, COMBINED, Networks
from studies.sampling.ours import OURS
from studies.sampling.results import CaseResults
from studies.sampling.separation import EVERY, LAST, LEVELS, PERTURBATIONS, separations
from studies.sampling.stages import STAGES
from studies.sampling.study import Sampling
from studies.sampling.times import ALONE, WITHOUT
from studies.study import write_json

CASE = replace(CASES["digits"], marks=(1, 2), batch=8)
SETTINGS = Settings(
    samples=3, drawn=12, batch=4, evaluations=(2,), reference=2, width=4, rounds=1, classifier=1
)
STEP = CASE.marks[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the weights of two steps."""
    place = tmp_path_factory.mktemp("sampling")
    STAGES["train"](Context(CASE, "digits", place, math.inf, SETTINGS))
    return place


@pytest.fixture
def context(folder: Path) -> Context:
    return Context(CASE, "digits", folder, time.perf_counter() + 100, SETTINGS)


@pytest.fixture
def nets(context: Context) -> Networks:
    return context.networks


@pytest.fixture
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two methods that do not need diffusers."""

    def first(predictor: Any, prior: Any, noise: Tensor, evaluations: int) -> Tensor:
        assert prior is predictor.prior
        for _ in range(evaluations):
            noise = 0.5 * noise - 0.1 * predictor(noise, 0.5)
        return noise

    monkeypatch.setattr(ours, "OURS", {"first": first, "second": first})
    monkeypatch.setattr(peers, "PEERS", {})
    monkeypatch.setattr(peers, "versions", dict)
    monkeypatch.setattr(methods, "CONVERGING", ("second", OWN))
    monkeypatch.setattr(methods, "CONVERGED_EVALUATIONS", 3)
    monkeypatch.setattr(times, "TIMED_PEERS", ())


def test_training_stores_weights_and_numbers_at_the_marks(folder: Path) -> None:
    assert networks.stored_steps(folder / "digits") == [1, 2]
    numbers = json.loads((folder / "digits" / "train.json").read_text())
    assert [mark["step"] for mark in numbers["marks"]] == [1, 2]
    assert numbers["config"]["batch"] == 8
    assert numbers["parameters"] > 1000
    assert len(numbers["marks"][0]["by_level"]) == 6


def test_training_ends_at_the_deadline(tmp_path: Path) -> None:
    case = replace(CASE, marks=(10_000,))
    lines: list[str] = []
    found = networks.train(
        case, image_sets("digits"), tmp_path, deadline=time.perf_counter(), report=lines.append
    )
    assert networks.stored_steps(tmp_path) == [networks.REPORT]
    assert found["marks"][0]["step"] == networks.REPORT
    assert any("stored" in line for line in lines)


def test_weights_survive_export_and_import(folder: Path, tmp_path: Path) -> None:
    paths = networks.export_weights(folder / "digits", STEP, tmp_path / "files")
    assert all(path.stat().st_size < 16 * 2**20 for path in paths)
    shape = tuple(image_sets("digits").train.shape[1:])
    assert networks.import_weights(CASE, shape, tmp_path / "files", tmp_path) == [STEP]
    old, new = (
        torch.load(place / f"weights-{STEP}.pt", weights_only=True)
        for place in (folder / "digits", tmp_path)
    )
    assert torch.equal(old["share"], new["share"])
    assert old["net"].keys() == new["net"].keys()
    for name, part in old["net"].items():
        torch.testing.assert_close(new["net"][name], part, rtol=2**-8, atol=0)
    assert any(not torch.equal(new["net"][name], part) for name, part in old["net"].items())


def test_large_weights_are_several_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "MEBIBYTES", 0.1)
    paths = networks.export_weights(folder / "digits", STEP, tmp_path / "files")
    assert len(paths) > 3
    assert max(path.stat().st_size for path in paths) < 0.11 * 2**20
    shape = tuple(image_sets("digits").train.shape[1:])
    assert networks.import_weights(CASE, shape, tmp_path / "files", tmp_path) == [STEP]
    with pytest.raises(ValueError, match=r"weights-2\.json must have \d+ weights, got"):
        networks.import_weights(
            replace(CASE, sizes={**CASE.sizes, "width": 32}), shape, tmp_path / "files", tmp_path
        )


def test_predictors_are_evaluated_in_batches_of_one_size(
    nets: Networks, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = networks.noise_for(nets.prior.shape, 7)
    sizes: list[int] = []
    nets.combined.net.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    predictor = nets.predictor(COMBINED)
    found = predictor(noise, 0.3)
    assert sizes == [4, 4]
    assert predictor.evaluations == 1
    torch.testing.assert_close(found, nets.predictor(COMBINED).model.noise(noise, 0.3))
    assert not torch.allclose(found, nets.predictor(BARE)(noise, 0.3))


def test_the_reference_is_the_flow_of_the_prior_where_the_network_has_no_share(
    nets: Networks,
) -> None:
    """A Gaussian's flow in closed form: along each direction a map of quantiles."""
    nets.combined.share.zero_()
    noise = networks.noise_for(nets.prior.shape, 4)
    predictor = nets.predictor(COMBINED)
    found = predictor.reference(noise, 60)
    assert predictor.evaluations == 241
    prior = nets.prior
    flat, tau = torch.eye(prior.dim, dtype=torch.float64), 0.3
    levels = (prior.noising.alpha, prior.noising.sigma)
    alpha, sigma = (float(part(tau)) for part in levels)
    shape = (-1, *prior.shape)
    # The score is linear, -S⁻¹(x - αm) with S = α²C + σ².
    centre = prior.noise(torch.zeros(1, *prior.shape, dtype=torch.float64), tau).reshape(-1)
    slopes = prior.noise(flat.reshape(shape), tau).reshape(-1, prior.dim) - centre
    inverse = slopes / sigma
    spread = torch.linalg.inv(inverse)
    mean = -(spread @ centre) / sigma / alpha
    covariance = (spread - sigma**2 * torch.eye(prior.dim)) / alpha**2
    values, vectors = torch.linalg.eigh(0.5 * (covariance + covariance.mT))
    alpha, sigma = (float(part(1.0)) for part in levels)
    along = (noise.double().reshape(4, -1) - alpha * mean) @ vectors
    values = values.clamp(min=0.0)
    end = along / (alpha**2 * values + sigma**2).sqrt() * values.sqrt() @ vectors.mT + mean
    torch.testing.assert_close(found.double().reshape(4, -1), end, rtol=0, atol=4e-3)


@pytest.mark.parametrize("name", OURS)
def test_own_samplers_follow_the_prior_where_the_network_has_no_share(
    nets: Networks, name: str
) -> None:
    """They are exact for a Gaussian; evaluations of statistics are not those of a sample."""
    nets.combined.share.zero_()
    noise = networks.noise_for(nets.prior.shape, 4)
    reference = nets.predictor(COMBINED).reference(noise, 40)
    predictor = nets.predictor(COMBINED)
    found = OURS[name](predictor, nets.prior, noise, 3)
    assert predictor.evaluations == 3
    torch.testing.assert_close(found, reference, rtol=0, atol=4e-3)


def test_statistics_and_plans_are_kept_for_a_network(nets: Networks) -> None:
    noise = networks.noise_for(nets.prior.shape, 2)
    OURS["prediction"](nets.predictor(COMBINED), nets.prior, noise, 2)
    kept = dict(nets.predictor(COMBINED).memory)
    assert set(kept) == {"statistics", "prediction, 2"}
    OURS["prediction"](nets.predictor(COMBINED), nets.prior, noise, 3)
    again = nets.predictor(COMBINED).memory
    assert all(again[key] is value for key, value in kept.items())
    assert nets.predictor(BARE).memory == {}, "another network has other statistics"
    nets.load(1)
    assert nets.predictor(COMBINED).memory == {}


def test_distances_are_per_dimension() -> None:
    reference = torch.zeros(2, 3, 4)
    found = torch.stack((torch.full((3, 4), 0.1), torch.full((3, 4), 0.2)))
    root, error, middle = distance(found, reference)
    assert root == pytest.approx(math.sqrt(0.025))
    assert middle == pytest.approx(0.1)
    assert error == pytest.approx(np.std([0.01, 0.04], ddof=1) / math.sqrt(2) / (2 * root))


@pytest.mark.usefixtures("no_peers")
def test_stages_measure_and_continue(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    STAGES["classifier"](context)
    STAGES["rmse"](context)
    STAGES["frechet"](context)
    STAGES["times"](context)
    found = CaseResults.read(context.folder, "digits", SETTINGS.evaluations)
    assert found.ours == ["first", "second"]
    assert found.step == STEP
    for form in (COMBINED, BARE):
        assert found.rmse(form, "first", 2) == found.rmse(form, "second", 2) > 0
        assert found.converged(1, form) > 0
        assert found.converged(STEP, form) > 0
    assert found.frechet(COMBINED, "first", 2) > 0
    assert math.isfinite(found.overhead("first"))
    assert 0 <= found.accuracy <= 1
    rows = found.parts["rmse"]["rows"]
    assert {row["calls"] for row in rows} == {2, 3}
    with np.load(context.place / "samples.npz") as pictures:
        assert pictures[f"{COMBINED}|first|own|2"].shape == (3, 1, 8, 8)
    # Nothing is measured again, and other sizes are.
    again = dict.fromkeys(("first", "second"), lambda *_: pytest.fail("again"))
    monkeypatch.setattr(ours, "OURS", again)
    STAGES["rmse"](context)
    STAGES["frechet"](context)
    with pytest.raises(pytest.fail.Exception):
        STAGES["rmse"](replace(context, settings=replace(SETTINGS, samples=2)))


@pytest.mark.usefixtures("no_peers")
def test_stages_end_before_the_deadline(context: Context) -> None:
    (context.place / "rmse.json").unlink(missing_ok=True)
    STAGES["rmse"](replace(context, deadline=time.perf_counter() + 1))
    found = CaseResults.read(context.folder, "digits", SETTINGS.evaluations)
    assert found.rmse_rows == []


def test_a_table_keeps_its_rows_and_its_head(tmp_path: Path) -> None:
    table = Table(tmp_path / "rows.json", ("a", "b"), kept=1)
    table.add(a=1, b="x", value=0.5)
    table.write(more=2)
    again = Table(tmp_path / "rows.json", ("a", "b"), kept=3)
    assert {"a": 1, "b": "x"} in again
    assert {"a": 1, "b": "y"} not in again
    assert again.head == {"kept": 3, "more": 2}


def test_classes_belong_to_their_images(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits  # noqa: PLC0415

    digits = load_digits()
    known = {image.tobytes(): label for image, label in zip(
        digits.images.astype(np.uint8), digits.target, strict=True
    )}  # fmt: skip
    first = labelled_sets("digits", tmp_path / "digits.npz")
    again = labelled_sets("nowhere", tmp_path / "digits.npz")
    for found in (first, again):
        assert found.sets.pixels.high == 16
        for images, labels in (
            (found.sets.train, found.train_labels), (found.sets.test, found.test_labels),
        ):  # fmt: skip
            assert [known[image[0].numpy().tobytes()] for image in images] == labels.tolist()


def test_the_classifier_learns_and_is_stored(tmp_path: Path) -> None:
    data, path = labelled_sets("digits"), tmp_path / "classifier.pt"
    found = classifier.fit(data, path, flip=False, width=4, report=lambda _: None)
    assert found["accuracy"] > 0.9
    net = classifier.load(path)
    assert net(data.sets.test).shape == (len(data.sets.test), 32)
    assert net.accuracy(data.sets.test, data.test_labels) == found["accuracy"]
    assert json.loads(path.with_suffix(".json").read_text())["features"] == 32


def test_results_are_those_of_the_best_grid(tmp_path: Path) -> None:
    rows = [
        {"step": 2, "form": COMBINED, "method": name, "grid": grid, "evaluations": 5, "rmse": value}
        for name, grid, value in (
            ("ours", OWN, 0.1), ("DDIM", "EDM", 0.5), ("DDIM", "uniform", 0.4),
            ("Heun", "EDM", None), ("UniPC-2", "EDM", 0.3),
        )
    ]  # fmt: skip
    (tmp_path / "case").mkdir()
    write_json(tmp_path / "case" / "rmse.json", {"step": 2, "rows": rows})
    seconds = {f"bare, {ALONE}": 2.0, "bare, ours": 2.4, f"{WITHOUT}, ours": 0.1}
    write_json(tmp_path / "case" / "times.json", {"seconds": seconds})
    found = CaseResults.read(tmp_path, "case", (5, 8))
    assert found.ours == ["ours"]
    assert found.best_peer(COMBINED, 5) == (0.3, "UniPC-2", "EDM")
    assert found.best_key(COMBINED, "DDIM", 5) == "combined|DDIM|uniform|5"
    assert math.isnan(found.rmse(COMBINED, "Heun", 5))
    assert math.isnan(found.rmse(COMBINED, "DDIM", 8))
    assert math.isnan(found.best_peer(BARE, 5)[0])
    assert found.overhead("ours") == pytest.approx(0.05)
    assert math.isnan(found.overhead("theirs"))
    assert math.isnan(found.converged(2, BARE))


def test_distances_by_importance_name_the_best_peers(context: Context) -> None:
    rows = [
        {"step": STEP, "form": COMBINED, "method": name, "grid": grid, "evaluations": 2, "rmse": v}
        for name, grid, v in (
            ("UniPC-2", "EDM", 0.2),
            ("DDIM", "EDM", 0.4),
            ("DDIM", "uniform", 0.3),
        )
    ]
    write_json(context.place / "rmse.json", {"step": STEP, "rows": rows})
    wanted = wanted_distances(context)
    assert [one[2] for one in wanted[:2]] == [CONVERGED] * 2
    peers = [one for one in wanted if one[2] in ("UniPC-2", "DDIM")]
    assert peers == [
        (STEP, COMBINED, "UniPC-2", "EDM", 2), (STEP, COMBINED, "DDIM", "uniform", 2),
        (STEP, COMBINED, "UniPC-2", "EDM", 2),
    ]  # fmt: skip
    (context.place / "rmse.json").unlink()


def test_the_report_has_what_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored, output = folder_of("sampling") / "stages", tmp_path / "report"
    arguments = ["report", "--folder", str(stored), "--output", str(output)]
    command.main(arguments)
    claims = [line for line in capsys.readouterr().out.splitlines() if "unet, combined" in line]
    assert len(claims) == 5
    assert all(line.startswith("yes") for line in claims)
    written = (output / "report.md").read_text(encoding="utf-8")
    sentence = re.search(r"Not measured: (.*)\.", written)
    missing = [] if sentence is None else sentence[1].split(", ")
    for name in Sampling().cases:
        is_there = (stored / name / "rmse.json").exists()
        assert (f"{name}, combined:" in written) is is_there
        assert (name in missing) is not is_there


def test_a_report_needs_results_and_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, words in (
        (["--output", str(tmp_path)], "no results of the stages rmse and frechet in"),
        ([], "report needs --output FOLDER"),
    ):
        with pytest.raises(SystemExit) as ended:
            command.main(["report", "--folder", str(tmp_path), *more])
        assert ended.value.code == 2
        assert words in capsys.readouterr().err


def test_all_cases_have_a_network_and_images() -> None:
    for name, case in CASES.items():
        assert case.name == name
        assert case.kind in ("ddpm++", "unet2d")
    study = Sampling()
    contexts = list(study.contexts(Path("nowhere")))
    assert [(one.case.name, one.data) for one in contexts] == [
        ("cifar10", "cifar10"), ("unet", "cifar10"), ("mnist", "mnist"),
    ]  # fmt: skip


def test_a_combined_network_has_the_stored_share(nets: Networks, folder: Path) -> None:
    assert isinstance(nets.combined, Combined)
    stored = torch.load(folder / "digits" / "weights-1.pt", weights_only=True)
    nets.load(1)
    assert torch.equal(nets.combined.share, stored["share"])
    assert nets.step == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rmse", "--case", "digits", "--data", "digits"], "run the stage train before"),
        (["nothing"], "invalid choice: 'nothing'"),
        (["data", "--case", "mnist", "--data", "nowhere"], "no train*.parquet in nowhere"),
        (["export", "--case", "digits"], "export needs --files FOLDER"),
    ],
)
def test_a_mistake_is_an_error(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main([*words, "--folder", str(tmp_path)])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("apart", [False, True])
def test_separations_of_a_smooth_flow_and_of_one_with_two_ends(apart: bool) -> None:
    """The exact denoiser of N(0, C), and that of two points ±√c, with the same variances."""
    variances = torch.tensor([1.0, 0.25, 0.04, 0.01], dtype=torch.float64)
    part = GaussianPart(IdentityFrame(), 4, torch.zeros_like(variances), variances)

    def denoiser(x: Tensor, level: Tensor) -> Tensor:
        alpha, sigma = (float(one) for one in alpha_sigma(level))
        if not apart:
            return x * alpha * variances / (alpha**2 * variances + sigma**2)
        inner = (x * alpha * variances.sqrt()).sum(dim=1, keepdim=True)
        return variances.sqrt() * torch.tanh(inner / sigma**2)

    noise = torch.randn(400, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = list(separations(denoiser, part, Span(-4.0, 4.0), noise))
    assert len(found) == len(PERTURBATIONS) * len(range(0, LEVELS - LAST, EVERY))
    first = [one for one in found if one.level == -4.0]
    assert [one.delta for one in first] == list(PERTURBATIONS)
    means, medians = zip(*(one.measured() for one in first), strict=True)
    ratios = [mean / one.base for mean, one in zip(means, first, strict=True)]
    if not apart:
        assert ratios == pytest.approx([1.0] * len(ratios), abs=0.15)
        return
    assert all(median < 0.01 * mean for mean, median in zip(means, medians, strict=True))
    products = [ratio * size for ratio, size in zip(ratios, PERTURBATIONS, strict=True)]
    assert max(products) < 2 * min(products)
    assert ratios[0] > 5 * ratios[-1]


def test_separations_continue(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separation, "PERTURBATIONS", (0.1, 0.2))
    late = replace(context, deadline=time.perf_counter() + 3)
    STAGES["separation"](late)
    assert not (context.place / "separation.json").exists()
    STAGES["separation"](context)
    rows = json.loads((context.place / "separation.json").read_text())["rows"]
    assert len(rows) == 2 * len(range(0, LEVELS - LAST, EVERY))
    assert all(row["step"] == STEP and row["mean"] > 0 for row in rows)
    STAGES["separation"](context)
    assert json.loads((context.place / "separation.json").read_text())["rows"] == rows
