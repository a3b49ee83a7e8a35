"""The benchmark of tables: statistics of paired differences, files of records, whole runs."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"

SPLITS = """
import numpy as np

NAMES = ["normal", "pair"]


def load(name, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(220, 2 if name == "pair" else 1))
    truth = -0.5 * (x**2).sum(1) - x.shape[1] * np.log(2 * np.pi) / 2
    return x[:150], x[150:], truth[150:] if name == "normal" else None
"""


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("table_report")


@pytest.fixture
def methods(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("table_methods")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "splits.py").write_text(SPLITS)
    return tmp_path


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("tables")


def test_differences_are_paired_within_seeds(reports: Any) -> None:
    first, second = [[-1.0, -2.0, -3.0], [0.0, 0.0]], [[-1.0, -1.0, -1.0], [1.0, 3.0]]
    gap = reports.difference(list(zip(first, second, strict=True)))
    assert gap.mean == pytest.approx((1 + 2) / 2)  # NLLs 2 and 0, against 1 and -2
    assert gap.by_rows == pytest.approx(math.sqrt(1 / 3 + 2 / 2) / 2)
    assert gap.by_seeds == pytest.approx(0.5)
    assert gap.verdict == "above"
    one = reports.difference([([0.0, 0.0], [0.1, -0.1])])
    assert math.isnan(one.by_seeds)
    assert one.verdict == "level"
    assert reports.difference([([1.0, 1.1], [0.0, 0.2])]).verdict == "below"
    wide = reports.Difference(-0.1, by_rows=0.01, by_seeds=0.2)
    assert wide.verdict == "level"  # the larger error decides


def test_the_error_of_rows_has_the_spread_of_means(reports: Any) -> None:
    rng = np.random.default_rng(0)
    draws = [rng.normal(0.3, 1.0, size=(3, 50)) for _ in range(400)]
    gaps = [reports.difference([(np.zeros(50), row) for row in draw]) for draw in draws]
    spread = np.std([gap.mean for gap in gaps])
    assert np.mean([gap.by_rows for gap in gaps]) == pytest.approx(spread, rel=0.1)
    assert np.mean([gap.by_seeds**2 for gap in gaps]) == pytest.approx(spread**2, rel=0.2)


def test_records_survive_a_run_that_was_ended(reports: Any, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    assert reports.read(path) == []
    record = reports.Record("iris", 1, "gmm", 0.0, rows=3, logs=[-1.0, -2.5], notes={"k": 2})
    reports.append(path, record)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"table": "iris", "se')
    assert reports.read(path) == [record]
    assert record.nll == 1.75


def test_masses_of_angles(methods: Any) -> None:
    """1 for a density of known mass, and 1.1 where it is multiplied."""
    rng = np.random.default_rng(0)
    train = np.remainder(rng.normal([1.0, 6.0], [0.5, 0.3], size=(500, 2)), 2 * math.pi)
    periods = dict.fromkeys(range(2), 2 * math.pi)
    model = methods.kde(methods.Split(train, train, periods=periods), 0.0)

    class Larger:
        def score_samples(self, x: Any) -> Any:
            return model.score_samples(x) + math.log(1.1)

        def sample(self, n: int, random_state: int) -> Any:
            return model.sample(n, random_state=random_state)

    for one, mass in ((model, 1.0), (Larger(), 1.1)):
        for found in methods.angle_masses(one, train, 4000).values():
            assert abs(found.value - mass) < 4 * found.error
        assert found.error < 0.01  # by draws of both


def test_wrong_words_are_errors(folder: Path, benchmark: Any) -> None:
    for settings, message in (
        ({"data": folder / "no"}, "has no splits.py"),
        ({}, "nothing to fit"),
        ({"tables": ("iris",)}, "needs --data"),
        ({"mixed": True, "methods": ("closed,magic",)}, "no method 'magic'"),
    ):
        options = benchmark.Options(out=folder / "none.jsonl", **settings)
        with pytest.raises(SystemExit, match=message):
            benchmark.main(options)


@pytest.mark.slow
def test_processes_compute_the_same(folder: Path) -> None:
    found = []
    for jobs in ("1", "2"):
        out = folder / f"{jobs}.jsonl"
        words = ["--data", str(folder), "--out", str(out), "--seeds", "1", "--tables", "pair"]
        words += ["--methods", "gmm,kde", "--jobs", jobs, "--threads", "1"]
        command = [sys.executable, str(BENCHMARKS / "tables.py"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        records = [json.loads(line) for line in out.read_text().splitlines()]
        found.append({record["method"]: record["logs"] for record in records})
    assert set(found[0]) == {"gmm", "kde"}
    for method, logs in found[0].items():
        np.testing.assert_allclose(logs, found[1][method], atol=1e-4)


def test_a_run_is_continued_and_reported(
    folder: Path, benchmark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "records.jsonl"
    options = benchmark.Options(
        data=folder, out=out, seeds=2, threads=1, tables=("normal,pair-1",), methods=("gmm,kde",)
    )
    benchmark.main(options)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(records) == 8
    assert {record["columns"] for record in records} == {1}  # one of the pair is left out
    printed = capsys.readouterr().out.splitlines()
    row = next(line.split() for line in printed if line.startswith("normal    "))
    logs = {name: [] for name in ("truth", "gmm", "kde")}  # type: dict[str, list[float]]
    for record in records:
        if record["table"] == "normal":
            logs[record["method"]].append(-np.mean(record["logs"]))
            logs["truth"].append(-np.mean(record["truth"]))
    assert row[:4] == ["normal", "150", "1", "2"]
    np.testing.assert_allclose([float(v) for v in row[4:]], [np.mean(v) for v in logs.values()],
                               atol=6e-4)  # fmt: skip
    benchmark.main(replace(options, methods=("gmm", "kde", "closed"), tables=("normal", "pair-1")))
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["method"] for record in records[8:]] == ["closed"] * 4
    printed = capsys.readouterr().out.splitlines()
    count = next(line for line in printed if line.startswith("closed - gmm: below "))
    assert count.endswith("of 1")  # tables without a column are not counted


def test_a_failed_fit_does_not_end_the_others(
    folder: Path, benchmark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    out, tables = folder / "records.jsonl", ("normal", "pair-7")
    options = benchmark.Options(
        data=folder, out=out, seeds=1, threads=1, tables=tables, methods=("kde",)
    )
    with pytest.raises(SystemExit, match="1 of 2 fits failed"):
        benchmark.main(options)
    printed = capsys.readouterr()
    assert "pair-7 seed 0 kde failed" in printed.err
    assert "normal seed 0 kde: " in printed.out
    with pytest.raises(SystemExit, match="1 of 1 fits failed"):  # tried again, the other is not
        benchmark.main(options)


@pytest.mark.slow
def test_a_flow_is_a_density(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zuko")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    flows = importlib.import_module("table_flows")
    rng = np.random.default_rng(0)
    x = rng.normal([1.0, 2.0], [0.5, 2.0], size=(400, 2))
    flow = flows.fit_best_flow(x, 3.0)
    axes = np.meshgrid(np.linspace(-4, 6, 200), np.linspace(-18, 22, 200))
    log = flow.score_samples(np.stack(axes, axis=-1).reshape(-1, 2))
    assert np.exp(log).sum() * (10 / 199) * (40 / 199) == pytest.approx(1, abs=0.01)
    entropy = math.log(0.5 * 2.0) + math.log(2 * math.pi * math.e)
    fresh = rng.normal([1.0, 2.0], [0.5, 2.0], size=(2000, 2))
    assert -flow.score_samples(fresh).mean() == pytest.approx(entropy, abs=0.2)
    periods = {0: 2 * math.pi, 1: 2 * math.pi}
    circular = flows.fit_best_flow(np.remainder(x, 2 * math.pi), 1.0, periodic=periods)
    axis = np.linspace(0, 2 * math.pi, 150, endpoint=False)
    log = circular.score_samples(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2))
    assert np.exp(log).sum() * (2 * math.pi / 150) ** 2 == pytest.approx(1, abs=0.01)
