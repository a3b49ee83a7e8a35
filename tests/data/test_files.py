"""Tables in and out of files, and what is said of bad ones."""

from __future__ import annotations

import io
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oism.data import files
from oism.data.files import FileError

TEXT = ["csv", "tsv", "csv.gz", "tsv.gz"]
BINARY = ["parquet", "pq", "npz"]

words = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=8
)
names_of_columns = words.filter(bool) | st.sampled_from(["file", "0", "1", "1e3", "a;b", "a,b"])
column_names = st.lists(names_of_columns, min_size=1, max_size=4, unique=True)
finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    names, rows = draw(column_names), draw(st.integers(1, 6))
    columns: dict[str, pa.Array] = {}
    for name in names:
        kind = draw(st.sampled_from(["float", "integer", "truth", "text"]))
        cell: st.SearchStrategy[Any] = {
            "float": finite | st.none(),
            "integer": st.integers(-(2**53), 2**53),
            "truth": st.booleans(),
            "text": words,
        }[kind]
        kinds = {"float": pa.float64(), "integer": pa.int64(), "truth": pa.bool_()}
        cells = draw(st.lists(cell, min_size=rows, max_size=rows))
        columns[name] = pa.array(cells, kinds.get(kind, pa.string()))
    return pa.table(columns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.mark.parametrize("suffix", TEXT + BINARY)
@given(table=tables())
def test_round_trip(suffix: str, table: pa.Table, folder: Path) -> None:
    path = str(folder / f"table.{suffix}")
    files.write(table, path)
    sheet = files.read(path)
    assert sheet.names == table.column_names
    assert sheet.table.num_rows == table.num_rows
    for name in sheet.names:
        before = table.column(name)
        if pa.types.is_string(before.type):
            assert sheet.table.column(name).to_pylist() == before.to_pylist()
        else:
            expected = [np.nan if cell is None else float(cell) for cell in before.to_pylist()]
            np.testing.assert_array_equal(sheet.numbers([name])[:, 0], expected)
    assert [path.name for path in folder.iterdir() if path.suffix == ".part"] == []


@given(rows=st.lists(st.tuples(finite, finite), min_size=1))
def test_npy_round_trip(rows: list[tuple[float, float]], folder: Path) -> None:
    path = str(folder / "table.npy")
    array = np.array(rows)
    files.write(pa.table({"a": array[:, 0].copy(), "b": array[:, 1].copy()}), path)
    np.testing.assert_array_equal(np.load(path), array)
    sheet = files.read(path)
    assert sheet.names == ["0", "1"]
    assert not sheet.named
    np.testing.assert_array_equal(sheet.numbers(sheet.names), array)
    files.write_array(array[:, 0], path)
    np.testing.assert_array_equal(files.read(path).numbers(["0"]), array[:, :1])


DTYPES = ["?", "i1", "u1", "<i4", ">i4", "i8", "u8", "f2", "<f4", ">f8", "g"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_real_dtype_of_numpy(dtype: str, tmp_path: Path) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]], dtype=dtype)
    for order in ("C", "F"):
        np.save(tmp_path / "a.npy", np.asarray(array, order=order))
        sheet = files.read(str(tmp_path / "a.npy"))
        np.testing.assert_array_equal(sheet.numbers(sheet.names), array.astype(float))
    np.savez(tmp_path / "a.npz", rows=array)
    np.savez_compressed(tmp_path / "b.npz", x=array[:, 0], y=array[:, 1])
    one, several = (files.read(str(tmp_path / name)) for name in ("a.npz", "b.npz"))
    assert one.names == ["0", "1", "2"]
    assert several.names == ["x", "y"]
    np.testing.assert_array_equal(several.numbers(["y", "x"]), array[:, [1, 0]].astype(float))


