"""Discrete columns: probabilities of cells of a Gaussian, which are known exactly."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from oism import OISM, storage
from oism.tables import Column, Columns, DiscreteModel, MixtureModel
from oism.tables._discrete import cell_nodes
from oism.tables._levels import discrete_columns, with_levels

COVARIANCE = np.array([[1.5, 0.6, 0.0], [0.6, 1.0, -0.4], [0.0, -0.4, 2.0]])


def gaussian(dim: int) -> MixtureModel:
    covariance = torch.from_numpy(COVARIANCE[:dim, :dim])[None].contiguous()
    zero, one = torch.zeros(dim).double(), torch.ones(dim).double()
    return MixtureModel(zero, one, torch.ones(1).double(), zero[None], covariance)


def integers(low: int, high: int) -> tuple[float, ...]:
    return tuple(float(k) for k in range(low, high + 1))


def columns(*levels: tuple[float, ...], **known: Any) -> Columns:
    return Columns(tuple(Column(levels=one, **(known if one else {})) for one in levels))


def box_probability(low: list[float], high: list[float]) -> float:
    """Return the probability of a rectangle, by inclusion and exclusion."""
    law = scipy.stats.multivariate_normal(cov=COVARIANCE[: len(low), : len(low)])
    corners = itertools.product(*[((a, -1), (b, 1)) for a, b in zip(low, high, strict=True)])
    return float(sum(math.prod(s for _, s in c) * law.cdf([x for x, _ in c]) for c in corners))


def rows(values: list[list[float]]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_probabilities_of_one_column() -> None:
    model = DiscreteModel(gaussian(1), columns(integers(-5, 5)))
    law = scipy.stats.norm(scale=math.sqrt(1.5))
    for k in (-3, 0, 2):
        expected = law.cdf(k + 0.5) - law.cdf(k - 0.5)
        assert float(model.log_density(rows([[k]])).exp()) == pytest.approx(expected, abs=1e-4)
    # A value that is no level has that of its cell; beyond the cells the inner density counts.
    same = model.log_density(rows([[0.0], [0.3], [-0.49]]))
    assert float(same.max() - same.min()) == 0
    outside = rows([[5.7], [-9.0]])
    torch.testing.assert_close(model.log_density(outside), gaussian(1).log_density(outside))


def test_densities_are_per_unit_of_the_column() -> None:
    model = DiscreteModel(gaussian(1), columns((-1.0, 0.0, 3.0)))
    law = scipy.stats.norm(scale=math.sqrt(1.5))
    expected = (law.cdf(1.5) - law.cdf(-0.5)) / 2.0
    assert float(model.log_density(rows([[0.0]])).exp()) == pytest.approx(expected, abs=1e-4)


def test_probabilities_of_two_columns() -> None:
    model = DiscreteModel(gaussian(2), columns(integers(-4, 4), (-0.5, 0.0, 0.5)))
    assert model.nodes.shape == (16, 2)
    for k, half in ((0.0, 0.0), (1.0, 0.5)):
        exact = box_probability([k - 0.5, half - 0.25], [k + 0.5, half + 0.25]) / 0.5
        found = float(model.log_density(rows([[k, half]])).exp())
        assert found == pytest.approx(exact, rel=0.02)


def test_the_probabilities_sum_to_one() -> None:
    model = DiscreteModel(gaussian(2), columns(integers(-6, 6), integers(-6, 6)))
    levels = torch.cartesian_prod(*[torch.arange(-6, 7).double()] * 2)
    assert float(model.log_density(levels).exp().sum()) == pytest.approx(1, abs=2e-3)


def test_a_discrete_beside_a_continuous_column() -> None:
    model = DiscreteModel(gaussian(2), columns((), integers(-5, 5)))
    law = scipy.stats.norm(scale=1.0)
    grid = torch.linspace(-8, 8, 401, dtype=torch.float64)
    level = torch.stack((grid, torch.ones_like(grid)), dim=1)
    mass = torch.trapezoid(model.log_density(level).exp(), grid)
    assert float(mass) == pytest.approx(law.cdf(1.5) - law.cdf(0.5), abs=1e-3)
    marginal = model.marginal([1])
    assert float(marginal.log_density(rows([[1.0]])).exp()) == pytest.approx(float(mass), abs=1e-3)
    plain = model.marginal([0])
    assert isinstance(plain, MixtureModel), "no discrete column is left"
    swapped = model.marginal([1, 0])
    torch.testing.assert_close(swapped.log_density(level.flip(1)), model.log_density(level))


def test_samples_are_levels_with_their_probabilities() -> None:
    model = DiscreteModel(gaussian(2), columns((-2.0, 0.0, 1.0), ()))
    x = model.sample(20_000, torch.Generator().manual_seed(0))
    values, counts = np.unique(x[:, 0], return_counts=True)
    assert values.tolist() == [-2.0, 0.0, 1.0]
    cdf = scipy.stats.norm(scale=math.sqrt(1.5)).cdf
    expected = np.diff([0.0, cdf(-1), cdf(0.5), 1.0]) * 20_000
    assert scipy.stats.chisquare(counts, expected).pvalue > 0.001
    wrong = np.diff([0.0, cdf(-1), cdf(0.6), 1.0]) * 20_000
    assert scipy.stats.chisquare(counts, wrong).pvalue < 0.001
    assert len(torch.unique(x[:, 1])) > 19_000


def test_conditionals_given_a_level_and_given_a_number() -> None:
    model = DiscreteModel(gaussian(2), columns(integers(-5, 5), ()))
    given = model.conditional({0: 1.0})
    grid = torch.linspace(-7, 7, 301, dtype=torch.float64)
    density = given.log_density(grid[:, None]).exp()
    assert float(torch.trapezoid(density, grid)) == pytest.approx(1, abs=1e-3)
    x = given.sample(4000, torch.Generator().manual_seed(0))[:, 0]
    cdf = torch.cumulative_trapezoid(density, grid)
    p = scipy.stats.kstest(x, lambda v: np.interp(v, grid[1:], cdf)).pvalue
    assert p > 0.01
    other = model.conditional({0: 2.0}).sample(4000, torch.Generator().manual_seed(0))[:, 0]
    assert scipy.stats.kstest(other, lambda v: np.interp(v, grid[1:], cdf)).pvalue < 1e-3
    found = model.conditional({1: 0.5})
    mass = found.log_density(torch.arange(-5, 6).double()[:, None]).exp().sum()
    assert float(mass) == pytest.approx(1, abs=1e-3)
    assert set(found.sample(50, torch.Generator().manual_seed(0))[:, 0].tolist()) <= set(
        integers(-5, 5)
    )


def test_conditionals_of_three_columns_follow_the_chain_rule() -> None:
    model = DiscreteModel(gaussian(3), columns(integers(-5, 5), (), integers(-6, 6)))
    x = rows([[1.0, 0.4, -1.0]])
    given = model.conditional({0: 1.0})
    first = given.marginal([1]).log_density(x[:, 2:])
    second = given.conditional({1: -1.0}).log_density(x[:, 1:2])
    joint = model.marginal([0]).log_density(x[:, :1]) + first + second
    torch.testing.assert_close(joint, model.log_density(x), atol=1e-9, rtol=0)


def test_values_beyond_a_closed_end_have_a_small_density() -> None:
    model = DiscreteModel(gaussian(1), columns((0.0, 1.0), closed=(True, True)))
    one, two, three = model.log_density(rows([[1.0], [2.0], [3.0]])).tolist()
    assert two == pytest.approx(one + math.log(1e-3 * 0.5**0.5))
    assert three == pytest.approx(two + math.log(0.5))
    assert model.log_density(rows([[0.0], [-1.0]])).diff().item() == pytest.approx(two - one)


@pytest.mark.parametrize("settings", [{}, {"bounds": {0: (0, 1)}}])
def test_a_binary_column_has_the_frequencies_of_its_levels(settings: dict[str, Any]) -> None:
    n, share = 1000, 0.27
    x = (np.arange(float(n))[:, None] < share * n) + 0.0
    found = OISM(flow_steps=16, **settings).fit(x)
    p = np.exp(found.score_samples([[0.0], [1.0]]))
    assert p.sum() == pytest.approx(1, abs=1e-3)
    assert p[1] == pytest.approx(share, abs=2 * math.sqrt(share * (1 - share) / n))
    samples = found.sample(2000, random_state=0)[:, 0]
    assert set(samples) == {0.0, 1.0}
    assert samples.mean() == pytest.approx(p[1], abs=4 * 0.01)


def test_bounds_are_kept() -> None:
    model = DiscreteModel(gaussian(1), columns(integers(0, 3), low=0.0))
    logs = model.log_density(rows([[-0.2], [0.0], [-3.0], [8.0]]))
    assert logs.isinf().tolist() == [True, False, True, False]
    assert float(model.sample(500, torch.Generator().manual_seed(0)).min()) == 0


def test_files_and_facts(tmp_path: Path) -> None:
    x = np.random.default_rng(0).poisson(3.0, size=(200, 1)) + 0.0
    found = OISM(max_eigenvalue=25, flow_steps=8, bounds={0: (0, None)}).fit(x)
    model = found.model_
    assert isinstance(model, DiscreteModel)
    assert "discrete, " in found.summary()
    facts = found.facts()["columns"][0]
    assert (facts["kind"], facts["low"], facts["levels"]) == ("discrete", 0.0, len(np.unique(x)))
    storage.save(model, tmp_path / "model.safetensors")
    again = storage.load(tmp_path / "model.safetensors", expected=DiscreteModel)
    y = torch.from_numpy(x[:20])
    assert torch.equal(again.log_density(y), model.log_density(y))
    assert found.columns_[0].closed == (True, False)
    total = np.exp(found.score_samples(np.arange(30.0)[:, None])).sum()
    assert total == pytest.approx(1, abs=0.01)
    assert np.exp(found.score_samples(np.unique(x)[:, None])).sum() > 0.95
    samples = found.sample(300, random_state=0)
    assert set(samples[:, 0]) <= set(x[:, 0])
    assert found.score_samples([[-1.0]]) == -math.inf
    truth = scipy.stats.poisson(3.0).logpmf(x[:, 0]).mean()
    assert found.score(x) / 200 == pytest.approx(truth, abs=0.1)


def test_rows_are_completed_as_by_their_conditional() -> None:
    """With a level given, with a number given, and with all values there."""
    model = DiscreteModel(gaussian(3), columns((), integers(-3, 3), integers(-4, 4)))
    for known in ({1: 1.0}, {0: 0.7}, {0: 0.7, 2: -2.0}):
        row = torch.full((3,), math.nan).double()
        for j, value in known.items():
            row[j] = value
        found = model.completed(row.repeat(3000, 1), torch.Generator().manual_seed(0))
        assert bool((found[:, list(known)] == row[list(known)]).all())
        drawn = model.conditional(known).sample(3000, torch.Generator().manual_seed(1))
        rest = [j for j in range(3) if j not in known]
        for k, j in enumerate(rest):
            assert scipy.stats.ks_2samp(found[:, j].numpy(), drawn[:, k].numpy()).pvalue > 1e-3
            if j:
                assert set(found[:, j].tolist()) <= set(model.columns.levels(j))
    whole = rows([[0.3, 1.0, 2.0], [math.nan, 1.0, 2.0]])
    assert torch.equal(model.completed(whole)[0], whole[0])


def test_what_the_flow_of_spread_rows_has() -> None:
    """The estimator reported that a model with a flow has none."""
    x = np.random.default_rng(0).poisson(3, size=(200, 1)).astype(float)
    model = OISM(process="torus", max_eigenvalue=25).fit(x)
    found, inner = model.model_, model.model_.inner
    assert isinstance(found, DiscreteModel)
    assert found.steps == inner.steps > 0
    assert found.times == inner.times
    assert found.chart is inner.chart
    assert found.flow.span == inner.flow.span
    t = inner.times[1]
    assert torch.equal(found.noise_deviations(t), inner.noise_deviations(t))
    torch.testing.assert_close(found.noise_deviations(0.1), (0.2**0.5) * inner.chart.units)
    # The reverse diffusion differs from the flow by 0.023: the scores are fitted. 0.002 is chance.
    drawn = model.sample(20_000, random_state=0, method="sde")
    levels = np.arange(8.0)[:, None]
    frequencies = (drawn == levels.T).mean(axis=0)
    np.testing.assert_allclose(frequencies, np.exp(model.score_samples(levels)), atol=0.03)


def test_rows_of_a_mixture_are_drawn_directly() -> None:
    model = DiscreteModel(gaussian(1), columns((0.0, 1.0)))
    assert model.steps is None
    assert model.times == (0.0, math.inf)


def test_the_columns_have_to_fit() -> None:
    with pytest.raises(ValueError, match="columns must be the 2 of the model and have a discrete"):
        DiscreteModel(gaussian(2), columns((), ()))
    with pytest.raises(ValueError, match="columns must be the 2 of the model"):
        DiscreteModel(gaussian(2), columns((1.0, 2.0)))
    assert bool(((cell_nodes(3) >= 0) & (cell_nodes(3) < 1)).all())


def test_copies_of_a_row_are_held_out_together() -> None:
    """Discrete values are spread, and copies then differed: the fit was chosen to repeat rows."""
    rng = np.random.default_rng(0)
    x, new = (np.column_stack((rng.normal(size=(n, 3)), rng.poisson(3, n))) for n in (60, 400))
    model = OISM().fit(np.repeat(x, 3, axis=0))
    held_out, reached = model.facts()["held_out"], model.score_samples(new).mean()
    assert held_out == pytest.approx(reached, abs=1.0)
    assert reached > -10  # about the entropy, 4.3 + 1.9, and what so few rows lose


@pytest.mark.parametrize("period", [7, 12])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_codes_from_one_to_the_period(period: int, count: int) -> None:
    """The last code is no 0, which never occurs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, count))
    x[:, 0] = 1 + (rng.normal(period - 1, 1.5, 150).round() % period)
    model = OISM(periodic={0: period}).fit(x)
    drawn = model.sample(1000, random_state=0)[:, 0]
    assert set(drawn) <= set(x[:, 0])
    assert np.mean(drawn == period) == pytest.approx(np.mean(x[:, 0] == period), abs=0.07)
    if count > 1:
        holes = x.copy()
        holes[::3, 0] = np.nan
        assert set(model.impute(holes, random_state=0)[:, 0]) <= set(x[:, 0])


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        ([1, 5, 12], (1, 5, 12)),
        ([1, 5, 12, 13], (1, 5, 12)),
        ([0, 5, 12], (0, 5)),
        ([-6, 0, 5], (-6, 0, 5)),
        ([1, 26], (1, 2)),
    ],
)
def test_levels_of_a_periodic_column(values: list[float], levels: tuple[float, ...]) -> None:
    columns = Columns.of(1, None, {0: 12.0}, None, None)
    rows = torch.tensor(values, dtype=torch.float64)[:, None]
    assert with_levels(columns, rows, {0}, detect=False)[0].levels == levels


