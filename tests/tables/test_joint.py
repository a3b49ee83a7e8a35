"""Pools of mixtures for tables of any columns: densities, marginals, conditionals, gaps, fits."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from torch import Tensor

from oism import OISM, load
from oism.tables._candidates import Candidates
from oism.tables._column import Column
from oism.tables._joint import JointModel
from oism.tables._joint_fit import fit_joint
from oism.tables._margin import Margin
from oism.tables._mixture import MixtureModel
from oism.tables._part import Identity, Part, Warp
from oism.tables._pool import pool_weights, weight_path
from oism.tables._whitened_rows import WhitenedRows, scale_of
from tests.elsewhere import PLACE, SimulatedDevice

COLUMNS = (
    Column("free"),
    Column("share", low=0.0, high=1.0),
    Column("kind", levels=("a", "b", "c"), categorical=True),
    Column("angle", period=360.0, start=-180.0),
)


def mixture(count: int, seed: int) -> MixtureModel:
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(count, 3, 3, generator=g, dtype=torch.float64)
    weights = torch.rand(count, generator=g, dtype=torch.float64) + 0.2
    return MixtureModel(
        centre=torch.zeros(3, dtype=torch.float64),
        scale=torch.ones(3, dtype=torch.float64),
        weights=weights / weights.sum(),
        means=0.7 * torch.randn(count, 3, generator=g, dtype=torch.float64),
        covariances=0.2 * root @ root.mT + 0.2 * torch.eye(3).double(),
    )


def part(name: str, count: int, seed: int) -> Part:
    g = torch.Generator().manual_seed(100 + seed)
    unit = Margin.of(
        torch.tensor([0.0, 0.3, 1.0]).double(), torch.tensor([0.0, 1.0, -1.0]).double()
    )
    turn = Margin.of(
        torch.linspace(-180, 180, 9).double(),
        torch.tensor([0.0, 1, 2, 0, -1, 0, 1, 1, 0]).double(),
        periodic=True,
    )
    table = torch.rand(count, 3, generator=g, dtype=torch.float64) + 0.1
    table = (table / table.sum(dim=1, keepdim=True)).log()
    first = (
        Identity()
        if name == "plain"
        else Warp(
            Margin.of(
                torch.tensor([-4.0, 0.0, 4.0]).double(), torch.tensor([-3.0, 0.0, -3.0]).double()
            )
        )
    )
    return Part(name, (first, Warp(unit), Warp(turn)), mixture(count, seed), (table,))


@pytest.fixture
def model() -> JointModel:
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    return JointModel(COLUMNS, weights, (part("plain", 3, 0), part("warped", 4, 1)))


def grid(low: float, high: float, count: int = 4000) -> Tensor:
    """Return the midpoints of equal intervals."""
    return low + (torch.arange(count, dtype=torch.float64) + 0.5) * (high - low) / count


def line(point: list[float], column: int, values: Tensor) -> Tensor:
    rows = torch.tensor(point, dtype=torch.float64).repeat(len(values), 1)
    rows[:, column] = values
    return rows


POINT = [0.3, 0.4, 1.0, 20.0]
RANGES = {0: (-12.0, 12.0), 1: (0.0, 1.0), 3: (-180.0, 180.0)}


@pytest.mark.parametrize("column", [0, 1, 3])
def test_a_marginal_is_the_integral_of_the_joint_density(model: JointModel, column: int) -> None:
    values = grid(*RANGES[column])
    step = float(values[1] - values[0])
    total = float(model.log_density(line(POINT, column, values)).exp().sum()) * step
    rest = [j for j in range(4) if j != column]
    point = torch.tensor([POINT], dtype=torch.float64)
    found = model.marginal(rest).log_density(point[:, rest])
    # The density jumps at the ends of a margin, so midpoints are of first order.
    assert float(found) == pytest.approx(math.log(total), abs=1e-3)


def test_the_marginal_without_levels_is_their_sum(model: JointModel) -> None:
    total = float(model.log_density(line(POINT, 2, torch.arange(3).double())).exp().sum())
    point = torch.tensor([[0.3, 0.4, 20.0]], dtype=torch.float64)
    found = model.marginal([0, 1, 3]).log_density(point)
    assert float(found) == pytest.approx(math.log(total), abs=1e-12)


def test_marginals_of_one_column_have_mass_one(model: JointModel) -> None:
    for column, ends in RANGES.items():
        values = grid(*ends, 20_000)
        density = model.marginal([column]).log_density(values[:, None]).exp()
        assert float(density.mean()) * (ends[1] - ends[0]) == pytest.approx(1, abs=1e-3)
    levels = model.marginal([2]).log_density(torch.arange(3).double()[:, None]).exp()
    assert float(levels.sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    "given", [{0: 0.3}, {1: 0.4, 2: 1}, {3: 20.0, 0: 0.3}, {0: 0.3, 1: 0.4, 3: 20.0}]
)
def test_a_conditional_is_a_ratio(model: JointModel, given: dict[int, float]) -> None:
    rest = [j for j in range(4) if j not in given]
    point = torch.tensor([POINT], dtype=torch.float64)
    joint = model.log_density(point)
    marginal = model.marginal(sorted(given)).log_density(point[:, sorted(given)])
    found = model.conditional(given).log_density(point[:, rest])
    assert float(found) == pytest.approx(float(joint - marginal), abs=1e-6)


def test_samples_have_the_marginal_distributions(model: JointModel) -> None:
    x = model.sample(4000, torch.Generator().manual_seed(0))
    for column, ends in RANGES.items():
        values = grid(*ends, 4000)
        density = model.marginal([column]).log_density(values[:, None]).exp()
        cdf = torch.cumsum(density, 0) / density.sum()
        uniform = np.interp(x[:, column].numpy(), values.numpy(), cdf.numpy())
        assert scipy.stats.kstest(uniform, "uniform").pvalue > 1e-3
    expected = model.marginal([2]).log_density(torch.arange(3).double()[:, None]).exp()
    counts = torch.bincount(x[:, 2].long(), minlength=3)
    assert scipy.stats.chisquare(counts.numpy(), 4000 * expected.numpy()).pvalue > 1e-3
    assert bool(((x[:, 1] >= 0) & (x[:, 1] <= 1)).all())


def test_conditional_samples_pass_a_test_and_fail_for_another_condition(model: JointModel) -> None:
    given = model.conditional({0: 1.0, 2: 0})
    x = given.sample(3000, torch.Generator().manual_seed(1))[:, 0]
    values = grid(0, 1)
    for condition, passes in (({0: 1.0, 2: 0}, True), ({0: -1.0, 2: 2}, False)):
        density = model.conditional(condition).marginal([0]).log_density(values[:, None]).exp()
        cdf = torch.cumsum(density, 0) / density.sum()
        p = scipy.stats.kstest(np.interp(x.numpy(), values.numpy(), cdf.numpy()), "uniform").pvalue
        assert (p > 1e-3) == passes


def test_gaps_are_filled_by_conditional_draws(model: JointModel) -> None:
    rows = torch.tensor([[1.0, math.nan, 0.0, math.nan]]).double().repeat(3000, 1)
    filled = model.completed(rows, torch.Generator().manual_seed(0))
    drawn = model.conditional({0: 1.0, 2: 0}).sample(3000, torch.Generator().manual_seed(1))
    assert bool((filled[:, [0, 2]] == rows[:, [0, 2]]).all())
    for k, column in enumerate((1, 3)):
        test = scipy.stats.ks_2samp(filled[:, column].numpy(), drawn[:, k].numpy())
        assert test.pvalue > 1e-3
    everything = model.completed(torch.full((5, 4), math.nan).double())
    assert bool(everything.isfinite().all())


def test_beyond_a_bound_the_density_is_zero(model: JointModel) -> None:
    x = line(POINT, 1, torch.tensor([-0.1, 1.1]).double())
    assert bool((model.log_density(x) == -math.inf).all())


def test_it_is_stored(model: JointModel, tmp_path: Path) -> None:
    model.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    x = model.sample(20, torch.Generator().manual_seed(0))
    assert torch.equal(model.log_density(x), again.log_density(x))
    assert again.facts() == model.facts()


def test_on_a_device_it_is_the_same_model(model: JointModel) -> None:
    x = model.sample(20, torch.Generator().manual_seed(0))
    gaps = x.clone()
    gaps[:10, 0], gaps[5:, 2] = math.nan, math.nan
    expected = model.log_density(x)
    filled = model.completed(gaps, torch.Generator().manual_seed(1))
    given, some = {0: 0.3, 2: 1.0}, [0, 2, 3]
    with SimulatedDevice():
        moved = copy.deepcopy(model).to(PLACE)
        assert all(one.device == PLACE for one in moved.buffers())
        drawn = moved.sample(20, torch.Generator().manual_seed(0))
        assert drawn.device == PLACE
        assert torch.equal(drawn.cpu(), x)
        for rows in (x, drawn):
            found = moved.log_density(rows)
            assert found.device == rows.device
            torch.testing.assert_close(found.cpu(), expected)
        assert torch.equal(moved.completed(gaps, torch.Generator().manual_seed(1)), filled)
        conditional, marginal = moved.conditional(given), moved.marginal(some)
        assert conditional.device == marginal.device == PLACE
        on_conditional = conditional.log_density(x[:, [1, 3]])
        on_marginal = marginal.log_density(x[:, some])
    torch.testing.assert_close(on_conditional, model.conditional(given).log_density(x[:, [1, 3]]))
    torch.testing.assert_close(on_marginal, model.marginal(some).log_density(x[:, some]))


def test_there_is_no_single_process(model: JointModel) -> None:
    with pytest.raises(TypeError, match="process='mixture'"):
        model.score(torch.tensor([POINT]).double(), 0.1)


@pytest.mark.parametrize("columns", [[], [0, 0], [4], [-1]])
def test_bad_columns_are_named(model: JointModel, columns: list[int]) -> None:
    with pytest.raises(ValueError, match="columns must be"):
        model.marginal(columns)


def test_bad_conditions_are_named(model: JointModel) -> None:
    with pytest.raises(ValueError, match="given must leave"):
        model.conditional({0: 0.0, 1: 0.5, 2: 0, 3: 0.0})
    with pytest.raises(ValueError, match="outside of the bounds"):
        model.conditional({1: 2.0})
    with pytest.raises(ValueError, match="column 2 must hold codes"):
        model.log_density(torch.tensor([[0.0, 0.5, 3.0, 0.0]]).double())
    for code in (-1.0, 3.0, 0.5, 1.9):
        with pytest.raises(ValueError, match=rf"column 2 must hold codes .* 0 to 2, got {code:g}"):
            model.conditional({2: code})
        with pytest.raises(ValueError, match="column 2 must hold codes"):
            model.completed(torch.tensor([[math.nan, 0.5, code, 0.0]]).double())
    with pytest.raises(ValueError, match="outside of the bounds"):
        model.completed(torch.tensor([[math.nan, 2.0, 0.0, 0.0]]).double())


def test_many_steps_for_the_weights_of_a_pool_maximise_the_likelihood() -> None:
    table = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).double()

    def likelihood(weights: Tensor) -> float:
        return float(torch.logsumexp(table + weights.log(), dim=1).mean())

    (best,) = weight_path(table, torch.ones(200).double(), (2000,))
    for step in torch.randn(20, 3, generator=torch.Generator().manual_seed(1)).double():
        other = (best + 0.02 * step).clamp(min=1e-6)
        assert likelihood(other / other.sum()) <= likelihood(best) + 1e-9


def test_the_weights_of_a_pool_of_equal_models_stay_equal() -> None:
    """Log-densities that differ by noise alone give no reason to prefer a model."""
    table = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)).double()
    weights, held_out = pool_weights(table)
    many = 0.5 * (weights - 1 / 40).abs().sum()
    (overfitted,) = weight_path(table, torch.ones(50).double(), (2000,))
    assert float(many) < 0.5 * float(0.5 * (overfitted - 1 / 40).abs().sum())
    expected = torch.logsumexp(table, dim=1) - math.log(40)
    assert float(held_out.mean()) == pytest.approx(float(expected.mean()), abs=0.1)


@pytest.mark.parametrize("n", [24, 100, 1000])
def test_one_outlier_is_not_the_scale_of_a_column(n: int) -> None:
    """Quantiles further out were interpolated between it and the other rows."""
    y = torch.from_numpy(np.random.default_rng(n).normal(size=(n, 1)))
    without = scale_of(y[1:])
    y[0] = 1e7
    assert float(scale_of(y)) == pytest.approx(float(without), rel=0.1)


def test_scales_of_columns_with_most_rows_at_one_value() -> None:
    y = torch.zeros(1000, 4, dtype=torch.float64)
    y[:400, 0], y[:60, 1], y[:1, 2] = 4.0, 4.0, 4.0
    assert scale_of(y).tolist() == [2.0, 2.0, 2.0, 0.0]


@pytest.mark.slow
def test_an_outlier_does_not_spoil_a_mixture() -> None:
    rng = np.random.default_rng(0)
    rows, new = rng.normal(size=(100, 5)), rng.normal(size=(500, 5))
    usual = OISM(process="mixture").fit(rows).score(new) / 500
    rows[0] += 1e6
    assert OISM(process="mixture").fit(rows).score(new) / 500 > usual - 0.3


def test_whitened_rows_have_unit_covariance_whatever_the_outliers() -> None:
    x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)).double()
    x = x @ torch.tensor([[1.0, 2.0, 0.0], [0.0, 1e-3, 5.0], [0.0, 0.0, 1e4]]).double()
    x[0] = 1e12
    z = WhitenedRows.of(x, torch.zeros(x.shape[1], dtype=torch.bool)).to_white(x)[1:]
    assert torch.allclose(torch.cov(z.mT, correction=0), torch.eye(3).double(), atol=0.05)


def skewed(n: int, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, 4, generator=g, dtype=torch.float64)
    z[:, 1] = 0.8 * z[:, 0] + 0.6 * z[:, 1]
    return torch.stack((z[:, 0].exp(), z[:, 1], z[:, 2].square(), z[:, 3]), dim=1)


def truth(x: Tensor) -> Tensor:
    first = scipy.stats.lognorm(1.0).logpdf(x[:, 0].numpy())
    second = scipy.stats.norm(0.8 * np.log(x[:, 0].numpy()), 0.6).logpdf(x[:, 1].numpy())
    third = scipy.stats.chi2(1).logpdf(x[:, 2].numpy())
    return torch.from_numpy(first + second + third + scipy.stats.norm.logpdf(x[:, 3].numpy()))


def test_a_fit_of_skewed_columns_comes_close_to_the_truth() -> None:
    train, test = skewed(1500, 0), skewed(2000, 1)
    columns = [Column(low=0.0), Column(), Column(low=0.0), Column()]
    few = Candidates(counts=(1, 2, 4), starts=1, local=False)
    model = fit_joint(train, columns, candidates=few, progress=False)
    gap = float((truth(test) - model.log_density(test)).mean())
    assert gap < 0.15
    plain = Candidates(("plain",), counts=(1, 2, 4), starts=1, local=False)
    other = fit_joint(train, [Column()] * 4, candidates=plain, progress=False)
    assert gap < float((truth(test) - other.log_density(test)).mean()) - 0.1
    drawn = model.sample(2000, torch.Generator().manual_seed(0))
    assert bool((drawn[:, [0, 2]] >= 0).all())


def test_the_held_out_likelihood_is_that_of_new_rows() -> None:
    train, test = skewed(600, 2), skewed(3000, 3)
    few = Candidates(counts=(1, 2, 4), starts=1)
    model = fit_joint(train, [Column()] * 4, candidates=few, progress=False)
    logs = model.log_density(test)
    error = float(logs.std()) / math.sqrt(600)
    assert model.notes["held_out"] == pytest.approx(float(logs.mean()), abs=4 * error)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 8])
def test_few_rows_give_a_wide_density(n: int) -> None:
    for seed in range(2):
        x = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)).double()
        fresh = torch.randn(50, 4, generator=torch.Generator().manual_seed(9)).double()
        model = fit_joint(x, [Column()] * 4, progress=False)
        logs = model.log_density(fresh)
        assert bool(logs.isfinite().all())
        assert n < 3 or float(logs.mean()) > -200
        assert bool(
            model.log_density(torch.full((1, 4), 1e300, dtype=torch.float64)).isfinite().all()
        )


def test_values_at_a_bound_are_given_like_others() -> None:
    """The background of the coordinates, thrice as wide, had nearly all of the density there."""
    x = torch.rand(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    columns = [Column(low=0.0, high=1.0), Column()]
    model = fit_joint(x, columns, candidates=Candidates(counts=(1,), starts=1, local=False))
    for value in (0.0, 0.5, 1.0):
        drawn = model.conditional({0: value}).sample(500, torch.Generator().manual_seed(0))[:, 0]
        assert float(drawn.quantile(0.01)) > -1
        assert float(drawn.quantile(0.99)) < 2
        assert float(model.marginal([0]).log_density(torch.tensor([[value]]))) < 3


def test_samples_of_a_fit_have_the_spread_of_the_rows() -> None:
    """Those of the background too: in warped columns it reaches no further than the margins."""
    source = np.random.default_rng(4)
    rows = torch.from_numpy(source.gamma(2.0, size=(400, 4)) @ source.normal(size=(4, 4)))
    few = Candidates(counts=(1, 2, 4), starts=1, local=False)
    fitted = fit_joint(rows, [Column()] * 4, candidates=few, progress=False)
    drawn = fitted.sample(100_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn.std(0), rows.std(0), rtol=0.05, atol=0)
    low, high = rows.amin(0), rows.amax(0)
    far = ((drawn < 4 * low - 3 * high) | (drawn > 4 * high - 3 * low)).any(dim=1)
    assert float(far.double().mean()) < 0.1 / len(rows)