def test_every_kind_of_number_in_parquet(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    table = pa.table(
        {
            "decimal": pa.array([Decimal("1.25"), None]),
            "half": pa.array(np.array([1.5, 2.5], dtype=np.float16)),
            "category": pa.array([3, 4]).dictionary_encode(),
            "word": pa.array(["5", " 6.5 "]).dictionary_encode(),
            "huge": pa.array([2**63, 1], pa.uint64()),
            "nothing": pa.nulls(2),
            "__index_level_0__": [0, 1],
        }
    )
    pq.write_table(table, path)
    sheet = files.read(path)
    assert sheet.names == table.column_names[:-1], "an index of pandas' is no column"
    nan = np.nan
    expected = [[1.25, 1.5, 3, 5, 2.0**63, nan], [nan, 2.5, 4, 6.5, 1, nan]]
    np.testing.assert_array_equal(sheet.numbers(sheet.names), expected)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_every_type_of_text_in_parquet(kind: pa.DataType, tmp_path: Path) -> None:
    path, copy = str(tmp_path / "a.parquet"), str(tmp_path / "a.csv")
    words = pa.array(["5", " 6.5 ", None], pa.string()).cast(kind)
    names = pa.array(["a", "b", "a"], pa.string()).cast(kind)
    pq.write_table(pa.table({"x": words, "name": names}), path)
    (batch,) = files.open_table(path).sheets(["x", "name"])
    for sheet in (files.read(path), batch):
        np.testing.assert_array_equal(sheet.numbers(["x"])[:, 0], [5, 6.5, np.nan])
        assert sheet.frame(["name"]).column("name").to_pylist() == ["a", "b", "a"]
        files.write(sheet.table, copy)
        assert files.read(copy).table.column("name").to_pylist() == ["a", "b", "a"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("writer", ["pandas", "polars"])
def test_what_others_write(writer: str, suffix: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"a.{suffix}")
    cells: dict[str, list[Any]] = {"id": ["007", "ä,"], "x": [0.1, None], "n": [1, 2]}
    library = pytest.importorskip(writer)
    if writer == "pandas":
        frame = library.DataFrame(cells, index=[5, 7])
        frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    else:
        frame = library.DataFrame(cells)
        frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    sheet = files.read(path)
    assert sheet.names == ["id", "x", "n"]
    np.testing.assert_array_equal(sheet.numbers(["x", "n"]), [[0.1, 1], [np.nan, 2]])
    assert sheet.table.column("id").to_pylist() == ["007", "ä,"]
    with pytest.raises(FileError, match="column 'id': 'ä,' is not a number"):
        sheet.numbers(["id"])
    out = str(tmp_path / "b.npz")
    files.write(sheet.table, out)
    assert files.read(out).table.column("id").to_pylist() == ["007", "ä,"]


def test_parquet_with_a_name_twice(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), path)
    with pytest.raises(FileError, match="more than one column is called 'a'"):
        files.read(path)


def read_text(tmp_path: Path, content: bytes | str, suffix: str = "csv") -> files.Sheet:
    path = tmp_path / f"data.{suffix}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return files.read(str(path))


@pytest.mark.parametrize(
    ("content", "names", "rows"),
    [
        ("a,b\n1,2\n", ["a", "b"], [[1, 2]]),
        ("\ufeffa,b\n1,2\n", ["a", "b"], [[1, 2]]),
        ("a,b\r\n1,2\r\n", ["a", "b"], [[1, 2]]),
        ("\n\na,b\n\n1,2", ["a", "b"], [[1, 2]]),
        ("1,2\n3,4\n", ["0", "1"], [[1, 2], [3, 4]]),
        ("1,,-.5e3\n3,4,5\n", ["0", "1", "2"], [[1, np.nan, -500], [3, 4, 5]]),
        ("nan,2\n3,4\n", ["0", "1"], [[np.nan, 2], [3, 4]]),
        (
            "0.5, N/A,none,-inf\n1,2,3,4\n",
            ["0", "1", "2", "3"],
            [[0.5, np.nan, np.nan, -np.inf], [1, 2, 3, 4]],
        ),
        ("Infinity,-1\n3,4\n", ["0", "1"], [[np.inf, -1], [3, 4]]),
        ("a,nan\n1,2\n", ["a", "nan"], [[1, 2]]),
        ('"1990","1991"\n3,4\n', ["1990", "1991"], [[3, 4]]),
        ("a,7\n1,2\n", ["a", "7"], [[1, 2]]),
        ("a,b\nNA,NaN\nnull,N/A\n,None\n", ["a", "b"], [[np.nan, np.nan]] * 3),
        ("a\ntrue\nFALSE\n\n", ["a"], [[1], [0]]),
        ('a,b\n"1","-2"\n +3 ,4\n', ["a", "b"], [[1, -2], [3, 4]]),
        ('"a,\nb",c\n1,2\n', ["a,\nb", "c"], [[1, 2]]),
    ],
)
def test_texts(content: str, names: list[str], rows: list[list[float]], tmp_path: Path) -> None:
    sheet = read_text(tmp_path, content)
    assert sheet.names == names
    np.testing.assert_array_equal(sheet.numbers(names), rows)


def test_integers_may_become_decimals_late(tmp_path: Path) -> None:
    """Types are not guessed from the first block."""
    lines = ["x,id"] + [f"{i},{i:07d}" for i in range(300_000)] + ["0.5,end"]
    sheet = read_text(tmp_path, "\n".join(lines))
    assert sheet.numbers(["x"])[-1, 0] == 0.5
    assert sheet.table.column("id")[7].as_py() == "0000007"


def test_cells_of_many_lines_may_cross_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oism.data.files._text.BLOCK", 64)
    cells = ["\n" * k + "a" for k in range(20)]
    content = "text,n\n" + "".join(f'"{cell}",{k}\n' for k, cell in enumerate(cells))
    sheet = read_text(tmp_path, content)
    assert sheet.table.column("text").to_pylist() == cells
    np.testing.assert_array_equal(sheet.numbers(["n"])[:, 0], np.arange(20))


def test_a_header_of_counting_numbers_is_doubted(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="first row, 0,1, is taken as data"):
        sheet = read_text(tmp_path, "0,1\n5.5,6.5\n")
    assert sheet.table.num_rows == 2


def test_no_row_of_another_program_is_taken_as_names(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 2))
    rows[0, 1] = np.nan
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",")
    path = str(tmp_path / "a.csv")
    np.testing.assert_array_equal(files.read(path).numbers(["0", "1"]), rows)
    (batch,) = files.open_table(path).sheets(["0", "1"])
    np.testing.assert_array_equal(batch.numbers(["0", "1"]), rows)