def test_marginals_on_a_grid_take_no_settings_of_a_flow() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack((rng.poisson(3, 300), rng.normal(size=300)))
    model = OISM(process="torus", max_eigenvalue=9, flow_steps=4).fit(rows)
    assert list(model.columns_.discrete) == [0]
    counts = model.marginal([0])
    y = np.linspace(-30, 30, 4001)
    for level in (1.0, 3.0):
        joint = np.exp(model.score_samples(np.column_stack((np.full_like(y, level), y))))
        found = float(np.exp(counts.score_samples([[level]]))[0])
        assert found == pytest.approx(float(np.trapezoid(joint, y)), rel=2e-3)
    assert set(counts.sample(50, random_state=0)[:, 0]) <= set(rows[:, 0])


def few_different_rows() -> dict[str, np.ndarray[Any, Any]]:
    """Return tables of fewer than 20 different rows, which repeat because their values do."""
    rng = np.random.default_rng(0)
    flag = rng.integers(0, 2, (200, 1))
    return {
        "two flags": rng.integers(0, 2, (1000, 2)),
        "three flags": rng.integers(0, 2, (1000, 3)),
        "four flags": rng.integers(0, 2, (1000, 4)),
        "1 to 3": rng.integers(1, 4, (300, 2)),
        "1 to 4": rng.integers(1, 5, (100, 2)),
        "a flag and the opposite": np.hstack((flag, 1 - flag)),
        "three of four combinations": np.array([[0, 0], [0, 1], [1, 0]])[rng.integers(0, 3, 300)],
        "halves": 0.5 * rng.integers(0, 3, (200, 2)),
    }


