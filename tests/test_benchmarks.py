"""The benchmarks run, with small sizes."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from oism.data.toys import PLANE
from oism.nn import DDPMpp

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def output(name: str, *arguments: str, path: Path | None = None) -> str:
    command = [sys.executable, str(BENCHMARKS / name), *arguments]
    environment = os.environ if path is None else {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def test_hermite() -> None:
    printed = output("hermite.py", "--points", "2000", "--rounds", "1")
    assert "values and gradients, 2,000 points, dim 1, order 12" in printed
    assert "numpy hermevander" in printed


def test_real_tables(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    columns = {"number": np.arange(80), "x": x, "y": x + 0.01 * rng.normal(size=80)}
    text = [",".join(["", *columns])]
    rows = zip(*columns.values(), strict=True)
    text += [",".join(map(str, (k, *row))) for k, row in enumerate(rows)]
    for name in ("one.csv", "copy.csv"):
        (tmp_path / name).write_text("\n".join(text))
    (tmp_path / "short.csv").write_text("\n".join(text[:50]))
    (tmp_path / "empty.csv").write_text("")
    kept = tmp_path / "kept.jsonl"
    printed = output("real_tables.py", str(tmp_path), "--json", str(kept))
    records = [json.loads(line) for line in kept.read_text().splitlines()]
    names = ["copy.csv, column 0", "copy.csv, column 1", "copy.csv, 2 columns"]
    assert [one["table"] for one in records] == names
    record = records[-1]
    assert record["rows"] == 60
    gain = record["OISM()"] - record["torus"]
    assert gain > 0
    assert f"| 2 | torus | 1 | {gain:+.3f} | {gain:+.3f} | {gain:+.3f} | 1 | 0 |" in printed
    assert output("real_tables.py", str(tmp_path), "--json", str(kept)) == printed
    assert len(kept.read_text().splitlines()) == 3


@pytest.mark.slow
def test_bounded() -> None:
    printed = output("bounded.py", "--sets", "Gamma(0.7)", "--points", "200", "--seeds", "2")
    line = next(line for line in printed.splitlines() if line.startswith("| Gamma(0.7) |"))
    errors = [float(cell.split()[0]) for cell in line.strip("| ").split("|")[1:]]
    assert len(errors) == 6
    assert errors[0] < min(errors[-2:]), "below both kernel estimates"


@pytest.mark.slow
def test_moments() -> None:
    printed = output("moments.py", "--rows", "500", "--columns", "20", "--points", "100")
    assert "Hermite averages to degree 10, 500 × 20 values" in printed
    assert "FINUFFT" in printed


@pytest.mark.slow
def test_prior(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    size = ("--images", "200", "--side", "5", "--no-network", "--device", "cpu")
    printed = output("prior.py", *size, "--json", str(kept))
    assert "PCA, order 9: the same, cross-validated" in printed
    assert "noise of a batch, mixture, local terms" in printed
    found = json.loads(kept.read_text(encoding="utf-8"))
    assert set(found["fit"]) > {"lower bound: pairs", "lower bound: projection", "mixture of 32"}
    assert all(one["eager"] > 0 for one in found["batch"].values())


@pytest.mark.slow
def test_prior_beside_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that priors are compared with, with a small network."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    prior = importlib.import_module("prior")
    small = partial(DDPMpp, width=8, multipliers=(1,), blocks=1, attention=())
    monkeypatch.setattr(prior, "DDPMpp", small)
    monkeypatch.setattr(prior, "BATCH", 2)
    spent, count = prior.step_seconds(torch.device("cpu"), compiled=False)
    assert spent > 0
    assert count == sum(part.numel() for part in small().parameters())


@pytest.mark.slow
def test_training(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    size = ("--small", "--images", "300", "--batch", "16", "--rounds", "1", "--steps", "1")
    printed = output("training.py", *size, "--json", str(kept))
    assert "compiled, not recorded, OISM(6), solved in every step" in printed
    found = json.loads(kept.read_text(encoding="utf-8"))
    assert len(found["rounds"]) == 13
    assert set(found["ready"]) == set(found["rounds"])
    assert min(min(spent) for spent in found["rounds"].values()) > 0
    assert found["operations"] > 1e7


@pytest.mark.slow
def test_torus() -> None:
    printed = output("torus.py", "--points", "500", "--largest", "30", "--rounds", "1")
    assert "dense/free" in printed
    assert "growth" in printed


@pytest.mark.slow
def test_rotations(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    sizes = ("--points", "300", "--tested", "100", "--seeds", "0", "--degree", "2")
    printed = output("rotations.py", *sizes, "--json", str(kept))
    assert "300 rotations of 5 isotropic Gaussians of 20° to 40°, degree ≤ 2" in printed
    assert "mean above truth: oism" in printed
    record = json.loads(kept.read_text(encoding="utf-8"))["records"][0]
    assert record["truth"] < record["oism"] < record["truth"] + 0.5
    assert record["mass"] == pytest.approx(1, abs=0.3)


@pytest.mark.slow
def test_scattered() -> None:
    printed = output("scattered.py", "--points", "10", "300", "--repeats", "1")
    assert "the chosen method took at most" in printed
    assert "*" in printed


@pytest.mark.slow
def test_estimator() -> None:
    sizes = [
        "--rows",
        "120",
        "--samples",
        "20",
        "--queries",
        "20",
        "--many",
        "50",
        "--threads",
        "1",
    ]
    printed = output("estimator.py", *sizes)
    assert "2-D, 400 functions" in printed
    assert "50 samples" in printed


def test_estimator_of_one_column(tmp_path: Path) -> None:
    sizes = ["--one-dimension", "--lengths", "40", "--seeds", "1", "--threads", "1"]
    stored = tmp_path / "before.json"
    output("estimator.py", *sizes, "--record", str(stored))
    printed = output("estimator.py", *sizes, "--baseline", str(stored))
    assert "normal, 40" in printed
    assert printed.count("+0.0000") == 6, "two runs are the same"


STAND_IN = ["--model", "stand_in:Model", "--no-flow"]


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A folder with a module whose model takes the place of OISM and needs no time."""
    content = "from baselines import KDE\n\n\nclass Model(KDE):\n    pass\n"
    (tmp_path / "stand_in.py").write_text(content)
    return tmp_path


