"""What all studies share: claims, numbers as JSON, and a folder that is written whole."""

from __future__ import annotations

import importlib
import json
import math
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Self

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import oism
from oism._core.plain import plain
from oism.cli import main
from oism.studies import STUDIES, by_name
from oism.studies.study import (
    Claim,
    Findings,
    Study,
    Written,
    figure,
    reproduce,
    table,
    text,
    versions,
)

TEXTS = files("oism.studies").joinpath("texts")


def findings(numbers: dict[str, Any] | None = None, word: str = "first") -> Findings:
    claims = [Claim("one is less than two", 1, 2), Claim("two is less than one", 2.0, 1.0)]
    return Findings(numbers or {"value": math.pi}, {"picture": picture()}, claims, f"\n{word}\n")


def picture() -> Figure:
    drawn, ax = plt.subplots(figsize=(2, 1))
    ax.plot([1, 2])
    return drawn


@dataclass(frozen=True)
class Toy(Study):
    size: int = 3
    work: Callable[[], Findings] = field(default=findings, repr=False)

    name: ClassVar[str] = "toy"
    title: ClassVar[str] = "A toy"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        return cls(seed, size=1)

    def run(self) -> Findings:
        return self.work()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_claim_holds_where_lower_is_less() -> None:
    assert Claim("", 1.0, 2.0).holds
    assert not Claim("", 2.0, 2.0).holds
    for lower, upper in ((math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan)):
        assert Claim("", lower, upper).holds is False
    assert Claim("", float(np.float64(1)), np.float64(2)).holds is True  # not NumPy's own
    assert str(Claim("small", 0.12345, 2)) == "yes: small (0.123 < 2)"
    assert str(Claim("large", math.inf, 2)) == "NO: large (not finite < 2)"


def test_a_folder_holds_when_all_its_claims_do() -> None:
    good, bad = Claim("", 0, 1), Claim("", 1, 0)
    assert Written(Path(), claims=[good, good]).holds
    assert not Written(Path(), claims=[good, bad]).holds


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (-0.0012349, "-0.00123"),
        (99.96, "100"),
        (1234567.0, "1.23e+06"),
        (1e-7, "1e-07"),
        (math.nan, "not finite"),
        (-math.inf, "not finite"),
        (7, "7"),
    ],
)
def test_numbers_for_people(value: float, expected: str) -> None:
    assert figure(value) == expected


def test_a_table_in_markdown() -> None:
    found = table(["name", "value"], [["a", 0.12345], ["b", np.float64(2)], ["c", 7], ["d", "x"]])
    assert found.splitlines() == [
        "| name | value |",
        "| --- | --- |",
        "| a | 0.123 |",
        "| b | 2 |",
        "| c | 7 |",
        "| d | x |",
    ]


def test_versions_are_those_in_use() -> None:
    assert versions()["oism"] == oism.__version__
    assert versions()["torch"] == torch.__version__
    assert set(versions()) == {"oism", "python", "torch", "numpy"}


def test_generators_are_streams_of_the_seed() -> None:
    draws = {
        (seed, stream): float(torch.rand((), generator=Toy(seed).generator(stream)))
        for seed in (0, 1)
        for stream in (0, 1, 2)
    }
    assert len(set(draws.values())) == 6
    again = float(torch.rand((), generator=Toy(1).generator(2)))
    assert again == draws[1, 2]


def test_a_folder_explains_itself(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "toy"
    written = reproduce(Toy(4), folder)
    assert names(folder) == ["numbers.json", "picture.png", "report.md"]
    assert sorted(written.files) == sorted(folder.iterdir())
    assert not written.holds
    assert written.seconds < 10
    numbers = json.loads((folder / "numbers.json").read_text(encoding="utf-8"))
    assert numbers["study"] == "toy"
    assert numbers["settings"]["seed"] == 4
    assert numbers["settings"]["size"] == 3
    assert numbers["versions"] == versions()
    assert numbers["value"] == 3.14159
    assert [claim["holds"] for claim in numbers["claims"]] == [True, False]
    assert numbers["claims"][1]["lower"] == 2.0
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert report.startswith("# A toy\n\n`oism reproduce toy`, 0 s; seed = 4, size = 3")
    assert "![picture](picture.png)\n\nfirst\n\n## Claims\n\n- yes: one is less than two" in report
    assert "- NO: two is less than one (2 < 1)" in report
    image = plt.imread(folder / "picture.png")
    assert image.shape[:2] == (130, 260)


def test_a_second_run_replaces_the_first(tmp_path: Path) -> None:
    reproduce(Toy(), tmp_path)
    inodes = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    kept = (tmp_path / "numbers.json").open(encoding="utf-8")
    reproduce(Toy(work=lambda: findings({"value": 2}, "second")), tmp_path)
    assert names(tmp_path) == sorted(inodes)
    assert json.loads((tmp_path / "numbers.json").read_text())["value"] == 2
    assert "second" in (tmp_path / "report.md").read_text()
    with kept:  # who reads the old file goes on reading it: it was replaced, not written over
        assert json.load(kept)["value"] == 3.14159
    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} != inodes