@pytest.mark.parametrize("name", few_different_rows())
def test_levels_are_found_in_few_different_rows(name: str) -> None:
    """Only different rows counted, and of two flags there are four."""
    x = few_different_rows()[name] + 0.0
    columns = Columns.of(x.shape[1], None, None, None, None)
    assert discrete_columns(columns, torch.from_numpy(x)) == set(range(x.shape[1]))


@pytest.mark.parametrize("copies", [2, 3, 20, 200])
@pytest.mark.parametrize("different", [6, 12, 40])
def test_copies_do_not_make_levels_of_continuous_columns(different: int, copies: int) -> None:
    """An integer weight is that number of rows, and repeats no value."""
    rng = np.random.default_rng(0)
    columns = Columns.of(2, None, None, None, None)
    continuous = rng.normal(size=(different, 2))
    beside_a_flag = np.column_stack((rng.integers(0, 2, different), continuous[:, 0]))
    for x in (continuous, beside_a_flag):
        once, often = (
            discrete_columns(columns, torch.from_numpy(np.repeat(x, k, axis=0)))
            for k in (1, copies)
        )
        assert often == once
        drawn = x[rng.integers(0, different, copies * different)]
        assert 1 not in discrete_columns(columns, torch.from_numpy(drawn))


def test_two_flags_have_the_probabilities_of_their_combinations() -> None:
    """The density of one combination was 9.9, and no sample was 0 or 1."""
    x = np.random.default_rng(0).integers(0, 2, (1000, 2)) + 0.0
    model = OISM().fit(x)
    assert model.columns_.kinds == ("discrete", "discrete")
    combinations = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    found = np.exp(model.score_samples(combinations))
    np.testing.assert_allclose(found, 0.25, rtol=0, atol=0.02)
    assert set(np.unique(model.sample(100, random_state=0))) == {0.0, 1.0}


