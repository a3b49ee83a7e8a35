"""Tables in batches: the rows of the whole table, split over processes, with the same errors."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from oism.data import files
from oism.data.files import Shard, _text
from oism.data.files._batches import ALL

COLUMNS = ["y", "x"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One table of 1,000 rows in all formats; Parquet with seven row groups, and with one."""
    place = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    names = [f'a "{i}",\nb' if i % 10 == 0 else f"r{i}" for i in range(1000)]
    table = pa.table({"x": rng.normal(size=1000), "name": names, "y": rng.normal(size=1000)})
    for name in ("t.csv", "t.tsv", "t.csv.gz", "t.npz"):
        files.write(table, str(place / name))
    files.write(table.select(["x", "y"]), str(place / "t.npy"))
    pq.write_table(table, place / "t.parquet", row_group_size=150)
    pq.write_table(table, place / "one.parquet", row_group_size=2000)
    return place


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_text, "BLOCK", 2**12)
        yield


def rows_of(
    path: Path, columns: list[str], rows: int, shard: Shard = ALL
) -> dict[int, NDArray[np.float64]]:
    """The batches by the numbers of the rows before them."""
    table = files.open_table(str(path))
    return {sheet.first: sheet.numbers(columns) for sheet in table.sheets(columns, rows, shard)}


NAMES = ["t.csv", "t.tsv", "t.csv.gz", "t.npz", "t.npy", "t.parquet", "one.parquet"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_shards_are_the_whole_table(place: Path, name: str, count: int) -> None:
    columns = ["1", "0"] if name == "t.npy" else COLUMNS
    parts = [rows_of(place / name, columns, 90, Shard(rank, count)) for rank in range(count)]
    assert all(parts)
    found = {first: rows for part in parts for first, rows in part.items()}
    assert len(found) == sum(len(part) for part in parts)
    assert max(map(len, found.values())) <= 90
    firsts = sorted(found)
    sizes = [len(found[first]) for first in firsts]
    assert firsts == [0, *np.cumsum(sizes)[:-1].tolist()]
    whole = files.read(str(place / name)).numbers(columns)
    np.testing.assert_array_equal(np.concatenate([found[first] for first in firsts]), whole)
    one = rows_of(place / name, columns, 90)
    assert sorted(one) == firsts  # the same batches for any number of processes


@pytest.mark.parametrize("name", NAMES)
def test_the_head_has_the_columns(place: Path, name: str) -> None:
    table = files.open_table(str(place / name))
    whole = files.read(str(place / name))
    assert table.head.names == whole.names
    assert table.total in (1000, None)
    assert table.whole().table.equals(whole.table)
    assert not table.is_large


def test_a_large_table_is_one_of_many_numbers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oism.data.files._batches.LARGE", 1000)
    assert files.open_table(str(place / "t.parquet")).is_large
    assert files.open_table(str(place / "t.csv")).is_large


@given(st.integers(0, 299), st.sampled_from(["oops", "1,2,3", "\udcff"]), st.booleans())
def test_an_error_names_its_line(
    tmp_path_factory: pytest.TempPathFactory, row: int, word: str, ends: bool
) -> None:
    """In any block, with cells of several lines before it."""
    path = tmp_path_factory.getbasetemp() / "wrong.csv"
    lines = [f'"cell\n{i}",{i}.5' if i % 7 == 0 else f"r,{i}.5" for i in range(300)]
    lines[row] = f"r,{word}"
    text = "\n".join(["name,x", *lines]) + ("\n" if ends else "")
    path.write_bytes(text.encode(errors="surrogateescape"))
    line = 2 + row + len(range(0, row, 7))
    expected = {
        "oops": f"line {line}, column 'x': 'oops' is not a number",
        "1,2,3": f"line {line} has 4 cells, but the first row has 2",
        "\udcff": f"line {line} is not UTF-8",
    }[word]
    with pytest.raises(files.FileError, match=expected):
        rows_of(path, ["x"], 40)


def test_old_line_ends_are_lines(tmp_path: Path) -> None:
    (tmp_path / "mac.csv").write_bytes(b"x,y\r1,2\r3,oops\r")
    with pytest.raises(files.FileError, match="line 3, column 'y': 'oops' is not a number"):
        files.read(str(tmp_path / "mac.csv")).numbers(["x", "y"])


def test_damaged_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "bad.csv.gz").write_bytes(b"x,y\n1,2\n")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"x\n" + b"1.5\n" * 9999)[:60])
    (tmp_path / "twice.csv").write_bytes(b"x,x\n1,2\n")
    for name, message in {
        "empty.csv": "the file is empty",
        "bad.parquet": "damaged, or not a Parquet file",
        "bad.csv.gz": "damaged, or not compressed by gzip",
        "cut.csv.gz": "damaged, or not compressed by gzip",
        "twice.csv": "more than one column is called 'x'",
    }.items():
        with pytest.raises(files.FileError, match=f"{name}: {message}"):
            rows_of(tmp_path / name, ["x"], 40)


def test_texts_of_few_levels_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "sex,flag,x,id\n" + "".join(f"{'fm'[i % 2]} ,true,{i},r{i}\n" for i in range(60))
    )
    sheet = files.read(str(path))
    found = sheet.frame(["sex", "flag", "x"])
    assert found.column("sex").to_pylist()[:2] == ["f", "m"]
    assert [str(kind) for kind in found.schema.types] == ["string", "bool", "double"]
    with pytest.raises(files.FileError, match="line 2, column 'id': 'r0' is not a number"):
        sheet.frame(["id"])  # 60 different ones
    path.write_text("x\n" + "1\n" * 30 + "oops\n")
    with pytest.raises(files.FileError, match="line 32, column 'x': 'oops' is not a number"):
        files.read(str(path)).frame(["x"])
    path.write_text("x,s\n1,f\n2,NA\n")
    assert files.read(str(path)).frame(["s"]).column("s").to_pylist() == ["f", None]
