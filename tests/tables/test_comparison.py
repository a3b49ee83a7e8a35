"""Comparisons: paired errors, levels as cells, missing values, mistakes."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy import stats

from oism.tables import Columns, Comparison, compare_with_baselines

Array = NDArray[np.float64]
LOGS = arrays(np.float64, (3, 7), elements=st.floats(-50, 50))


def compared(test: Array, train: Array, columns: Columns | None = None, **more: Any) -> Comparison:
    return compare_with_baselines(
        np.zeros(len(test)),
        torch.from_numpy(test),
        torch.from_numpy(train),
        columns or Columns.of(test.shape[1], None, None, None, None),
        **more,
    )


@given(LOGS)
def test_differences_are_those_of_a_paired_test(logs: Array) -> None:
    """SciPy's paired t-test has the same mean and error; errors of the two means would differ."""
    found = Comparison({"model": logs[0], "kde": logs[1], "mixture": logs[2]})
    for name, other in (("kde", logs[1]), ("mixture", logs[2])):
        gap = found.difference(name)
        assert gap.mean == pytest.approx(found.mean("model").mean - found.mean(name).mean, abs=1e-9)
        assert gap.error == pytest.approx(float(stats.sem(logs[0] - other)), abs=1e-12)
    assert found.rows == 7
    np.testing.assert_array_equal(found.to_frame()["mixture"], logs[2])


def test_the_table_that_is_printed() -> None:
    model, other = np.array([-1.0, -2.0, -3.0]), np.array([-1.5, -2.5, -3.8])
    found = Comparison({"model": model, "kde": other}, {"kde": {"width": 0.25}}, skipped=2)
    head, columns, first, second = str(found).splitlines()
    assert head == ("log-likelihood in nats per row, 3 test rows, 2 with missing values left out")
    assert columns.split() == ["mean", "±", "model", "better", "by", "±", "lowest", "chosen"]
    assert first.split() == ["model", "-2.000", "0.577", "-3.0"]
    assert second.split() == ["kde", "-2.600", "0.666", "+0.600", "0.100", "-3.8", "width", "0.25"]


def test_baselines_are_fitted_to_the_training_rows() -> None:
    """A single Gaussian: BIC chooses one component, whose likelihood has a closed form."""
    r = np.random.default_rng(0)
    train, test = r.normal(5, 2, size=(400, 1)), r.normal(5, 2, size=(300, 1))
    found = compared(test, train, baselines=["mixture", "kde"])
    assert found.methods == ["model", "mixture", "kde"]
    expected = stats.norm.logpdf(test[:, 0], train.mean(), train.std())
    np.testing.assert_allclose(found.log_densities["mixture"], expected, atol=1e-4)
    assert found.notes["mixture"]["components"] == 1
    assert found.difference("kde").mean == pytest.approx(-found.mean("kde").mean)


def test_levels_have_probabilities() -> None:
    """Two coins, as numbers 10 apart and as levels: probabilities per unit of the first column."""
    r = np.random.default_rng(1)
    x = np.stack([10.0 * (r.random(1500) < 0.7), 1.0 * (r.random(1500) < 0.3)], axis=1)
    columns = Columns.of(2, ["number", "word"], None, None, None)
    items = [*columns.items]
    items[0] = replace(items[0], levels=(0.0, 10.0))
    items[1] = replace(items[1], levels=("yes", "no"), categorical=True)
    cells = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 1.0], [10.0, 1.0]])
    found = compared(cells, x, Columns(tuple(items)), baselines=["kde", "mixture"])
    truth = np.array([0.3 * 0.7, 0.7 * 0.7, 0.3 * 0.3, 0.7 * 0.3]) / 10
    for name in ("kde", "mixture"):
        np.testing.assert_allclose(np.exp(found.log_densities[name]), truth, rtol=0.3)


def test_rows_with_gaps_are_left_out() -> None:
    r = np.random.default_rng(2)
    train, test = r.normal(size=(60, 2)), r.normal(size=(20, 2))
    full = compared(test[3:], train[5:], baselines="kde")
    train[:5, 0], test[:3, 1] = math.nan, math.nan
    found = compared(test, train, baselines="kde")
    assert (found.rows, found.skipped) == (17, 3)
    np.testing.assert_allclose(found.log_densities["kde"], full.log_densities["kde"])


@pytest.mark.parametrize(
    ("rows", "more", "message"),
    [
        (20, {"baselines": ["tree"]}, "baselines must be out of kde, mixture, flow, got 'tree'"),
        (20, {"baselines": ["kde", "kde"]}, "baselines must name each method once"),
        (20, {"seconds": 0}, "seconds must be a positive"),
        (1, {}, "X must have at least two rows without missing values, got 1"),
    ],
)
def test_mistakes(rows: int, more: dict[str, Any], message: str) -> None:
    x = np.random.default_rng(3).normal(size=(20, 1))
    with pytest.raises(ValueError, match=message):
        compared(x[:rows], x, **more)


def test_a_flow_without_zuko(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default it is left out; where it is asked for, the error says what to install."""
    monkeypatch.setitem(sys.modules, "zuko", None)
    monkeypatch.setitem(sys.modules, "zuko.flows", None)
    x = np.random.default_rng(4).normal(size=(30, 1))
    assert compared(x, x).methods == ["model", "kde", "mixture"]
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'oism\[flows\]'"):
        compared(x, x, baselines=["flow"])
