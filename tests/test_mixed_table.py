"""The mixed table of the benchmarks: its exact density, and mixtures of it made by hand."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

pd = pytest.importorskip("pandas")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"

Array = NDArray[np.float64]


@pytest.fixture
def mixed(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("mixed_table")


@pytest.fixture
def by_hand(mixed: Any) -> Any:
    return importlib.import_module("mixed_mixture")


# s ↦ x with its derivative, and the range of s that holds all of the mass but 1e-8.
Axis = tuple[Callable[[Array], Array], Callable[[Array], Array], Callable[[Array], Array]]
POSITIVE: Axis = (np.exp, np.exp, np.log)
FREE: Axis = (
    lambda s: 10 + 5 * np.sinh(s),
    lambda s: 5 * np.cosh(s),
    lambda x: np.arcsinh((x - 10) / 5),
)
PLAIN: Axis = (lambda s: s, np.ones_like, lambda x: x)
AXES: dict[str, tuple[Axis, float, float]] = {
    "direction": (PLAIN, 0.0, 360.0),
    "humidity": (PLAIN, 0.0, 100.0),
    "rain": (POSITIVE, -25.0, 7.0),
    "temperature": (FREE, -6.0, 6.0),
    "duration": (POSITIVE, -25.0, 7.0),
}
NODE, WEIGHT = np.polynomial.legendre.leggauss(300)


def mass_below(mixed: Any, column: str, earlier: Any, upper: Array) -> Array:
    """Return ∫ p(x | earlier) dx up to the given s, by quadrature of the density alone."""
    (to_x, slope, _), low, _ = AXES[column]
    law = mixed.conditional(column, earlier)
    total = np.zeros(len(upper))
    for node, weight in zip(NODE, WEIGHT, strict=True):
        s = low + (upper - low) * (node + 1) / 2
        total += weight * (upper - low) / 2 * slope(s) * np.exp(law.log(to_x(s)))
    return total


def probabilities(mixed: Any, column: str, earlier: Any) -> tuple[list[Any], Array]:
    """Return the values of a discrete column, and their probabilities ``(n, values)``."""
    values = list(mixed.LEVELS[column]) if column in mixed.LEVELS else list(range(120))
    law = mixed.conditional(column, earlier)
    logs = [law.log([value] * len(earlier)) for value in values]
    return values, np.exp(np.stack(logs, axis=1))


def transforms(mixed: Any, column: str, earlier: Any, values: Any) -> Array:
    """Return F(x | earlier), made uniform at atoms: uniform if the density is that of the rows."""
    if column in AXES:
        return mass_below(mixed, column, earlier, AXES[column][0][2](values.to_numpy()))
    found, shares = probabilities(mixed, column, earlier)
    place = np.array([found.index(value) for value in values])
    rows = np.arange(len(place))
    below = shares.cumsum(axis=1)[rows, place] - shares[rows, place]
    noise = np.random.default_rng(5).random(len(place))
    result: Array = below + noise * shares[rows, place]
    return result


COLUMNS = ["site", *AXES, "visitors", "open"]


@pytest.mark.parametrize("column", COLUMNS)
def test_conditional_densities_integrate_to_one(mixed: Any, column: str) -> None:
    table = mixed.mixed_table(50, np.random.default_rng(1))
    earlier = table[list(mixed.COLUMNS[: mixed.COLUMNS.index(column)])]
    if column in AXES:
        mass = mass_below(mixed, column, earlier, np.full(50, AXES[column][2]))
    else:
        mass = probabilities(mixed, column, earlier)[1].sum(axis=1)
    np.testing.assert_allclose(mass, 1, atol=1e-6)


@pytest.mark.parametrize("column", COLUMNS)
def test_rows_have_the_density(mixed: Any, column: str) -> None:
    """And not that of rows whose earlier columns are another row's: all columns depend."""
    table = mixed.mixed_table(2000, np.random.default_rng(2))
    earlier = table[list(mixed.COLUMNS[: mixed.COLUMNS.index(column)])]
    uniform = transforms(mixed, column, earlier, table[column])
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3
    if len(earlier.columns):
        other = earlier.sample(frac=1, random_state=0).reset_index(drop=True)
        wrong = transforms(mixed, column, other, table[column])
        assert stats.kstest(wrong, "uniform").pvalue < 1e-3


def test_the_density_is_the_product(mixed: Any) -> None:
    table = mixed.mixed_table(20, np.random.default_rng(3))
    factors = mixed.mixed_log_factors(table)
    assert list(factors.columns) == list(table.columns) == list(mixed.COLUMNS)
    np.testing.assert_allclose(mixed.mixed_log_density(table), factors.sum(axis=1))
    late = table.assign(duration=table["duration"] * 2)  # changes the last factor alone
    same = mixed.mixed_log_factors(late).drop(columns="duration")
    pd.testing.assert_frame_equal(same, factors.drop(columns="duration"))


