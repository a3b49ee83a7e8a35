"""At most three columns: the choice between the torus and mixtures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from numpy.typing import NDArray

from oism import OISM, VarianceExploding, load
from oism.plot import limits_of
from oism.tables import _torus_or_mixture as choice_module
from oism.tables._joint import JointModel
from oism.tables._joint_family import JointFamily, MixtureFamily
from oism.tables._rows import RowCollector
from oism.tables._torus_or_mixture import (
    FEW_ROWS,
    TRIAL_ROWS,
    by_neighbours,
    choose,
    has_tails,
)

Array = NDArray[np.float64]


def correlated(n: int, dim: int, seed: int) -> Array:
    """Return n rows of correlated normal columns."""
    rng = np.random.default_rng(seed)
    mixing = np.eye(dim) + 0.5 * rng.normal(size=(dim, dim))
    found: Array = rng.normal(size=(n, dim)) @ mixing
    return found


def ridge(n: int, dim: int, seed: int) -> Array:
    """Return n rows near a curve: all columns are functions of the first, with little noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    columns = [x, x + 0.3 * x**2, 2 * x - 0.2 * x**2][:dim]
    found: Array = np.stack(columns, axis=1) + 0.004 * rng.normal(size=(n, dim))
    return found


def clusters(n: int, dim: int, seed: int) -> Array:
    """Return n rows in narrow clusters at the corners of a box."""
    rng = np.random.default_rng(seed)
    found: Array = rng.integers(2, size=(n, dim)) + 0.05 * rng.normal(size=(n, dim))
    return found


def taken(model: OISM) -> str | None:
    choice = model.facts().get("choice")
    return None if choice is None else str(choice["taken"])


def test_few_rows_with_copies_are_not_far_below_a_gaussian() -> None:
    """49 rows of which about 20 are distinct: the torus alone is 0.44 nats below, on average."""
    gaps = []
    for seed in range(6):
        rows = correlated(1024, 3, seed)
        some = rows[:24][np.random.default_rng(seed).integers(24, size=49)]
        normal = scipy.stats.multivariate_normal(some.mean(axis=0), np.cov(some.T))
        gaps.append(OISM().fit(some).score(rows[24:]) / 1000 - normal.logpdf(rows[24:]).mean())
    assert np.mean(gaps) > -0.25


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (correlated(30, 3, 0), "mixture"),
        (np.random.default_rng(1).uniform(size=(90, 3)), "torus"),
    ],
    ids=["normal", "uniform"],
)
def test_held_out_rows_choose(rows: Array, expected: str) -> None:
    model = OISM().fit(rows)
    assert taken(model) == expected
    line = model.summary().splitlines()[-1]
    assert line.startswith(f"choice      {expected}: on {len(rows)} held-out rows a mixture has ")
    choice = model.facts()["choice"]
    assert f"{choice['gain']:+.2f} ± {choice['error']:.2f} nats per row" in line
    alone = OISM(process=expected).fit(rows)
    np.testing.assert_array_equal(model.score_samples(rows), alone.score_samples(rows))
    assert "choice" not in alone.facts()


@pytest.mark.parametrize(
    ("few", "gains"),
    [
        (True, {-0.1: "torus", -0.05: "mixture", 0.05: "mixture"}),
        (False, {-0.1: "torus", 0.1: "torus", 0.13: "mixture"}),
    ],
    ids=["few", "many"],
)
def test_which_gain_is_clear(few: bool, gains: dict[float, str]) -> None:
    torus, one = torch.zeros(100).double(), torch.ones(100).double()
    noise = torch.linspace(-1, 1, 100, dtype=torch.float64)  # a standard error of 0.058
    for shift, expected in gains.items():
        found = choose(noise + shift, torus, one, dim=3, few=few)
        assert found is not None
        assert found.taken == expected
        error = float(noise.std()) / 10
        assert found[1:] == pytest.approx((100, shift, error), rel=1e-6)


def test_a_small_gain_keeps_the_flow() -> None:
    torus, one = torch.zeros(100).double(), torch.ones(100).double()
    for gain, expected in ((0.04, "torus"), (0.06, "mixture")):
        found = choose(torus + gain, torus, one, dim=2)
        assert found is not None
        assert found.taken == expected
        assert found.error == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("heavy", [1.0, 5.0])
