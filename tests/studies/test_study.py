"""The contract of studies: claims, numbers as JSON, files that are written completely."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import oism
import studies
import studies.__main__ as command
from studies import STUDIES, folder_of, make_study
from studies.study import (
    Claim,
    Findings,
    Results,
    Study,
    plain,
    rounded,
    run_study,
    table,
    versions,
)


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


def test_results_hold_if_all_claims_hold() -> None:
    good, bad = Claim("", 0, 1), Claim("", 1, 0)
    assert Results(Path(), claims=[good, good]).holds
    assert not Results(Path(), claims=[good, bad]).holds


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
def test_numbers_are_rounded_to_three_digits(value: float, expected: str) -> None:
    assert rounded(value) == expected


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


def test_generators_depend_on_seed_and_stream() -> None:
    draws = {
        (seed, stream): float(torch.rand((), generator=Toy(seed).generator(stream)))
        for seed in (0, 1)
        for stream in (0, 1, 2)
    }
    assert len(set(draws.values())) == 6
    again = float(torch.rand((), generator=Toy(1).generator(2)))
    assert again == draws[1, 2]


def test_a_run_writes_numbers_figures_and_report(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "toy"
    results = run_study(Toy(4), folder)
    assert names(folder) == ["numbers.json", "picture.png", "report.md"]
    assert sorted(results.files) == sorted(folder.iterdir())
    assert not results.holds
    assert results.seconds < 10
    numbers = json.loads((folder / "numbers.json").read_text(encoding="utf-8"))
    assert numbers["study"] == "toy"
    assert numbers["settings"]["seed"] == 4
    assert numbers["settings"]["size"] == 3
    assert numbers["versions"] == versions()
    assert numbers["value"] == 3.14159
    assert [claim["holds"] for claim in numbers["claims"]] == [True, False]
    assert numbers["claims"][1]["lower"] == 2.0
    report = (folder / "report.md").read_text(encoding="utf-8")
    start = f"# A toy\n\n`python -m studies toy`, {results.seconds:.0f} s; seed = 4, size = 3"
    assert report.startswith(start)
    assert "![picture](picture.png)\n\nfirst\n\n## Claims\n\n- yes: one is less than two" in report
    assert "- NO: two is less than one (2 < 1)" in report
    image = plt.imread(folder / "picture.png")
    assert image.shape[:2] == (150, 300)


def test_a_second_run_replaces_the_first(tmp_path: Path) -> None:
    run_study(Toy(), tmp_path)
    inodes = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    kept = (tmp_path / "numbers.json").open(encoding="utf-8")
    run_study(Toy(work=lambda: findings({"value": 2}, "second")), tmp_path)
    assert names(tmp_path) == sorted(inodes)
    assert json.loads((tmp_path / "numbers.json").read_text())["value"] == 2
    assert "second" in (tmp_path / "report.md").read_text()
    with kept:  # an open old file stays readable: it was replaced, not overwritten
        assert json.load(kept)["value"] == 3.14159
    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} != inodes


@pytest.mark.parametrize("error", [RuntimeError("diverged"), KeyboardInterrupt()])
def test_a_failed_run_keeps_the_old_files(error: BaseException, tmp_path: Path) -> None:
    run_study(Toy(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail() -> Findings:
        raise error

    with pytest.raises(type(error)):
        run_study(Toy(work=fail), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_numbers_that_are_not_finite_are_null(tmp_path: Path) -> None:
    run_study(Toy(work=lambda: findings({"bad": [math.nan, np.inf]})), tmp_path)
    content = (tmp_path / "numbers.json").read_text()
    assert json.loads(content)["bad"] == [None, None]
    assert "NaN" not in content
    assert "Infinity" not in content


def never() -> Findings:
    raise AssertionError("too late")


def test_a_folder_without_permission_is_an_error_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`os.access` is patched, because root may write anywhere."""
    monkeypatch.setattr("studies.study.os.access", lambda place, mode: Path(place) != tmp_path)
    with pytest.raises(PermissionError, match="no permission to write in this folder"):
        run_study(Toy(work=never), tmp_path)


def test_a_file_in_the_way_is_an_error_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "toy").write_text("in the way")
    with pytest.raises(FileExistsError):
        run_study(Toy(work=never), tmp_path / "toy")
    with pytest.raises(NotADirectoryError):
        run_study(Toy(work=never), tmp_path / "toy" / "deeper")
    (tmp_path / "other" / "numbers.json").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        run_study(Toy(work=never), tmp_path / "other")