def test_rows_that_cannot_be_are_counted(mixed: Any) -> None:
    table = mixed.mixed_table(100, np.random.default_rng(4))
    assert sum(mixed.outside(table).values()) == 0
    wrong = table.astype({"site": object, "visitors": float})
    wrong.loc[0, "site"] = "moon"
    wrong.loc[1, "rain"] = -0.1
    wrong.loc[2:3, "humidity"] = 100.5
    wrong.loc[4, "visitors"] = 1.5
    wrong.loc[5, "temperature"] = np.nan
    expected = {"site": 1, "rain": 1, "humidity": 2, "visitors": 1, "temperature": 1}
    assert {k: v for k, v in mixed.outside(wrong).items() if v} == expected


def draw(by_hand: Any, model: Any, n: int) -> Any:
    """Return rows of the mixtures, by the inverse transforms, with NaN outside of all cells."""
    parts = []
    for levels, share in model.shares.items():
        y = model.mixtures[levels].sample(round(n * share), random_state=1)
        count = np.exp(y[:, 5]) - 0.5 if model.form.scale == "log" else y[:, 5]
        columns = {
            "direction": np.remainder(y[:, 0] + model.form.cut, 360),
            "humidity": 100 * special.expit(y[:, 1]),
            "rain": np.exp(y[:, 2]),
            "temperature": y[:, 4],
            "visitors": np.where(count >= 0, np.floor(count), np.nan),
            "duration": np.exp(y[:, 3]),
        }
        parts.append(pd.DataFrame(columns).assign(**dict(zip(model.own, levels, strict=True))))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("scale", ["log", "raw"])
def test_mixtures_by_hand_are_densities(mixed: Any, by_hand: Any, scale: str) -> None:
    """∫pq/(p + q) is the mean of q/(p + q) over rows of p, and of p/(p + q) over those of q."""
    rng = np.random.default_rng(0)
    table, test = mixed.mixed_table(1500, rng), mixed.mixed_table(6000, rng)
    form = by_hand.Form(by_hand.emptiest(table["direction"].to_numpy()), scale, ())
    model = by_hand.Candidate(table, form, ("site", "open"), seed=0)
    drawn = draw(by_hand, model, 6000)
    inside = drawn.dropna().reset_index(drop=True)[list(mixed.COLUMNS)]
    own = np.zeros(len(drawn))  # rows outside of all cells are no rows of p
    own_ratio = model.score_samples(inside) - mixed.mixed_log_density(inside)
    own[: len(inside)] = special.expit(-own_ratio)
    ratio = model.score_samples(test) - mixed.mixed_log_density(test)
    error = np.hypot(own.std(), special.expit(ratio).std()) / np.sqrt(6000)
    assert abs(special.expit(ratio).mean() - own.mean()) < 3 * error
    wrong = special.expit(ratio + np.log(test["rain"])).mean()  # without the slope of a logarithm
    assert abs(wrong - own.mean()) > 10 * error


def test_a_cell_holds_its_integral(mixed: Any, by_hand: Any) -> None:
    """Counts and coded levels: the sum over cells is the integral of the continuous density."""
    table = mixed.mixed_table(400, np.random.default_rng(0))
    model = by_hand.Candidate(table, by_hand.Form(0.0, "raw", ("open",)), ("site",), seed=0)
    row = table.iloc[[0]]
    rows = pd.concat([row] * 60, ignore_index=True).assign(visitors=range(60))
    sums = [model.score_samples(rows.assign(open=level)) for level in mixed.LEVELS["open"]]
    noise = (np.stack(np.meshgrid(np.arange(3000), np.arange(100)), -1).reshape(-1, 2) + 0.5) / [
        [50, 50]
    ]
    zero = row.assign(visitors=0, open="no")
    y, slope = model.form.coordinates(zero.iloc[np.zeros(len(noise), dtype=int)], noise)
    mixture = model.mixtures[(row["site"].iloc[0],)]
    turned = [y + np.eye(y.shape[1])[0] * turn for turn in (-360.0, 0.0, 360.0)]
    logs = special.logsumexp([mixture.score_samples(one) for one in turned], axis=0) + slope
    integral = special.logsumexp(logs) - np.log(50 * 50)
    share = np.log(model.shares[(row["site"].iloc[0],)])
    assert special.logsumexp(sums) == pytest.approx(integral + share, abs=1e-3)


@pytest.mark.slow
def test_the_form_with_the_lowest_criterion_is_used(mixed: Any, by_hand: Any) -> None:
    rng = np.random.default_rng(0)
    table, test = mixed.mixed_table(600, rng), mixed.mixed_table(3000, rng)
    chosen = by_hand.fit_by_hand(table)
    other = by_hand.Candidate(
        table, by_hand.Form(chosen.form.cut, "raw", ("site", "open")), (), seed=0
    )
    assert chosen.bic < other.bic
    assert chosen.score_samples(test).mean() > other.score_samples(test).mean()
    assert 0 < (mixed.mixed_log_density(test) - chosen.score_samples(test)).mean() < 1.5
