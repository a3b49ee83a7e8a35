from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from oism.tables import Columns
from oism.tables._columns import MARGIN, margin

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
    x[0, 1] = -20.0
    assert columns(periods).chart(x, 50).start.tolist() == [0.0, -180.0, 0.0]


def test_a_box_sets_where_every_column_starts() -> None:
    x = 100 + rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the data are where the box is
        chart = columns(box=(99.5, 101.5)).chart(x, 50)
    assert bool(chart.periodic.all())
    torch.testing.assert_close(chart.to_data(chart.to_process(x)), x)
    assert chart.start.tolist() == [99.5] * 3
    with pytest.warns(UserWarning, match="is periodic with period 2") as found:
        columns(box=(0, 2)).chart(x, 50)
    assert len(found) == 3


@pytest.mark.parametrize("value", [0.0, 3.0, -3e-20, 1e12])
def test_a_constant_column_has_a_scale(value: float) -> None:
    x = rows()
    x[:, 2] = value
    chart = columns().chart(x, 50)
    assert bool(chart.covers(x).all())
    assert float(chart.scale[2]) == pytest.approx(math.pi / (abs(value) or 1) / (1 + margin(50)))
    torch.testing.assert_close(chart.to_process(x)[:, 2], torch.zeros(50, dtype=torch.float64))


@pytest.mark.parametrize("end", [-721.0, 721.0])
def test_columns_far_outside_their_period_give_one_warning(end: float) -> None:
    x = rows()
    x[0, 0], x[1, 0] = end, 0.9 * end
    with pytest.warns(UserWarning, match="column 'angle' is periodic with period 360") as found:
        columns({"angle": 360.0, "share": 1.0}).chart(x, 50)
    assert len(found) == 1
    assert "check the unit of the period" in str(found[0].message)
    x[:2, 0] = math.copysign(719.0, end)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        columns({"angle": 360.0}).chart(x, 50)


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
        ({"bounds": {0: (0, math.inf)}}, ValueError, r"bounds\[0\]\[1\] must be a finite number"),
        ({"bounds": {0: (None, 1)}}, TypeError, r"bounds\[0\]\[0\] must be a finite number"),
        ({"box": (1, 2, 3)}, TypeError, r"box must be a pair \(low, high\)"),
        ({"box": (2, 1)}, ValueError, "box must have low < high"),
        ({"box": (0, 1), "periodic": {0: 1.0}}, ValueError, "box must be None where periodic"),
        ({"box": (0, 1), "bounds": {0: (0, 1)}}, ValueError, "box must be None where periodic"),
        (
            {"periodic": {"share": 1.0}, "bounds": {1: (0, 1)}},
            ValueError,
            r"either periodic or bounded, but \[1\] are both",
        ),
    ],
)
def test_wrong_declarations_are_errors(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        columns(**settings)


def test_constant_columns_give_a_warning() -> None:
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0)).double()
    x[:, 1] = 3.0
    with pytest.warns(UserWarning, match="column 'k' constant in all rows"):
        Columns.of(2, ["x", "k"], None, None, None).warn_of_constants(x)
    with pytest.warns(UserWarning, match="columns 0, 1 constant in all rows"):
        Columns.of(2, None, None, None, None).warn_of_constants(x[:1])


def test_a_small_spread_far_from_zero_is_no_constant() -> None:
    x = 1e12 + torch.randn(300, 1, generator=torch.Generator().manual_seed(0)).double()
    columns = Columns.of(1, None, None, None, None)
    columns.warn_of_constants(x)  # no warning: warnings are errors here
    assert float(math.pi / columns.chart(x, 300.0).scale) < 10
