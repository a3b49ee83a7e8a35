"""Expectation maximisation in batches, tables of levels, and local Gaussians."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor

from oism.tables._gaussians import (
    Gaussians,
    Neighbourhood,
    clusters,
    expectation_maximisation,
    features,
    local_gaussians,
    log_densities,
    maximised,
    neighbours,
)

FLOOR = 1e-4


def rows(n: int = 400, dim: int = 3, seed: int = 0) -> Tensor:
    """Return whitened rows of three clusters."""
    g = torch.Generator().manual_seed(seed)
    centre = 2.5 * torch.randn(3, dim, generator=g, dtype=torch.float64)
    which = torch.randint(3, (n,), generator=g)
    x = centre[which] + torch.randn(n, dim, generator=g, dtype=torch.float64)
    return (x - x.mean(dim=0)) / x.std(dim=0)


def no_levels(z: Tensor) -> Tensor:
    return z.new_zeros(z.shape[-2], 0)


def fitted(z: Tensor, levels: Tensor, count: int, seed: int, steps: int = 200) -> Gaussians:
    phi = features(z, levels)
    share = clusters(z, count, torch.Generator().manual_seed(seed))
    start = maximised(phi, share, z.shape[1], FLOOR)
    return expectation_maximisation(
        phi, start, torch.ones(len(z)).double(), floor=FLOOR, steps=steps, tolerance=1e-6
    )


def test_it_reaches_the_likelihood_of_scikit_learn() -> None:
    z = rows(800)
    phi = features(z, no_levels(z))
    ours = [fitted(z, no_levels(z), 3, seed) for seed in range(4)]
    best = max(float(log_densities(phi, one).mean()) for one in ours)
    theirs = GaussianMixture(3, n_init=4, random_state=0, reg_covar=FLOOR, tol=1e-6).fit(z.numpy())
    assert best == pytest.approx(float(theirs.score(z.numpy())), abs=5e-3)


def test_log_densities_are_those_of_scipy() -> None:
    z = rows(50)
    mixture = fitted(z, no_levels(z), 2, 0)
    expected = sum(
        math.exp(float(w)) * scipy.stats.multivariate_normal(m.numpy(), c.numpy()).pdf(z.numpy())
        for w, m, c in zip(mixture.log_weights, mixture.means, mixture.covariances, strict=True)
    )
    found = log_densities(features(z, no_levels(z)), mixture)
    np.testing.assert_allclose(found.exp().numpy(), expected, rtol=1e-10)


def test_every_step_raises_the_likelihood() -> None:
    z = rows(300)
    phi = features(z, no_levels(z))
    after = [fitted(z, no_levels(z), 4, 0, steps) for steps in range(1, 15)]
    values = [float(log_densities(phi, one).mean()) for one in after]
    # The floor added to each variance is the only reason for a loss.
    assert (np.diff(values) > -1e-4).all()
    assert values[-1] > values[0] + 1e-3


def test_a_batch_of_problems_equals_single_ones() -> None:
    z = rows(200)
    phi = features(z, no_levels(z))
    masks = torch.stack([torch.arange(200) % 3 != k for k in range(3)]).double()
    share = torch.stack([clusters(z, 4, torch.Generator().manual_seed(k)) for k in range(3)])
    start = maximised(phi, share * masks[..., None], 3, FLOOR)
    together = expectation_maximisation(phi, start, masks, floor=FLOOR, steps=7, tolerance=0.0)
    for k in range(3):
        kept = masks[k] > 0
        alone = expectation_maximisation(
            phi[kept], start.one(k), masks[k][kept], floor=FLOOR, steps=7, tolerance=0.0
        )
        for one, other in zip(together.one(k), alone, strict=True):
            assert torch.allclose(one, other, atol=1e-9)


def test_weights_are_repetitions() -> None:
    z = rows(100)
    repeats = torch.arange(100) % 3
    phi, start = features(z, no_levels(z)), fitted(z, no_levels(z), 3, 0, 2)
    run = {"floor": FLOOR, "steps": 5, "tolerance": 0.0}
    weighted = expectation_maximisation(phi, start, repeats.double(), **run)  # type: ignore[arg-type]
    again = phi.repeat_interleave(repeats, dim=0)
    ones = torch.ones(len(again)).double()
    repeated = expectation_maximisation(again, start, ones, **run)  # type: ignore[arg-type]
    for one, other in zip(weighted, repeated, strict=True):
        assert torch.allclose(one, other, atol=1e-9)


def test_levels_follow_their_components() -> None:
    g = torch.Generator().manual_seed(0)
    which = torch.randint(2, (600,), generator=g)
    z = torch.randn(600, 1, generator=g).double() + 8.0 * which[:, None] - 4
    code = torch.where(torch.rand(600, generator=g) < 0.9, which, 1 - which)
    levels = torch.nn.functional.one_hot(code, 2).double()
    mixture = fitted(z, levels, 2, 0)
    low = int(mixture.means[:, 0].argmin())
    own = code[z[:, 0] < 0]
    expected = (float((own == 0).sum()) + float((code == 0).double().mean())) / (len(own) + 1)
    assert float(mixture.log_levels[low, 0].exp()) == pytest.approx(expected, abs=1e-3)
    total = mixture.log_levels.exp().sum(dim=1)
    assert torch.allclose(total, torch.ones_like(total))


def test_neighbours_are_the_nearest_others() -> None:
    z = rows(120)
    distance = torch.cdist(z, z).fill_diagonal_(math.inf)
    assert torch.equal(neighbours(z, 5), distance.argsort(dim=1)[:, :5])


def test_local_gaussians_have_the_covariance_of_their_neighbours() -> None:
    z = rows(60)
    near = neighbours(z, 12)
    how = Neighbourhood(10, 0.2, 0.5, about_mean=True)
    mixture = local_gaussians(z, no_levels(z), torch.ones(60).double(), near, how, 1e-3)
    points = torch.cat((z[near[7, :10]], z[7:8])).numpy()
    local = np.cov(points.T)
    expected = 0.5 * (0.8 * local + 0.2 * np.trace(local) / 3 * np.eye(3)) + 1e-3 * np.eye(3)
    np.testing.assert_allclose(mixture.covariances[7].numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(mixture.means[7].numpy(), points.mean(axis=0))
    assert float(mixture.log_weights.exp().sum()) == pytest.approx(1)
    rowwise = local_gaussians(
        z, no_levels(z), torch.ones(60).double(), near, Neighbourhood(10, 0.0, 1.0), 0.0
    )
    gap = (z[near[7, :10]] - z[7]).numpy()
    np.testing.assert_allclose(rowwise.covariances[7].numpy(), gap.T @ gap / 10, rtol=1e-12)
    assert torch.equal(rowwise.means, z)