def test_one_row_does_not_choose(heavy: float) -> None:
    """The torus is worse on one row only, where it has no density."""
    gains, weights = torch.full((50,), -0.6, dtype=torch.float64), torch.ones(50).double()
    gains[0], weights[0] = 1e6, heavy
    found = choose(gains, torch.zeros_like(gains), weights, dim=3, few=True)
    assert found is not None
    assert found.taken == ("torus" if heavy == 1 else "mixture")
    weights[0] = 1e3
    assert choose(gains, torch.zeros_like(gains), weights, dim=3) is None  # no standard error


def test_copies_count_as_weights_and_not_as_rows() -> None:
    rows, copies = correlated(30, 3, 3), np.arange(30) % 4
    repeated = OISM().fit(np.repeat(rows, copies, axis=0))
    weighted = OISM().fit(rows, sample_weight=copies)
    assert repeated.facts()["choice"]["rows"] == weighted.facts()["choice"]["rows"] == 22
    assert taken(repeated) == taken(weighted)
    np.testing.assert_allclose(
        repeated.score_samples(rows), weighted.score_samples(rows), rtol=0, atol=1e-6
    )
    many = np.repeat(rows, 10, axis=0)
    assert OISM().fit(many).facts()["choice"]["rows"] == 30


def one_column(name: str, n: int, seed: int) -> tuple[Array, Any]:
    """Return n rows of one column, and their distribution, or the log-density alone."""
    rng = np.random.default_rng(seed)
    if name == "far clusters":
        near, far = scipy.stats.norm(0, 1), scipy.stats.norm(1e6, 1)
        rows = np.where(rng.random(n) < 0.5, near.rvs(n, rng), far.rvs(n, rng))
        return rows[:, None], lambda x: np.log(0.5 * near.pdf(x) + 0.5 * far.pdf(x))
    laws = {
        "normal": scipy.stats.norm(),
        "uniform": scipy.stats.uniform(),
        "gamma": scipy.stats.gamma(0.3),
        "log-normal": scipy.stats.lognorm(2.0),
        "t": scipy.stats.t(2),
        "exponential": scipy.stats.expon(),
    }
    found: Array = laws[name].rvs(size=(n, 1), random_state=rng)
    return found, laws[name].logpdf


@pytest.mark.parametrize(
    ("name", "n", "least"),
    [("gamma", 400, 0.2), ("log-normal", 1000, 0.1), ("far clusters", 100, 3.0)],
)
def test_one_free_column_that_the_torus_cannot_follow_has_a_pool(
    name: str, n: int, least: float
) -> None:
    rows, law = one_column(name, 4 * n, 1)
    train, new = rows[:n], rows[n:]
    model = OISM().fit(train)
    assert taken(model) == "mixture"
    assert isinstance(model.model_, JointModel)
    torus = OISM(process="torus").fit(train)
    assert model.score(new) - torus.score(new) > least * len(new)
    assert law(new[:, 0]).mean() - model.score(new) / len(new) < 0.15


@pytest.mark.parametrize(
    ("name", "n"),
    [("normal", 50), ("normal", 3000), ("uniform", 3000), ("exponential", 20_000)],
)
def test_one_free_column_is_not_compared_without_need(
    name: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **settings: object) -> None:
        raise AssertionError("a mixture was fitted")

    monkeypatch.setattr(choice_module, "cross_fit_joint", fail)
    monkeypatch.setattr(RowCollector, "cross_fitted", fail)
    rows, _ = one_column(name, n, 2)
    assert taken(OISM().fit(rows)) is None


@pytest.mark.parametrize("n", [100, 3000])
def test_new_rows_of_heavy_tails_have_densities_of_their_order(n: int) -> None:
    """With a Gaussian background they were tens of nats below the truth, in the mean."""
    rows, law = one_column("t", 20 * n, 3)
    new = rows[n:]
    model = OISM(process="torus").fit(rows[:n])
    gaps = law(new[:, 0]) - model.score_samples(new)
    assert gaps.mean() < 0.3
    assert gaps.max() < 25


