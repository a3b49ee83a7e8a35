from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.neighbors import KernelDensity

from oism.data.toys import PLANE
from oism.tables import KDE


def test_agrees_with_scikit_learn(generator: torch.Generator) -> None:
    x = PLANE["moons"].sample(400, generator).numpy()
    train, test = x[:300], np.append(x[300:], [[40.0, -30.0]], axis=0)  # one of them isolated
    kde = KDE(octaves=3).fit(train)
    assert len(kde.widths_) == 12
    assert kde.widths_[0] == 0.5
    assert np.allclose(kde.widths_[:-1] / kde.widths_[1:], 2 ** (1 / 6))
    folds = np.array_split(np.random.default_rng(0).permutation(300), 5)
    for width, likelihood in zip(kde.widths_, kde.likelihoods_, strict=True):
        model = KernelDensity(bandwidth=width, rtol=1e-12)
        expected = sum(
            model.fit(np.delete(train, held, axis=0)).score(train[held]) for held in folds
        )
        assert likelihood == pytest.approx(expected / 300, abs=1e-9)
    assert kde.bandwidth_ == kde.widths_[kde.likelihoods_.argmax()]
    squares = np.square(test[:, None] - train).sum(axis=2) / (2 * kde.bandwidth_**2)
    exact = np.logaddexp.reduce(-squares, axis=1) - math.log(2 * math.pi * kde.bandwidth_**2 * 300)
    np.testing.assert_allclose(kde.score_samples(test), exact, rtol=1e-12, atol=1e-9)


def test_periodic_kde_integrates_to_one_on_the_circle(generator: torch.Generator) -> None:
    x = torch.randn(200, 2, generator=generator, dtype=torch.float64).numpy() * [40.0, 0.4]
    kde = KDE(periodic={0: 360.0}, widest=8.0).fit(x)
    angle, line = np.linspace(0, 360, 600, endpoint=False), np.linspace(-20, 20, 81)
    grid = np.stack(np.meshgrid(angle, line), axis=-1).reshape(-1, 2)
    assert 1 < kde.bandwidth_ < 3  # twice the spacing of the grid, and far from its ends
    log = kde.score_samples(grid)
    assert np.exp(log).sum() * 0.6 * 0.5 == pytest.approx(1, abs=1e-8)
    np.testing.assert_allclose(kde.score_samples(grid - [720.0, 0.0]), log, atol=1e-8)
    draws = kde.sample(20_000, random_state=0)
    assert draws.std(axis=0) ** 2 == pytest.approx(x.var(axis=0) + kde.bandwidth_**2, rel=0.05)


def test_kde_with_background_integrates_to_one() -> None:
    x = np.random.default_rng(0).normal(0, 10, size=(100, 1))
    model = KDE(periodic={0: 360.0}, background=True).fit(x)
    grid = np.arange(0, 360, 0.5)[:, None]
    log = model.score_samples(grid)
    assert np.exp(log).sum() * 0.5 == pytest.approx(1, abs=1e-8)
    assert log.min() == pytest.approx(-math.log(101 * 360))
    draws = model.sample(100_000, random_state=0)
    share = np.mean(np.abs(np.remainder(draws, 360) - 180) < 90)
    assert share == pytest.approx(0.5 / 101, rel=0.2)
