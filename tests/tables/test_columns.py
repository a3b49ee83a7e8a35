from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oism import OISM, storage
from oism.tables import Column, Columns
from oism.tables._box import MARGIN, margin
from oism.tables._column import turn_start
from oism.tables._hints import warn_of_turns

NAMES = ["angle", "share", "size"]


def rows() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(50, 3, generator=generator, dtype=torch.float64)


def columns(
    periodic: Mapping[Any, Any] | None = None,
    bounds: Mapping[Any, Any] | None = None,
    box: Any = None,
    names: list[str] | None = NAMES,
) -> Columns:
    return Columns.of(3, names, periodic, bounds, box)


def test_names_and_indices_mean_the_same() -> None:
    named = columns({"angle": 360.0}, {"share": (0.0, 1.0)})
    assert named == columns({0: 360.0}, {1: (0.0, 1.0)}, names=None)
    assert named == columns({-3: 360}, {-2: [0, 1]})
    assert not named.are_free
    assert columns().are_free


def test_the_chart_follows_the_declarations() -> None:
    x = rows()
    chart = columns({"angle": 24.0}, {"share": (-1.0, 3.0)}).chart(x, 50)
    assert chart.periodic.tolist() == [True, False, False]
    assert chart.bounded.tolist() == [False, True, False]
    u = chart.to_process(x)
    torch.testing.assert_close(u[:, 0], 2 * math.pi * x[:, 0] / 24)
    torch.testing.assert_close(u[:, 1], math.pi * (x[:, 1] + 1) / 4)
    low, high = x[:, 2].aminmax()
    width = float(high - low) * (1 + margin(50))
    torch.testing.assert_close(u[:, 2], 2 * math.pi * (x[:, 2] - 0.5 * (low + high)) / width)


def test_the_margin_shrinks_with_the_number_of_rows() -> None:
    x = rows()
    widths = [float(2 * math.pi / columns().chart(x, n).scale[0]) for n in (4, 100, 10**8)]
    span = float(x[:, 0].amax() - x[:, 0].amin())
    assert widths == pytest.approx([1.6 * span, 1.2 * span, (1 + MARGIN + 1e-4) * span])
    assert bool(columns().chart(x, 10**12).covers(x).all())


def test_where_the_range_of_a_periodic_column_starts() -> None:
    x = rows() * 300
    periods = dict.fromkeys(range(3), 360.0)
    x[:, 1] -= 150
    x[:, 2] += 400
    low, high = (float(end) for end in x[:, 2].aminmax())
    start = columns(periods).chart(x, 50).start.tolist()
    assert start == pytest.approx([0.0, -180.0, 0.5 * (low + high) - 180])


@pytest.mark.parametrize(
    ("low", "high", "start"),
    [
        (0.3, 359.0, 0.0),
        (0.0, 360.0, 0.0),
        (-180.0, 180.0, -180.0),
        (-20.0, 100.0, -180.0),
        (-20.0, 300.0, -40.0),
        (400.0, 600.0, 320.0),
        (-20.0, 700.0, -180.0),
        (10.0, 700.0, 0.0),
    ],
)
def test_a_turn_contains_the_values_if_one_can(low: float, high: float, start: float) -> None:
    assert turn_start(low, high, 360.0) == start


@pytest.mark.parametrize("count", [1, 2, 4])
def test_samples_of_a_periodic_column_are_in_the_range_of_the_data(count: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, count))
    x[:, 0] = rng.uniform(18, 35, 200)
    hours = OISM(periodic={0: 24}).fit(x).sample(500, random_state=0)[:, 0]
    middle = 0.5 * (x[:, 0].min() + x[:, 0].max())
    assert np.abs(hours - middle).max() <= 12 + 1e-9
    assert np.mean((hours > 18) & (hours < 35)) > 0.9


