"""Fits in two passes over batches: the pilot, the same model for any order and any processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from oism import OISM
from oism.tables import Batch
from oism.tables._frame import common_dtype, types_of
from oism.tables._streaming import like
from oism.tables._survey import Edges, Survey

SMALL: dict[str, Any] = {"max_eigenvalue": 25, "flow_steps": 16}
RANKS = 2


def table(n: int = 4000, seed: int = 0) -> NDArray[np.float64]:
    """One normal and one skewed column."""
    rng = np.random.default_rng(seed)
    return np.stack((rng.normal(size=n), rng.gamma(2.0, size=n)), axis=1)


def batches(x: Any, size: int, rank: int = 0, count: int = 1) -> Iterator[Batch]:
    starts = range(0, len(x), size)
    for index, start in enumerate(starts):
        if index % count == rank:
            part = x[start : start + size]
            yield Batch(part, None, np.arange(start, start + len(part)))


def big() -> NDArray[np.float64]:
    return table(200_000, seed=1)


def ridge() -> NDArray[np.float64]:
    """Two columns that nearly determine each other: a mixture is better than the torus."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 1))
    found: NDArray[np.float64] = np.hstack((x, x + 0.3 * x**2)) + 0.004 * rng.normal(size=(400, 2))
    return found


def work(rank: int) -> dict[str, torch.Tensor]:
    """One of several processes, for `on_ranks`."""
    model = OISM(**SMALL).fit_batches(lambda: batches(big(), 10_000, rank, RANKS))
    rows = OISM(process="joint").fit_batches(lambda: batches(big()[:40_000], 1000, rank, RANKS))
    either = OISM().fit_batches(lambda: batches(ridge(), 50, rank, RANKS))
    once = batches(ridge(), 50, rank, RANKS)
    again = (lambda: once) if rank else (lambda: batches(ridge(), 50, rank, RANKS))
    differs = False
    try:  # pass 2 of one process is empty, and all processes learn of it
        OISM(**SMALL).fit_batches(again)
    except ValueError as error:
        differs = "pass 1 had 400 rows and pass 2 has 200" in str(error)
    return {
        "differs": torch.tensor(differs),
        "either": torch.from_numpy(either.score_samples(ridge())),
        "densities": torch.from_numpy(model.score_samples(big()[:1000])),
        "kept": rows.collector_.rows.positions(),
        "count": torch.tensor(rows.collector_.count),
    }


def test_a_table_as_small_as_its_pilot_gives_the_same_model() -> None:
    """The rows of the pilot are the table, so that all choices are the same."""
    x = table()
    whole = OISM(ridge=1e-3, **SMALL).fit(x)
    parts = OISM(ridge=1e-3, **SMALL).fit_batches(lambda: batches(x, 300))
    np.testing.assert_allclose(parts.score_samples(x), whole.score_samples(x), atol=1e-4)
    assert parts.facts()["columns"] == whole.facts()["columns"]


def test_neither_order_nor_size_of_batches_changes_the_box() -> None:
    x = big()
    one = OISM(**SMALL).fit_batches(lambda: batches(x, 10_000))
    reverse = OISM(**SMALL).fit_batches(lambda: reversed(list(batches(x, 10_000))))
    chart, other = one.model_.chart, reverse.model_.chart
    assert torch.equal(chart.low, other.low)
    np.testing.assert_array_equal(one.score_samples(x[:1000]), reverse.score_samples(x[:1000]))
    coarse = OISM(**SMALL).fit_batches(lambda: batches(x, 70_000)).model_.chart
    assert torch.equal(chart.low, coarse.low)


def test_the_box_covers_the_last_batch() -> None:
    """Sorted rows: `partial_fit` would have the box of the first batch."""
    x = np.sort(np.random.default_rng(0).normal(size=(150_000, 1)), axis=0)
    model = OISM(**SMALL).fit_batches(lambda: batches(x, 10_000)).model_
    low, width = float(model.chart.low[0]), float(model.chart.width[0])
    assert low < x.min()
    assert low + width > x.max()


@pytest.mark.slow
def test_several_processes_have_the_same_model(on_ranks: Callable[..., list[Any]]) -> None:
    first, second = on_ranks(__file__, RANKS)
    one = OISM(**SMALL).fit_batches(lambda: batches(big(), 10_000))
    densities = one.score_samples(big()[:1000])
    either = OISM().fit_batches(lambda: batches(ridge(), 50))
    assert either.facts()["choice"]["taken"] == "mixture"
    for found in (first, second):
        np.testing.assert_allclose(found["either"], either.score_samples(ridge()), atol=1e-9)
        np.testing.assert_allclose(found["densities"], densities, rtol=0, atol=1e-12)
        assert found["differs"]
        rows = OISM(process="joint").fit_batches(lambda: batches(big()[:40_000], 1000))
        assert torch.equal(found["kept"], rows.collector_.rows.positions())
        assert float(found["count"]) == 40_000


