from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism.tables import BoxChart, Chart, WhiteChart

DOUBLE = torch.float64


def box(
    centre: list[float],
    scale: list[float],
    *,
    start: list[float] | None = None,
    kinds: str = "",
) -> BoxChart:
    """Return a chart whose columns are p(eriodic), b(ounded) or f(ree)."""
    kinds = kinds or "f" * len(centre)
    return BoxChart(
        torch.tensor(centre, dtype=DOUBLE),
        torch.tensor(scale, dtype=DOUBLE),
        torch.tensor(start or [0.0] * len(centre), dtype=DOUBLE),
        torch.tensor([kind == "p" for kind in kinds]),
        torch.tensor([kind == "b" for kind in kinds]),
    )


def white(dim: int = 3, *, rotate: bool = True) -> WhiteChart:
    x = data(200, dim)
    return WhiteChart.of(x.mean(dim=0), torch.cov(x.mT, correction=0), rotate=rotate)


def data(n: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(dim, dim, generator=generator, dtype=DOUBLE)
    return torch.randn(n, dim, generator=generator, dtype=DOUBLE) @ mixing + 5


CHARTS: dict[str, tuple[Chart, Tensor]] = {
    "free": (box([1.0, 0.2], [0.5, 2.0]), data(20, 2) / 10),
    "mixed": (
        box([0.0, 0.0, 3.0], [math.pi / 180, math.pi, 0.3], kinds="pbf"),
        torch.rand(20, 3, generator=torch.Generator().manual_seed(1), dtype=DOUBLE),
    ),
    "white": (white(), data(20, 3)),
    "columns": (white(rotate=False), data(20, 3)),
    "scaled": (white().scaled(0.3), data(20, 3)),
}
charts = pytest.mark.parametrize(("chart", "x"), CHARTS.values(), ids=CHARTS.keys())


@charts
def test_to_data_undoes_to_process(chart: Chart, x: Tensor) -> None:
    assert bool(chart.covers(x).all())
    torch.testing.assert_close(chart.to_data(chart.to_process(x)), x, rtol=1e-12, atol=1e-12)


@charts
def test_the_jacobian_is_that_of_autograd(chart: Chart, x: Tensor) -> None:
    bounded = int(chart.reflections.sum())
    for row in x[:3]:
        matrix = torch.func.jacrev(lambda point: chart.to_process(point[None])[0])(row)
        # A bounded column lies on half of the torus, where the density is twice as large.
        expected = float(torch.linalg.slogdet(matrix)[1]) + bounded * math.log(2)
        assert chart.log_jacobian == pytest.approx(expected, abs=1e-12)


@charts
def test_scores_follow_the_chain_rule(chart: Chart, x: Tensor) -> None:
    dim = x.shape[1]
    weights = torch.arange(1.0, dim + 1, dtype=DOUBLE)

    def log_density(u: Tensor) -> Tensor:
        return (weights * u.sin()).sum()

    for row in x[:3]:
        expected = torch.func.grad(lambda point: log_density(chart.to_process(point[None])[0]))(row)
        inner = torch.func.grad(log_density)(chart.to_process(row[None])[0])
        torch.testing.assert_close(chart.pull_score(inner[None])[0], expected)


def test_periodic_columns_come_back_in_their_range() -> None:
    degrees = torch.tensor([[-180.0], [-1.0], [0.0], [90.0], [359.0], [725.0]], dtype=DOUBLE)
    for start, expected in (
        (0.0, [180.0, 359.0, 0.0, 90.0, 359.0, 5.0]),
        (-180.0, [-180.0, -1.0, 0.0, 90.0, -1.0, 5.0]),
        (90.0, [180.0, 359.0, 360.0, 90.0, 359.0, 365.0]),
    ):
        chart = box([0.0], [math.pi / 180], start=[start], kinds="p")
        found = chart.to_data(chart.to_process(degrees))[:, 0]
        torch.testing.assert_close(found, torch.tensor(expected, dtype=DOUBLE))


@given(
    u=st.floats(-math.pi, math.pi, exclude_max=True),
    period=st.sampled_from([1.0, 24.0, 360.0, 2 * math.pi, 1e-3]),
    turn=st.sampled_from([0.0, -0.5, 0.3, 1e6]),
)
def test_the_range_of_a_periodic_column_is_half_open(u: float, period: float, turn: float) -> None:
    start = turn * period
    chart = box([0.0], [2 * math.pi / period], start=[start], kinds="p")
    x = float(chart.to_data(torch.tensor([[u]], dtype=DOUBLE)))
    assert start <= x < start + 2 * math.pi / float(chart.scale)


def test_turns_do_not_count_in_periodic_columns_only() -> None:
    chart = box([0.0, 0.0], [math.pi / 180, 1.0], kinds="pf")
    x = torch.tensor([[10.0, 1.0]], dtype=DOUBLE)
    turned = x + torch.tensor([[720.0, 0.0]], dtype=DOUBLE)
    torch.testing.assert_close(chart.to_process(turned), chart.to_process(x))
    assert bool(chart.covers(turned).all())
    assert not bool(chart.covers(x + torch.tensor([[0.0, 2 * math.pi]], dtype=DOUBLE)).any())


def test_bounded_columns_are_mirrored() -> None:
    chart = box([2.0], [math.pi / 3], kinds="b")  # from 2 to 5
    x = torch.tensor([[2.0], [3.0], [5.0]], dtype=DOUBLE)
    torch.testing.assert_close(chart.to_data(-chart.to_process(x)), x)
    inside = torch.tensor([[1.999], [2.0], [3.5], [5.0], [5.001], [1e200]], dtype=DOUBLE)
    expected = [False, True, True, True, False, False]
    assert chart.allows(inside).tolist() == expected
    assert chart.covers(inside).tolist() == expected


def test_allowed_rows_need_not_be_covered() -> None:
    chart = box([0.0, 0.0], [1.0, math.pi], kinds="fb")
    x = torch.tensor([[0.0, 0.5], [4.0, 0.5], [0.0, 2.0], [4.0, 2.0]], dtype=DOUBLE)
    assert chart.covers(x).tolist() == [True, False, False, False]
    assert chart.allows(x).tolist() == [True, True, False, False]
    assert chart.free.tolist() == [True, False]


@pytest.mark.parametrize("rotate", [True, False])
def test_whitened_data_are_white(rotate: bool) -> None:
    x = data(500, 4) * torch.tensor([1e-3, 1.0, 50.0, 2.0], dtype=DOUBLE)
    chart = WhiteChart.of(x.mean(dim=0), torch.cov(x.mT, correction=0), rotate=rotate)
    covariance = torch.cov(chart.to_process(x).mT, correction=0)
    assert float(chart.to_process(x).mean(dim=0).abs().max()) < 1e-6
    torch.testing.assert_close(covariance.diagonal(), torch.ones(4, dtype=DOUBLE))
    off = float((covariance - covariance.diagonal().diag()).abs().max())
    assert (off < 1e-6) is rotate
    wider = torch.cov(chart.scaled(3.0).to_process(x).mT, correction=0)
    torch.testing.assert_close(wider, 9 * covariance)


def test_a_principal_direction_does_not_depend_on_the_sign_that_is_found() -> None:
    for entries in ([[2.0, 1.0], [1.0, 3.0]], [[2.0, -1.0], [-1.0, 3.0]]):
        chart = WhiteChart.of(torch.zeros(2), torch.tensor(entries), rotate=True)
        assert bool((chart.matrix[:, 0] > 0).all())  # two columns: all entries are as large


def test_flat_data_keep_a_scale() -> None:
    mean = torch.ones(3, dtype=DOUBLE)
    covariance = torch.tensor([[4.0, 4.0, 0.0], [4.0, 4.0, 0.0], [0.0, 0.0, 0.0]], dtype=DOUBLE)
    for rotate in (True, False):
        chart = WhiteChart.of(mean, covariance, rotate=rotate)
        assert bool(chart.matrix.isfinite().all())
        identity = chart.matrix @ chart.inverse
        torch.testing.assert_close(identity, torch.eye(3, dtype=DOUBLE), rtol=0, atol=1e-9)
    nothing = WhiteChart.of(mean, torch.zeros(3, 3, dtype=DOUBLE), rotate=True)
    assert math.isfinite(nothing.log_jacobian)


def test_units_of_columns_do_not_matter() -> None:
    x = data(300, 4)
    unit = torch.tensor([1e12, 1.0, 1e-9, 3.0], dtype=DOUBLE)
    for rotate in (True, False):
        plain, scaled = (
            WhiteChart.of(y.mean(dim=0), torch.cov(y.mT, correction=0), rotate=rotate)
            for y in (x, x * unit)
        )
        torch.testing.assert_close(
            plain.to_process(x), scaled.to_process(x * unit), rtol=0, atol=1e-6
        )
        shift = plain.log_jacobian - float(unit.log().sum())
        assert scaled.log_jacobian == pytest.approx(shift)


def test_a_white_chart_covers_a_hundred_deviations() -> None:
    mean, variances = torch.tensor([1.0, 2.0]), torch.tensor([4.0, 9.0]).diag()
    chart = WhiteChart.of(mean, variances, rotate=False)
    x = torch.tensor([[1.0, 2.0], [200.0, 2.0], [202.0, 2.0], [1.0, -299.0]], dtype=DOUBLE)
    assert chart.covers(x).tolist() == [True, True, False, False]
    assert bool(chart.allows(x).all())


def test_units_are_the_columns_lengths_of_the_process() -> None:
    """Unit noise in the process's coordinates has these deviations in the data's."""
    noise = torch.randn(200_000, 2, generator=torch.Generator().manual_seed(0)).double()
    covariance = torch.tensor([[4.0, 1.5], [1.5, 9.0]], dtype=torch.float64)
    white = WhiteChart.of(torch.tensor([5.0, -3.0]), covariance, rotate=True).scaled(2.0)
    torch.testing.assert_close(white.units, white.to_data(noise).std(dim=0), rtol=0.01, atol=0)
    nothing = torch.zeros(2, dtype=torch.bool)
    scale = torch.tensor([0.5, 20.0], dtype=torch.float64)
    box = BoxChart(torch.zeros(2).double(), scale, torch.zeros(2).double(), nothing, nothing)
    torch.testing.assert_close(box.units, box.to_data(noise).std(dim=0), rtol=0.01, atol=0)