def test_a_box_sets_where_every_column_starts() -> None:
    x = 100 + rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the data are where the box is
        warn_of_turns(columns(box=(99.5, 101.5)), x)
    chart = columns(box=(99.5, 101.5)).chart(x, 50)
    assert bool(chart.periodic.all())
    torch.testing.assert_close(chart.to_data(chart.to_process(x)), x)
    assert chart.start.tolist() == [99.5] * 3
    with pytest.warns(UserWarning, match="is periodic with period 2") as found:
        warn_of_turns(columns(box=(0, 2)), x)
    assert len(found) == 3


@pytest.mark.parametrize("value", [0.0, 3.0, -3e-20, 1e12])
def test_a_constant_column_has_a_scale(value: float) -> None:
    x = rows()
    x[:, 2] = value
    chart = columns().chart(x, 50)
    assert bool(chart.covers(x).all())
    half = 1e-6 * (abs(value) or 1) * (1 + margin(50))
    assert float(chart.scale[2]) == pytest.approx(math.pi / half)
    torch.testing.assert_close(chart.to_process(x)[:, 2], torch.zeros(50, dtype=torch.float64))


@pytest.mark.parametrize("end", [-721.0, 721.0])
def test_columns_far_outside_their_period_give_one_warning(end: float) -> None:
    x = rows()
    x[0, 0], x[1, 0] = end, 0.9 * end
    with pytest.warns(UserWarning, match="column 'angle' is periodic with period 360") as found:
        warn_of_turns(columns({"angle": 360.0, "share": 1.0}), x)
    assert len(found) == 1
    assert "check the unit of the period" in str(found[0].message)
    x[:2, 0] = math.copysign(719.0, end)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_turns(columns({"angle": 360.0}), x)


