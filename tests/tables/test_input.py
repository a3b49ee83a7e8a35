"""Tables as users have them: masks, times, large integers and names of any kind."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold

from oism import OISM, load
from oism.tables import Column

pd = pytest.importorskip("pandas")
QUICK: dict[str, Any] = {"process": "torus", "max_eigenvalue": 4, "flow_steps": 4, "ridge": 0.01}


def masked(n: int = 60) -> Any:
    values = np.random.default_rng(0).normal(size=(n, 2))
    x = np.ma.array(values, mask=values > 1)
    x.data[x.mask] = 999
    return x


def test_masked_entries_are_gaps() -> None:
    x = masked()
    gaps = x.filled(np.nan)
    with pytest.raises(ValueError, match=r"contains NaN: column 0, row \d+\. .* process='joint'"):
        OISM().fit(x)
    model = OISM(process="joint").fit(x)
    assert model.sample(100, random_state=0).max() < 20
    same = OISM(process="joint").fit(gaps)
    np.testing.assert_array_equal(model.score_samples(x), same.score_samples(gaps))
    filled = model.impute(x, random_state=0)
    np.testing.assert_array_equal(filled[~x.mask], x.data[~x.mask])
    assert (filled != 999).all()
    one = model.marginal([1])
    np.testing.assert_array_equal(one.score_samples(x[:, 1:]), one.score_samples(gaps[:, 1:]))
    with pytest.raises(ValueError, match="contains NaN"):
        model.check_copies(gaps[~x.mask.any(axis=1)], x)


@pytest.mark.parametrize("dtype", ["int64", "bool", "object", "float32"])
def test_masked_entries_of_any_dtype_are_gaps(dtype: str) -> None:
    mask = np.array([[0, 0], [0, 1], [0, 0]], dtype=bool)
    x = np.ma.array([[0, 1], [1, 1], [1, 0]], mask=mask).astype(dtype)
    model = OISM(**QUICK).fit(np.random.default_rng(0).normal(size=(50, 2)))
    expected = model.score_samples([[0, 1], [1, np.nan], [1, 0]])
    np.testing.assert_array_equal(model.score_samples(x), expected)


def test_masked_batches_and_weights() -> None:
    x = masked()
    with pytest.raises(ValueError, match="contains NaN"):
        OISM(**QUICK).fit_batches(lambda: [x[:30], x[30:]])
    weights = np.ma.array(np.ones(60), mask=np.arange(60) == 3)
    values = np.random.default_rng(1).normal(size=(60, 2))
    with pytest.raises(ValueError, match="contains NaN"):
        OISM(**QUICK).fit(values, sample_weight=weights)
    whole = np.ma.array(values, mask=False)
    found = OISM(**QUICK).fit(whole).score_samples(whole)
    np.testing.assert_array_equal(found, OISM(**QUICK).fit(values).score_samples(values))


TIMES = {
    "times": pd.date_range("2020-01-01", periods=3).astype("datetime64[ns]"),
    "durations": pd.to_timedelta([1, 2, 3], unit="h"),
    "zoned times": pd.date_range("2020-01-01", periods=3, tz="UTC"),
    "objects": np.array([np.timedelta64(k, "h") for k in range(3)], dtype=object),
}


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_times_are_refused_at_every_door(times: Any) -> None:
    rows = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60)})
    new = pd.DataFrame({"x": times})
    model = OISM(**QUICK).fit(rows)
    mixed = OISM().fit(rows.assign(kind=["a", "b"] * 30))
    for use in (
        OISM(**QUICK).fit,
        model.score_samples,
        model.impute,
        model.marginal(["x"]).score_samples,
        lambda x: model.score_function(x, 0.1),
        lambda x: model.check_copies(rows, x),
        lambda x: mixed.score_samples(x.assign(kind=["a", "b", "a"])),
        lambda x: OISM(**QUICK).fit_batches(lambda: [x, x]),
        lambda x: OISM(**QUICK).partial_fit(rows).partial_fit(x),
    ):
        with pytest.raises(TypeError, match=r"column 'x' holds times .*: give numbers, for insta"):
            use(new)


def test_dates_are_no_numbers() -> None:
    model = OISM(**QUICK).fit(pd.DataFrame({"x": np.random.default_rng(0).normal(size=60)}))
    days = pd.DataFrame({"x": np.array([None, date(2020, 1, 1)], dtype=object)})
    with pytest.raises(TypeError, match=r"column 'x' holds times \(date\)"):
        model.score_samples(days)
    assert np.isfinite(model.score_samples(pd.DataFrame({"x": [0.1, pd.NaT]}, dtype=object))).all()


@pytest.mark.parametrize("dtype", ["datetime64[s]", "timedelta64[s]"])
def test_arrays_of_times_are_refused(dtype: str) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 1))
    times = np.arange(3).reshape(3, 1).astype(dtype)
    model = OISM(**QUICK).fit(rows)
    for use in (
        OISM(**QUICK).fit,
        model.score_samples,
        lambda x: model.check_copies(rows, x),
        lambda x: OISM(**QUICK).fit_batches(lambda: [x, x]),
    ):
        with pytest.raises(TypeError, match="column 0 holds times"):
            use(times)


@pytest.mark.parametrize("package", ["polars", "pyarrow"])
def test_times_of_other_frames_are_refused(package: str) -> None:
    module = pytest.importorskip(package)
    make = module.table if package == "pyarrow" else module.DataFrame
    model = OISM(**QUICK).fit(make({"x": np.random.default_rng(0).normal(size=60)}))
    times = np.arange(3).astype("datetime64[ms]")
    with pytest.raises(TypeError, match="column 'x' holds times"):
        model.score_samples(make({"x": times}))


LARGE = {
    "int64": 9223372036854775000 - np.arange(100) * 10**13,
    "uint64": np.uint64(2**64 - 1) - np.arange(100, dtype=np.uint64) * np.uint64(10**13),
}


@pytest.mark.parametrize("dtype", LARGE)
@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_large_integers_do_not_wrap(package: str, dtype: str) -> None:
    module = pytest.importorskip(package)
    data = module.DataFrame({"i": LARGE[dtype], "x": np.random.default_rng(0).normal(size=100)})
    samples = OISM(**QUICK).fit(data).sample(200, random_state=0)["i"]
    assert str(samples.dtype).lower() == dtype
    # The box is wider than the range of the rows, by less than one half on either side.
    assert min(samples.to_numpy()) > int(LARGE[dtype].min()) - 10**15


def test_ends_of_dtypes() -> None:
    for dtype in ("int64", "UInt64", "int8", "int32[pyarrow]", "Int128"):
        whole = Column(dtype=dtype).whole(np.array([-1e300, 1e300, 2.6, np.nan]))
        limits = np.iinfo(whole.dtype)
        assert whole.tolist() == [limits.min, limits.max, 3, 0], dtype


ARROW = ["int64[pyarrow]", "uint8[pyarrow]", "double[pyarrow]", "bool[pyarrow]"]


@pytest.mark.parametrize("dtype", ARROW)
def test_numbers_of_arrow_in_pandas(dtype: str) -> None:
    pytest.importorskip("pyarrow")
    values = pd.Series(np.random.default_rng(0).integers(0, 2, 60)).astype(dtype)
    data = pd.DataFrame({"a": values, "x": np.random.default_rng(1).normal(size=60)})
    samples = OISM().fit(data).sample(5, random_state=0)
    assert dict(samples.dtypes) == dict(data.dtypes)
    assert set(samples["a"]) <= {0, 1}


def test_dictionaries_of_arrow_in_pandas() -> None:
    arrow = pytest.importorskip("pyarrow")
    dtype = pd.ArrowDtype(arrow.dictionary(arrow.int32(), arrow.string()))
    data = pd.DataFrame({"a": pd.Series(["u", "v"] * 30).astype(dtype), "x": np.arange(60.0)})
    samples = OISM().fit(data).sample(5, random_state=0)
    assert dict(samples.dtypes) == dict(data.dtypes)
    assert set(samples["a"]) <= {"u", "v"}


def test_an_enum_of_polars_keeps_its_categories(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    kind = polars.Series("kind", ["a", "b"] * 30, dtype=polars.Enum(["b", "a", "c"]))
    code = polars.Series("code", ["2", "1"] * 30, dtype=polars.Enum(["2", "1"]))
    free = polars.Series("free", ["v", "u"] * 30, dtype=polars.Categorical)
    data = polars.DataFrame([kind, code, free, polars.Series("x", np.arange(60.0))])
    model = OISM().fit(data)
    model.save(tmp_path / "model.safetensors")
    for one in (model, load(tmp_path / "model.safetensors")):
        samples = one.sample(5, random_state=0)
        assert samples.schema == data.schema
        assert len(polars.concat([data, samples])) == 65


@pytest.mark.parametrize("package", ["pandas", "polars"])
@pytest.mark.parametrize("gap", [False, True])
def test_impute_keeps_large_integers(package: str, gap: bool) -> None:
    module = pytest.importorskip(package)
    keys: list[Any] = [2**53 + (10**13 + 1) * k for k in range(60)]
    x = np.random.default_rng(0).normal(size=60)
    data = module.DataFrame({"key": keys, "x": x})
    model = OISM(process="joint", discrete=()).fit(data)
    gaps = data
    x[3] = np.nan
    if gap:
        keys[5] = None
        kind = "Int64" if package == "pandas" else module.Int64
        gaps = module.DataFrame({"key": module.Series(keys, dtype=kind), "x": x})
    else:
        gaps = module.DataFrame({"key": keys, "x": x})
    found = model.impute(gaps, random_state=0)
    assert [new for new, old in zip(found["key"], keys, strict=True) if old is not None] == [
        key for key in keys if key is not None
    ]
    assert str(found["key"].dtype).lower() == "int64"
    assert np.isfinite(found["x"].to_numpy()).all()


def test_impute_keeps_fractions_in_a_column_of_integers() -> None:
    r = np.random.default_rng(0)
    data = pd.DataFrame({"i": r.integers(0, 10**6, 60), "x": r.normal(size=60)})
    model = OISM(process="joint").fit(data)
    new = pd.DataFrame({"i": [2.5, np.nan, 4.0], "x": [0.1, 0.2, np.nan]}, index=[7, 8, 9])
    found = model.impute(new, random_state=0)
    assert list(found.index) == [7, 8, 9]
    assert found["i"].dtype == float
    assert found["i"].tolist()[::2] == [2.5, 4.0]
    assert found["i"][8] == round(found["i"][8]), "what is drawn is whole"
    whole = model.impute(new.assign(i=[2.0, np.nan, 4.0]), random_state=0)
    assert whole["i"].dtype == np.int64


def test_impute_keeps_entries_of_arrays_and_of_float32() -> None:
    r = np.random.default_rng(0)
    x = 2**60 + r.integers(0, 10**9, (60, 2))
    found = OISM(process="joint").fit(x).impute(x)
    assert found.dtype == np.int64
    assert (found == x).all()
    narrow = pd.DataFrame({"x": r.normal(size=60).astype("float32"), "y": r.normal(size=60)})
    wide = pd.DataFrame({"x": [0.1, np.nan], "y": [0.0, 0.1]})
    filled = OISM(process="joint").fit(narrow).impute(wide, random_state=0)
    assert filled["x"][0] == 0.1


NAMES = {
    "swapped numbers": [1, 0],
    "pairs": [("a", "x"), ("a", "y")],
    "fractions": [1.5, 2.5],
    "times": [pd.Timestamp("2020"), pd.Timestamp("2021")],
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_names_that_are_no_text_are_matched_and_kept(names: list[Any]) -> None:
    r = np.random.default_rng(0)
    data = pd.DataFrame({names[0]: r.normal(size=60), names[1]: r.normal(10, size=60)})
    model = OISM(**QUICK, bounds={names[1]: (0, None)} if names[0] != 1 else None).fit(data)
    samples = model.sample(5, random_state=0)
    assert list(samples.columns) == names
    assert type(samples.columns) is type(data.columns)
    assert np.isfinite(model.score_samples(samples)).all()
    for table in (data[names[::-1]], data.rename(columns=lambda name: 7 if name == 1 else name)):
        if list(table.columns) == names:
            continue
        with pytest.raises(ValueError, match=r"X must have the columns \[.* in this order, as the"):
            model.score_samples(table)
    part = model.marginal(names[:1]) if names[0] != 1 else model.marginal([-1])
    assert list(part.sample(2).columns) == [names[0] if names[0] != 1 else 0]
    np.testing.assert_array_equal(model.score_samples(data), model.score_samples(data.to_numpy()))


def test_numbers_as_names_and_as_indices() -> None:
    r = np.random.default_rng(0)
    data = pd.DataFrame(r.uniform(size=(60, 2)), columns=[1, 0])
    message = "periodic has 1, which is the name of column 0 and also the index of column 1, whose"
    with pytest.raises(ValueError, match=message):
        OISM(periodic={1: 1.0}).fit(data)
    both = OISM(**QUICK, periodic=1.0).fit(data)
    assert both.columns_.kinds == ("periodic", "periodic")
    others = OISM(**QUICK, periodic={5: 1.0}).fit(data.set_axis([5, 6], axis=1))
    assert others.columns_.kinds == ("periodic", "free")
    usual = OISM(**QUICK, periodic={1: 1.0}).fit(data.set_axis([0, 1], axis=1))
    assert usual.columns_.kinds == ("free", "periodic")
    pairs = data.set_axis(pd.MultiIndex.from_tuples([("a", "x"), ("a", "y")]), axis=1)
    with pytest.raises(ValueError, match=r"periodic names column \('b', 'x'\); the columns are"):
        OISM(periodic={("b", "x"): 1.0}).fit(pairs)


def test_numbers_of_columns_without_names_agree_with_any() -> None:
    data = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=[3, 4])
    model = OISM(**QUICK).fit(data)
    plain = pd.DataFrame(data.to_numpy())
    np.testing.assert_array_equal(model.score_samples(plain), model.score_samples(data))


def test_names_that_are_pairs_are_stored(tmp_path: Path) -> None:
    data = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)))
    data.columns = pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])
    OISM(**QUICK).fit(data).save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert list(loaded.sample(2).columns) == [("a", 1), ("a", 2)]
    with pytest.raises(ValueError, match="in this order"):
        loaded.score_samples(data[data.columns[::-1]])


LEVELS = {
    "Interval": pd.cut(np.arange(60.0), 3),
    "bytes": pd.Series([b"u", b"v"] * 30, dtype=object),
    "date": pd.Series([date(2020, 1, 1), date(2021, 1, 1)] * 30, dtype=object),
    "Timestamp": pd.Categorical([pd.Timestamp("2020"), pd.Timestamp("2021")] * 30),
}


@pytest.mark.parametrize("kind", LEVELS)
def test_levels_that_cannot_be_saved_are_named(kind: str, tmp_path: Path) -> None:
    data = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60), "level": LEVELS[kind]})
    model = OISM().fit(data)
    message = f"column 'level' has the level .*, a {kind}, .*: convert the column to text before"
    with pytest.raises(TypeError, match=message):
        model.save(tmp_path / "model.safetensors")
    text = OISM().fit(data.assign(level=data["level"].astype(str)))
    text.save(tmp_path / "model.safetensors")


def test_names_that_cannot_be_saved_are_named(tmp_path: Path) -> None:
    data = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=NAMES["times"])
    with pytest.raises(TypeError, match=r"the name of column Timestamp\('2020.* name that is text"):
        OISM(**QUICK).fit(data).save(tmp_path / "model.safetensors")


def test_tensors_of_bfloat16_are_read() -> None:
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0)).bfloat16()
    model = OISM(**QUICK).fit(x)
    np.testing.assert_array_equal(model.score_samples(x), model.score_samples(x.float()))


def test_sparse_columns_of_pandas_are_read() -> None:
    r = np.random.default_rng(0)
    dense = pd.DataFrame({"a": r.normal(size=60), "b": r.normal(size=60)})
    model = OISM(**QUICK).fit(dense)
    for sparse in (
        dense.astype("Sparse[float64]"),
        dense.astype({"b": pd.SparseDtype("float64", 0)}),
    ):
        found = OISM(**QUICK).fit(sparse)
        np.testing.assert_array_equal(found.score_samples(sparse), model.score_samples(dense))
        assert list(found.sample(2).dtypes) == [np.float64, np.float64]


def test_values_that_are_no_levels_are_named() -> None:
    x = np.random.default_rng(0).normal(size=60)
    model = OISM().fit(pd.DataFrame({"d": ["a", "b"] * 30, "x": x}))
    new = pd.DataFrame({"d": [["a"], "b"], "x": [0.0, 1.0]})
    with pytest.raises(ValueError, match=r"column 'd' has the level \['a'\] in row 0"):
        model.score_samples(new)
    with pytest.raises(ValueError, match=r"given\['d'\] must be a level .*'b', got array\(\['a'"):
        model.sample(2, given={"d": np.array(["a", "b"])})
    with pytest.raises(TypeError, match=r"columns must be a list of names or indices .*, got None"):
        model.marginal(None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cv": [1, 2]}, r"cv must be a number of folds, .* or pairs \(train, test\), got \[1, 2"),
        ({"cv": GroupKFold(3)}, r"GroupKFold.*: give cv=list\(splitter\.split\(X, groups=groups"),
        ({"cv": StratifiedGroupKFold(3)}, r"cv must be splits where rows come in groups"),
        ({"process": "ou", "order": 200}, "order must be at most 86 for process='ou', got 200"),
    ],
)
def test_wrong_parameters_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OISM(**settings).fit(np.random.default_rng(0).normal(size=(60, 1)))


def test_groups_are_given_as_splits() -> None:
    x = np.random.default_rng(0).normal(size=(60, 1))
    splits = list(GroupKFold(3).split(x, groups=np.arange(60) // 4))
    settings: dict[str, Any] = {"process": "torus", "max_eigenvalue": 4, "flow_steps": 4}
    assert np.isfinite(OISM(**settings, cv=splits).fit(x).score(x))
    assert np.isfinite(OISM(**settings, cv=KFold(3)).fit(x).score(x))
