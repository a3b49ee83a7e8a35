"""Every study in its quick form: its claims hold, and its files are complete."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from studies.bart_simpson.study import TIMES
from studies.comparison import DEFAULT, FEWER, KERNEL, NETWORK, PAPER
from studies.gallery.study import Gallery
from studies.study import DPI, WIDTH

pytestmark = [
    pytest.mark.study,
    # Raised within diffusers, by the schedulers that the study of sampling compares with.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

Runs = Callable[[str], Any]

SECONDS = 120
HEADINGS = ["## What the paper shows", "## Results", "## Why they differ", "## Claims"]
ROOT = Path(__file__).parents[2]


def test_all_claims_hold(each_run: Any) -> None:
    results = each_run.results
    assert results.claims
    assert [str(claim) for claim in results.claims if not claim.holds] == []
    assert results.holds


def test_numbers_come_with_settings_and_versions(each_run: Any) -> None:
    numbers, study = each_run.numbers, each_run.study
    assert numbers["study"] == study.name
    settings = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(study).items()}
    assert numbers["settings"] == settings
    assert set(numbers["versions"]) == {"oism", "python", "torch", "numpy"}
    assert 0 < numbers["seconds"] < SECONDS
    assert len(numbers["claims"]) == len(each_run.results.claims)
    for claim in numbers["claims"]:
        assert claim["holds"] is (claim["lower"] < claim["upper"]) is True


def test_the_figure_is_not_empty(each_run: Any) -> None:
    path = each_run.results.folder / "figure.png"
    assert path.stat().st_size > 50_000
    image = matplotlib.image.imread(path)
    height, width = image.shape[:2]
    assert width == round(WIDTH * DPI)  # one width for all, with letters of one size
    assert 300 < height < 3 * width
    ink = (image[..., :3] < 0.9).any(axis=2)
    assert 0.01 < ink.mean() < 0.9
    # No third of it is empty.
    for block in np.array_split(ink, 3, axis=1):
        assert block.mean() > 0.005


def test_the_report_is_complete(each_run: Any) -> None:
    report = (each_run.results.folder / "report.md").read_text(encoding="utf-8")
    assert [line for line in report.splitlines() if line.startswith("## ")] == HEADINGS
    assert "{" not in report
    assert "}" not in report
    assert report.startswith(f"# {each_run.study.title}\n")
    assert report.count("- yes: ") == len(each_run.results.claims)
    assert "](figure.png)" in report
    tables = [line for line in report.splitlines() if line.startswith("|")]
    assert len(tables) > 3
    assert "nan" not in report


def test_bart_simpson(runs: Runs) -> None:
    numbers = runs("bart-simpson").numbers
    median = {name: np.array(one["median"]) for name, one in numbers["by_count"].items()}
    counts = numbers["by_count"]["sample means"]["counts"]
    assert numbers["by_count"]["sample means"]["times"] == list(TIMES)
    assert median["sample means"].shape == (len(counts), 3)
    assert (median["rule, projected"][-1] < median["sample means"][-1]).all()
    middle = counts.index(25)
    for other in ("sample means", "paper's rule", "rule, projected"):
        assert (median["cross-validated"][middle] < median[other][middle]).all()
    assert (median["cross-validated"][-1] < 1.25 * median["cross-validated"][middle]).all()
    estimates = numbers["estimates"]
    times = np.array(numbers["curve_times"])
    for one in estimates.values():
        curve = np.array(one["curve"], dtype=float)
        area = np.trapezoid(curve * times, np.log(times))
        assert one["integrated_loss"] == pytest.approx(area, rel=1e-4)
        assert one["loss"]["5e-05"] == pytest.approx(curve[0], rel=1e-4)
    ours = estimates["cross-validated"]
    for network in ("network, equal time", "network, long"):
        assert ours["integrated_loss"] < estimates[network]["integrated_loss"]
    assert estimates["network, equal time"]["seconds"] < 2 * ours["seconds"] + 0.5
    for name in ("exact moments", "cross-validated", "network, equal time", "network, long"):
        assert abs(estimates[name]["mass"] - 1) < 1e-3
        assert estimates[name]["kl"] > -1e-3
    assert estimates["exact moments"]["kl"] < ours["kl"] < 0.1
    # With exact moments, 25 frequencies: what `tests/studies/test_circle.py` has.
    exact = [estimates["exact moments"]["loss"][f"{t:g}"] for t in TIMES]
    assert exact == pytest.approx([0.0101, 0.0016, 7.7e-8], rel=0.01)


def test_plane(runs: Runs) -> None:
    found = runs("plane").numbers["pinwheel"]
    nll = {name: found[name]["nll"] for name in (PAPER, FEWER, DEFAULT, NETWORK, KERNEL)}
    assert max(nll[DEFAULT], nll[FEWER]) < nll[NETWORK]
    assert nll[DEFAULT] < nll[PAPER]
    assert nll[DEFAULT] < nll[KERNEL] + 0.01
    assert min(nll.values()) > found["truth"] - 0.05
    for name in (FEWER, DEFAULT):
        assert abs(found[name]["mass"] - 1) < 2e-3
    # The network took the time of the default fit, but for its last step.
    assert found[NETWORK]["fit_seconds"] < 1.2 * found[DEFAULT]["fit_seconds"] + 0.5
    assert found[NETWORK]["fit_seconds"] > 0.9 * found[DEFAULT]["fit_seconds"]


def test_gallery(runs: Runs) -> None:
    run = runs("gallery")
    assert isinstance(run.study, Gallery)
    numbers = run.numbers
    found = numbers["distributions"]
    assert tuple(found) == run.study.distributions
    for one in found.values():
        assert one[DEFAULT]["nll"] < one[NETWORK]["nll"]
        for name in (FEWER, DEFAULT):
            assert abs(one[name]["mass"] - 1) < 2e-3
    excess = {
        name: np.mean([one[name]["nll"] - one["truth"] for one in found.values()])
        for name in (FEWER, DEFAULT, NETWORK, KERNEL)
    }
    assert numbers["mean_excess"] == pytest.approx(excess, abs=1e-4)
    assert excess[DEFAULT] < excess[KERNEL]
    assert excess[DEFAULT] < excess[FEWER]


def test_stein(runs: Runs) -> None:
    numbers = runs("stein").numbers
    risk, share = numbers["risk_over_sample_means"], numbers["share_indefinite"]
    assert risk["frequencies"] == [2, 4, 10, 20, 50, 100]
    assert risk["sample means"] == pytest.approx([1] * 6)
    alone = "each by itself (the paper)"
    rules = ["James-Stein", alone, "each by itself, projected", "monotone, projected"]
    assert all(risk[name][-1] < 1 for name in rules)
    assert risk["monotone, projected"][0] > 0.95
    assert share[alone][0] > 0.5
    assert all(max(share[name]) == 0 for name in {"sample means", *rules} - {alone})
    memory = numbers["memorisation"]
    series, score = (
        memory[name]
        for name in ("orthogonal series, sample means", "flow of the cross-validated score")
    )
    distance, error = "distance_to_data_over_expected", "integrated_square_error"
    assert series[distance][-1] < 0.5 < score[distance][-1]
    assert series[error][-1] > 5 * series[error][0]
    assert score[error][-1] < 2 * min(score[error])
    assert series["negative_share"] > 0.1
    assert score["negative_share"] == 0
    # ∫(Σ θ̂_k φ_k - ρ)² of n points grows by (count)/(πn) with each frequency, but for the truth.
    count, n = memory["frequencies"][-1], len(memory["points"])
    assert series[error][-1] == pytest.approx(count / (math.pi * n), rel=0.2)


def test_polynomials(runs: Runs) -> None:
    numbers = runs("polynomials").numbers
    third, last = numbers["orders"].index(3), -1
    assert numbers["orders"][last] == max(numbers["orders"]) > 3
    for name, losses in numbers["mean_loss"].items():
        ratio = np.array(losses[last]) / np.array(losses[third])
        assert ratio.max() < 1.05
        assert numbers["last_order_over_order_3"][name] == pytest.approx(ratio, rel=1e-4)
    better = numbers["last_order_over_order_3"]["two modes"]
    assert min(better) < 0.5  # a cubic has one mode


def test_fokker_planck(runs: Runs) -> None:
    numbers = runs("fokker-planck").numbers
    plain, regular, longer = numbers["networks"].values()
    assert (plain["weight"], regular["weight"], longer["weight"]) == (0, 1, 0)
    assert plain["steps"] == regular["steps"] < longer["steps"]
    assert numbers["cost_ratio"] > 1
    for one in (plain, regular, longer):
        assert len(one["residual"]) == len(one["error"]) == len(numbers["times"]) == 12
        assert 0 < max(one["error"]) < 1  # that of predicting nothing, at most
    assert np.mean(regular["residual"]) < np.mean(plain["residual"])


def test_closed_form_cifar(runs: Runs) -> None:
    numbers = runs("closed-form-cifar").numbers
    for frame in ("pixels", "PCA"):
        errors = {n: np.array(numbers["chosen"][f"{frame}, order {n}"]["errors"]) for n in (3, 9)}
        assert (errors[9] <= 1.001 * errors[3]).all()
    one = numbers["chosen"]["PCA, order 2"]
    np.testing.assert_allclose(one["errors"], one["expected_errors"], rtol=0.1)
    bits = {name: entry["bits_per_dim"] for name, entry in numbers["priors"].items()}
    order = ["the same, local terms", "mixture of 4", "PCA, order 9", "PCA, order 2"]
    assert [bits[name] for name in order] == sorted(bits[name] for name in order)
    protocol = numbers["protocol"]
    assert len(protocol) == 1 + 4 * 5
    assert all(0 < error < 1.1 for name in protocol for error in protocol[name])


def test_critically_damped(runs: Runs) -> None:
    numbers = runs("critically-damped").numbers
    distance = numbers["energy_distance"]
    assert (
        max(distance["degree 4"], distance["degree 4, reverse SDE"]) < 0.25 * distance["degree 2"]
    )
    assert numbers["gaussian_error"] < 1e-5
    assert numbers["log_density"]["degree 4"] > numbers["log_density"]["degree 2"] + 0.1


def test_coefficients(runs: Runs) -> None:
    numbers = runs("coefficients").numbers
    worst = {name: max(errors) for name, errors in numbers["errors"].items()}
    assert worst["pixels: placed knots, cubic"] < 0.015
    placed, even = "placed knots, cubic", "1,000 even knots, linear"
    assert worst[f"principal directions: {placed}"] < worst[f"principal directions: {even}"]
    assert numbers["knots"][f"pixels: {placed}"] < numbers["knots"][f"pixels: {even}"] == 1000


def test_as_a_process(runs: Runs, tmp_path: Path) -> None:
    """Its numbers are those of the same process: all draws are determined by the seed."""
    command = [sys.executable, "-m", "studies", "stein", "--quick", "-o", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=300,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "out"
    *claims, last = done.stdout.splitlines()
    written = last.partition("written: ")[2].split(", ")
    assert sorted(written) == [f"out/{n}" for n in ("figure.png", "numbers.json", "report.md")]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        Path(path).name for path in written
    )
    assert all(line.startswith("yes: ") for line in claims)
    numbers, here = json.loads((folder / "numbers.json").read_text()), runs("stein").numbers
    assert len(claims) == len(numbers["claims"])
    assert all(claim["holds"] for claim in numbers["claims"])
    assert numbers["settings"] == here["settings"]
    risks = "risk_over_sample_means"
    for name, values in here[risks].items():
        assert numbers[risks][name] == pytest.approx(values, rel=1e-4)
