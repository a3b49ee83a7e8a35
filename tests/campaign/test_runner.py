"""Every case gets one record, whatever happens to it, and a campaign continues where it ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaign import report, runner

FAKES = "tests.campaign.fakes"


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(runner.KINDS, FAKES, 6)
    monkeypatch.setattr(runner, "WALL_SECONDS", 20.0)
    return FAKES


def test_every_end_is_a_record(fakes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = {"seconds": 100.0, "processes": 2, "count": 100}
    monkeypatch.setattr(runner, "WALL_SECONDS", 5.0)
    runner.run([fakes], tmp_path, **bounds)  # type: ignore[arg-type]
    found = {one["seed"]: one for one in report.read(tmp_path)}
    ends = {seed: one["failed"] for seed, one in found.items()}
    assert ends == {
        0: [], 1: ["error"], 2: ["crash, exit status 7"], 3: ["no end"], 4: [], 5: ["odd"],
    }  # fmt: skip
    assert "RuntimeError: no" in found[1]["error"]
    assert found[0]["cpu_seconds"] >= 0
    assert 0 < found[0]["memory"] < 64


def test_a_campaign_continues(fakes: str, tmp_path: Path) -> None:
    path = report.file_of(tmp_path, fakes)
    known = [{"kind": fakes, "seed": seed, "failed": ["before"]} for seed in range(4)]
    path.write_text("".join(json.dumps(one) + "\n" for one in known) + '{"kind": "tests.')
    with path.open("a") as file:
        file.write("\n")  # as after the crash of a campaign
    runner.run([fakes], tmp_path, seconds=100.0, processes=1, count=5)
    found = report.read(tmp_path)
    assert found[:4] == known
    assert [(one["seed"], one["failed"]) for one in found[4:]] == [(4, [])]
    runner.run([fakes], tmp_path, seconds=0.0, processes=1, count=6)
    assert report.read(tmp_path) == found, "no case begins after the time"
    report.forget_failures(tmp_path, [fakes])
    assert [one["seed"] for one in report.read(tmp_path)] == [4]


@pytest.mark.parametrize(("limit", "name"), [("CPU_SECONDS", "cpu_seconds"), ("MEMORY", "memory")])
def test_bounds(limit: str, name: str, fakes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runner.measured(fakes, 0)["failed"] == []
    monkeypatch.setattr(runner, limit, -1.0)
    assert runner.measured(fakes, 0)["failed"] == [name]


def test_the_page_names_seeds() -> None:
    records = [
        {"kind": "tables", "seed": 1, "failed": [], "cpu_seconds": 2.0, "commit": "abc"},
        {"kind": "tables", "seed": 7, "failed": ["mass", "file"], "cpu_seconds": 9.0},
    ]
    page = report.page(records, runner.KINDS)
    assert "| tables | 1000 | 2 | 1 | file 1, mass 1 | 9.0, 9.0 |" in page
    assert "| files | 500 | 0 | 0 | none | 0.0, 0.0 |" in page
    assert "- tables, mass: seeds 7" in page
    assert "Commits: abc (tables)." in page
    assert "local changes" not in page
    assert "None." in report.page(records[:1], runner.KINDS)


def test_every_kind_is_described() -> None:
    assert set(report.ABOUT) == set(runner.KINDS)
