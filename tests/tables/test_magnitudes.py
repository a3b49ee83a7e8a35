"""Numbers so large or so small that their squares are no floating-point numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oism import OISM

N = np.random.default_rng(0).normal(size=(100, 4))
REMEDY = "rescale the column so that magnitudes other than 0 are between 1e-100 and 1e"


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("scale", [1e300, 1e155, 1e150, 1e-120, 1e-309])
def test_the_column_is_named(count: int, scale: float) -> None:
    """Fits failed in linear algebra, or had a density that did not depend on the row."""
    rows = pd.DataFrame(N[:, :count], columns=list("abcd")[:count])
    rows["a"] *= scale
    with pytest.raises(ValueError, match=f"column 'a' has a value of magnitude .* {REMEDY}"):
        OISM().fit(rows)
    with pytest.raises(ValueError, match="column 'a' has a value of magnitude"):
        OISM().fit_batches(lambda: [rows])


def test_one_outlier_and_declarations() -> None:
    rows = N[:, :2].copy()
    rows[3, 1] = 1e300
    with pytest.raises(ValueError, match=r"column 1 has a value of magnitude 1e\+300"):
        OISM().fit(rows)
    with pytest.raises(ValueError, match=r"bounds of column 0 have an end of magnitude 1e\+308"):
        OISM(bounds={0: (-1e308, 1e308)}).fit(N[:, :1])
    with pytest.raises(ValueError, match=r"bounds of column 0 have a width of 1e-300"):
        OISM(bounds={0: (0, 1e-300)}).fit(np.zeros((20, 1)))
    with pytest.raises(ValueError, match=r"column 0 has the period 1e\+120"):
        OISM(periodic={0: 1e120}).fit(N[:, :1])


@pytest.mark.parametrize("count", [1, 2, 4])
def test_densities_within_the_range(count: int) -> None:
    """They are those of the standardised rows, less the logarithm of the scale."""
    rows = N[:, :count]
    logs = OISM().fit(rows).score_samples(rows)
    for scale in (1e95, 1e-95):
        found = OISM().fit(scale * rows).score_samples(scale * rows) + count * math.log(scale)
        np.testing.assert_allclose(found, logs, rtol=0, atol=1e-3)


@pytest.mark.parametrize("weight", [1e-165, 1e153])
def test_weights_whose_squares_are_no_numbers(weight: float) -> None:
    for x in (N[:, :1], N[:, :2], N):
        with pytest.raises(ValueError, match=r"sample_weight must have a sum of squares .* mean"):
            OISM().fit(x, sample_weight=np.full(100, weight))
    with pytest.raises(ValueError, match="sample_weight must have a sum of squares"):
        OISM().fit_batches(lambda: [(N, np.full(100, weight))])


@pytest.mark.parametrize("settings", [{}, {"process": "mixture"}])
@pytest.mark.parametrize("count", [2, 4])
def test_values_that_are_far_away(count: int, settings: dict[str, Any]) -> None:
    """Weights of components were NaN, and so was the score."""
    x = N[:, :count].copy()
    x[::2] += 4.0
    model = OISM(**settings).fit(x)
    for value in (1e200, -1e300):
        drawn = model.sample(5, random_state=0, given={1: value})
        assert np.isfinite(drawn).all()
        assert (drawn[:, 1] == value).all()
        given = model.conditional({1: value})
        assert np.isfinite(given.score_samples(np.delete(x[:5], 1, axis=1))).all()
        holes = np.full((3, count), np.nan)
        holes[:, 1] = value
        assert np.isfinite(model.impute(holes, random_state=0)).all()
    if settings:
        scores = model.score_function(np.array([[1e200] * count, [-1e300] * count]), 0.1)
        assert np.isfinite(scores).all()
        assert (scores[0] < 0).all()
        assert (scores[1] > 0).all()


def test_far_away_the_widest_component_is_the_nearest() -> None:
    """The conditional is that of one component, as at values where squares are finite."""
    rng = np.random.default_rng(0)
    x = np.concatenate((rng.normal(0, 1, (300, 2)), rng.normal(8, 0.1, (300, 2))))
    model = OISM(process="mixture").fit(x).model_
    near, far = (model.conditional({0: value}) for value in (1e9, 1e200))
    assert near.components == far.components == 1
    np.testing.assert_allclose(far.covariances, near.covariances)
