"""The outlier detector: the flagged share of new rows, and scikit-learn's contract."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity
from sklearn.utils.estimator_checks import parametrize_with_checks

from oism import OISM
from oism.tables import OutlierDetector

Array = NDArray[np.float64]

DIFFERENT = {
    "check_outliers_train": "the share is that of new rows, and smaller on the rows of the fit",
    "check_outliers_fit_predict": "fit_predict judges a row by a model that has not seen it",
}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [OutlierDetector(GaussianMixture(reg_covar=1e-3), contamination=0.2)],
    expected_failed_checks=lambda _: DIFFERENT,
)
def test_the_contract_of_scikit_learn(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def banana(n: int, seed: int) -> Array:
    z = np.random.default_rng(seed).normal(size=(n, 3))
    z[:, 1] += z[:, 0] ** 2
    return z


@pytest.mark.parametrize(("n", "share"), [(400, 0.1), (6000, 0.02)])
def test_the_flagged_share_of_new_rows_is_the_one_that_was_asked_for(n: int, share: float) -> None:
    """Over six tables: within three errors of the mean, which the in-sample quantile misses."""
    found, in_sample, errors = [], [], []
    for seed in range(6):
        rows, new = banana(n, seed), banana(8000, 100 + seed)
        mixture = GaussianMixture(8, random_state=0)
        detector = OutlierDetector(mixture, contamination=share).fit(rows)
        found.append(float((detector.predict(new) == -1).mean()))
        errors.append(detector.offset_error_)
        threshold = np.quantile(detector.score_samples(rows), share)
        in_sample.append(float((detector.score_samples(new) < threshold).mean()))
    error = math.sqrt(sum(e**2 for e in errors)) / len(errors)
    assert np.mean(found) == pytest.approx(share, abs=3 * error)
    held = n if n < 1000 else n // 5
    assert errors[0] == pytest.approx(math.sqrt(share * (1 - share) / held))
    if n < 1000:
        assert np.mean(in_sample) > share + 3 * error


def test_few_folds_are_fitted_for_many_rows() -> None:
    class Counting(GaussianMixture):  # type: ignore[misc]
        fits = 0

        def fit(self, X: Array, y: object = None) -> Any:  # noqa: N803
            Counting.fits += 1
            return super().fit(X)

    for n, fits in ((100, 6), (1250, 5), (2600, 3), (5000, 2)):
        Counting.fits = 0
        OutlierDetector(Counting()).fit(banana(n, 0))
        assert Counting.fits == fits


def test_a_row_does_not_hide_itself() -> None:
    """Two far rows: the model that has seen them gives them a component of their own."""
    rows = np.concatenate([banana(300, 0), np.full((1, 3), 50.0)])
    mixture = GaussianMixture(2, random_state=0)
    flags = OutlierDetector(mixture, contamination=0.01).fit_predict(rows)
    assert flags[-1] == -1
    assert (flags == -1).sum() == 3, "1% of 301 rows, all of which were held out"
    detector = OutlierDetector(mixture, contamination=0.01).fit(rows)
    assert detector.decision_function(rows[-1:])[0] > 0, "the fitted density does not see it"


def test_decisions_are_log_densities_above_the_threshold() -> None:
    rows = pd.DataFrame(banana(300, 1), columns=list("abc"))
    detector = OutlierDetector(GaussianMixture(), contamination=0.2).fit(rows)
    assert list(detector.feature_names_in_) == ["a", "b", "c"]
    assert detector.n_features_in_ == 3
    expected = detector.estimator_.score_samples(rows) - detector.offset_
    np.testing.assert_array_equal(detector.decision_function(rows), expected)
    np.testing.assert_array_equal(detector.predict(rows), np.where(expected < 0, -1, 1))
    assert clone(detector).get_params()["contamination"] == 0.2


def test_a_model_that_is_fitted_already() -> None:
    rows, new = banana(600, 2)[:, :1], banana(4000, 3)[:, :1]
    model = OISM(max_eigenvalue=36, flow_steps=16).fit(rows)
    by_samples = OutlierDetector.from_fitted(model, contamination=0.1)
    assert by_samples.estimator_ is model
    held = OutlierDetector.from_fitted(model, contamination=0.1, held_out=new)
    assert held.offset_ == np.quantile(model.score_samples(new), 0.1, method="weibull")
    share = float((by_samples.predict(new) == -1).mean())
    assert share == pytest.approx(0.1, abs=0.03)  # as far as the model is right
    mixture = GaussianMixture().fit(rows)
    folds = OutlierDetector.from_fitted(mixture, contamination=0.1, train=rows)
    alone = OutlierDetector(GaussianMixture(), contamination=0.1).fit(rows)
    assert folds.offset_ == pytest.approx(alone.offset_, abs=1e-9)
    with pytest.raises(ValueError, match="held_out must be None where train is given"):
        OutlierDetector.from_fitted(model, train=rows, held_out=new)


def test_a_share_that_the_rows_cannot_show() -> None:
    with pytest.warns(UserWarning, match=r"contamination 0.001 is below 1/101, and 100 rows"):
        OutlierDetector(GaussianMixture(), contamination=0.001).fit(banana(100, 0))


@pytest.mark.parametrize("share", [0.0, 0.6, -1.0])
def test_shares_that_make_no_sense(share: float) -> None:
    with pytest.raises(ValueError, match="contamination"):
        OutlierDetector(GaussianMixture(), contamination=share).fit(banana(50, 0))
    with pytest.raises(ValueError, match="contamination"):
        OutlierDetector.from_fitted(GaussianMixture().fit(banana(50, 0)), contamination=share)


def test_one_row_cannot_be_held_out() -> None:
    class Anything(KernelDensity):  # type: ignore[misc]
        """Fits one row as well."""

    with pytest.raises(ValueError, match="at least two rows"):
        OutlierDetector(Anything()).fit(np.zeros((1, 2)))


def test_rows_with_gaps_have_thresholds_of_their_own() -> None:
    """With the threshold of three columns, a fifth or none of the rows of one would be outliers."""
    rng = np.random.default_rng(0)
    train, rows = rng.normal(size=(2, 1000, 3)) * [1.0, 1e3, 1e-3]
    mixture = OISM(process="mixture").fit(train[:100])
    detector = OutlierDetector.from_fitted(mixture, contamination=0.1, held_out=train[100:])
    whole = detector.predict(rows) < 0
    for kept in ([0], [1], [2], [0, 2]):
        gaps = np.full_like(rows, np.nan)
        gaps[:, kept] = rows[:, kept]
        flagged = detector.predict(gaps) < 0
        assert flagged.mean() == pytest.approx(0.1, abs=0.08)
        naive = detector.score_samples(gaps) < detector.offset_
        assert abs(naive.mean() - 0.1) > 0.09, "this is what the thresholds are for"
    both = np.concatenate((rows[:5], gaps[:5]))
    assert (detector.predict(both)[:5] < 0).tolist() == whole[:5].tolist()


def test_gaps_in_training_rows_do_not_move_the_threshold() -> None:
    """Densities of fewer columns have other units: they had one quantile with those of all."""
    rng = np.random.default_rng(0)

    def rows(n: int) -> NDArray[np.float64]:
        x = 100 * rng.normal(size=(n, 2))
        x[:, 1] += x[:, 0]
        x[rng.random(n) < 0.5, 1] = np.nan
        return x

    x, share = rows(800), 0.1
    detector = OutlierDetector(OISM(process="mixture"), contamination=share)
    for found, labels in ((x, detector.fit_predict(x)), (new := rows(4000), detector.predict(new))):
        gaps = np.isnan(found).any(axis=1)
        for part in (gaps, ~gaps):
            assert float((labels[part] < 0).mean()) == pytest.approx(share, abs=0.04)
    again = OutlierDetector.from_fitted(detector.estimator_, contamination=share, held_out=new)
    assert again.offset_ == pytest.approx(detector.offset_, abs=0.3)


@pytest.mark.parametrize("dtype", ["object", "category"])
def test_a_level_that_occurs_once(dtype: str) -> None:
    """The fold that holds its row out did not know the level, and `fit` failed."""
    rng = np.random.default_rng(0)
    levels = ["rare", *["a", "b"] * 30]
    rows = pd.DataFrame({"g": levels, "x": rng.normal(size=61), "y": rng.normal(size=61)})
    rows = rows.astype({"g": dtype})
    detector = OutlierDetector(contamination=0.1)
    labels = detector.fit_predict(rows)
    assert labels[0] == -1
    assert float((labels < 0).mean()) == pytest.approx(0.1, abs=0.03)
    folds = OutlierDetector.from_fitted(detector.estimator_, contamination=0.1, train=rows)
    assert folds.offset_ == pytest.approx(detector.offset_)
    assert math.isfinite(OutlierDetector(contamination=0.1).fit(rows).offset_)
