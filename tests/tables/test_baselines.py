"""Baselines as densities in the data's units, and their choices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.mixture import GaussianMixture

from oism.tables import SplineFlow, fit_flow, fit_kde, fit_mixture_by_bic

Array = NDArray[np.float64]

FITS: dict[str, Callable[[Array], Any]] = {
    "kde": fit_kde,
    "mixture": fit_mixture_by_bic,
    "flow": lambda x: fit_flow(x, seconds=1.0),
}


@pytest.fixture(params=FITS)
def fit(request: pytest.FixtureRequest) -> Callable[[Array], Any]:
    if request.param == "flow":
        pytest.importorskip("zuko")
    return FITS[request.param]


def skewed(n: int, seed: int = 0) -> Array:
    r = np.random.default_rng(seed)
    return np.stack([100 + 30 * r.normal(size=n), 1e-3 * r.gamma(3, 1, n)], axis=1)


def test_a_baseline_has_mass_one_in_the_units_of_the_data(fit: Callable[[Array], Any]) -> None:
    """A density in standardised columns, without Σ log s, would have the mass 30 · 0.0017."""
    model = fit(skewed(400))
    x, y = np.linspace(-150, 350, 400), np.linspace(-0.01, 0.03, 400)
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    mass = np.exp(model.score_samples(points)).sum() * (x[1] - x[0]) * (y[1] - y[0])
    assert mass == pytest.approx(1, abs=0.01)


def test_samples_are_those_of_the_density(fit: Callable[[Array], Any]) -> None:
    rows = skewed(400)
    drawn = fit(rows).sample(2000, random_state=1)
    assert drawn.shape == (2000, 2)
    np.testing.assert_allclose(np.median(drawn, axis=0), np.median(rows, axis=0), rtol=0.15)
    np.testing.assert_allclose(drawn.std(axis=0), rows.std(axis=0), rtol=0.25)


@pytest.mark.parametrize("fit", [fit_kde, fit_mixture_by_bic])  # the training of a flow is timed
def test_units_do_not_matter(fit: Callable[[Array], Any]) -> None:
    """log p of x·s is log p of x minus Σ log s."""
    rows, scales = skewed(200), np.array([1e-6, 1e5])
    first, second = fit(rows).score_samples(rows), fit(rows * scales).score_samples(rows * scales)
    np.testing.assert_allclose(second, first - np.log(scales).sum(), atol=1e-6)


def test_the_mixture_is_the_one_of_scikit_learn_with_the_lowest_criterion() -> None:
    r = np.random.default_rng(1)
    rows = np.concatenate([r.normal(c, 0.3, size=(100, 2)) for c in ((0, 0), (4, 0), (0, 4))])
    fitted = fit_mixture_by_bic(rows)
    assert fitted.notes["components"] == 3
    z = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    by_hand = GaussianMixture(3, n_init=3, max_iter=300, random_state=0).fit(z)
    expected = by_hand.score_samples(z) - np.log(rows.std(axis=0)).sum()
    np.testing.assert_allclose(fitted.score_samples(rows), expected, atol=1e-8)


def test_a_periodic_column_is_cut_in_its_widest_gap() -> None:
    """Angles about 0: cut there they would be two clusters, and cut at 180 they are one."""
    angles = np.remainder(np.random.default_rng(2).normal(0, 20, size=(300, 1)), 360)
    for model in (
        fit_mixture_by_bic(angles, periodic={0: 360.0}),
        fit_kde(angles, periodic={0: 360.0}),
    ):
        grid = np.arange(360.0)[:, None]
        log = model.score_samples(grid)
        assert np.exp(log).sum() == pytest.approx(1, abs=1e-3)
        np.testing.assert_allclose(model.score_samples(grid + 720), log, atol=1e-9)
        truth = stats.norm.logpdf(0, 0, 20)
        assert log[0] == pytest.approx(truth, abs=0.2)
        assert 0 <= model.sample(200).min() <= model.sample(200).max() < 360
    assert fit_mixture_by_bic(angles, periodic={0: 360.0}).notes["components"] == 1


def test_a_constant_column_is_no_error() -> None:
    rows = np.stack([np.random.default_rng(3).normal(size=50), np.full(50, 7.0)], axis=1)
    for model in (fit_kde(rows), fit_mixture_by_bic(rows)):
        assert np.isfinite(model.score_samples(rows)).all()


def test_a_flow_stops_when_held_out_rows_no_longer_gain() -> None:
    pytest.importorskip("zuko")
    rows = np.random.default_rng(4).normal(size=(60, 1))
    flow = SplineFlow(seconds=30.0, patience=2).fit(rows)
    assert flow.best_epoch_ <= flow.epochs_
    assert flow.epochs_ < 400
    assert math.isfinite(float(flow.score_samples(rows).mean()))
