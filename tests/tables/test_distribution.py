"""Marginals and conditionals of fitted tables, as a user asks for them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from oism import OISM


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    size = rng.normal(size=250)
    kind = np.where(rng.random(250) < 1 / (1 + np.exp(-3 * size)), "large", "small")
    return pd.DataFrame(
        {"size": size, "weight": np.exp(0.5 * size + 0.2 * rng.normal(size=250)), "kind": kind}
    )


@pytest.fixture(scope="module")
def model(frame: pd.DataFrame) -> OISM:
    fitted: OISM = OISM(bounds={"weight": (0, None)}).fit(frame)
    return fitted


def test_a_marginal_has_names_and_the_right_density(model: OISM, frame: pd.DataFrame) -> None:
    alone = model.marginal(["kind"])
    levels = pd.DataFrame({"kind": ["large", "small"]})
    chance = np.exp(alone.score_samples(levels))
    assert chance.sum() == pytest.approx(1)
    assert chance[0] == pytest.approx((frame["kind"] == "large").mean(), abs=0.03)
    drawn = model.marginal(["weight", "size"]).sample(5, random_state=0)
    assert list(drawn.columns) == ["weight", "size"]
    assert (drawn["weight"] >= 0).all()


def test_a_conditional_is_a_ratio_of_densities(model: OISM, frame: pd.DataFrame) -> None:
    rows = frame.head(20)
    joint = model.score_samples(rows)
    others = model.marginal(["size", "weight"]).score_samples(rows[["size", "weight"]])
    for k in range(20):
        size, weight, kind = rows.iloc[k]
        given = model.conditional({"size": size, "weight": weight})
        found = given.score_samples(pd.DataFrame({"kind": [kind]}))
        assert found[0] == pytest.approx(joint[k] - others[k], abs=1e-3)


def test_large_things_are_large(model: OISM) -> None:
    large = model.conditional({"kind": "large"}).sample(500, random_state=0)
    small = model.sample(500, random_state=0, given={"kind": "small"})
    assert large["size"].mean() > small["size"].mean() + 0.5


def test_gaps_are_integrated_over(model: OISM, frame: pd.DataFrame) -> None:
    rows = frame.head(5).copy()
    rows["weight"] = np.nan
    expected = model.marginal(["size", "kind"]).score_samples(rows[["size", "kind"]])
    np.testing.assert_allclose(model.score_samples(rows), expected)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.marginal(["height"]), "'height'"),
        (lambda m: m.marginal([]), "at least one column"),
        (lambda m: m.conditional({"kind": "huge"}), "huge"),
        (lambda m: m.conditional({}), "given must name"),
        (lambda m: m.marginal(["size"]).score_samples([[1.0, 2.0]]), "must have the 1 columns"),
        (
            lambda m: m.marginal(["size"]).score_samples(pd.DataFrame({"weight": [1.0]})),
            "must have the columns ..size..",
        ),
    ],
)
def test_mistakes_are_named(model: OISM, ask: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(model)  # type: ignore[operator]
