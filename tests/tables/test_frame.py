"""Tables of any columns as rows of numbers, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oism import OISM
from oism.tables import Column, Columns
from oism.tables._frame import Table
from oism.tables._levels import discrete_columns
from oism.tables._output import write_rows
from oism.tables._reading import level_code, read_columns, read_rows

pd = pytest.importorskip("pandas")
N = 60


def frame() -> Any:
    r = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": r.normal(size=N),
            "count": r.integers(0, 5, N),
            "grade": pd.Categorical(r.choice(list("xyz"), N), list("zyxw"), ordered=True),
            "town": r.choice(["Rome", "Oslo"], N),
            "known": r.random(N) < 0.5,
            "steps": pd.array(r.integers(0, 3, N), dtype="Int64"),
            "weight": r.normal(size=N).astype("float32"),
            "many": r.integers(0, 10**6, N),
            "maybe": pd.array(r.random(N) < 0.5, dtype="boolean"),
        }
    )


def read(table: Any, discrete: Any = "auto", **declared: Any) -> tuple[Columns, Tensor]:
    found = Table.of(table)
    assert found is not None
    known = {"periodic": None, "bounds": None, "box": None, **declared}
    columns = Columns.of(len(found.dtypes), found.labels, **known)
    return read_columns(found, None, columns, discrete)


def test_kinds_levels_and_codes() -> None:
    data = frame()
    columns, rows = read(data)
    assert columns.names == tuple(data.columns)
    assert columns.kinds == (
        "free",
        "discrete",
        "categorical",
        "categorical",
        "categorical",
        "discrete",
        "free",
        "free",
        "categorical",
    )
    assert columns.levels(1) == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert columns.levels(2) == ("z", "y", "x"), "in the order of the dtype, if there are rows"
    assert columns.levels(3) == ("Oslo", "Rome")
    assert columns.levels(4) == (False, True)
    assert rows.dtype == torch.float64
    assert [columns.levels(3)[int(code)] for code in rows[:, 3]] == list(data["town"])
    np.testing.assert_array_equal(rows[:, 0], data["size"])


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_a_frame_without_columns_is_named(package: str) -> None:
    module = pytest.importorskip(package)
    empty = module.table({}) if package == "pyarrow" else module.DataFrame({})
    with pytest.raises(ValueError, match=r"X must have at least one column, got .*\(0, 0\)"):
        OISM().fit(empty)


def test_a_pandas_frame_comes_back() -> None:
    data = frame()
    columns, rows = read(data)
    pd.testing.assert_frame_equal(write_rows(columns, rows), data)
    noisy = rows.clone()
    noisy[:, 7] += 0.3
    pd.testing.assert_series_equal(write_rows(columns, noisy)["many"], data["many"])


def test_gaps() -> None:
    data = frame()
    for j, gap in enumerate([np.nan, None, None, None, None, pd.NA, np.nan, None, pd.NA]):
        data[data.columns[j]] = data.iloc[:, j].astype(
            "object" if data.columns[j] in ("known", "count", "many") else data.dtypes.iloc[j]
        )
        data.iloc[j, j] = gap
    columns, rows = read(data)
    assert rows.isnan().nonzero().tolist() == [[j, j] for j in range(9)]
    assert columns.kinds[4] == "categorical"
    table = Table.of(data)
    assert table is not None
    torch.testing.assert_close(read_rows(table, columns), rows, equal_nan=True)


def test_a_polars_frame_comes_back() -> None:
    polars = pytest.importorskip("polars")
    data = polars.from_pandas(frame().drop(columns=["grade"])).with_columns(
        polars.Series("kind", ["a", "b"] * (N // 2), dtype=polars.Enum(["a", "b"]))
    )
    columns, rows = read(data)
    again = write_rows(columns, rows)
    assert again.schema == data.schema
    assert again.equals(data)


def test_arrays_and_lists_of_objects() -> None:
    data = [[1.5, "a", "3"], [2.5, "b", "4"], [None, "a", "5.5"]]
    columns, rows = read(data)
    assert columns.kinds == ("free", "categorical", "free")
    torch.testing.assert_close(
        rows,
        torch.tensor([[1.5, 0.0, 3.0], [2.5, 1.0, 4.0], [math.nan, 0.0, 5.5]]).double(),
        equal_nan=True,
    )
    assert write_rows(columns, rows[:2]).tolist() == [[1.5, "a", 3.0], [2.5, "b", 4.0]]
    assert write_rows(Columns((Column(),)), rows[:, :1]).dtype == np.float64


def test_tables_of_numbers_are_left_to_scikit_learn() -> None:
    for table in (np.zeros((3, 2)), [[1, 2]], frame()[["size", "count", "steps", "weight"]]):
        found = Table.of(table)
        assert found is not None
        assert found.is_numeric
    for other in ("text", [[1], [1, 2]], [1, 2], None, np.zeros((2, 2, 2))):
        assert Table.of(other) is None


@pytest.mark.parametrize(
    ("column", "settings", "error", "message"),
    [
        (["1", "2", "n/a"], {}, ValueError, r"column 'c' has the text 'n/a' in row 2, among num"),
        (["a", "b", "c"], {"periodic": {"c": 360}}, ValueError, "column 'c' has the text 'a' in"),
        (["a", "b", "2"], {"bounds": {"c": (0, 1)}}, ValueError, r"text 'a' .* NaN for a missing"),
        (["a", "b", "2"], {"discrete": ["c"]}, ValueError, "column 'c' has the text 'a' in row 0"),
        ([1.0, {}, 2.0], {}, TypeError, r"column 'c' has \{\} in row 1: the argument must be a"),
        ([{}, {}, {}], {}, TypeError, r"column 'c' has \{\}: the argument must be a string or"),
        ([None, None, None], {}, ValueError, "column 'c' has no values: leave it out"),
        ([1.0, "inf", 2.0], {}, ValueError, "contains infinity: column 'c', row 1"),
        ([f"id{k}" for k in range(50)], {}, ValueError, "50 different texts in 50 rows, as 'id0'"),
    ],
)
def test_wrong_columns_are_named(
    column: list[Any], settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    data = pd.DataFrame({"x": np.arange(len(column)) + 0.5, "c": pd.Series(column, dtype=object)})
    with pytest.raises(error, match=message):
        read(data, **settings)


def test_times_are_no_numbers() -> None:
    data = pd.DataFrame({"when": pd.date_range("2020-01-01", periods=3)})
    with pytest.raises(TypeError, match="column 'when' holds times"):
        read(data)


def test_names_have_to_be_distinct() -> None:
    with pytest.raises(ValueError, match="distinct names, but 'a' is there twice"):
        Table.of(pd.DataFrame([["x", "y"]], columns=["a", "a"]))


def test_new_levels_are_named() -> None:
    columns, _ = read(frame())
    new = frame().iloc[:3].copy()
    new.loc[1, "town"] = "Bern"
    table = Table.of(new)
    assert table is not None
    message = r"column 'town' has the level 'Bern' in row 1, .* its levels are 'Oslo', 'Rome'\."
    with pytest.raises(ValueError, match=message):
        read_rows(table, columns)
    few = Table.of(new.drop(columns=["town"]))
    assert few is not None
    with pytest.raises(ValueError, match="X has 8 features, but OISM is expecting 9"):
        read_rows(few, columns)
    assert level_code(columns[3], "Rome", "given['town']") == 1.0


def numbers(*columns: Any) -> Tensor:
    return torch.from_numpy(np.stack(columns, axis=1).astype(np.float64))


def found_discrete(*columns: Any) -> set[int]:
    rows = numbers(*columns)
    return discrete_columns(Columns.of(rows.shape[1], None, None, None, None), rows)


def test_which_columns_are_discrete() -> None:
    r = np.random.default_rng(0)
    normal = r.normal(size=200)
    few, rounded, fine = r.integers(0, 9, 200), normal.round(1), normal.round(4)
    assert found_discrete(normal, few, rounded, fine) == {1, 2}
    assert found_discrete(few) == {0}
    assert found_discrete(np.full(200, 3.0), normal) == set(), "a constant is not discrete"
    assert found_discrete(few[:19], normal[:19]) == set(), "too few rows"
    assert found_discrete(r.integers(0, 10**6, 200), normal) == set()
    assert found_discrete(r.integers(0, 300, 2000), r.normal(size=2000)) == set(), "too many"
    # Rows that are repeated, as by weights, do not make values repeat.
    copies = np.repeat(r.normal(size=(50, 2)), 4, axis=0)
    assert found_discrete(*copies.T) == set()
    assert found_discrete(np.repeat(normal, 4)) == set()
    assert found_discrete(np.repeat(normal[:40], 5)) == {0}


@settings(max_examples=25, deadline=None)
@given(
    x=st.lists(
        st.tuples(
            # A column whose numbers are all smaller than 1e-100 would be an error.
            st.one_of(st.none(), st.floats(1e-90, 1e6), st.floats(-1e6, -1e-90), st.just(0.0)),
            st.sampled_from(["a", "b", None]),
            st.one_of(st.none(), st.booleans()),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_any_little_table_comes_back(x: list[tuple[Any, ...]]) -> None:
    data = pd.DataFrame(x, columns=["number", "text", "flag"], dtype=object)
    data["number"] = data["number"].astype("float64")
    if data.isna().all().any():
        with pytest.raises(ValueError, match="has no values"):
            read(data)
        return
    columns, rows = read(data)
    again = write_rows(columns, rows)
    assert again["number"].equals(data["number"])
    for name in ("text", "flag"):
        kept = ~data[name].isna()
        assert again[name].isna().equals(~kept)
        assert list(again[name][kept]) == list(data[name][kept])


def test_a_model_of_a_frame_returns_frames() -> None:
    data = frame()[["size", "count"]]
    model = OISM(max_eigenvalue=4, flow_steps=4).fit(data)
    samples = model.sample(5, random_state=0)
    assert list(samples.columns) == ["size", "count"]
    assert (samples.dtypes == data.dtypes).all()
    assert set(samples["count"]) <= set(data["count"])
    one = model.sample(5, random_state=0, given={"count": 2})
    assert (one["count"] == 2).all()
    assert np.isfinite(model.score_samples(samples)).all()
    assert model.check_copies(data, samples).are_copies in (True, False)
    plain = OISM(max_eigenvalue=4, flow_steps=4).fit(data.to_numpy())
    assert type(plain.sample(2)) is np.ndarray
    np.testing.assert_array_equal(plain.sample(5, random_state=0), samples.to_numpy())


def test_discrete_columns_can_be_given_or_refused() -> None:
    data = frame()[["size", "many"]]
    assert OISM(discrete=["many"]).get_params()["discrete"] == ["many"]
    none = OISM(max_eigenvalue=4, flow_steps=4, discrete=()).fit(frame()[["count"]])
    assert none.columns_.kinds == ("free",)
    listed = OISM(max_eigenvalue=4, flow_steps=4, discrete=["many"]).fit(data)
    assert listed.columns_.kinds == ("free", "discrete")
    with pytest.raises(ValueError, match="discrete names column 'mny'; the columns are"):
        OISM(discrete=["mny"]).fit(data)


def test_infinite_entries_are_named() -> None:
    x = np.zeros((4, 2))
    x[2, 1] = np.inf
    with pytest.raises(ValueError, match="Input X contains infinity: column 1, row 2"):
        OISM().fit(x)
