"""Margins: tables of one column, compared with the flow, with quadrature and with known truths."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oism import OISM, load
from oism.flow import RungeKutta4
from oism.storage import save
from oism.tables._margin import Margin
from oism.tables._margin_fit import INTERVALS, fit_margin

FREE = (None, None)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "normal": (scipy.stats.norm(3, 2), {}),
    "uniform": (scipy.stats.uniform(-1, 2), {"bounds": (-1.0, 1.0)}),
    "beta": (scipy.stats.beta(2, 5), {"bounds": (0.0, 1.0)}),
    "gamma": (scipy.stats.gamma(2), {"bounds": (0.0, None)}),
    "mirrored gamma": (scipy.stats.gamma(2), {"bounds": (None, 0.0)}),
    "lognormal": (scipy.stats.lognorm(2), {"bounds": (0.0, None)}),
    "cauchy": (scipy.stats.cauchy(), {}),
    "angle": (scipy.stats.vonmises(3, loc=3.0), {"period": 2 * math.pi}),
}
cases = pytest.mark.parametrize("case", CASES)


def draw(case: str, n: int, seed: int = 0) -> Tensor:
    law, _ = CASES[case]
    x = torch.from_numpy(law.rvs(n, random_state=seed))
    return -x if "mirrored" in case else x


def log_truth(case: str, x: Tensor) -> Tensor:
    law, _ = CASES[case]
    return torch.from_numpy(law.logpdf(-x if "mirrored" in case else x))


@pytest.fixture(scope="module")
def fitted() -> dict[str, Margin]:
    return {case: fit_margin(draw(case, 3000), **CASES[case][1]) for case in CASES}


@cases
def test_held_out_likelihood_is_close_to_the_truth(case: str, fitted: dict[str, Margin]) -> None:
    x = draw(case, 20_000, seed=1)
    gap = float((log_truth(case, x) - fitted[case].log_density(x)).mean())
    assert -0.002 < gap < 0.012


@cases
def test_the_mass_is_one_and_the_density_is_the_slope(case: str, fitted: dict[str, Margin]) -> None:
    own = fitted[case]
    # Gauss-Legendre with 4 points is exact to rounding on the intervals of a table.
    place, weight = np.polynomial.legendre.leggauss(4)
    left, width = own.nodes[:-1, None], own.nodes.diff()[:, None]
    x = left + width * torch.from_numpy(0.5 * (place + 1))
    areas = (own.log_density(x).exp() * (0.5 * width * torch.from_numpy(weight))).sum(dim=1)
    inside = 1 - float(own.masses.sum())
    assert float(areas.sum()) == pytest.approx(inside, abs=1e-9)
    cumulated = own.masses[0] + areas.cumsum(dim=0)
    found = own.cdf(own.nodes)[1:]
    if own.periodic:  # the last node is the first one
        found, cumulated = found[:-1], cumulated[:-1]
    torch.testing.assert_close(found, cumulated, rtol=0, atol=1e-9)
    # Within an interval, and in the tails, by central differences.
    middle = (left + 0.3 * width)[:, 0][own._steps > 1e-6]
    for gap, bound in zip((-1.0, 1.0), own.masses.tolist(), strict=True):
        if bound:
            end = own.nodes[0] if gap < 0 else own.nodes[-1]
            middle = torch.cat((middle, (end + gap * own.scales[int(gap > 0)])[None]))
    h = 1e-4 * float(width.min())
    slope = (own.cdf(middle + h) - own.cdf(middle - h)) / (2 * h)
    torch.testing.assert_close(slope, own.log_density(middle).exp(), rtol=1e-3, atol=1e-6)


@cases
def test_quantiles_invert_the_distribution_function(case: str, fitted: dict[str, Margin]) -> None:
    own = fitted[case]
    u = torch.linspace(1e-7, 1 - 1e-7, 5001, dtype=torch.float64)
    x = own.quantile(u)
    assert bool((x.diff() > 0).all())
    torch.testing.assert_close(own.cdf(x), u, rtol=0, atol=1e-12)
    y = own._wrapped(draw(case, 2000, seed=3))
    inside = (y > own.nodes[0]) & (y < own.nodes[-1])
    torch.testing.assert_close(own.quantile(own.cdf(y))[inside], y[inside], rtol=1e-9, atol=1e-9)


@cases
def test_samples_by_quantiles_follow_the_truth(case: str, fitted: dict[str, Margin]) -> None:
    law, _ = CASES[case]
    u = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = fitted[case].quantile(u)
    x = -x if "mirrored" in case else x
    if case == "angle":
        x = (x - 3.0 + math.pi).remainder(2 * math.pi) - math.pi + 3.0
    assert scipy.stats.kstest(x.numpy(), law.cdf).pvalue > 1e-3
    assert scipy.stats.kstest(1.3 * x.numpy() + 0.2, law.cdf).pvalue < 1e-3


@pytest.mark.parametrize("case", ["normal", "beta", "angle"])
def test_the_table_is_as_accurate_as_the_flow(case: str) -> None:
    _, declared = CASES[case]
    x = draw(case, 2000)
    own = fit_margin(x, **declared)
    names = {"period": "periodic", "bounds": "bounds"}
    settings: dict[str, Any] = {names[key]: {0: value} for key, value in declared.items()}
    model = OISM(process="torus", **settings).fit(x[:, None])
    # A free column has the same box, and in it nearly the same background.
    found = model.model_.log_density(x[:, None], method=RungeKutta4(256))
    if case == "beta":  # no background there
        wide = scipy.stats.norm(x.mean(), 2 * x.std(correction=0)).logpdf(x)
        wide = torch.from_numpy(wide) - math.log(2001)
        found = torch.logaddexp(found + math.log(2000 / 2001), wide)
    assert float((own.log_density(x) - found).square().mean().sqrt()) < 1e-3


def test_outliers_change_their_own_tail_only() -> None:
    plain = fit_margin(draw("normal", 400))
    fresh = draw("normal", 1000, seed=2)
    for n, draws, allowed in ((400, 1, 0.01), (20, 4, 0.15), (6, 4, 0.3)):  # 1/n is missing
        loss = 0.0
        for seed in range(draws):  # folds of few rows differ by chance
            far = draw("normal", n, seed=10 + seed)
            far[3] = 3 + 2e6
            own, without = fit_margin(far), fit_margin(torch.cat((far[:3], far[4:])))
            loss += float((without.log_density(fresh) - own.log_density(fresh)).mean()) / draws
            assert bool(own.log_density(far).isfinite().all())
            assert bool((own.cdf(far.sort().values).diff() > 0).all())
        assert loss < allowed, n
    assert float(plain.log_density(torch.tensor(1e9))) > -200


def test_beyond_the_table_all_is_increasing_and_finite(fitted: dict[str, Margin]) -> None:
    own = fitted["normal"]
    steps = torch.logspace(-3, 2, 50, dtype=torch.float64)  # beyond, 1 - F is below rounding
    for sign, end in ((1, own.nodes[-1]), (-1, own.nodes[0])):
        x = end + sign * steps
        assert bool(own.log_density(x).isfinite().all())
        assert bool((sign * own.cdf(x).diff() > 0).all())
    assert float(own.quantile(torch.tensor(1.0).double())) == math.inf
    assert float(own.quantile(torch.tensor(0.0).double())) == -math.inf


def test_bounds_are_kept(fitted: dict[str, Margin]) -> None:
    own = fitted["gamma"]
    ends = torch.tensor([-1.0, -1e-9, 0.0], dtype=torch.float64)
    assert own.log_density(ends).tolist()[:2] == [-math.inf, -math.inf]
    assert own.cdf(ends).tolist() == [0.0, 0.0, 0.0]
    assert float(own.quantile(torch.tensor(0.0).double())) == 0.0
    assert own.cdf(torch.tensor([1.0, 2.0])).dtype == torch.float32
    closed = fitted["beta"]
    assert closed.quantile(torch.tensor([0.0, 1.0]).double()).tolist() == [0.0, 1.0]
    assert closed.cdf(torch.tensor([[-0.5, 1.0, 1.5]])).tolist() == [[0.0, 1.0, 1.0]]


def test_angles_are_cut_at_the_emptiest_point(fitted: dict[str, Margin]) -> None:
    own = fitted["angle"]
    assert own.period == pytest.approx(2 * math.pi)
    assert abs(math.remainder(own.start - (3.0 + math.pi), 2 * math.pi)) < 0.7
    x = torch.tensor([1.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(own.log_density(x), own.log_density(x + 4 * math.pi))
    torch.testing.assert_close(own.cdf(x), own.cdf(x - 2 * math.pi))
    assert own.masses.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [0.0, 3.0, -1e9])
def test_constant_columns_are_narrow(value: float) -> None:
    own = fit_margin(torch.full((7,), value).double())
    x = torch.tensor(value).double()
    assert float(own.cdf(x)) == pytest.approx(0.5)
    width = float(own.quantile(torch.tensor(0.999).double()) - x)
    assert 0 < width < 0.01 * (abs(value) or 1.0)
    at_bound = fit_margin(torch.zeros(4), bounds=(0.0, None))
    assert at_bound.log_density(torch.tensor([-1e-6])).tolist() == [-math.inf]
    assert float(at_bound.masses[0]) == 0


@pytest.mark.parametrize("bounds", [(0.0, None), (None, 7.5), (0.1, 7.5), (3 - 2e-5, 3.1)])
def test_a_constant_column_is_possible_up_to_its_bounds(
    bounds: tuple[float | None, float | None],
) -> None:
    """Its table ended after five narrow standard deviations: other values had the density 0."""
    own = fit_margin(torch.full((7,), 3.0), bounds=bounds)
    low, high = (
        3 + away if end is None else end for end, away in zip(bounds, (-9, 9), strict=True)
    )
    inside = torch.linspace(low, high, 1001, dtype=torch.float64)
    assert bool(own.log_density(inside).isfinite().all())
    assert bool((own.cdf(inside).diff() >= 0).all())
    assert float(own.cdf(torch.tensor(3.0).double())) == pytest.approx(0.5, abs=1e-5)
    for end, sign, total in zip(bounds, (-1, 1), (0.0, 1.0), strict=True):
        if end is not None:
            x = torch.tensor([end, end + sign * 1e-9], dtype=torch.float64)
            assert own.log_density(x).isfinite().tolist() == [True, False]
            assert own.cdf(x).tolist() == pytest.approx([total, total], abs=1e-12)


def test_a_range_of_few_roundings_has_a_margin() -> None:
    """The range has fewer numbers than the table had nodes."""
    x = 0.7 * (1 + 1e-13 * torch.linspace(-1, 1, 40, dtype=torch.float64))
    own = fit_margin(x)
    assert bool(own.log_density(x).isfinite().all())
    assert float((own.cdf(x) - torch.linspace(0, 1, 40)).abs().max()) < 0.1


def test_a_value_at_a_bound_is_possible() -> None:
    """The bound 0.1 was rounded to 0.1000000015, and values below that had the density 0."""
    x = torch.linspace(0.1, 0.7, 50, dtype=torch.float64)
    own = fit_margin(x, bounds=(0.1, 0.7))
    assert bool(own.log_density(x).isfinite().all())


def test_weights_count_as_copies() -> None:
    x = draw("normal", 500)
    weights = (torch.arange(500) % 3).double()
    own = fit_margin(x, weights)
    copied = fit_margin(x.repeat_interleave(weights.long()))
    places = torch.linspace(-2, 8, 40, dtype=torch.float64)
    torch.testing.assert_close(
        own.log_density(places), copied.log_density(places), rtol=0, atol=0.02
    )
    unused = fit_margin(
        torch.cat((x, torch.full((5,), 99.0).double())),
        torch.cat((weights, torch.zeros(5).double())),
    )
    torch.testing.assert_close(unused.log_density(places), own.log_density(places))


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=12),
    st.sampled_from([FREE, (-1e6, None), (None, 1e6), (-1e6, 1e6)]),
)
def test_any_few_rows_have_a_margin(
    rows: list[float], bounds: tuple[float | None, float | None]
) -> None:
    x = torch.tensor(rows, dtype=torch.float64)
    own = fit_margin(x, bounds=bounds)
    assert bool(own.log_density(x).isfinite().all())
    u = own.cdf(x)
    assert bool(((u >= 0) & (u <= 1)).all())
    assert own.cdf(x.reshape(1, -1)).shape == (1, len(x))
    assert bool(own.quantile(torch.linspace(0.01, 0.99, 9)).isfinite().all())


def test_a_margin_can_be_stored(tmp_path: Path, fitted: dict[str, Margin]) -> None:
    x = torch.linspace(-5, 9, 30, dtype=torch.float64)
    for case in ("normal", "angle", "gamma"):
        save(fitted[case], tmp_path / "margin.safetensors")
        again = load(tmp_path / "margin.safetensors")
        assert torch.equal(again.log_density(x), fitted[case].log_density(x))
        assert torch.equal(again.cdf(x), fitted[case].cdf(x))


def test_wrong_arguments_are_named() -> None:
    x = torch.rand(20, dtype=torch.float64)
    with pytest.raises(ValueError, match="values"):
        fit_margin(x[:, None])
    with pytest.raises(ValueError, match="values"):
        fit_margin(torch.tensor([1.0, math.nan]))
    with pytest.raises(ValueError, match="weights"):
        fit_margin(x, -torch.ones(20))
    with pytest.raises(ValueError, match="bounds"):
        fit_margin(x, period=1.0, bounds=(0.0, None))
    with pytest.raises(ValueError, match="bounds are"):
        fit_margin(x, bounds=(0.5, None))
    own = fit_margin(x)
    assert len(own.nodes) == INTERVALS + 1
    with pytest.raises(ValueError, match="integrate to 1"):
        Margin(own.nodes, own.log_values + 0.1, own.masses, own.scales, own.powers)
    with pytest.raises(ValueError, match="increasing"):
        Margin(own.nodes.flip(0), own.log_values, own.masses, own.scales, own.powers)
    with pytest.raises(ValueError, match="masses"):
        Margin(own.nodes, own.log_values, own.masses - 1, own.scales, own.powers)