def test_weights_count_as_repeated_rows() -> None:
    x = table(3000)
    w = np.random.default_rng(1).integers(0, 3, len(x)).astype(float)
    parts = [(x[i : i + 500], w[i : i + 500]) for i in range(0, len(x), 500)]
    weighted = OISM(ridge=1e-3, **SMALL).fit_batches(lambda: parts)
    repeated = OISM(ridge=1e-3, **SMALL).fit(np.repeat(x, w.astype(int), axis=0))
    a, b = weighted.score_samples(x[:200]), repeated.score_samples(x[:200])
    assert np.abs(a - b).max() < 0.02  # the box depends on the number of rows
    ignored = OISM(ridge=1e-3, **SMALL).fit(x).score_samples(x[:200])
    assert np.abs(ignored - b).max() > 0.05


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 2**31))
def test_the_pilot_represents_the_rows(n: int, size: int, seed: int) -> None:
    """It has the range of each column, and its weights sum to the number of rows."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(n, 2)).round(1))
    weights = torch.from_numpy(rng.uniform(0.1, 3.0, n))
    survey = Survey(2, size)
    for part in torch.tensor_split(torch.arange(n), list(range(17, n, 17))):
        survey.update(x[part], weights[part], part)
    rows, found = survey.pilot()
    assert torch.equal(rows.amin(dim=0), x.amin(dim=0))
    assert torch.equal(rows.amax(dim=0), x.amax(dim=0))
    if n > size:
        effective = max(weights.sum(), weights.sum() ** 2 / weights.square().sum())
        torch.testing.assert_close(found.sum(), effective)
        assert len(rows) <= size + 4
    else:
        assert torch.equal(rows, x)
        assert torch.equal(found, weights)


@given(st.integers(0, 2**31))
def test_edges_are_those_of_the_first_row_for_any_parts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.integers(0, 4, (30, 2)).astype(float))
    x[rng.random((30, 2)) < 0.2] = torch.nan
    places, ones = torch.arange(30), torch.ones(30).double()
    whole = Edges(2).update(x, ones, places)
    cut = int(rng.integers(0, 31))
    first = Edges(2).update(x[:cut], ones[:cut], places[:cut])
    last = Edges(2).update(x[cut:], ones[cut:], places[cut:])
    for merged in (first.merge(last), last.merge(first)):
        assert torch.equal(merged.positions, whole.positions)
    for j in range(2):
        known = ~x[:, j].isnan()
        if bool(known.any()):
            least = x[known, j].min()
            assert int(whole.positions[j]) == int((x[:, j] == least).nonzero()[0])


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_pilot_is_a_frame_like_the_batches(kind: str) -> None:
    columns = {"n": np.array([1, 2]), "x": np.array([0.5, 1.5])}
    frame: Any = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[kind](
        columns
    )
    made = like(frame[:0], np.array([[3.0, 4.5]]), types_of(frame))
    assert type(made) is type(frame)
    found = made if kind == "pandas" else made.to_pandas()
    assert found.to_dict("list") == {"n": [3], "x": [4.5]}
    assert [dtype.kind for dtype in found.dtypes] == ["i", "f"]


def test_frames_keep_their_names() -> None:
    frame = pd.DataFrame(table(600), columns=["a", "b"])
    model = OISM(**SMALL).fit_batches(lambda: (frame[i : i + 100] for i in range(0, 600, 100)))
    assert list(model.feature_names_in_) == ["a", "b"]
    assert list(model.sample(3, random_state=0).columns) == ["a", "b"]


def test_mistakes_are_named() -> None:
    x = table(100)
    with pytest.raises(TypeError, match="batches must be a function that returns the batches"):
        OISM().fit_batches(iter([x]))
    with pytest.raises(ValueError, match="at least one row"):
        OISM().fit_batches(list)
    with pytest.raises(ValueError, match="features"):
        OISM().fit_batches(lambda: [x, x[:, :1]])
    with pytest.raises(ValueError, match="cv must be an integer"):
        OISM(cv=[([0], [1])]).fit_batches(lambda: [x])
    with pytest.raises(ValueError, match="positive sum"):
        OISM().fit_batches(lambda: [(x, np.zeros(100))])
    with pytest.raises(ValueError, match="infinity"):
        OISM().fit_batches(lambda: [x, np.full((5, 2), np.inf)])
    with pytest.raises(ValueError, match=r"bounds of column 1 are \(0, 1\)"):
        OISM(bounds={1: (0, 1)}).fit_batches(lambda: [x[:50], x[50:]])


def counts(n: int = 3000) -> NDArray[np.float64]:
    """One column of four levels."""
    rng = np.random.default_rng(0)
    return rng.choice([0.0, 1.0, 2.0, 3.0], p=[0.55, 0.3, 0.1, 0.05], size=(n, 1))


def within_a_cell(model: OISM) -> NDArray[np.float64]:
    """Return densities of spread values inside of the cell of the level 0."""
    places = torch.linspace(-0.45, 0.45, 7).double()[:, None]
    found: NDArray[np.float64] = model.model_.inner.log_density(places).exp().numpy()
    return found


def test_batches_do_not_change_where_discrete_values_lie_in_their_cells() -> None:
    x = counts()
    one, two, reverse = (
        OISM(process="torus", discrete=[0], ridge=1e-3, **SMALL).fit_batches(source)
        for source in (
            lambda: batches(x, 1000), lambda: batches(x, 7), lambda: reversed(list(batches(x, 7))),
        )
    )  # fmt: skip
    np.testing.assert_allclose(within_a_cell(two), within_a_cell(one), rtol=1e-9)
    np.testing.assert_allclose(within_a_cell(reverse), within_a_cell(one), rtol=1e-9)


def test_single_rows_lie_anywhere_in_their_cells() -> None:
    """All had the same place, because each batch of one row drew the same number."""
    x = counts(1500)
    model = OISM(process="torus", discrete=[0], ridge=1e-3, max_eigenvalue=100, flow_steps=16)
    model.partial_fit(x[:500])
    for k in range(500, len(x)):
        model.partial_fit(x[k : k + 1])
    found = within_a_cell(model)
    assert found.max() < 1.4 * found.min()
    frequencies = np.bincount(x[:, 0].astype(int)) / len(x)
    np.testing.assert_allclose(np.exp(model.score_samples(np.arange(4.0)[:, None])), frequencies,
                               atol=0.02)  # fmt: skip


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("order", [1, -1])
def test_one_batch_of_integers_does_not_make_a_column_of_integers(
    make: Callable[[Any], Any], order: int
) -> None:
    rng = np.random.default_rng(0)
    parts = [make({"x": rng.integers(-3, 4, 300), "n": rng.integers(0, 50, 300)}),
             make({"x": rng.normal(size=300), "n": rng.integers(0, 50, 300)})]  # fmt: skip
    model = OISM(process="torus", discrete=(), **SMALL).fit_batches(lambda: parts[::order])
    assert not model.columns_[0].is_integer
    assert model.columns_[1].is_integer
    drawn = np.asarray(model.sample(20, random_state=0))[:, 0]
    assert (drawn != np.rint(drawn)).all()


def test_a_gap_in_a_later_batch_is_no_integer() -> None:
    rng = np.random.default_rng(0)
    first = pd.DataFrame({"x": rng.integers(-3, 4, 200), "y": rng.normal(size=200)})
    later = first.astype("float64")
    later.iloc[3, 0] = np.nan
    model = OISM(process="mixture", discrete=()).fit_batches(lambda: [first, later])
    assert np.isfinite(model.score_samples(later)).all()


def test_a_failed_fit_changes_nothing() -> None:
    """After an error in the second pass the model was that of the rows read so far."""
    x = table(200)
    calls: list[int] = []

    def source() -> Iterator[NDArray[np.float64]]:
        calls.append(len(calls))
        yield x[:20]
        if len(calls) == 2:
            raise OSError("disk")
        yield x[20:]

    model = OISM(process="torus", **SMALL)
    with pytest.raises(OSError, match="disk"):
        model.fit_batches(source)
    with pytest.raises(NotFittedError):
        model.score_samples(x)
    before = model.fit(x).score_samples(x)
    calls.clear()
    with pytest.raises(OSError, match="disk"):
        model.fit_batches(source)
    np.testing.assert_array_equal(model.score_samples(x), before)
    with pytest.raises(ValueError, match="network stands beside models"):
        model.set_params(process="ou", network=1.0).fit(x[:, :1])
    np.testing.assert_array_equal(model.score_samples(x), before)
    new = OISM(process="ou", network=1.0)
    with pytest.raises(ValueError, match="network stands beside models"):
        new.fit(x)
    with pytest.raises(NotFittedError):
        new.score_samples(x)


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (["int64", "int32"], "int64"),
        (["int16", "uint8", "int32"], "int32"),
        (["int64", "Int64"], "Int64"),
        (["Int32", "int64"], None),
        (["uint8", "uint16"], "uint16"),
        (["uint32", "int32"], None),
        (["uint64", "int64"], None),
        (["int64", "float32"], None),
        (["float32"], "float32"),
    ],
)
def test_integers_of_several_sizes_are_integers(dtypes: list[str], expected: str | None) -> None:
    found = common_dtype({name: pd.api.types.pandas_dtype(name) for name in dtypes})
    assert found == (None if expected is None else pd.api.types.pandas_dtype(expected))
    assert found == common_dtype(
        {name: pd.api.types.pandas_dtype(name) for name in reversed(dtypes)}
    )


def test_integers_with_gaps_stay_integers() -> None:
    """Where pandas reads a file in chunks, only some of them may have gaps."""
    rng = np.random.default_rng(0)
    parts = [pd.DataFrame({"n": rng.integers(0, 50, 200)}) for _ in range(2)]
    parts[1] = parts[1].astype("Int64")
    model = OISM(process="torus", discrete=(), **SMALL).fit_batches(lambda: parts)
    assert model.columns_[0].dtype == "Int64"
    assert str(model.sample(3, random_state=0)["n"].dtype) == "Int64"


def passes(*several: list[Any]) -> Callable[[], list[Any]]:
    """Return a function that returns these batches, one list in each call."""
    left = iter(several)
    return lambda: next(left)


@pytest.mark.parametrize("process", ["torus", "joint", "auto"])
def test_pass_two_has_to_read_the_rows_of_pass_one(process: str) -> None:
    """An exhausted iterator was accepted, and the model failed when it was used."""
    x, settings = table(400), {**SMALL, "process": process}
    once = iter([x])
    message = "batches must return the same rows in both passes, but "
    remedy = "return a new iterator in each call"
    with pytest.raises(ValueError, match=f"{message}pass 1 had 400 rows .* 0: {remedy}"):
        OISM(**settings).fit_batches(lambda: once)
    with pytest.raises(ValueError, match=f"{message}pass 1 had 400 rows .* 200: {remedy}"):
        OISM(**settings).fit_batches(passes([x], [x[:200]]))
    with pytest.raises(ValueError, match=f"{message}column 1 had the sum"):
        OISM(**settings).fit_batches(passes([x], [x * [1.0, 10.0]]))
    frame = pd.DataFrame(x, columns=["a", "b"])
    with pytest.raises(ValueError, match=f"{message}column 'a' had the sum"):
        OISM(**settings).fit_batches(passes([frame], [frame.assign(a=frame["a"] + 1e-3)]))
    with pytest.raises(ValueError, match=f"{message}weights had the sum 400 in pass 1"):
        OISM(**settings).fit_batches(passes([x], [(x, np.full(400, 2.0))]))


def test_passes_may_have_other_batches() -> None:
    """Rounding errors of the sums depend on them."""
    x = table(3000) * 1e6 + 1e9
    x[::7, 0] = np.nan
    model = OISM(process="mixture", discrete=())
    model.fit_batches(passes(list(batches(x, 1000)), list(batches(x, 7))[::-1]))
    assert np.isfinite(model.score_samples(x[:10])).all()


def test_mistakes_in_batches_are_named() -> None:
    x = table(100)
    frame = pd.DataFrame(x, columns=["a", "b"])
    digits = frame.assign(c=pd.Categorical(["1", "2"] * 50))
    with pytest.raises(ValueError, match=r"weights of a batch must be one for each of its 100 row"):
        OISM().fit_batches(lambda: [(x, np.ones(99))])
    with pytest.raises(ValueError, match=r"positions of a batch must .* got the shape \(3,\)"):
        OISM().fit_batches(lambda: [Batch(x, None, np.arange(3))])
    with pytest.raises(ValueError, match=r"column 'c' has the text 'u', .* or use fit"):
        OISM().fit_batches(lambda: [frame.assign(c=["u", "v"] * 50)])
    with pytest.raises(ValueError, match=r"column 1 has the text 'u'"):
        OISM().fit_batches(lambda: [np.array([[1.0, "u"]] * 20, dtype=object)])
    for one in (digits, pl.from_pandas(digits), pa.Table.from_pandas(digits)):
        with pytest.raises(ValueError, match=r"column 'c' has the text '1', and batches hold"):
            OISM().fit_batches(lambda one=one: [one])
    with pytest.raises(ValueError, match=r"infinity: column 'b', row 3 of a batch"):
        OISM().fit_batches(lambda: [frame, frame.assign(b=[0, 0, 0, np.inf] * 25)])
    with pytest.raises(TypeError, match=r"X must be a table, got a mapping"):
        OISM().fit_batches(lambda: [{"a": x[:, 0]}])