@pytest.mark.parametrize("value", [7.0, 0.0, -5.0])
@pytest.mark.parametrize("count", [1, 3])
def test_samples_given_a_value_beyond_a_closed_end(value: float, count: int) -> None:
    """Scores were those given the outer level, and drawing failed."""
    rng = np.random.default_rng(0)
    rating = rng.integers(1, 6, 200)
    x = np.column_stack((rating, rng.normal(rating[:, None], 0.3, (200, count))))
    model = OISM().fit(x)
    assert model.columns_[0].closed == (True, True)
    outer = min(max(value, 1.0), 5.0)
    drawn = model.sample(200, 0, given={0: value})
    np.testing.assert_array_equal(drawn[:, 0], value)
    np.testing.assert_array_equal(drawn[:, 1:], model.sample(200, 0, given={0: outer})[:, 1:])
    beyond, level = (
        model.conditional({0: one}).score_samples(x[:20, 1:]) for one in (value, outer)
    )
    np.testing.assert_allclose(beyond, level)
    holes = np.full((200, 1 + count), np.nan)
    holes[:, 0] = value
    filled = model.impute(holes, random_state=0)
    np.testing.assert_array_equal(filled[:, 0], value)
    assert np.median(filled[:, 1]) == pytest.approx(outer, abs=0.3)


def test_a_given_level_outside_of_the_bounds_is_named() -> None:
    model = DiscreteModel(gaussian(2), columns(integers(0, 3), (), low=0.0, closed=(True, True)))
    with pytest.raises(
        ValueError, match=r"given has density 0: \{0: -3.0\} is outside of the bounds"
    ):
        model.conditional({0: -3.0})
    with pytest.raises(ValueError, match="rows have density 0"):
        model.completed(rows([[-3.0, math.nan]]))