def test_the_density_by_neighbours_is_that_of_the_rows() -> None:
    """Without bias, up to the standard error of the mean, if the density varies slowly."""
    for name in ("normal", "exponential"):
        rows, law = one_column(name, 20_000, 4)
        x = torch.from_numpy(np.sort(rows[:, 0]))
        found = by_neighbours(x, torch.ones_like(x))
        gaps = found.numpy() - law(x.numpy())
        assert abs(gaps.mean()) < 0.01
        copies = by_neighbours(x, torch.full_like(x, 7.0))
        torch.testing.assert_close(copies, found)


def test_tails_are_those_of_the_weighted_rows() -> None:
    x = torch.linspace(-1, 1, 201, dtype=torch.float64)
    wide = torch.cat((x, torch.tensor([9.0], dtype=torch.float64)))
    one = torch.ones_like(wide)
    assert not has_tails(x, one[:-1])
    assert has_tails(wide, one)
    few = torch.cat((one[:50] * 100, one[50:-51], one[-51:] * 100))  # the half reaches far
    assert not has_tails(torch.cat((x, torch.tensor([7.0]))), few)


@pytest.mark.parametrize("make", [correlated, clusters])
def test_units_and_orders_do_not_matter(make: Any) -> None:
    rows = make(40, 3, 4)
    usual, units = OISM().fit(rows), np.array([1e-3, 50.0, 7.0])
    other = OISM().fit((rows * units + 7)[::-1, ::-1])
    found, expected = other.facts()["choice"], usual.facts()["choice"]
    assert found["taken"] == expected["taken"]
    assert found["gain"] == pytest.approx(expected["gain"], abs=1e-3)
    log_density = other.score_samples((rows * units + 7)[:, ::-1]) + np.log(units).sum()
    np.testing.assert_allclose(log_density, usual.score_samples(rows), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("n", "dim"), [(FEW_ROWS[3] + 200, 3), (30, 2), (300, 2)])
def test_smooth_rows_are_modelled_on_the_torus(n: int, dim: int) -> None:
    rows = np.random.default_rng(5).uniform(size=(n, dim))
    model, torus = OISM().fit(rows), OISM(process="torus").fit(rows)
    assert taken(model) == "torus"
    assert model.facts()["choice"]["gain"] < 0.05
    np.testing.assert_array_equal(model.score_samples(rows), torus.score_samples(rows))


@pytest.mark.parametrize(("n", "dim"), [(400, 2), (400, 3), (TRIAL_ROWS + 400, 2)])
def test_a_ridge_is_modelled_by_a_mixture(n: int, dim: int) -> None:
    """Columns that nearly determine each other: the waves of the torus are too long."""
    rows, new = ridge(n, dim, 0), ridge(2000, dim, 1)
    model, torus = OISM().fit(rows), OISM(process="torus").fit(rows)
    choice = model.facts()["choice"]
    assert choice["taken"] == "mixture"
    assert choice["rows"] == n
    gain = float(np.mean(model.score_samples(new) - torus.score_samples(new)))
    assert gain > 0.3
    assert abs(gain - choice["gain"]) < 0.25 * gain + 4 * choice["error"]


def heavy(n: int, dim: int, seed: int) -> Array:
    """Return n rows whose first column is a count, 0 in a quarter of them and large in others."""
    rng = np.random.default_rng(seed)
    counts = rng.negative_binomial(0.3, 0.01, size=n)
    found: Array = np.column_stack((counts, rng.normal(size=(n, dim - 1)))).astype(float)
    return found


@pytest.mark.parametrize("n", [JointFamily.trial_rows - 50, JointFamily.trial_rows + 300])
@pytest.mark.parametrize("dim", [2, 3])
def test_a_value_that_many_rows_have_keeps_its_probability(n: int, dim: int) -> None:
    """On the torus, waves spread a quarter of the rows at 0 over the values up to ten."""
    rows = heavy(n, dim, 0)
    model = OISM().fit(rows)
    assert taken(model) == "mixture"
    share = float((rows[:, 0] == 0).mean())
    drawn = model.sample(4000, random_state=0)[:, 0]
    assert float((drawn == 0).mean()) == pytest.approx(share, abs=0.05)
    assert set(drawn) <= set(rows[:, 0])
    (own,) = np.exp(model.marginal([0]).score_samples([[0.0]]))
    assert own == pytest.approx(share, abs=0.05)
    torus = OISM(process="torus").fit(rows)
    assert float((torus.sample(4000, random_state=0)[:, 0] == 0).mean()) < 0.5 * share


