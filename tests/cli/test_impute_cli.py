"""``oism impute``: missing cells are filled, and all others are copied as they are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def towns(tmp_path_factory: pytest.TempPathFactory, command: Run) -> Path:
    """A table with gaps in numbers and texts beside another column, and a model of it."""
    place = tmp_path_factory.mktemp("towns")
    rng = np.random.default_rng(0)
    town = rng.choice(["Oslo", "Rome"], 40)
    size = rng.normal(size=40) + 10 * (town == "Rome")
    lines = [
        f"{k},{one:.3e},{place}" for k, (one, place) in enumerate(zip(size, town, strict=True))
    ]
    for k in range(5):
        lines[k] = f"{k},NA,{town[k]}"
        lines[5 + k] = f"{5 + k},{size[5 + k]:.3e},"
    (place / "towns.csv").write_text("\n".join(["id,size,town", *lines]) + "\n")
    words = f"fit {place}/towns.csv --columns size town --missing use -o {place}/m --quiet"
    assert command(words).code == 0
    return place


def test_gaps_are_filled_and_other_cells_copied(towns: Path, command: Run) -> None:
    before = [line.split(",") for line in (towns / "towns.csv").read_text().splitlines()]
    ended = command(f"impute {towns}/m {towns}/towns.csv --seed 3")
    assert (ended.code, ended.err) == (0, "")
    after = [line.split(",") for line in ended.text.splitlines()]
    for old, new in zip(before, after, strict=True):
        assert all(b == a for a, b in zip(new, old, strict=True) if b not in ("NA", ""))
    assert all(np.isfinite(float(row[1])) and row[2] in ("Oslo", "Rome") for row in after[1:])
    right = [(float(row[1]) > 5) == (row[2] == "Rome") for row in after[1:11]]
    assert sum(right) >= 8, "the columns determine each other"
    assert command(f"impute {towns}/m {towns}/towns.csv --seed 3").out == ended.out
    assert command(f"impute {towns}/m {towns}/towns.csv --seed 4").out != ended.out


def test_other_formats_get_numbers(towns: Path, command: Run) -> None:
    out = towns / "filled.parquet"
    ended = command(f"impute {towns}/m {towns}/towns.csv --seed 3 -o {out} --json")
    facts = json.loads(ended.text)
    assert (facts["rows"], facts["filled"], facts["output"]) == (40, 10, str(out))
    table = pq.read_table(out)
    assert table.column_names == ["id", "size", "town"]
    assert [column.null_count for column in table.columns] == [0, 0, 0]
    text = command(f"impute {towns}/m {out} -o {towns}/again.parquet").text
    assert "40 rows written to" in text
    assert "0 missing cells filled" in text


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("impute m towns.csv --json", 2, "--json and the output would both be written"),
        ("impute - -", 2, "cannot both be standard input"),
        ("impute m nowhere.csv", 1, "nowhere.csv: no such file"),
        ("impute m towns.csv --columns size", 1, "names 1 columns, but the model has 2"),
    ],
)
def test_mistakes(
    words: str, code: int, message: str, towns: Path, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(towns)
    ended = command(words)
    assert (ended.code, ended.out) == (code, b"")
    assert message in ended.err
    assert ended.err.count("\n") == 1
