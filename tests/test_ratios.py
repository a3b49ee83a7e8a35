"""The comparison of ratios of times with the last record, without measuring anything."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def ratios(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("ratios")


class Clock:
    """A clock that work moves by the seconds it is said to take."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, *seconds: float) -> Callable[[], None]:
        taken = itertools.cycle(seconds)

        def run() -> None:
            self.now += next(taken)

        return run


def noted(order: list[str], name: str, work: Callable[[], None]) -> Callable[[], None]:
    """Return work that adds a name to a list."""

    def run() -> None:
        order.append(name)
        work()

    return run


def test_rounds_alternate_and_the_smallest_times_count(ratios: ModuleType) -> None:
    clock, order = Clock(), list[str]()
    own, other = clock.work(3.0, 9.0, 2.0), clock.work(4.0, 8.0, 8.0)
    task = ratios.Task("t", "b", noted(order, "own", own), noted(order, "other", other))
    timing = ratios.timed(task, clock)
    assert order == ["own", "other"] * 3
    assert (timing.own, timing.other, timing.ratio) == (2.0, 4.0, 0.5)


def test_short_calls_are_timed_in_blocks(ratios: ModuleType) -> None:
    """A long task is warm after a call that counts, a short one after a call that does not."""
    clock, order = Clock(), list[str]()
    own, other = clock.work(0.03125), clock.work(1.0)
    task = ratios.Task("t", "b", noted(order, "own", own), noted(order, "other", other), 2)
    timing = ratios.timed(task, clock)
    block = ["own"] * 4  # 0.125 s
    assert order == ["own", "other", *block, "other", *block]
    assert (timing.own, timing.other) == (0.03125, 1.0)


@pytest.mark.parametrize("first", [0.015625, 0.09375])
def test_a_cold_first_call_neither_counts_nor_decides_the_size_of_blocks(
    first: float, ratios: ModuleType
) -> None:
    clock, order = Clock(), list[str]()
    own, other = (clock.work(first, *[0.03125] * 12) for _ in range(2))
    task = ratios.Task("t", "b", noted(order, "own", own), noted(order, "other", other))
    timing = ratios.timed(task, clock)
    assert order == ["own", "other", *(["own"] * 4 + ["other"] * 4) * 3]
    assert (timing.own, timing.other) == (0.03125, 0.03125)


@pytest.mark.parametrize(
    ("ratio", "last", "worse"),
    [(1.0, None, False), (1.3, 1.0, False), (1.34, 1.0, True), (0.5, 1.0, False), (8, 6.1, False)],
)
def test_worse_by_more_than_a_third(
    ratio: float, last: float | None, worse: bool, ratios: ModuleType
) -> None:
    assert ratios.is_worse(ratio, last) is worse
    timing = ratios.Timing(ratio, 1.0)
    task = ratios.Task("task", "baseline", print, print)
    assert ratios.line(task, timing, last).endswith("slower") is worse


def test_what_is_slower_is_named_after_two_more_measurements(
    ratios: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The smallest time of each counts: a slow baseline does not hide a slow task."""
    found = {
        "slow": [(2.0, 1.0), (2.2, 1.5), (1.9, 2.0)],
        "noisy": [(2.0, 1.0), (1.1, 1.0), (9.0, 1.0)],
        "fast": [(0.5, 1.0)],
        "new": [(7.0, 1.0)],
    }
    left = {name: iter(values) for name, values in found.items()}

    def timed(task: object) -> object:
        return ratios.Timing(*next(left[task.name]))  # type: ignore[attr-defined]

    monkeypatch.setattr(ratios, "timed", timed)
    tasks = [ratios.Task(name, "b", print, print) for name in found]
    measured, slower = ratios.run(tasks, {"slow": 1.0, "noisy": 1.0, "fast": 1.0})
    assert measured == {"slow": 1.9, "noisy": 1.1, "fast": 0.5, "new": 7.0}
    assert slower == ["slow"]
    assert capsys.readouterr().out.count("slower") == 1


def test_records_are_kept_by_commit(ratios: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    assert ratios.read(path) == []
    records = [ratios.Record.of({"fit": x}) for x in (0.123456, 2.0)]
    for record in records:
        ratios.append(path, record)
    assert ratios.read(path) == records
    assert records[0].ratios == {"fit": 0.1235}
    assert set(records[0].versions) == {"python", *ratios.PACKAGES}


@pytest.mark.slow
def test_every_task_of_the_table(
    ratios: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With few rows and small models, and a record that the second run is compared with."""
    regression = importlib.import_module("regression")
    monkeypatch.setattr(regression, "OISM", regression.KernelDensity)
    path = tmp_path / "record.jsonl"
    regression.main(record=True, rows=200, bound=9.0, file=path, threads=1)
    (record,) = ratios.read(path)
    assert len(record.ratios) == 12
    assert "fit, 2 columns" in record.ratios
    better = ratios.Record.of({name: ratio / 100 for name, ratio in record.ratios.items()})
    ratios.append(path, better)
    monkeypatch.setattr(regression, "fits", lambda _: [])
    with pytest.raises(SystemExit, match=r"slower than the record of .*: oism --help"):
        regression.main(rows=200, bound=9.0, file=path, threads=1)
    assert capsys.readouterr().out.count("compared with") == 2