NARROW: dict[str, tuple[Array, dict[str, Any]]] = {
    "far bounds": (
        np.random.default_rng(0).normal((150, 0), (10, 1), size=(400, 2)),
        {"bounds": {0: (0.0, 1e6)}},
    ),
    "narrow angle": (
        np.random.default_rng(1).normal((180, 0), (0.1, 1), size=(400, 2)),
        {"periodic": {0: 360.0}},
    ),
    "one narrow angle": (
        np.random.default_rng(2).normal(180, 0.1, size=(400, 1)),
        {"periodic": {0: 360.0}},
    ),
}


@pytest.mark.parametrize("name", NARROW)
def test_columns_that_are_narrow_in_their_range(name: str) -> None:
    """They were up to 3 nats below a Gaussian."""
    rows, settings = NARROW[name]
    model = OISM(**settings).fit(rows[:300])
    normal = scipy.stats.multivariate_normal(rows[:300].mean(axis=0), np.cov(rows[:300].T))
    assert model.score(rows[300:]) / 100 > normal.logpdf(rows[300:]).mean() - 0.2
    assert isinstance(model.model_, JointModel)
    with pytest.raises(TypeError, match="process='torus'"):
        model.score_function(rows, 0.1)


def test_smooth_angles_and_shares_keep_the_torus() -> None:
    rng = np.random.default_rng(1)
    angles = rng.vonmises((0.0, 1.0), (2.0, 1.0), size=(600, 2))
    shares = rng.beta(2, 3, size=(600, 2))
    for rows, settings in (
        (angles, {"periodic": dict.fromkeys((0, 1), 2 * np.pi)}),
        (shares, {"bounds": dict.fromkeys((0, 1), (0.0, 1.0))}),
    ):
        model = OISM(**settings).fit(rows)
        assert taken(model) in (None, "torus")
        assert model.model_.steps > 0


