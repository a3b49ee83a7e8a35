"""One column with bounds: charts, families and the choice between them."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from oism import OISM, fit, load
from oism.basis import JacobiPolynomials, LaguerrePolynomials
from oism.plot import overview
from oism.process import Jacobi, Laguerre, Torus
from oism.tables._column import Column
from oism.tables._end_chart import NEAREST, EndChart
from oism.tables._ends import (
    JacobiFamily,
    LaguerreFamily,
    beta_errors,
    beta_powers,
    candidates,
    gamma_error,
    gamma_power,
    likely_powers,
)
from oism.tables._stack import StackedTable

PEAKS = np.random.default_rng(0).beta(0.5, 0.7, size=(600, 1))
POSITIVE = np.random.default_rng(1).gamma(0.7, 3.0, size=(600, 1))


@given(low=st.floats(-50, 50), width=st.floats(0.1, 100), share=st.floats(0.01, 0.99))
def test_charts_go_there_and_back(low: float, width: float, share: float) -> None:
    x = torch.tensor([[low + share * width]], dtype=torch.float64)
    down = EndChart.half_line(low + width, -1.0, width, width)
    for chart in (
        EndChart.interval(low, low + width),
        EndChart.half_line(low, 1.0, 2.0, 3.0),
        down,
    ):
        u = chart.to_process(x)
        assert float(u) > 0
        torch.testing.assert_close(chart.to_data(u), x, rtol=1e-9, atol=1e-9)
        free = x.clone().requires_grad_()
        slope = torch.autograd.grad(chart.to_process(free).sum(), free)[0]
        assert float(slope.abs().log()) == pytest.approx(chart.log_jacobian)
        torch.testing.assert_close(chart.pull_score(torch.ones_like(x)), slope)
        torch.testing.assert_close(chart.inverse * slope, torch.ones_like(x))
    below = torch.tensor([[low - 1.0]], dtype=torch.float64)
    assert not bool(EndChart.interval(low, low + width).covers(below))
    assert not bool(EndChart.half_line(low, 1.0, 2.0, 3.0).allows(below))
    assert bool(down.covers(below))
    above = torch.tensor([[low + width + 1.0]], dtype=torch.float64)
    assert not bool(EndChart.box(low, 1.0, width).covers(above))
    assert bool(EndChart.box(low, 1.0, width).allows(above))


def test_powers_are_those_of_maximal_likelihood() -> None:
    u, ones = torch.from_numpy(PEAKS[:, 0]), torch.ones(600).double()
    a, b, _, _ = scipy.stats.beta.fit(PEAKS[:, 0], floc=0, fscale=1)
    assert beta_powers(u, ones) == pytest.approx((a, b), abs=2e-3)
    gaps = torch.from_numpy(POSITIVE[:, 0])
    a, _, _ = scipy.stats.gamma.fit(POSITIVE[:, 0], floc=0)
    assert gamma_power(gaps, ones) == pytest.approx(a, abs=2e-3)
    twice = torch.cat((gaps, gaps[:50])), torch.ones(650).double()
    weighted = gamma_power(gaps, torch.cat((2 * ones[:50], ones[50:])))
    assert gamma_power(*twice) == pytest.approx(weighted)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.6, 1.7)])
def test_the_errors_of_powers_are_those_of_many_estimates(a: float, b: float) -> None:
    n, rng = 500, np.random.default_rng(0)
    u = torch.from_numpy(rng.beta(a, b, size=(400, n)))
    found = np.array([beta_powers(one, torch.ones(n).double()) for one in u])
    assert beta_errors(a, b, n) == pytest.approx(found.std(axis=0), rel=0.12)
    gaps = torch.from_numpy(rng.gamma(a, 3.0, size=(400, n)))
    spread = np.std([gamma_power(one, torch.ones(n).double()) for one in gaps])
    assert gamma_error(a, n) == pytest.approx(spread, rel=0.12)


@pytest.mark.parametrize("column", [Column(low=0.0, high=1.0), Column(low=0.0)])
def test_powers_that_may_be_one_are_one(column: Column) -> None:
    n, rng = 1000, np.random.default_rng(0)
    both = math.isfinite(column.high)
    plain = rng.uniform(size=(40, n)) if both else rng.exponential(size=(40, n))
    steep = rng.beta(0.7, 1.0, size=(5, n)) if both else rng.gamma(0.7, size=(5, n))
    ones = torch.ones(n).double()
    found = [likely_powers(column, torch.from_numpy(one), ones)[0] for one in plain]
    assert sum(power == 1 for power in found) >= 36, "95% of them"
    for one in steep:
        assert likely_powers(column, torch.from_numpy(one), ones)[0] < 0.8


def test_which_processes_are_steep() -> None:
    assert JacobiFamily(Jacobi(0.5, 0.5)).is_steep((1.0, 1.0))
    assert JacobiFamily(Jacobi(1.0, 0.5)).is_steep((0.4, 2.0))
    assert not JacobiFamily(Jacobi(0.5, 1.0)).is_steep((0.8, 2.0))
    assert not JacobiFamily(Jacobi(1.0, 1.0)).is_steep((2.0, 2.0))
    assert not LaguerreFamily(Laguerre(0.7)).is_steep((0.7, 1.0))


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (0.0, None)])
def test_densities_are_infinite_at_a_bound_only_if_rows_show_it(
    bounds: tuple[float, float | None],
) -> None:
    """Of uniform rows several estimates had the density 400 at 0, and 1 a little above."""
    both = bounds[1] is not None
    for seed in range(4):
        rng = np.random.default_rng(seed)
        plain = rng.uniform(size=(1000, 1)) if both else rng.exponential(size=(1000, 1))
        found = OISM(bounds={0: bounds}).fit(plain)
        assert np.exp(found.score_samples([[0.0]])) < 4
        steep = rng.beta(0.5, 1.0, size=(1000, 1)) if both else rng.gamma(0.5, size=(1000, 1))
        found = OISM(bounds={0: bounds}).fit(steep)
        assert np.exp(found.score_samples([[0.0]])) > 100


def test_rows_on_an_end_need_a_finite_density_there() -> None:
    x, ones = torch.tensor([0.0, 0.2, 0.3, 0.9]).double(), torch.ones(4).double()
    for column in (Column(low=0.0, high=1.0), Column(low=0.0)):
        for family in candidates(column, x, likely_powers(column, x, ones)):
            assert family.process.a >= 1
    data = np.concatenate((PEAKS, np.zeros((40, 1))))
    with pytest.warns(UserWarning, match="column 0 has the value 0 in .* of the rows"):
        found = OISM(bounds={0: (0, 1)}, process=Jacobi(1.0, 0.5), discrete=()).fit(data)
    assert np.isfinite(found.score_samples([[0.0]])).all()


@pytest.fixture(scope="module")
def bounded() -> OISM:
    model: OISM = OISM(bounds={0: (0, 1)}).fit(PEAKS)
    return model


@pytest.fixture(scope="module")
def positive() -> OISM:
    model: OISM = OISM(bounds={0: (0, None)}).fit(POSITIVE)
    return model


@pytest.mark.slow
def test_a_peak_at_a_bound_is_left_to_the_diffusion_that_ends_there(
    bounded: OISM, positive: OISM
) -> None:
    assert isinstance(bounded.family_.process, Jacobi)
    assert isinstance(positive.family_.process, Laguerre | Jacobi)
    assert "Jacobi" in bounded.summary()
    assert "bounded at 0" in positive.summary()
    for model, law in ((bounded, scipy.stats.beta(0.5, 0.7)),
                       (positive, scipy.stats.gamma(0.7, scale=3.0))):  # fmt: skip
        fresh = law.rvs(size=(2000, 1), random_state=3)
        truth = law.logpdf(fresh[:, 0]).mean()
        torus = OISM(bounds=model.bounds, process="torus").fit(
            PEAKS if model is bounded else POSITIVE
        )
        assert isinstance(torus.family_.process, Torus)
        assert truth - model.score(fresh) / len(fresh) < 0.015
        assert model.score(fresh) > torus.score(fresh) + 10


@pytest.mark.slow
def test_densities_integrate_to_one_and_samples_follow(bounded: OISM, positive: OISM) -> None:
    s = (np.arange(2000) + 0.5) / 2000
    x, w = np.sin(0.5 * np.pi * s) ** 2, 0.5 * np.pi * np.sin(np.pi * s) / 2000
    assert w @ np.exp(bounded.score_samples(x[:, None])) == pytest.approx(1, abs=1e-3)
    x, w = 150 * s**4, 600 * s**3 / 2000
    assert w @ np.exp(positive.score_samples(x[:, None])) == pytest.approx(1, abs=1e-3)
    for model, law in ((bounded, scipy.stats.beta(0.5, 0.7)),
                       (positive, scipy.stats.gamma(0.7, scale=3.0))):  # fmt: skip
        for method in ("ode", "sde"):
            drawn = model.sample(1000, random_state=0, method=method)[:, 0]
            assert drawn.min() >= 0
            # The estimate has an error of its own: the distance is below 0.06, not below 0.04.
            assert scipy.stats.kstest(drawn, law.cdf).statistic < 0.07
            assert scipy.stats.kstest(drawn, scipy.stats.uniform.cdf).statistic > 0.07


def test_values_at_and_beyond_bounds(bounded: OISM, positive: OISM) -> None:
    at = bounded.score_samples([[0.0], [NEAREST]])
    assert at[0] == pytest.approx(at[1])
    assert np.isfinite(at).all()
    assert bounded.score_samples([[-0.1], [1.1]]).tolist() == [-math.inf, -math.inf]
    assert positive.score_samples([[-0.1]])[0] == -math.inf
    assert np.isfinite(positive.score_samples([[0.0], [1e4]])).all()
    assert bounded.marginal([0]).score_samples([[0.3]]) == bounded.score_samples([[0.3]])


def test_files_give_the_same_model(bounded: OISM, positive: OISM, tmp_path: Path) -> None:
    for model in (bounded, positive):
        path = tmp_path / "model.safetensors"
        model.save(path)
        x = [[0.1], [0.6]]
        assert np.array_equal(load(path).score_samples(x), model.score_samples(x))


def test_processes_may_be_given() -> None:
    data = 10 - POSITIVE  # bounded above
    model = OISM(bounds={0: (None, 10)}, process=Laguerre(0.7), order=6, ridge=0.1).fit(data)
    assert model.model_.operator_score.basis.degree == 6
    below = OISM(bounds={0: (0, None)}, process=Laguerre(0.7), order=6, ridge=0.1).fit(POSITIVE)
    x = np.array([[0.5], [4.0]])
    np.testing.assert_allclose(model.score_samples(10 - x), below.score_samples(x), rtol=1e-6)
    flow = model.model_.flow  # in the units of the data
    rows = torch.tensor([[9.0], [4.0]], dtype=torch.float64)
    torch.testing.assert_close(
        flow.velocity(rows, torch.tensor(0.5).double()),
        -below.model_.flow.velocity(10 - rows, torch.tensor(0.5).double()),
    )
    with pytest.raises(ValueError, match="needs one column with bounds"):
        OISM(process=Jacobi()).fit(POSITIVE)
    with pytest.raises(ValueError, match="needs one column with one bound"):
        OISM(process=Laguerre()).fit(POSITIVE)
    with pytest.raises(ValueError, match=r"bounds"):
        OISM(bounds={0: (1, None)}, process=Laguerre()).fit(POSITIVE)


def test_a_mixture_is_that_of_its_members(bounded: OISM) -> None:
    model = bounded.model_
    assert isinstance(model, StackedTable)
    x = torch.tensor([[0.02], [0.5], [0.97]], dtype=torch.float64)
    kernels = model.kernels
    assert kernels is not None
    parts = [member.log_density(x) for member in model.members]
    members = torch.stack([*parts, kernels.log_densities(x)[:, 0]])
    shares = torch.tensor(model.shares, dtype=torch.float64)[:, None]
    torch.testing.assert_close(model.log_density(x).exp(), (shares * members.exp()).sum(dim=0))
    facts = model.facts()
    weights = [part["weight"] for part in (*facts["members"], facts["kernels"])]
    assert weights == list(model.shares)
    assert "Beta kernels" in bounded.summary()
    with pytest.raises(ValueError, match="weights must be >= 0 with the sum 1"):
        StackedTable([*model.members, *model.members], [0.7] * (2 * len(model.members)))
    with pytest.raises(ValueError, match="columns must be the only one"):
        model.marginal([1])


def test_the_score_of_a_mixture_is_the_slope_of_its_density(bounded: OISM, positive: OISM) -> None:
    """At t = 0: the integral of the score is the change of log p; also next to infinite ends."""
    for model in (bounded, positive):
        for low, high in ((1e-5, 1e-3), (0.1, 0.8)):
            nodes, weights = np.polynomial.legendre.leggauss(200)
            y = np.log(low) + 0.5 * (nodes + 1) * np.log(high / low)
            x = np.exp(y)[:, None]
            score = model.score_function(x, 0.0)[:, 0]
            total = 0.5 * np.log(high / low) * weights @ (score * x[:, 0])
            change = np.diff(model.score_samples([[low], [high]]))[0]
            assert total == pytest.approx(change, abs=1e-3)
        first = model.model_.members[0]
        other = first.score(torch.from_numpy(x), first.times[0]).numpy()[:, 0]
        assert np.abs(other - score).max() > 0.1, "that of the first member is another"
        assert np.isfinite(model.score_function([[0.0]], 0.0)).all()
        assert np.isnan(model.score_function([[-1.0]], 0.0)).all()


def test_a_mixture_has_no_single_process(bounded: OISM) -> None:
    model = bounded.model_
    for call in (
        lambda: bounded.score_function([[0.3]], 0.01),
        lambda: model.process,
        lambda: model.clock,
        lambda: model.flow,
        lambda: model.noise_deviations(0.1),
    ):
        with pytest.raises(TypeError, match=r"no single one.*members\[k\].score\(x, t\)"):
            call()
    assert model.times == (0.0, 0.0)
    assert float(model.noise_deviations(0.0)) == 0
    member = model.members[0]
    assert member.score(torch.tensor([[0.3]]).double(), member.times[1]).isfinite().all()
    with pytest.raises(ValueError, match="given must leave a column"):
        model.conditional({0: 0.3})
    assert "Jacobi" in bounded.summary()
    assert "polynomials up to degree 48" in bounded.summary()
    figure = overview(bounded, PEAKS)  # with the score at t = 0
    assert len(figure.axes) == 2
    plt.close(figure)


def test_bad_values_of_columns_with_bounds() -> None:
    with pytest.raises(ValueError, match=r"bounds of column 0 are \(0, inf\), but the data reach"):
        OISM(bounds={0: (0, None)}).fit(POSITIVE - 1)
    with pytest.raises(ValueError, match=r"bounds of column 0 are \(0, 1\), but the data reach"):
        OISM(bounds={0: (0, 1)}).fit(2 * PEAKS)
    with pytest.raises(ValueError, match=r"must be in \[0, inf\], but"):
        fit(torch.tensor([[-0.1], [1.0]]).double(), LaguerrePolynomials(Laguerre(), 3))
    with pytest.raises(ValueError, match=r"must be in \[0, 1\], but"):
        fit(torch.tensor([[0.1], [1.5]]).double(), JacobiPolynomials(Jacobi(), 3))
    # Zeros are allowed: densities are finite there if the power is at least 1.
    zeros = np.concatenate((POSITIVE[:150], np.zeros((20, 1))))
    with pytest.warns(UserWarning, match="column 0 has the value 0 in 12% of the rows"):
        model = OISM(bounds={0: (0, None)}, discrete=()).fit(zeros)
    members = getattr(model.model_, "members", (model.model_,))
    assert all(getattr(one.process.inner, "a", 1.0) >= 1 for one in members)
    assert np.isfinite(model.score_samples([[0.0]])).all()


def test_few_rows_and_parameters_of_the_torus_leave_the_torus() -> None:
    few = OISM(bounds={0: (0, 1)}, discrete=()).fit(PEAKS[:40])
    assert isinstance(few.family_.process, Torus)
    given = OISM(bounds={0: (0, 1)}, max_eigenvalue=100).fit(PEAKS)
    assert isinstance(given.family_.process, Torus)
