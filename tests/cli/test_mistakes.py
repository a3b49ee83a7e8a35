"""Mistakes: one line on standard error, and an exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from oism import load

Run = Callable[..., Any]

DATA_OR_FILES = [
    ("fit angles.csv -o m", "angles.csv: line 2, column 'id': 'r000' is not a number; --columns"),
    ("fit angles.csv -o m --columns phi pis", "no column 'pis', only 'id', 'phi', 'weight', 'psi'"),
    ("fit angles.csv -o m --columns phi pis", "did you mean 'psi'?"),
    ("fit gaps.csv -o m --columns psi phi", "gaps.csv: line 4, column 'phi': the value is missing"),
    ("fit moons.csv -o m --weights z", "no column 'z'"),
    ("fit one.csv -o m --weights x", "one.csv: there is no column besides x"),
    ("fit angles.csv -o m --columns phi --periodic psi=360", "no column 'psi', only 'phi'"),
    (
        "fit moons.csv -o m --bounds x=0:1",
        "bounds of column 'x' are (0, 1), but the data reach from",
    ),
    ("fit moons.csv -o m --device nonsense", "nonsense"),
    ("fit moons.csv -o m --periodic hour", "--periodic: there is no column 'hour', only 'x', 'y'"),
    ("fit moons.csv -o m --bounds z=0:1", "--bounds: moons.csv: there is no column 'z', only 'x'"),
    (
        "fit gaps.csv -o m --columns phi psi --missing use",
        "--missing use: column 'phi' has missing values, and this model needs complete rows: "
        "--missing skip leaves out those with missing values, --process joint uses their other",
    ),
    ("fit nowhere.csv -o m", "nowhere.csv: no such file or directory"),
    ("fit moons.safetensors -o m", "the suffix '.safetensors' names no format"),
    ("fit moons.csv -o nowhere/m", "nowhere: no such folder"),
    ("fit moons.csv -o .", ".: is a folder, not a file"),
    ("fit empty.csv -o m", "empty.csv: the file is empty"),
    ("fit header.csv -o m", "header.csv: the table has a header but no rows"),
    ("fit infinite.npy -o m", "infinite.npy: row 2, column '0': inf is not finite"),
    ("fit - -o m", "standard input: the file is empty"),
    ("sample nowhere", "nowhere: no such file or directory"),
    ("sample moons.csv", "moons.csv: is not a safetensors file"),
    ("sample cut.model", "cut.model: is truncated: "),
    ("sample other.safetensors", "other.safetensors: is not a file of oism"),
    (
        "sample moons.safetensors --given z=1",
        "--given: moons.safetensors: there is no column 'z', only 'x', 'y'",
    ),
    ("sample moons.safetensors --given x=1 y=2", "must leave at least one"),
    ("sample moons.safetensors --given x=one", "--given x: must be a finite number, got"),
    ("sample moons.safetensors -o out.xls", "the suffix '.xls' names no format"),
    ("density moons.safetensors angles.csv", "angles.csv: there is no column 'x'"),
    (
        "density moons.safetensors three.npy",
        "three.npy: the table has 3 columns (0, 1, 2), the model 2",
    ),
    ("density moons.safetensors three.npy --columns 1", "names 1 columns, but the model has 2"),
    ("density moons.safetensors moons.csv --name x", "there is a column 'x' already"),
    ("density angles.safetensors gaps.csv", "--missing skip"),
    ("info nowhere", "nowhere: no such file"),
    ("plot moons.safetensors --columns x z -o p.png", "there is no column 'z'"),
]

USAGE = [
    ("fit moons.csv -o - --json", "--json and the output would both be written"),
    ("sample moons.safetensors --json", "--json and the output would both be written"),
    ("density moons.safetensors moons.csv --json", "--json and the output would both be written"),
    ("density - -", "cannot both be standard input"),
    ("plot - --data - -o p.png", "cannot both be standard input"),
    ("plot moons.safetensors -o p.gif", "must be one of .png, .svg, .pdf"),
    ("plot moons.safetensors -o -", "not written to standard output"),
    ("plot moons.safetensors -o p.png --columns x", "--columns: expected 2, got 1"),
    ("plot moons.safetensors -o p.png --dpi 0", "--dpi: expected at least 1"),
    (
        "plot moons.safetensors moons.csv -o p.png",
        "unexpected 'moons.csv': a table of rows to show is given by --data moons.csv",
    ),
    ("fit moons.csv -o moons.csv", "moons.csv is the input, and would be overwritten"),
    ("fit moons.csv -o m --periodic x=abc", "--periodic: expected a positive number in 'x=abc'"),
    ("fit moons.csv -o m --periodic x", "--periodic: x has no period: give x=360 for degrees"),
    ("fit moons.csv -o m --periodic x=-3", "--periodic: expected a positive number in 'x=-3'"),
    ("fit moons.csv -o m --periodic x=1 x=2", "--periodic: column 'x' is named twice"),
    ("fit moons.csv -o m --bounds x=1", "--bounds: expected low:high, increasing, in 'x=1'"),
    ("fit moons.csv -o m --bounds x=2:1", "--bounds: expected low:high, increasing, in 'x=2:1'"),
    ("fit moons.csv -o m --periodic x=9 --bounds x=0:1", "--bounds: column x has a period by"),
    ("fit moons.csv -o m --order 1", "--order: expected at least 2, got 1"),
    ("fit moons.csv -o m --max-eigenvalue 0", "--max-eigenvalue: expected at least 1, got 0"),
    ("fit moons.csv -o m --ridge -1", "--ridge: expected at least 0, got -1"),
    ("fit moons.csv -o m --cv 1", "--cv: expected at least 2, got 1"),
    ("fit moons.csv -o m --flow-steps 0", "--flow-steps: expected at least 1, got 0"),
    ("fit moons.csv -o m --process ou --box 0 1", "--process ou: needs columns without --box"),
    ("fit moons.csv -o m --weights x", "--weights: moons.csv: line "),
    ("fit moons.csv -o m --bounds =1:2", "--bounds: expected column=value"),
    ("fit moons.csv -o m --clock ve:1", "--clock: expected ve:SIGMA_MIN:SIGMA_MAX"),
    ("fit moons.csv -o m --clock ve:2:1", "--clock: expected ve:SIGMA_MIN:SIGMA_MAX"),
    ("fit moons.csv -o m --clock xy:1:2", "--clock: expected"),
    ("fit moons.csv -o m --network 0", "--network: expected more than 0 seconds, got 0"),
    ("fit moons.csv -o m --network 9 --batch 50", "--network: needs all rows at once"),
    ("sample moons.safetensors -n -1", "-n: expected at least 0, got -1"),
    ("sample moons.safetensors --given x=nan", "--given: expected a finite number"),
    ("data moons -n 0", "-n: expected at least 1, got 0"),
]


@pytest.fixture
def bad(oism: Run, folder: Path) -> Run:
    """The command, in a folder that has bad files as well."""
    (folder / "empty.csv").write_bytes(b"")
    (folder / "header.csv").write_text("x,y\n")
    (folder / "one.csv").write_text("x\n1\n2\n")
    (folder / "cut.model").write_bytes((folder / "moons.safetensors").read_bytes()[:-50])
    safetensors.numpy.save_file({"x": np.zeros(1)}, folder / "other.safetensors")
    np.save(folder / "infinite.npy", [[1.0], [np.inf]])
    np.save(folder / "three.npy", np.zeros((4, 3)))
    return oism


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [(*case, 1) for case in DATA_OR_FILES] + [(*case, 2) for case in USAGE],
)
def test_a_mistake(bad: Run, folder: Path, words: str, message: str, code: int) -> None:
    before = files_of(folder)
    ended = bad(words)
    assert ended.code == code
    assert ended.out == b""
    assert ended.err.startswith("oism: error: ")
    assert ended.err.count("\n") == 1, "one line, no traceback"
    assert message in ended.err
    assert files_of(folder) == before, "nothing is written"


@pytest.mark.parametrize("words", ["nonsense", "fit", "fit moons.csv", "sample m --method x"])
def test_invalid_words(bad: Run, words: str) -> None:
    ended = bad(words)
    assert ended.code == 2
    assert "--help" in ended.err


def test_an_unknown_option_is_met_with_similar_ones(bad: Run) -> None:
    ended = bad("plot moons.safetensors --colums x y -o p.png")
    assert ended.code == 2
    assert "--columns COL" in ended.err


def test_a_level_that_the_fit_has_not_seen(bad: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    towns = zip(rng.normal(size=40), rng.choice(["Oslo", "Rome"], 40), strict=True)
    lines = "\n".join(f"{size:.3f},{town}" for size, town in towns)
    (tmp_path / "towns.csv").write_text(f"size,town\n{lines}\n")
    model = tmp_path / "m"
    assert bad(f"fit {tmp_path}/towns.csv -o {model} --quiet").code == 0
    ended = bad(f"sample {model} --given town=Bern")
    assert (ended.code, ended.out) == (1, b"")
    assert ended.err == (
        "oism: error: --given town: must be a level that the fit has seen, one of 'Oslo', 'Rome', "
        "got 'Bern'\n"
    )
    found = bad(f"sample {model} -n 3 --given town=Rome --seed 0").text.splitlines()
    assert [line.partition(",")[2] for line in found] == ["town", "Rome", "Rome", "Rome"]
    with pytest.raises(ValueError, match=r"given\['town'\] must be a level .* got 'Bern'"):
        load(model).sample(given={"town": "Bern"})


def test_a_traceback_on_demand(bad: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OISM_TRACEBACK", "1")
    ended = bad("fit empty.csv -o m")
    assert ended.code == 1
    assert "Traceback (most recent call last)" in ended.err
    assert ended.err.splitlines()[-1] == "oism: error: empty.csv: the file is empty"


def test_warnings_are_single_lines(bad: Run, tmp_path: Path) -> None:
    ended = bad(f"fit angles.csv --columns phi --periodic phi=6.28 -o {tmp_path / 'm'} --quiet")
    assert ended.code == 0
    assert ended.err.startswith("oism: warning: column 'phi' is periodic with period 6.28")
    assert ended.err.count("\n") == 1


def test_the_output_is_looked_at_before_the_work(bad: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("too late")

    monkeypatch.setattr("oism.tables._estimator.OISM.fit", work)
    monkeypatch.setattr("oism.storage.load", work)
    for words in (
        "fit moons.csv -o nowhere/m",
        "sample moons.safetensors -o nowhere/x.csv",
        "density moons.safetensors moons.csv -o nowhere/x.csv",
        "plot moons.safetensors -o nowhere/x.png",
    ):
        assert "no such folder" in bad(words).err


def test_a_fault_of_the_program_keeps_its_traceback(
    bad: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr("oism.storage.load", fail)
    with pytest.raises(AssertionError, match="a bug"):
        bad("info moons.safetensors")


@pytest.mark.parametrize("words", ["sample moons.safetensors", "data moons", "fit moons.csv -o m"])
@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range(oism: Run, words: str, seed: int) -> None:
    ended = oism(f"{words} --seed {seed}")
    assert ended.code == 2
    assert f"--seed: expected a number from 0 to 4294967295, got {seed}" in ended.err


def test_an_evaluation_on_the_training_rows_gives_a_warning(oism: Run) -> None:
    words = "evaluate moons.safetensors moons.csv --train {} --baselines kde"
    assert "DATA and --train are the same file, moons.csv" in oism(words.format("./moons.csv")).err
