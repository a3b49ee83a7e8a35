"""Columns with one bound: half-normal data, of which everything is known."""

from __future__ import annotations

import math
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch

from oism import OISM
from oism.tables import Background, BoxChart, Spread, TableModel

Array = np.ndarray


def data(n: int = 800) -> Array:
    r = np.random.default_rng(0)
    x = np.abs(2.0 * r.normal(size=n))
    return np.stack([x, x + 0.5 * r.normal(size=n)], axis=1)


@cache
def fitted(dim: int) -> OISM:
    model: OISM = OISM(bounds={0: (0, None)}, max_eigenvalue=64, flow_steps=16).fit(data()[:, :dim])
    return model


def test_a_half_normal_density() -> None:
    model = fitted(1)
    x = np.linspace(0, 6, 25)[:, None]
    truth = scipy.stats.halfnorm(scale=2.0).pdf(x[:, 0])
    np.testing.assert_allclose(np.exp(model.score_samples(x)), truth, atol=0.04)
    at_the_bound = float(np.exp(model.score_samples([[0.0]]))[0])
    assert at_the_bound > 0.36, "not halved, as it is without the bound"
    free = OISM(max_eigenvalue=64, flow_steps=16).fit(data()[:, :1])
    assert np.exp(free.score_samples([[0.0]]))[0] < at_the_bound


def test_the_mass_is_one_and_nothing_is_beyond_the_bound() -> None:
    model = fitted(1)
    grid = np.linspace(0, 200, 40_001)[:, None]
    mass = np.trapezoid(np.exp(model.score_samples(grid)), grid[:, 0])
    assert mass == pytest.approx(1, abs=1e-3)
    assert (model.score_samples([[-1e-6], [-5.0]]) == -math.inf).all()
    logs = model.score_samples([[60.0], [1e9]])
    assert np.isfinite(logs).all(), "the open end has a background"
    samples = model.sample(3000, random_state=0)
    assert samples.min() >= 0
    assert scipy.stats.kstest(samples[:, 0], scipy.stats.halfnorm(scale=2.0).cdf).statistic < 0.05


def test_two_columns_and_conditionals() -> None:
    model = fitted(2)
    samples = model.sample(2000, random_state=0)
    assert samples[:, 0].min() >= 0
    assert np.corrcoef(samples.T)[0, 1] == pytest.approx(np.corrcoef(data().T)[0, 1], abs=0.05)
    given = model.sample(2000, random_state=0, given={1: 0.2})
    assert given[:, 0].min() >= 0
    joint = model.model_
    assert isinstance(joint, TableModel)
    marginal = joint.marginal([0])
    x = torch.tensor([[0.3], [2.0], [70.0], [-1.0]], dtype=torch.float64)
    found = marginal.log_density(x)
    assert found[3] == -math.inf
    grid = np.linspace(-30, 100, 6001)
    for k in range(2):
        points = np.stack([np.full_like(grid, float(x[k])), grid], axis=1)
        exact = math.log(np.trapezoid(np.exp(model.score_samples(points)), grid))
        assert float(found[k]) == pytest.approx(exact, abs=1e-3)


def test_an_upper_bound_is_the_mirror_image() -> None:
    upper = OISM(bounds={0: (None, 5.0)}, max_eigenvalue=64, flow_steps=16).fit(5 - data()[:, :1])
    x = np.concatenate([np.linspace(0, 12, 20), [300.0, -1.0]])[:, None]
    # Folds follow from the content of the rows, and so does the ridge.
    expected = fitted(1).score_samples(x)
    found = upper.score_samples(5 - x)
    near = slice(0, 12)
    np.testing.assert_allclose(found[near], expected[near], atol=0.15)
    np.testing.assert_allclose(found[-2:], expected[-2:], rtol=1e-6)
    assert upper.sample(500, random_state=0).max() <= 5
    assert upper.sample(500, random_state=0).min() < 0


def test_outliers_are_left_to_the_background() -> None:
    x = data()[:, :1]
    x[3] = 1e6
    model = OISM(bounds={0: (0, None)}, max_eigenvalue=64, flow_steps=16).fit(x)
    grid = np.linspace(0, 6, 25)[:, None]
    np.testing.assert_allclose(model.score_samples(grid), fitted(1).score_samples(grid), atol=0.1)
    assert "bounded at 0, box from 0 to" in model.summary()


def test_a_file(tmp_path: Path) -> None:
    model = fitted(2)
    model.save(tmp_path / "model.safetensors")
    again = OISM.load(tmp_path / "model.safetensors")
    x = np.concatenate([data(5), [[-1.0, 0.0], [99.0, 0.0]]])
    np.testing.assert_array_equal(again.score_samples(x), model.score_samples(x))
    assert again.bounds == {0: (0, None)}


@pytest.mark.parametrize("side", [1, -1])
def test_the_background_of_one_bound(side: int) -> None:
    x = torch.from_numpy(3 + side * data()[:, :1])
    spread = Spread(x[0])
    spread.update(x, torch.ones(len(x)).double())
    tensor = torch.tensor([4.0], dtype=torch.float64)
    low = torch.tensor([3.0 if side > 0 else -1.0], dtype=torch.float64)
    found = Background.of(spread, torch.tensor([False]), low, tensor, opening=side * tensor.sign())
    scale = 2 * math.sqrt(float((x - 3).square().mean()))
    law = scipy.stats.t(3, scale=scale / math.sqrt(3))
    assert law.std() == pytest.approx(scale)
    y = torch.tensor([[0.0], [1.0], [20.0]], dtype=torch.float64)
    expected = law.logpdf(y[:, 0]) + math.log(2)
    np.testing.assert_allclose(found.log_density(3 + side * y), expected, rtol=1e-9)
    assert found.log_marginal({0: 3.0 + side}) == pytest.approx(expected[1])
    samples = (side * (found.sample(4000, torch.Generator().manual_seed(0)) - 3))[:, 0]
    assert samples.min() >= 0
    assert scipy.stats.kstest(samples, lambda z: 2 * law.cdf(z) - 1).pvalue > 0.01


def test_wrong_openings_are_errors() -> None:
    zero, one = torch.zeros(1).double(), torch.ones(1).double()
    no, yes = torch.tensor([False]), torch.tensor([True])
    with pytest.raises(ValueError, match="opening must be 1, 0 or -1, and 0 unless"):
        BoxChart(zero, one, zero, no, no, one)
    with pytest.raises(ValueError, match="opening must be 1, 0 or -1"):
        BoxChart(zero, one, zero, no, yes, 0.5 * one)


@pytest.mark.parametrize("shrinkage", ["james-stein", "modulation"])
def test_bounds_with_every_shrinkage(shrinkage: str) -> None:
    """Modulation needs a projection, which only the torus has; its sines were not all zero."""
    x = np.exp(np.random.default_rng(0).normal(size=(300, 1)))
    model = OISM(bounds={0: (0.0, None)}, shrinkage=shrinkage).fit(x)
    assert model.score(x) / len(x) > -1.6  # the entropy is 1.42


@pytest.mark.parametrize("seed", [2, 6, 11])
def test_shrunk_averages_that_are_even_in_one_fold_only(seed: int) -> None:
    """All averages of the training rows were 0, those of the held-out rows were not."""
    rng = np.random.default_rng(seed)
    n, dim = int(rng.integers(2, 5)), int(rng.integers(2, 4))
    x = rng.normal(size=(n, dim))
    x[:, 0] = np.exp(x[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # there are few rows
        model = OISM(bounds={0: (0, None)}, shrinkage="james-stein").fit(x)
    assert np.isfinite(model.score_samples(x)).all()