def test_many_rows_need_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above a number of rows, the mixture of all is not fitted unless that of some is better."""
    monkeypatch.setattr(MixtureFamily, "trial_rows", 200)
    monkeypatch.setattr(choice_module, "TRIAL_ROWS", 200)
    smooth = np.random.default_rng(0).uniform(size=(400, 2))
    assert taken(OISM().fit(smooth)) is None
    assert taken(OISM().fit(ridge(400, 2, 0))) == "mixture"
    monkeypatch.setattr(choice_module, "MOST_ROWS", 300)
    model = OISM().fit(ridge(400, 2, 0))
    assert taken(model) is None
    assert "choice" not in model.summary()


def test_one_fold_is_held_out_of_many_rows() -> None:
    rows = ridge(4000, 2, 2)
    choice = OISM().fit(rows).facts()["choice"]
    assert choice["taken"] == "mixture"
    assert 400 < choice["rows"] < 1000


@pytest.mark.parametrize(
    "settings",
    [
        {"ridge": 1e-2},
        {"cv": 3},
        {"max_eigenvalue": 20.0},
        {"flow_steps": 16},
        {"shrinkage": "james-stein"},
        {"clock": VarianceExploding(0.01, 5.0)},
        {"device": "cpu"},
        {"process": "torus"},
        {"process": "torus", "bounds": {0: (-50.0, 50.0)}},
        {"ridge": 1e-2, "periodic": {0: 100.0}},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_belongs_to_a_flow_has_one(settings: dict[str, Any]) -> None:
    model = OISM(**settings).fit(correlated(30, 3, 6))
    assert taken(model) is None
    assert model.model_.steps > 0


def test_the_default_folds_may_be_given() -> None:
    rows = correlated(30, 3, 6)
    for folds in (None, 5, np.int64(5)):
        assert taken(OISM(cv=folds).fit(rows)) == "mixture"


def test_messages_name_the_choice() -> None:
    model = OISM().fit(correlated(30, 3, 6))
    with pytest.raises(ValueError, match=r"a mixture was chosen.*process='torus'"):
        model.sample(5, method="sde")
    with pytest.raises(TypeError, match="process='torus' have, got OISM with a MixtureModel"):
        limits_of(model)


def test_very_few_rows_are_not_compared() -> None:
    for n in (4, 6):
        assert taken(OISM().fit(correlated(n, 3, 7))) is None


def test_batches_choose_as_all_rows_do() -> None:
    rows = correlated(60, 3, 8)
    model = OISM().fit(rows)
    assert taken(model) == "mixture"
    parts = [rows[:20], rows[20:], rows[:5]]
    batches = OISM().fit_batches(lambda: parts)
    whole = OISM().fit(np.concatenate(parts))
    found, expected = batches.facts()["choice"], whole.facts()["choice"]
    assert found.pop("taken") == expected.pop("taken")
    assert found == pytest.approx(expected)
    np.testing.assert_array_equal(batches.score_samples(rows), whole.score_samples(rows))
    added = OISM().partial_fit(rows[:30])
    assert taken(added) == "mixture"
    many = 0.5 * np.random.default_rng(8).uniform(-1, 1, size=(200, 3))  # in the box of the first
    added.partial_fit(many)
    assert added.facts()["choice"]["rows"] == 230


def test_the_box_of_a_first_batch_is_compared() -> None:
    """Later rows lie outside of the box that the torus has, and must keep."""
    rng = np.random.default_rng(11)
    first, later = rng.normal(size=(300, 2)), 6 + rng.normal(size=(300, 2))
    model, torus = (OISM(process=name).partial_fit(first) for name in ("auto", "torus"))
    for one in (model, torus):
        with pytest.warns(UserWarning, match="and on the torus they are left to the background"):
            one.partial_fit(later)
    rows = np.concatenate((first, later))
    gain = float(np.mean(model.score_samples(rows) - torus.score_samples(rows)))
    choice = model.facts()["choice"]
    assert choice["taken"] == "mixture"
    assert choice["gain"] == pytest.approx(gain, rel=0.2)
    assert OISM().fit(rows).facts()["choice"]["gain"] < 0.5 * gain  # with a box of all rows


@pytest.mark.filterwarnings("ignore:column . has the value")
@pytest.mark.parametrize("dim", [2, 3])
def test_one_row_with_nearly_all_of_the_weight_is_on_the_torus(dim: int) -> None:
    rows, weights = correlated(60, dim, 13), np.ones(60)
    weights[0] = 1e6
    model = OISM().fit(rows, sample_weight=weights)
    assert taken(model) is None
    assert np.isfinite(model.score_samples(rows)).all()
    copies = np.concatenate((np.repeat(rows[:1], 2000, axis=0), rows[:12]))
    assert np.isfinite(OISM(discrete=()).fit(copies).score_samples(rows)).all()


def test_files_keep_the_choice(tmp_path: Path) -> None:
    rows = correlated(30, 3, 9)
    model = OISM().fit(rows)
    model.save(tmp_path / "model.safetensors")
    found = load(tmp_path / "model.safetensors")
    assert found.facts() == model.facts()
    assert "choice" in found.summary()
    assert "held-out rows a mixture has" in model._repr_html_inner()
    assert "choice" not in model.fit(rows[:, :1]).facts()


def test_a_mixture_of_few_rows_has_the_scores_of_all_noise_levels() -> None:
    rows = correlated(30, 3, 10)
    model = OISM().fit(rows)
    assert taken(model) == "mixture"
    low, high = model.model_.times
    assert (low, high) == (0, np.inf)
    for t in (0.0, 0.5, 3.0):
        noise = model.model_.noise_deviations(t)
        expected = np.sqrt(-np.expm1(-2 * t)) * model.model_.chart.units
        torch.testing.assert_close(noise, expected)
        assert np.isfinite(model.score_function(rows, t)).all()
    # Far beyond the data, the noised distribution is that of the noise about the centre.
    late = model.score_function(rows, 20.0)
    variance = model.model_.noise_deviations(20.0).square().numpy()
    centre = model.model_.chart.centre.numpy()
    np.testing.assert_allclose(late, (centre - rows) / variance, atol=1e-6)