@pytest.mark.slow
def test_density(tmp_path: Path, stand_in: Path) -> None:
    file = tmp_path / "records.json"
    sizes = ["--points", "300", "--tested", "100", "--seeds", "0", "1", "--json", str(file)]
    printed = output("density.py", "--sets", "moons", "rings", *sizes, *STAND_IN, path=stand_in)
    assert "Model-KDE: mean +0.0000; within 0.01 or below on 2 of 2" in printed
    records = json.loads(file.read_text())["records"]
    assert [(r["name"], r["seed"]) for r in records] == [
        ("moons", 0), ("moons", 1), ("rings", 0), ("rings", 1),
    ]  # fmt: skip
    assert records[0]["differences"]["Model-KDE"] == [0, 0]
    rows = [line.split() for line in printed.splitlines() if line.startswith("moons")]
    truth, nll = (np.mean([r["known"]["exact"] for r in records[:2]]), float(rows[0][3]))
    assert float(rows[0][2]) == pytest.approx(truth, abs=6e-5)
    assert truth < nll < truth + 0.5


@pytest.mark.slow
def test_torsion(tmp_path: Path, stand_in: Path) -> None:
    rng = np.random.default_rng(0)
    angles = np.remainder(rng.normal(180, 20, size=(301, 3)), 360) - 180
    rows = [",".join(f"{angle:.3f}" for angle in row) for row in angles]
    rows[7] = "1.0,,2.0"
    file = tmp_path / "angles.csv"
    file.write_text("\n".join(["phi,psi,chi1", *rows]) + "\n")
    columns = ("--columns", "phi", "psi", "--seeds", "0")
    printed = output("torsion.py", str(file), *columns, *STAND_IN, path=stand_in)
    assert "angles.csv, phi, psi: 301 rows, 1 incomplete, dropped" in printed
    nll = float(
        next(line for line in printed.splitlines() if line.startswith("angles ")).split()[1]
    )
    normal = 2 * math.log(math.radians(20) * math.sqrt(2 * math.pi * math.e))
    assert nll == pytest.approx(normal, abs=0.2)  # per radian


@pytest.fixture
def baselines(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("baselines")


def test_a_missing_zuko_is_an_error_before_the_work(
    baselines: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(SystemExit, match=r"zuko, which is not installed: .*--no-flow"):
        baselines.check_zuko()


@pytest.mark.slow
def test_a_flow_is_a_density(baselines: ModuleType, generator: torch.Generator) -> None:
    pytest.importorskip("zuko")
    x = PLANE["moons"].sample(1000, generator).numpy()
    flow = baselines.Flow(seconds=0.5).fit(x)
    axis = np.linspace(-12, 12, 301)
    log = flow.score_samples(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2))
    assert np.exp(log).sum() * 0.08**2 == pytest.approx(1, abs=0.01)
    assert flow.sample(5).shape == (5, 2)
    circular = baselines.Flow(seconds=0.5, periodic={0: 8.0, 1: 8.0}).fit(x)
    axis = np.linspace(0, 8, 200, endpoint=False)
    log = circular.score_samples(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2))
    assert np.exp(log).sum() * 0.04**2 == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_an_unknown_model_is_an_error() -> None:
    with pytest.raises(subprocess.CalledProcessError) as failure:
        output("density.py", "--no-flow", "--model", "oism:Nothing")
    assert "oism has no 'Nothing'" in failure.value.stderr
