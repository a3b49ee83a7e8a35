"""Numbers by step: lines of JSON that a crash cannot spoil, and TensorBoard where it is."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path

import pytest

from oism.training import read_metrics
from oism.training._metrics import Metrics


def steps(folder: Path) -> list[int]:
    return [line["step"] for line in read_metrics(folder)]


def write(folder: Path, *numbers: int, after: int = 0, tensorboard: bool = False) -> None:
    with Metrics(folder, after=after, tensorboard=tensorboard) as metrics:
        for step in numbers:
            metrics.add(step, {"loss": 1 / step, "rate": 0.1})


def test_every_line_is_json(tmp_path: Path) -> None:
    with Metrics(tmp_path, tensorboard=False) as metrics:
        metrics.add(1, {"loss": 0.1 + 0.2, "gradient": math.nan})
        text = (tmp_path / "metrics.jsonl").read_text()
        assert text.endswith("\n"), "a line is there once it was added"
        assert json.loads(text) == {"step": 1, "loss": 0.30000000000000004, "gradient": None}


def test_what_came_after_a_step_is_forgotten(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3, 4, 5)
    write(tmp_path, 4, 6, after=3)
    assert steps(tmp_path) == [1, 2, 3, 4, 6]
    write(tmp_path, 1)
    assert steps(tmp_path) == [1]


@pytest.mark.parametrize(
    "rest",
    ['{"step": 3, "lo', '{"step": 3, "loss": 0.1}', "\0\0\0\0", "3", '{"loss": 1}', "\ufffd"],
)
def test_a_line_that_was_cut_short_is_forgiven(rest: str, tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(rest)
    write(tmp_path, 3, 4, after=2)
    assert steps(tmp_path) == [1, 2, 3, 4]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 4


def test_damaged_lines_are_named_and_the_others_stay(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3, 4)
    path = tmp_path / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1].replace("{", "["), *lines[2:]]))
    with pytest.warns(UserWarning, match=r"metrics.jsonl: damaged, and left out: line 2$"):
        assert steps(tmp_path) == [1, 3, 4]


def test_lines_that_are_missing_before_a_step_are_reported(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3, 4)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    with pytest.warns(UserWarning, match=r"metrics.jsonl: step 4 is missing"):
        write(tmp_path, 5, after=4)
    assert steps(tmp_path) == [1, 2, 5]


def test_bytes_that_are_no_text_are_forgiven(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": \xff\xfe')
    write(tmp_path, 3, after=2)
    assert steps(tmp_path) == [1, 2, 3]


def test_lines_are_brought_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is written after the numbers of its step, never before."""
    synced: list[str] = []
    metrics = Metrics(tmp_path, tensorboard=False)
    metrics.add(1, {"loss": 1.0})
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append((tmp_path / "metrics.jsonl").read_text())
        real(handle)

    monkeypatch.setattr("oism.training._metrics.os.fsync", fsync)
    metrics.flush_to_disk()
    metrics.close()
    assert [text.count("\n") for text in synced] == [1, 1]


def test_a_disk_that_is_full_still_closes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics(tmp_path, tensorboard=False)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("oism.training._metrics.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        metrics.close()
    assert metrics._file.closed


def test_tensorboard_is_told_the_same(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    ).EventAccumulator
    write(tmp_path, 1, 2, 3, 4, 5, tensorboard=True)
    write(tmp_path, 4, 6, after=3, tensorboard=True)
    events = accumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == {"loss", "rate"}
    found = [(event.step, event.value) for event in events.Scalars("loss")]
    wanted = [(line["step"], line["loss"]) for line in read_metrics(tmp_path)]
    assert [step for step, _ in found] == [1, 2, 3, 4, 6], "what was forgotten is purged there too"
    assert [value for _, value in found] == pytest.approx([value for _, value in wanted])


def test_without_tensorboard_there_is_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with Metrics(tmp_path) as metrics:
        assert not metrics.has_board
        metrics.add(1, {"loss": 1.0})
    assert steps(tmp_path) == [1]
    assert not (tmp_path / "tensorboard").exists()
    monkeypatch.undo()
    with Metrics(tmp_path) as metrics:
        assert metrics.has_board
