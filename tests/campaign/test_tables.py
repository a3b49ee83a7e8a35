"""Random tables: cases follow from seeds, and a wrong model is a failure."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from campaign import columns, mistakes, tables, trial
from oism import OISM


def case_of(x: Any, kinds: tuple[str, ...], **more: Any) -> tables.Case:
    frame = pd.DataFrame(x, columns=[f"c{j}" for j in range(len(kinds))])
    return tables.Case(frame, frame, kinds, **more)


def test_a_case_follows_from_its_seed() -> None:
    cases = [tables.drawn(seed) for seed in range(100)]
    for seed, one in enumerate(cases[:20]):
        other = tables.drawn(seed)
        pd.testing.assert_frame_equal(one.rows, other.rows)
        assert one.settings == other.settings
        assert len(one.kinds) == one.rows.shape[1]
    assert {kind for one in cases for kind in one.kinds} == set(columns.KINDS)
    assert {one.form for one in cases} == set(columns.FRAMES)
    for name in ("outlier", "gaps", "batches"):
        assert 0 < sum(getattr(one, name) for one in cases) < 60


@pytest.mark.parametrize("form", columns.FRAMES)
def test_frames_and_back(form: str) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [0.5, -3.0]})
    back = columns.unframed(columns.framed(frame, form), ["a", "b"])
    pd.testing.assert_frame_equal(back, frame)


class Gaussian(OISM):
    """The exact density of independent normal columns, times a number."""

    factor, unit, centre = 1.0, np.array([1e6, 1e-3]), np.array([0.0, 5.0])

    def score_samples(self, X: Any) -> Any:  # noqa: N803
        z = (np.asarray(X) - self.centre) / self.unit
        logs = -0.5 * (z**2).sum(axis=1) - np.log(2 * np.pi) - np.log(self.unit).sum()
        return logs + np.log(self.factor)


def test_a_mass_that_is_not_one_is_seen() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2)) * Gaussian.unit + Gaussian.centre
    case = case_of(x, ("normal", "normal"))
    for factor in (1.0, 1.3):
        model = Gaussian()
        model.factor = factor
        mass, error = trial.mass_of(model, case, [0, 1], rng)
        assert mass == pytest.approx(factor, abs=4 * error)
        assert 0 < error < 0.05


def test_a_gap_to_a_gaussian_is_seen() -> None:
    x = np.random.default_rng(0).normal(size=(400, 2)) * Gaussian.unit + Gaussian.centre
    case, model = case_of(x, ("normal", "normal")), Gaussian()
    assert trial.gain(case, model.score_samples(x)) == pytest.approx(0, abs=0.02)
    model.factor = float(np.exp(-0.6))
    assert trial.gain(case, model.score_samples(x)) < -trial.WORSE


def test_a_gaussian_has_the_weights_of_the_rows() -> None:
    x = np.random.default_rng(0).normal(size=(400, 2)) * Gaussian.unit + Gaussian.centre
    others = x + 10 * Gaussian.unit
    weights = np.repeat([1.0, 0.0], 400)
    frame = pd.DataFrame(np.concatenate((x, others)), columns=["c0", "c1"])
    new = pd.DataFrame(x, columns=["c0", "c1"])
    case = tables.Case(frame, new, ("normal", "normal"), weights=weights)
    assert trial.gain(case, Gaussian().score_samples(x)) == pytest.approx(0, abs=0.02)


def test_samples_out_of_range_are_seen() -> None:
    x = np.random.default_rng(0).normal(size=(50, 1))
    case = case_of(x, ("normal",))
    assert trial.in_range(case, case.rows)
    for wrong in (1e3 + x, 100 * x, np.where(x > 1, np.nan, x)):
        assert not trial.in_range(case, pd.DataFrame(wrong, columns=["c0"]))
    share = case_of(np.abs(np.sin(x)), ("share",))
    assert trial.in_range(share, share.rows)
    assert not trial.in_range(share, share.rows - 0.2)
    level = case_of(np.array([["red"], ["blue"]], dtype=object), ("level",))
    assert not trial.in_range(level, pd.DataFrame({"c0": ["red", "black"]}))


def test_few_values_in_an_interval_may_be_uniform() -> None:
    """Two of three hundred pairs of angles are within a degree, and their samples anywhere."""
    rng = np.random.default_rng(0)
    draws = rng.uniform(0, 360, size=(20_000, 3))
    assert np.mean([not trial.may_be_uniform(one, 360.0) for one in draws]) < 2e-3
    assert not trial.may_be_uniform(180 + rng.normal(size=8), 360.0)
    anywhere = pd.DataFrame({"c0": np.linspace(0, 359, 200)})
    assert trial.in_range(case_of([[100.0], [120.0]], ("angle",)), anywhere)
    assert not trial.in_range(case_of(180 + rng.normal(size=(8, 1)), ("angle",)), anywhere)


def test_a_column_that_is_constant_up_to_rounding_is_constant() -> None:
    near = pd.DataFrame({"c0": 3 + 1e-6 * np.linspace(-1, 1, 200)})
    for gap in (0.0, 1e-14):
        assert trial.in_range(case_of([[3.0], [3.0 + gap]], ("narrow",)), near)
    assert not trial.in_range(case_of([[3.0], [3.0 + 1e-11]], ("narrow",)), near)


def test_errors_are_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(OISM, "fit", fail)
    monkeypatch.setattr(OISM, "fit_batches", fail)
    record = tables.judged(35)
    assert record["failed"] == ["error"]
    assert record["error"] == "fit: RuntimeError: no"
    json.dumps(record)


def test_unclear_errors_are_seen() -> None:
    def fault(error: Exception) -> str | None:
        try:
            raise error
        except Exception as raised:
            return mistakes.fault_of_error(raised, ("weight",))

    assert "another error" in str(fault(KeyError("weight")))
    assert "raised in" in str(fault(ValueError("weight")))
    with pytest.raises(ValueError, match="ridge") as caught:
        OISM(ridge=-1.0).fit(np.zeros((3, 1)))
    assert mistakes.fault_of_error(caught.value, ("ridge",)) is None
    assert "does not name" in str(mistakes.fault_of_error(caught.value, ("process",)))


def test_mistakes_get_clear_errors() -> None:
    x = np.random.default_rng(0).normal(size=(30, 1))
    for form in ("array", "pandas"):
        case = case_of(x, ("normal",), form=form)
        model = OISM(max_eigenvalue=9.0, flow_steps=8).fit(case.table(case.rows))
        for name in mistakes.CALLS:
            assert mistakes.fault_of(name, model, case) is None, name


@pytest.mark.parametrize("seed", [17, 35])
def test_cases(seed: int) -> None:
    assert tables.judged(seed)["failed"] == []


def test_few_values_with_bounds_may_be_of_a_wide_distribution() -> None:
    """On an interval they may be uniform; with one bound, uniform up to the largest value."""
    two = np.array([0.04, 0.05])
    assert trial.scale_of(two, "share") == 1.0
    assert trial.scale_of(two, "positive") == 0.05
    many = np.linspace(0.04, 0.05, 30)
    assert trial.scale_of(many, "share") == pytest.approx(0.01)
    assert trial.scale_of(many, "positive") == pytest.approx(0.01)