def test_an_unknown_study_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"must be one of bart-simpson, .*, training, got 'x'"):
        make_study("x")


def test_hyphens_and_underscores_are_the_same() -> None:
    assert make_study("bart_simpson") == make_study("bart-simpson")


class Ran:
    """Stands for `run_study`: records its arguments and returns fixed claims."""

    def __init__(self, *claims: Claim) -> None:
        self.claims = claims
        self.calls: list[tuple[Study, Path]] = []

    def __call__(self, study: Study, folder: Path) -> Results:
        self.calls.append((study, folder))
        return Results(folder, [folder / "numbers.json"], self.claims, 3.2)


def test_the_command_runs_a_study_more_than_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "run_study", ran := Ran())
    for _ in range(2):
        assert command.main(["stein", "-o", str(tmp_path)]) == 0, capsys.readouterr().err
    assert ran.calls == 2 * [(make_study("stein"), tmp_path)]


def test_no_function_of_the_package_has_the_name_of_a_module() -> None:
    """The import of a module would replace the function."""
    modules = {path.stem for path in Path(studies.__file__).parent.glob("*.py")}
    own = {name for name, value in vars(studies).items() if callable(value)}
    assert "make_study" in own
    assert not modules & own


def test_results_go_to_the_folder_of_the_study_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_study", ran := Ran())
    command.main(["critically_damped"])
    command.main(["critically-damped", "--quick"])
    folders = [folder for _, folder in ran.calls]
    assert folders == [folder_of("critically-damped"), Path("runs", "critically-damped-quick")]
    assert (folders[0] / "study.py").is_file()


def test_without_a_name_all_studies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(STUDIES)


def test_a_claim_that_fails_is_exit_status_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claims = [Claim("holds", 1, 2), Claim("fails", 2, 1), Claim("is not finite", math.nan, 1)]
    monkeypatch.setattr(command, "run_study", ran := Ran(*claims))
    words = ["plane", "-o", str(tmp_path), "--seed", "4"]
    assert command.main(words) == 1
    ended = capsys.readouterr()
    assert ended.out.splitlines() == [
        "yes: holds (1 < 2)",
        "NO: fails (2 < 1)",
        "NO: is not finite (not finite < 1)",
        f"3 s; written: {tmp_path / 'numbers.json'}",
    ]
    assert ended.err == "error: 2 of 3 claims do not hold\n"
    assert ran.calls == [(make_study("plane", seed=4), tmp_path)]
    assert command.main([*words, "--quick"]) == 1
    assert ran.calls[1] == (make_study("plane", quick=True, seed=4), tmp_path)
    ran.claims = (claims[0],)
    assert command.main(words) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["figure-7"], "must be one of bart-simpson, "),
        (["plane", "--data", "cifar10"], "data must be None for plane"),
        (["coefficients", "--data", "nowhere"], "no train*.parquet in nowhere"),
    ],
)
def test_a_mistake_is_exit_status_two(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([*words, "-o", str(tmp_path)])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_two_forms(name: str) -> None:
    full, quick = make_study(name, seed=3), make_study(name, quick=True, seed=3)
    assert type(full) is type(quick)
    assert full.name == name
    assert full.title
    assert full.seed == quick.seed == 3
    assert full != quick
    assert json.dumps(plain(vars(full)), allow_nan=False)


def test_every_folder_with_a_report_is_a_study() -> None:
    found = [path.parent for path in Path(command.__file__).parent.glob("*/report.md")]
    assert sorted(found) == sorted(map(folder_of, STUDIES))


@pytest.mark.parametrize("name", STUDIES)
def test_texts_are_filled(name: str) -> None:
    words = (folder_of(name) / "text.md").read_text(encoding="utf-8")
    blanks = {part for _, part, _, _ in string.Formatter().parse(words) if part is not None}
    assert blanks
    study = make_study(name)
    filled = study.text(**{blank: f"<{blank}>" for blank in blanks})
    assert "{" not in filled
    assert all(f"<{blank}>" in filled for blank in blanks)
    headings = [line for line in filled.splitlines() if line.startswith("## ")]
    assert headings == ["## What the paper shows", "## Results", "## Why they differ"]
    with pytest.raises(KeyError):
        study.text()
