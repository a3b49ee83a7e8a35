"""The commands on models that were fitted in Python, to frames of pandas and polars."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oism import OISM
from oism.cli.models import level_of

Run = Callable[..., Any]

KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda table: table,
    "polars": pl.from_pandas,
    "objects": lambda table: table.to_numpy(dtype=object),
    "codes": lambda table: table.assign(town=table.town.map({"Oslo": 1, "Rome": 2})).astype(
        {"town": "category"}
    ),
}


def table() -> pd.DataFrame:
    """Numbers with gaps, flags, texts and integers of which each occurs once."""
    rng = np.random.default_rng(0)
    found = pd.DataFrame(
        {
            "size": rng.normal(size=40),
            "flag": rng.random(40) < 0.4,
            "town": rng.choice(["Oslo", "Rome"], 40),
            "id": rng.permutation(60_000)[:40],
        }
    )
    found.loc[:3, "size"] = np.nan
    return found


@pytest.fixture(scope="module", params=KINDS)
def fitted(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    place = tmp_path_factory.mktemp(request.param)
    rows = table()
    OISM().fit(KINDS[request.param](rows)).save(place / "m")
    if request.param == "codes":
        rows = KINDS["codes"](rows)
    rows.to_csv(place / "t.csv", index=False)
    return place


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


@pytest.mark.parametrize("target", ["z.csv", "z.parquet"])
def test_samples(fitted: Path, command: Run, target: str) -> None:
    flag = 1 if fitted.name.startswith("objects") else "flag"
    for n in (0, 3):
        for more in ("", " --density", f" --given {flag}=True", f" --given {flag}=true"):
            ended = command(f"sample {fitted}/m -n {n} --seed 0 -o {fitted}/{target}{more}")
            assert (ended.code, ended.err) == (0, "")
            found = read(fitted / target)
            assert found.shape == (n, 4 + ("density" in more))
            assert "given" not in more or found.iloc[:, 1].all()


def test_levels_and_integers_keep_their_types(tmp_path: Path, command: Run) -> None:
    OISM().fit(table()).save(tmp_path / "m")
    for n in (0, 5):
        assert command(f"sample {tmp_path}/m -n {n} --seed 0 -o {tmp_path}/z.parquet").code == 0
        types = pq.read_table(tmp_path / "z.parquet").schema.types
        assert types == [pa.float64(), pa.bool_(), pa.string(), pa.int64()]


@pytest.mark.parametrize(
    "words", ["density {} --missing use", "outliers {} --missing skip", "impute {}"]
)
def test_commands_on_the_table_of_the_fit(fitted: Path, command: Run, words: str) -> None:
    before = pd.read_csv(fitted / "t.csv")
    ended = command(words.format(f"{fitted}/m {fitted}/t.csv") + f" -o {fitted}/new.csv")
    assert (ended.code, ended.err) == (0, "")
    after = pd.read_csv(fitted / "new.csv")
    if "skip" in words:
        before = before.iloc[4:].reset_index(drop=True)
    assert after.flag.equals(before.flag)
    assert after.id.equals(before.id)
    assert "impute" not in words or not after.isna().any().any()


def test_evaluation_on_the_table_of_the_fit(fitted: Path, command: Run) -> None:
    ended = command(f"evaluate {fitted}/m {fitted}/t.csv --missing use")
    assert ended.code == 0, ended.err
    assert "40 rows" in ended.text


def test_drawn_integers_and_flags_are_written_as_such(tmp_path: Path, command: Run) -> None:
    rows = table()
    OISM().fit(rows).save(tmp_path / "m")
    holes = rows.astype({"flag": object, "id": object})
    holes.loc[10:20, "flag"] = None
    holes.loc[15:25, "id"] = None
    holes.to_csv(tmp_path / "t.csv", index=False)
    assert command(f"impute {tmp_path}/m {tmp_path}/t.csv --seed 0 -o {tmp_path}/f.csv").code == 0
    lines = [line.split(",") for line in (tmp_path / "f.csv").read_text().splitlines()[1:]]
    assert {line[1] for line in lines} == {"True", "False"}
    assert all(line[3].lstrip("-").isdecimal() for line in lines)
    flags = pd.Series(holes.flag, dtype="boolean")
    holes.assign(flag=flags, id=rows.id).to_parquet(tmp_path / "t.parquet")
    words = f"impute {tmp_path}/m {tmp_path}/t.parquet --seed 0 -o {tmp_path}/f.parquet"
    assert command(words).code == 0
    filled = pq.read_table(tmp_path / "f.parquet")
    assert filled.column("flag").type == pa.bool_()
    assert filled.column("flag").null_count == 0


def test_a_level_that_the_fit_has_not_seen(tmp_path: Path, command: Run) -> None:
    rows = table()
    OISM().fit(rows).save(tmp_path / "m")
    rows.astype({"flag": str}).replace({"flag": {"True": "maybe"}}).to_csv(tmp_path / "t.csv")
    ended = command(f"density {tmp_path}/m {tmp_path}/t.csv --missing use")
    assert ended.code == 1
    assert "t.csv: line " in ended.err
    assert "column 'flag': the level 'maybe', which the fit has not seen" in ended.err


def test_frames_need_no_library_in_the_shell(tmp_path: Path) -> None:
    OISM().fit(pl.from_pandas(table()[["id"]])).save(tmp_path / "m")
    code = (
        "import sys; sys.modules['polars'] = None; "
        f"from oism.cli import main; sys.exit(main(['sample', {str(tmp_path / 'm')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    name, value = done.stdout.split()
    assert name == b"id"
    assert float(value) == int(float(value))


def test_texts_of_levels() -> None:
    levels = (1, 2.5, "1x", True)
    assert [level_of(text, levels) for text in ("1", "2.50", "1x", "TRUE", "x")] == [
        1,
        2.5,
        "1x",
        True,
        None,
    ]