def test_a_first_row_without_a_finite_number_is_doubted(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="first row, nan,-inf, is taken as the header; if it is"):
        sheet = read_text(tmp_path, "nan,-inf\n5.5,6.5\n")
    assert sheet.names == ["nan", "-inf"]


@pytest.mark.parametrize("names", [["nan", "1"], ["1", ""], ["none"], ["inf", "NA"]])
def test_names_that_look_like_cells_are_read_as_written(names: list[str], tmp_path: Path) -> None:
    table = pa.table([[0.5, 1.5]] * len(names), names)
    files.write(table, str(tmp_path / "a.csv"))
    assert files.read(str(tmp_path / "a.csv")).names == names


def test_only_what_needs_quotes_has_them(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    files.write(pa.table({"id": ["007", "b"], "x": [0.1, 1e300]}), str(path))
    assert path.read_text() == "id,x\n007,0.1\nb,1e+300\n"
    files.write(pa.table({"0": [1.0], "1": [2.5]}), str(path))
    assert path.read_text() == '"0","1"\n1,2.5\n'


SHEETS: list[tuple[bytes | str, str, str]] = [
    ("", "csv", "data.csv: the file is empty"),
    ("\n\n", "csv", "the file has no rows"),
    ("a,b\n", "csv", "a header but no rows"),
    ("a,b\n1,2\n\n3\n4,5\n", "csv", "line 4 has 1 cell, but the first row has 2"),
    ('a,b\n"x\ny",2\n3,4,5\n', "csv", "line 4 has 3 cells"),
    ("a,b,a\n1,2,3\n", "csv", "more than one column is called 'a'"),
    ("a;b\n1;2\n", "csv", "separated by a semicolon where a comma is expected"),
    ("a\tb\n1\t2\n", "csv", "or give --format tsv"),
    ("a,b\n1,2\n", "tsv", "or give --format csv"),
    ("a,b\n1,2\n3,ü\n".encode("latin-1"), "csv", "must be encoded as UTF-8, but line 3 is not"),
    ("ä,b\n1,2\n".encode("latin-1"), "csv", "line 1 is not UTF-8"),
    ("a,b\n1,2\n".encode("utf-16"), "csv", "it looks like UTF-16"),
    (b"no gzip at all", "csv.gz", "damaged, or not compressed by gzip"),
    (b"PAR1 but no more", "parquet", "damaged, or not a Parquet file"),
    (b"a,b\n1,2\n", "npy", "damaged, or not an NPY file"),
    (b"\x93NUMPY\x01\x00", "npy", "damaged, or not an NPY file"),
    (b"PK not a zip", "npz", "damaged, or not an NPZ file"),
    ("a\n1\n", "xyz", "the suffix '.xyz' names no format; known are .csv, .tsv, .parquet"),
    ("a\n1\n", "npy.gz", "names no format"),
]


@pytest.mark.parametrize(("content", "suffix", "message"), SHEETS, ids=[m for *_, m in SHEETS])
def test_bad_files(content: bytes | str, suffix: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        read_text(tmp_path, content, suffix)
    assert message in str(caught.value)
    assert f"data.{suffix}: " in str(caught.value)


@pytest.mark.parametrize("name", ["a.parquet", "a.npy", "a.npz", "a.csv.gz"])
def test_truncated_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    table = pa.table({"x": np.random.default_rng(0).normal(size=500)})
    files.write(table, str(path))
    whole = path.read_bytes()
    for length in (1, 20, len(whole) // 2, len(whole) - 10):
        path.write_bytes(whole[:length])
        with pytest.raises(FileError, match="damaged"):
            files.read(str(path))


def test_headers_and_ends_of_arrays(tmp_path: Path) -> None:
    """No error of NumPy's parser, no memory for a size that is not there, no rows from the end."""
    path = tmp_path / "a.npy"
    files.write(pa.table({"x": np.arange(50.0)}), str(path))
    whole = path.read_bytes()
    for old, new, message in (
        (b"}", b" ", "damaged, or not an NPY file"),
        (b"(50, 1)", b"(9" + b"0" * 12 + b", 1)", "damaged"),
        (b"(50, 1), }" + b" " * 7, b"(50000000, 1), } ", "the file ends before its array"),
    ):
        assert old in whole
        path.write_bytes(whole.replace(old, new, 1))
        with pytest.raises(FileError, match=message):
            files.read(str(path))
    path.write_bytes(whole + b"12345678")
    with pytest.raises(FileError, match=r"goes on after its array of shape \(50, 1\)"):
        files.read(str(path))


def test_archives_with_a_block_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    files.write(pa.table({"x": np.arange(50.0), "y": np.ones(50)}), str(path))
    whole = path.read_bytes()
    for start in (0, 10, 30, 60):
        path.write_bytes(whole[:start] + whole[start + 20 :])
        with pytest.raises(FileError, match=r"a.npz.*: damaged"):
            files.read(str(path))


def test_changed_values_of_parquet_are_an_error(tmp_path: Path) -> None:
    path, x = tmp_path / "a.parquet", np.random.default_rng(0).normal(size=500)
    files.write(pa.table({"x": x}), str(path))
    whole, place = path.read_bytes(), path.read_bytes().index(x[99].tobytes()) + 2
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
    with pytest.raises(FileError, match=r"a.parquet: damaged, .*CRC"):
        files.read(str(path))
    with pytest.raises(FileError, match=r"a.parquet: damaged, .*CRC"):
        list(files.open_table(str(path)).sheets(["x"]))


ARRAYS: list[tuple[np.ndarray, str]] = [
    (np.array([[1, "a"]], dtype=object), "Python objects"),
    (np.zeros((2, 2), dtype=complex), "complex numbers"),
    (np.zeros((2, 2, 2)), r"got (2, 2, 2)"),
    (np.array(3.0), "got ()"),
    (np.zeros((0, 2)), "no rows"),
    (np.zeros((2, 0)), "no columns"),
    (np.zeros(2, dtype=[("a", "f8")]), "records"),
]


@pytest.mark.parametrize(("array", "message"), ARRAYS, ids=[message for _, message in ARRAYS])
def test_bad_arrays(array: np.ndarray, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(FileError) as caught:
        files.read(str(tmp_path / "a.npy"))
    assert message in str(caught.value)


def test_bad_archives(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npz")
    for arrays in ({"a": np.zeros((2, 2)), "b": np.zeros((2, 2))}, {"a": [1.0], "b": [1.0, 2.0]}):
        np.savez(path, **arrays)
        with pytest.raises(FileError, match="it holds a"):
            files.read(path)
    np.savez(path)
    with pytest.raises(FileError, match="it holds nothing"):
        files.read(path)
    np.savez(path, a=np.array([None, 1]))
    with pytest.raises(FileError, match="array 'a': the array holds Python objects"):
        files.read(path)


CELLS = [
    ("x,y\n1,2\n3,abc\n4,def\n", "line 3, column 'y': 'abc' is not a number"),
    ('x,y\n"a\nb",2\n\n3, 1_000\n', "line 5, column 'y': ' 1_000' is not a number"),
    ("1,2\n3,abc\n", "line 2, column '1': 'abc' is not a number"),
    ('x,y\n1,2\n3,"1,5"\n', "line 3, column 'y': '1,5' is not a number"),
]


@pytest.mark.parametrize(("content", "message"), CELLS, ids=[message for _, message in CELLS])
def test_text_among_numbers(content: str, message: str, tmp_path: Path) -> None:
    sheet = read_text(tmp_path, content)
    with pytest.raises(FileError) as caught:
        sheet.numbers([sheet.names[-1]])
    assert str(caught.value).endswith(message)


def test_the_first_bad_cell_of_many_is_found(tmp_path: Path) -> None:
    """Against a search from the start, for every place of the first bad cell."""
    for place in range(17):
        cells = ["1"] * place + ["q"] + ["1", "r"] * 4
        sheet = read_text(tmp_path, "x\n" + "\n".join(cells) + "\n")
        with pytest.raises(FileError, match=f"line {place + 2}, column 'x': 'q'"):
            sheet.numbers(["x"])


def test_other_types_are_no_numbers(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"when": pa.array([0], pa.timestamp("s")), "many": [[1, 2]]}), path)
    sheet = files.read(path)
    for name, kind in (("when", "timestamp"), ("many", "list")):
        with pytest.raises(FileError, match=f"column '{name}' holds {kind}.*, not numbers; ask"):
            sheet.numbers([name], advice="; ask")
    with pytest.raises(FileError, match="cannot be written as text"):
        files.write(sheet.table, str(tmp_path / "a.csv"))
    with pytest.raises(FileError, match=r"column 'many' holds list.*NPZ cannot"):
        files.write(sheet.table, str(tmp_path / "a.npz"))
    with pytest.raises(FileError, match=r"column 'when' holds timestamp.*NPY holds numbers only"):
        files.write(sheet.table, str(tmp_path / "a.npy"))


def test_missing_and_infinite_values_are_placed(tmp_path: Path) -> None:
    sheet = read_text(tmp_path, "x,y\n1,2\n3,\n-inf,4\n")
    rows = sheet.numbers(["x", "y"])
    with pytest.raises(FileError, match="line 3, column 'y': the value is missing; --missing skip"):
        sheet.complete(rows, ["x", "y"], skip=False)
    assert sheet.complete(rows, ["x", "y"], skip=True).tolist() == [True, False, True]
    with pytest.raises(FileError, match="line 4, column 'x': -inf is not finite"):
        sheet.check_finite(rows, ["x", "y"])
    np.save(tmp_path / "a.npy", np.array([[1, 2], [3, np.nan]]))
    sheet = files.read(str(tmp_path / "a.npy"))
    rows = sheet.numbers(["1", "0"])
    with pytest.raises(FileError, match="row 2, column '1': the value is missing"):
        sheet.complete(rows, ["1", "0"], skip=False)
    with pytest.raises(FileError, match="no row is complete in x"):
        sheet.complete(np.full((2, 1), np.nan), ["x"], skip=True)


def test_columns_are_found_by_name_or_number(tmp_path: Path) -> None:
    sheet = read_text(tmp_path, "phi,psi,2,\n1,2,3,4\n")
    assert sheet.choose(["psi", "0", "2"]) == ["psi", "phi", "2"]
    with pytest.raises(
        FileError, match="no column 'pis', only 'phi', 'psi', '2', ''; did you mean"
    ):
        sheet.choose(["pis"])
    with pytest.raises(FileError, match=r"no column '7', only [^;]*$"):
        sheet.choose(["7"])
    with pytest.raises(FileError, match="chosen twice"):
        sheet.choose(["phi", "0"])
    with pytest.raises(FileError, match="column 3 has no name"):
        sheet.choose([])
    assert read_text(tmp_path, "a,b,c\n1,2,3").choose([], without=["b"]) == ["a", "c"]


class Standard:
    """A standard stream that is a pipe: it can only be read or written once, in order."""

    def __init__(self, content: bytes = b"") -> None:
        self.buffer = io.BytesIO(content)


@pytest.mark.parametrize("format", [None, *files.FORMATS])
def test_standard_streams(format: str | None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: A002
    table = pa.table({"0": [0.1, 2.5], "1": [1.0, -3.0]})
    out = Standard()
    monkeypatch.setattr(sys, "stdout", out)
    files.write(table, "-", format)
    monkeypatch.undo()
    monkeypatch.setattr(sys, "stdin", Standard(out.buffer.getvalue()))
    sheet = files.read("-", format)
    np.testing.assert_array_equal(sheet.numbers(["0", "1"]), [[0.1, 1.0], [2.5, -3.0]])
    monkeypatch.setattr(sys, "stdin", Standard())
    with pytest.raises(FileError, match="standard input: the file is empty"):
        files.read("-", format)


def test_a_format_is_known_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "noname"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(FileError, match="noname: no suffix names no format"):
        files.read(str(path))
    assert files.read(str(path), "csv").names == ["a", "b"]
    with pytest.raises(FileError, match="format must be one of csv, tsv"):
        files.read(str(path), "xls")
    assert files.format_of("A.CSV") == "csv"


@pytest.mark.parametrize("suffix", ["csv", "npy", "npz", "parquet"])
def test_tables_of_too_many_columns(suffix: str, tmp_path: Path) -> None:
    """A header of a million names was compared with itself, name by name."""
    path, count = tmp_path / f"wide.{suffix}", 1_000_000 if suffix == "csv" else 10_001
    if suffix == "csv":
        path.write_text(",".join(f"c{k}" for k in range(count)) + "\n")
    elif suffix == "npy":
        np.save(path, np.zeros((2, count)))
    elif suffix == "npz":
        np.savez(path, x=np.zeros((2, count)))
    else:
        pq.write_table(pa.table({str(k): [0.0] for k in range(count)}), path)
    with pytest.raises(FileError, match=f"has {count:,} columns, and at most 10,000 are read"):
        files.read(str(path))


def test_many_columns_are_compared_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    names = [f"c{k}" for k in range(9999)]
    path.write_text(",".join([*names, "c17"]) + "\n")
    with pytest.raises(FileError, match="more than one column is called 'c17'"):
        files.read(str(path))
