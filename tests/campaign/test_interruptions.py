"""What an interrupted command may leave and print, and what is a failure."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from campaign.interruptions import BEGIN, END, OLD, Ended, Output, faults
from oism.__main__ import main

LINE = "oism: error: interrupted\n"
CLEAN = Ended(130, f"{BEGIN}\nreading: 50%\r{LINE}{END}\n", 0.1)
DONE = f"{BEGIN}\n{END}\n"
TABLE = Output(".csv", {".": 3})


def write(path: Path, lines: int) -> Path:
    path.write_text("1,2\n" * lines)
    return path


def test_what_passes(tmp_path: Path) -> None:
    table = tmp_path / "out.csv"
    assert faults(CLEAN, table, TABLE, replaces=False) == []
    assert faults(Ended(-2, "", 0.0), table, TABLE, replaces=False) == [], "Python's own start"
    table.write_bytes(OLD)
    assert faults(CLEAN, table, TABLE, replaces=True) == []
    write(table, 3)
    assert faults(CLEAN, table, TABLE, replaces=True) == []
    assert faults(Ended(0, DONE, 0.1), table, TABLE, replaces=True) == []
    assert faults(Ended(-2, DONE, 0.1), table, TABLE, replaces=True) == [], "Python's own end"
    own = Ended(-2, CLEAN.error, 0.1)
    assert faults(own, table, TABLE, replaces=True) == [], "a shell gets 130"
    assert faults(CLEAN, tmp_path / "none", Output("", {}), replaces=False) == []


@pytest.mark.parametrize(
    ("ended", "fault"),
    [
        (Ended(1, CLEAN.error, 0.1), ["status"]),
        (Ended(-9, BEGIN, 120.0), ["status", "message"]),
        (Ended(-2, BEGIN, 0.1), ["status", "message"]),
        (Ended(130, f"{BEGIN}\noism: error: no such file\n{END}", 0.1), ["message"]),
        (Ended(130, f"{BEGIN}\nTraceback (most recent call last)\n{LINE}{END}", 0), ["message"]),
        (Ended(-2, f"{BEGIN}\nTraceback\nKeyboardInterrupt", 0), ["status", "message"]),
        (Ended(0, DONE, 60.0), ["ignored"]),
        (Ended(0, DONE, 0.1), ["ignored"]),
    ],
)
def test_wrong_ends(ended: Ended, fault: list[str], tmp_path: Path) -> None:
    assert faults(ended, tmp_path / "out.csv", TABLE, replaces=False) == fault


@pytest.mark.parametrize("suffix", [".safetensors", ".png", ".parquet", ".json"])
def test_files_that_cannot_be_read_are_not_complete(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{suffix}"
    path.write_bytes(b"{ half")
    assert faults(CLEAN, path, Output(suffix, {".": 0}), replaces=False) == ["file"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "settings.json").write_text("{}")
    assert faults(CLEAN, tmp_path / "run", Output("", {"a": 0}), replaces=False) == []
    path.rename(tmp_path / "run" / path.name)
    assert faults(CLEAN, tmp_path / "run", Output("", {"a": 0}), replaces=False) == ["file"]


def test_half_written_files(tmp_path: Path) -> None:
    half = write(tmp_path / "out.csv", 2)
    assert faults(CLEAN, half, TABLE, replaces=False) == ["file"]
    half.unlink()
    assert faults(CLEAN, half, TABLE, replaces=True) == ["file"], "the old file is gone"
    (tmp_path / "out").mkdir()
    folder = Output("", {"a.png": 0, "b.html": 0})
    assert faults(CLEAN, tmp_path / "out", folder, replaces=False) == [], "an empty folder"
    Image.new("L", (2, 2)).save(tmp_path / "out" / "a.png")
    assert faults(CLEAN, tmp_path / "out", folder, replaces=False) == ["file"]
    (tmp_path / "out" / "b.html").touch()
    assert faults(CLEAN, tmp_path / "out", folder, replaces=False) == []
    (tmp_path / ".oism-123.part").touch()
    assert faults(CLEAN, tmp_path / "out", folder, replaces=False) == ["left behind"]


class Interrupting(ModuleType):
    """A module that is interrupted while it is imported."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_an_interruption_of_the_import(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "oism.cli", Interrupting("oism.cli"))
    assert main() == 130
    assert capsys.readouterr().err == "oism: error: interrupted\n"