@pytest.mark.parametrize("error", [RuntimeError("diverged"), KeyboardInterrupt()])
def test_a_run_that_fails_leaves_what_was_there(error: BaseException, tmp_path: Path) -> None:
    reproduce(Toy(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail() -> Findings:
        raise error

    with pytest.raises(type(error)):
        reproduce(Toy(work=fail), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_numbers_that_json_has_no_word_for_are_null(tmp_path: Path) -> None:
    reproduce(Toy(work=lambda: findings({"bad": [math.nan, np.inf]})), tmp_path)
    content = (tmp_path / "numbers.json").read_text()
    assert json.loads(content)["bad"] == [None, None]
    assert "NaN" not in content
    assert "Infinity" not in content


def never() -> Findings:
    raise AssertionError("too late")


def test_a_folder_without_permission_is_told_of_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a patched `os.access`, for root may write anywhere."""
    monkeypatch.setattr("oism._core.atomic.os.access", lambda place, mode: Path(place) != tmp_path)
    with pytest.raises(PermissionError, match="no permission to write in this folder"):
        reproduce(Toy(work=never), tmp_path)


def test_a_file_in_the_way_is_told_of_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "toy").write_text("in the way")
    with pytest.raises(FileExistsError):
        reproduce(Toy(work=never), tmp_path / "toy")
    with pytest.raises(NotADirectoryError):
        reproduce(Toy(work=never), tmp_path / "toy" / "deeper")
    (tmp_path / "other" / "numbers.json").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        reproduce(Toy(work=never), tmp_path / "other")


def test_an_unknown_study_is_named() -> None:
    with pytest.raises(ValueError, match=r"must be one of bart-simpson, .*, cifar10, got 'x'"):
        by_name("x")


def test_the_command_finds_a_study_again_and_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A function of a package must not be called as one of its modules: an import replaces it."""
    shown: list[Study] = []

    def ran(one: Study, folder: Path) -> Written:
        shown.append(one)
        return Written(folder)

    monkeypatch.setattr("oism.studies.study.reproduce", ran)
    for _ in range(2):
        assert main(["reproduce", "stein", "-o", str(tmp_path)]) == 0, capsys.readouterr().err
    assert shown == 2 * [by_name("stein")]
    package = importlib.import_module("oism.studies")
    modules = {path.stem for path in Path(*package.__path__).glob("*.py")}
    own = {name for name, value in vars(package).items() if callable(value)}
    assert not modules & own


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_two_forms(name: str) -> None:
    full, quick = by_name(name, seed=3), by_name(name, quick=True, seed=3)
    assert type(full) is type(quick)
    assert full.name == name
    assert full.title
    assert full.seed == quick.seed == 3
    assert full != quick
    assert json.dumps(plain(vars(full)), allow_nan=False)


def test_every_study_has_a_text_and_every_text_a_study() -> None:
    found = [Path(str(entry)).stem for entry in TEXTS.iterdir() if str(entry).endswith(".md")]
    assert sorted(found) == sorted(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_texts_are_filled(name: str) -> None:
    words = TEXTS.joinpath(f"{name}.md").read_text(encoding="utf-8")
    blanks = {part for _, part, _, _ in string.Formatter().parse(words) if part is not None}
    assert blanks
    filled = text(name, **{blank: f"<{blank}>" for blank in blanks})
    assert "{" not in filled
    assert all(f"<{blank}>" in filled for blank in blanks)
    headings = [line for line in filled.splitlines() if line.startswith("## ")]
    assert headings == ["## What the paper shows", "## What came out here", "## Why they differ"]
    with pytest.raises(KeyError):
        text(name)
