"""Columns that are constant, or nearly so: narrow, and those of real spread have it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oism import OISM

SMALL: dict[str, Any] = {"max_eigenvalue": 9, "order": 3, "flow_steps": 16}
FLAT = "ignore:columns? .* constant in all"


@pytest.mark.filterwarnings(FLAT)
@pytest.mark.parametrize("process", ["torus", "ou", "joint"])
@pytest.mark.parametrize("value", [1e9, 0.0, -3.0])
def test_samples_of_a_constant_column_are_its_value(process: str, value: float) -> None:
    """A box of the width of the value gave samples of 1e9 a standard deviation of 2e8."""
    x = np.random.default_rng(0).normal(size=(30, 2))
    x[:, 0] = value
    model = OISM(process=process, **SMALL).fit(x)
    samples = model.sample(200, random_state=0)
    assert np.abs(samples[:, 0] - value).max() < 1e-5 * (abs(value) or 1.0)
    assert 0.5 < np.median(np.abs(samples[:, 1])) / np.median(np.abs(x[:, 1])) < 2
    assert np.isfinite(model.score_samples(x + np.array([1.0, 0.0]))).all(), "also far from it"


@pytest.mark.parametrize("process", ["torus", "ou", "mixture"])
def test_a_spread_of_few_roundings_is_a_spread(process: str) -> None:
    """A range of 1e-11 at 62 was a constant for the box, of the scale 62, and none to warn of."""
    x = np.random.default_rng(0).normal(size=(100, 2))
    x[:, 0] = 1.6e-12 * x[:, 0] - 62
    model = OISM(process=process, **SMALL).fit(x)
    samples = model.sample(500, random_state=0)
    near, own = (np.percentile(rows[:, 0] + 62, [10, 90]) for rows in (samples, x))
    assert np.abs(near - own).max() < 2e-12
    normal = -0.5 * np.log(2 * np.pi * np.e) * 2 - np.log(x.std(axis=0)).sum()
    assert model.score(x) / len(x) == pytest.approx(normal, abs=0.5)


@pytest.mark.filterwarnings(FLAT)
def test_a_constant_column_does_not_decide_about_the_others() -> None:
    """It had another density in warped coordinates, by which these were preferred."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(168, 4))
    x[:, 2] = 0.3231814
    x[0, [0, 1, 3]] += 1e4
    others = OISM().fit(x).conditional({2: 0.3231814})
    alone = OISM(process="joint").fit(x[:, [0, 1, 3]])
    new = rng.normal(size=(500, 3))
    found = others.score_samples(new).mean()
    assert found == pytest.approx(alone.score_samples(new).mean(), abs=0.03)
    assert abs(found + 1.5 * np.log(2 * np.pi * np.e)) < 0.3  # three normal columns
    drawn = others.sample(200, random_state=0)
    assert np.median(np.abs(drawn)) < 1


def test_a_given_value_is_not_rounded() -> None:
    """It was rounded to float32, which for a column of this spread is another value."""
    x = np.random.default_rng(0).normal(size=(150, 4))
    x[:, 1] = 1000 + 1e-6 * (x[:, 0] + x[:, 1])
    model = OISM().fit(x)
    row = x[7]
    parts = model.marginal([1]).score_samples(row[[[1]]])
    parts = parts + model.conditional({1: row[1]}).score_samples(row[None, [0, 2, 3]])
    assert parts == pytest.approx(model.score_samples(row[None]), abs=1e-6)


@pytest.mark.filterwarnings(FLAT, "ignore:. rows? (is|are) fewer")
@pytest.mark.parametrize("n", [1, 2])
def test_few_rows_with_a_bound_allow_all_values_within_it(n: int) -> None:
    """Of two rows one is held out, and the other one alone is a constant column."""
    rng = np.random.default_rng(0)
    x, new = (np.exp(rng.normal(size=(k, 5))) for k in (n, 50))
    model = OISM(bounds={0: (0.0, None)}).fit(x)
    assert np.isfinite(model.score_samples(new)).all()


@pytest.mark.filterwarnings(FLAT, "ignore:. rows? (is|are) fewer")
@pytest.mark.parametrize("n", [3, 4, 8, 30])
def test_a_constant_column_is_narrow_beside_few_rows(n: int) -> None:
    """Few rows lie in a plane, which is widened; a constant column got half of its value."""
    x = np.random.default_rng(0).normal(size=(n, 4))
    x[:, 0] = -4e-8
    samples = OISM().fit(x).sample(500, random_state=0)
    assert np.abs(samples[:, 0] / -4e-8 - 1).max() < 1e-4
    assert samples[:, 1].std() > 0.1