def test_data_beyond_their_bounds_are_named() -> None:
    x = rows()
    x[7, 1] = 1.5
    message = r"bounds of column 'share' are \(0, 1\), but the data reach from .* to 1\.5"
    with pytest.raises(ValueError, match=message):
        columns(bounds={"share": (0, 1)}).chart(x, 50)
    x[7, 1] = -0.5
    with pytest.raises(ValueError, match=r"reach from -0\.5 to"):
        columns(bounds={"share": (0, 1)}).chart(x, 50)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"periodic": {"angel": 1.0}}, ValueError, r"periodic names column 'angel'; the columns"),
        ({"bounds": {"a": (0, 1)}, "names": None}, ValueError, "the data have no column names"),
        ({"periodic": {3: 1.0}}, ValueError, "periodic has column 3, but the data have 3 columns"),
        ({"periodic": {-4: 1.0}}, ValueError, "a column of periodic must be an integer >= -3"),
        ({"periodic": {0.0: 1.0}}, TypeError, "a column of periodic must be an integer"),
        ({"periodic": {True: 1.0}}, TypeError, "a column of periodic must be an integer"),
        ({"periodic": {0: 0.0}}, ValueError, r"periodic\[0\] must be a positive finite number"),
        ({"periodic": {0: "1"}}, TypeError, r"periodic\[0\] must be a positive finite number"),
        ({"periodic": {0: math.inf}}, ValueError, r"periodic\[0\] must be a positive finite"),
        ({"periodic": {0: 1.0, "angle": 2.0}}, ValueError, "periodic must name every column once"),
        ({"bounds": {1: (0, 1), -2: (0, 2)}}, ValueError, "bounds must name every column once"),
        ({"bounds": {0: (1, 1)}}, ValueError, r"bounds\[0\] must have low < high, got \(1, 1\)"),
        ({"bounds": {0: 1.0}}, TypeError, r"bounds\[0\] must be a pair \(low, high\)"),
        ({"bounds": {0: "ab"}}, TypeError, r"bounds\[0\] must be a pair"),
        ({"bounds": {0: (0, "1")}}, TypeError, r"bounds\[0\]\[1\] must be a finite number or None"),
        ({"bounds": {0: (math.inf, 1)}}, ValueError, r"bounds\[0\]\[0\] must be a finite number"),
        ({"bounds": {0: (0, math.nan)}}, ValueError, r"bounds\[0\]\[1\] must be a finite number"),
        (
            {"bounds": {"size": (None, None)}},
            ValueError,
            r"bounds\['size'\] must have a finite end, .*: leave a column without bounds out",
        ),
        ({"bounds": {"size": (-math.inf, math.inf)}}, ValueError, "must have a finite end"),
        ({"box": (1, 2, 3)}, TypeError, r"box must be a pair \(low, high\)"),
        ({"box": (2, 1)}, ValueError, "box must have low < high"),
        ({"box": (0, 1), "periodic": {0: 1.0}}, ValueError, "box must be None where periodic"),
        ({"box": (0, 1), "bounds": {0: (0, 1)}}, ValueError, "box must be None where periodic"),
        (
            {"periodic": {"share": 1.0}, "bounds": {1: (0, 1)}},
            ValueError,
            "either periodic or bounded, but 'share' are both: leave each out of periodic or out",
        ),
    ],
)
def test_wrong_declarations_are_errors(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        columns(**settings)


def test_a_small_spread_far_from_zero_has_a_narrow_box() -> None:
    x = 1e12 + torch.randn(300, 1, generator=torch.Generator().manual_seed(0)).double()
    assert float(math.pi / Columns.of(1, None, None, None, None).chart(x, 300.0).scale) < 10


@pytest.mark.parametrize(
    ("pair", "low", "high"),
    [((0, None), 0.0, None), ((None, 2.0), None, 2.0), ((-math.inf, 2), None, 2.0)],
)
def test_the_box_of_a_column_with_one_bound(
    pair: tuple[Any, Any], low: float | None, high: float | None
) -> None:
    x = rows()
    x[0, 1] = 0.0
    chart = columns(bounds={"share": pair}).chart(x, 50)
    first = float(chart.low[1])
    last = first + float(chart.width[1])
    extra = 1 + 0.5 * margin(50)
    if low is not None:
        assert first == low
        assert last == pytest.approx(extra * float(x[:, 1].amax()))
    else:
        assert last == pytest.approx(high)
        assert first == pytest.approx(2.0 - extra * 2.0)  # the least value is 0
    assert chart.open.tolist() == [True] * 3
    torch.testing.assert_close(chart.to_data(chart.to_process(x)), x)
    assert bool(chart.covers(x).all())


def test_an_outlier_does_not_stretch_a_half_bounded_column() -> None:
    x = rows().repeat(10, 1)
    x[0, 1] = 1e6
    chart = columns(bounds={"share": (0, None)}).chart(x, 500)
    assert float(chart.width[1]) < 3
    assert not bool(chart.uses(x[:1]))
    assert bool(chart.allows(x[:1])), "left to the background"


def discrete(levels: list[float], **known: Any) -> Columns:
    return Columns((Column("free"), Column("k", levels=tuple(levels), **known)))


def test_cells_of_levels() -> None:
    found = discrete([0.0, 1.0, 4.0])
    assert found.kinds == ("free", "discrete")
    assert found[1].edges.tolist() == [-0.5, 0.5, 2.5, 5.5]
    x = torch.tensor([[9.0, 0.0], [9.0, 1.2], [9.0, 5.4], [9.0, 7.0], [9.0, -0.6]]).double()
    low, width = found.cells(x)
    torch.testing.assert_close(low[:, 0], torch.tensor([-0.5, 0.5, 2.5, 7.0, -0.6]).double())
    assert width[:, 0].tolist() == [1.0, 2.0, 3.0, 0.0, 0.0]
    assert found.quantised(x)[:, 1].tolist() == [0.0, 1.0, 4.0, 4.0, 0.0]
    assert found.quantised(x, outside=False)[:3, 1].tolist() == [0.0, 1.0, 4.0]
    torch.testing.assert_close(found.quantised(x, outside=False)[3:], x[3:])


def test_cells_of_a_periodic_column() -> None:
    found = discrete([0.0, 90.0, 180.0, 270.0], period=360.0)
    assert found[1].edges.tolist() == [-45.0, 45.0, 135.0, 225.0, 315.0]
    x = torch.tensor([[0.0, 350.0], [0.0, -100.0], [0.0, 450.0]]).double()
    assert found.quantised(x)[:, 1].tolist() == [0.0, 270.0, 90.0]
    assert found.continuous[1].kind == "periodic"


def test_bounds_move_to_the_edge_of_the_outer_cell() -> None:
    inner = discrete([0.0, 1.0, 2.0], low=0.0, high=3.0).continuous[1]
    assert (inner.kind, inner.low, inner.high) == ("bounded", -0.5, 3.0)
    assert discrete([0.0, 1.0]).continuous[1].kind == "free"


@settings(max_examples=50, deadline=None)
@given(
    levels=st.lists(st.integers(-50, 50), min_size=1, max_size=9, unique=True).map(sorted),
    seed=st.integers(0, 99),
)
def test_spread_values_come_back_as_their_levels(levels: list[int], seed: int) -> None:
    found = discrete([float(level) for level in levels])
    generator = torch.Generator().manual_seed(seed)
    x = torch.zeros(200, 2).double()
    x[:, 1] = torch.tensor(levels).double()[torch.randint(len(levels), (200,), generator=generator)]
    spread = found.dequantised(x, generator)
    assert torch.equal(found.quantised(spread), x)
    low, width = found.cells(x)
    share = ((spread[:, 1:] - low) / width)[:, 0]
    assert 0 <= float(share.amin()) < 0.1
    assert 0.9 < float(share.amax()) <= 1


def test_spreading_does_not_depend_on_the_order_of_rows_and_keeps_gaps() -> None:
    found, seed = discrete([0.0, 1.0, 2.0]), torch.Generator
    x = torch.randint(3, (100, 2), generator=seed().manual_seed(0)).double()
    x[:, 0] = torch.arange(100) % 7
    x[5, 1] = math.nan
    order = torch.randperm(100, generator=seed().manual_seed(1))
    one = found.dequantised(x, seed().manual_seed(2))
    two = found.dequantised(x[order], seed().manual_seed(2))
    sort = [sorted(part[~part.isnan().any(dim=1)].tolist()) for part in (one, two)]
    assert sort[0] == sort[1]
    assert bool(one[5, 1].isnan())
    assert not bool(one[6:].isnan().any())
    assert torch.equal(one[:, 0], x[:, 0])


def test_storage_of_columns(tmp_path: Path) -> None:
    found = Columns(
        (
            Column("a", low=0.0),
            Column("b", levels=("x", True, 3, 2.5), categorical=True, dtype="str"),
            Column("c", period=24.0, levels=(0.0, 1.0), dtype="int64"),
        ),
        "pandas",
    )
    storage.save(found, tmp_path / "columns.safetensors")
    again = storage.load(tmp_path / "columns.safetensors", expected=Columns)
    assert again == found
    assert again.names == ("a", "b", "c")
    assert (again.categorical, again.discrete) == ((1,), (2,))
    assert again.levels(1) == ("x", True, 3, 2.5)


@pytest.mark.parametrize("n", [10, 41, 199, 200, 2000])
def test_one_outlier_does_not_stretch_the_box(n: int) -> None:
    """Below 200 rows, the central 99% are all of them, and the box was that of the outlier."""
    x = torch.randn(n, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = Columns.of(1, None, None, None, None)
    before = plain.chart(x, n)
    assert bool(before.covers(x).all()), "all rows of a normal distribution are in the box"
    for far in (1e6, -1e6):
        outlying = x.clone()
        outlying[0] = far
        chart = plain.chart(outlying, n)
        assert float(chart.width) < 4 * float(before.width)
        assert (~chart.covers(outlying)).nonzero().tolist() == [[0]]
