"""Kernels with the bounds of a column: the chain, its density and samples, the choice of widths."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch

from oism._core.orthogonal import beta_recurrence
from oism.tables._end_kernels import (
    EndKernelChoice,
    EndKernels,
    EndKernelSums,
    EndStep,
    choose_end_kernels,
)

INTERVAL, HALF_LINE, BELOW = (2.0, 6.0), (1.0, math.inf), (-math.inf, 1.0)
POWERS = (0.6, 1.7)


def rows(bounds: tuple[float, float], n: int = 300, seed: int = 0) -> torch.Tensor:
    source = np.random.default_rng(seed)
    if bounds == INTERVAL:
        return torch.from_numpy(2 + 4 * source.beta(0.7, 2.0, size=(n, 1)))
    side = 1.0 if bounds == HALF_LINE else -1.0
    return torch.from_numpy(1 + side * source.gamma(2.0, 1.5, size=(n, 1)))


def kernels(bounds: tuple[float, float], size: float = 30.0) -> EndKernels:
    x = rows(bounds)
    step = EndStep.of(bounds, POWERS, size, float((x - 1).abs().max()))
    return EndKernelSums(step).update(x, torch.ones(len(x)).double()).model()


@pytest.mark.parametrize("bounds", [INTERVAL, HALF_LINE, BELOW])
def test_the_density_is_that_of_rows_after_one_step(bounds: tuple[float, float]) -> None:
    """Against SciPy's distributions, summed over rows and numbers."""
    found, x = kernels(bounds), rows(bounds)[:, 0].numpy()
    step, scale = found.step, float(found.step.chart.scale)
    k, u = np.arange(step.last + 1), np.array([0.01, 0.2, 0.6, 0.9])
    if bounds == INTERVAL:
        chance = scipy.stats.binom.pmf(k, 30, (x[:, None] - 2) / 4)
        parts = scipy.stats.beta.pdf(u[:, None], k + 0.6, 30 - k + 1.7) / 4
        y = 2 + 4 * u
    else:
        y = 1 + (1 if bounds == HALF_LINE else -1) * u * 10
        chance = scipy.stats.poisson.pmf(k, np.abs(x[:, None] - 1) / scale)
        parts = scipy.stats.gamma.pdf(10 * u[:, None], k + 0.6, scale=scale)
    expected = parts @ chance.mean(axis=0)
    got = found.log_densities(torch.from_numpy(y)[:, None])[:, 0].exp().numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    beyond = torch.tensor([[1.9 if bounds == INTERVAL else 1 - 1e-6 * (y[0] - 1)]]).double()
    assert float(found.log_densities(beyond)) == -math.inf


@pytest.mark.parametrize("bounds", [INTERVAL, HALF_LINE, BELOW])
def test_the_mass_is_one_and_samples_follow(bounds: tuple[float, float]) -> None:
    found = kernels(bounds)
    s = (np.arange(4000) + 0.5) / 4000
    if bounds == INTERVAL:
        x, w = 2 + 4 * s**4, 16 * s**3 / 4000
    else:
        side = 1.0 if bounds == HALF_LINE else -1.0
        x, w = 1 + side * 40 * s**4, 160 * s**3 / 4000
    density = found.log_densities(torch.from_numpy(x)[:, None])[:, 0].exp().numpy()
    assert w @ density == pytest.approx(1, abs=1e-4)
    drawn = found.sample(torch.zeros(4000).long(), torch.Generator().manual_seed(0))[:, 0].numpy()
    order = np.argsort(x)
    below = np.interp(np.sort(drawn), x[order], np.cumsum((w * density)[order]))
    assert np.abs(below - s).max() < 1.95 / math.sqrt(4000)  # 99.9% of Kolmogorov's distance
    assert np.abs(below**1.2 - s).max() > 1.95 / math.sqrt(4000)
    assert found.sample(torch.zeros(0).long(), None).shape == (0, 1)


def test_jacobi_polynomials_are_eigenfunctions_of_the_step() -> None:
    """∫ φ_n(x) p(x | y) dx = Π_{i<n} (m - i)/(m + a + b + i) φ_n(y), close to e^{λ_n 2/m}."""
    m, (a, b) = 40, POWERS
    polynomials = beta_recurrence(a, b, 4)
    y = torch.tensor([0.1, 0.35, 0.8]).double()
    nodes = torch.from_numpy(scipy.special.roots_jacobi(60, b - 1, a - 1)[0]).double() / 2 + 0.5
    mass = torch.from_numpy(scipy.special.roots_jacobi(60, b - 1, a - 1)[1])
    mass = mass / mass.sum()
    step = EndStep.of((0.0, 1.0), POWERS, m, 1.0)
    chance = torch.cat(list(step.numbers(y[:, None])))
    base = torch.from_numpy(scipy.stats.beta.logpdf(nodes.numpy(), a, b))
    for j, own in enumerate(chance):
        ratio = (step.densities(nodes[:, None], own) - base).exp()
        image = (mass * ratio) @ polynomials(nodes)
        n = np.arange(5)
        factors = [np.prod((m - np.arange(d)) / (m + a + b + np.arange(d))) for d in n]
        expected = torch.tensor(factors) * polynomials(y)[j]
        torch.testing.assert_close(image, expected, atol=1e-9, rtol=0)
    rates = np.exp(-0.5 * n * (n + a + b - 1) * 2 / m)
    np.testing.assert_allclose(factors, rates, rtol=0.06)


def test_weights_are_repetitions_and_batches_add() -> None:
    x = rows(INTERVAL, 50)
    step = EndStep.of(INTERVAL, POWERS, 20, 1.0)
    weights = torch.ones(50).double()
    weights[:10] = 2
    heavy = EndKernelSums(step).update(x, weights).model()
    twice = EndKernelSums(step).update(x, weights * 0 + 1)
    twice.update(x[:10], torch.ones(10).double())
    torch.testing.assert_close(heavy.weights, twice.model().weights)


def test_rows_beyond_the_reach_count_as_the_farthest() -> None:
    step = EndStep.of(HALF_LINE, (1.0, 1.0), 50.0, 10.0)
    (chance,) = step.numbers(torch.tensor([[11.0], [500.0]]).double())
    torch.testing.assert_close(chance[0], chance[1])
    torch.testing.assert_close(chance.sum(dim=1), torch.ones(2).double())


def test_the_width_is_that_of_the_largest_held_out_likelihood() -> None:
    x = torch.from_numpy(np.random.default_rng(0).beta(30, 30, size=(600, 1)))
    fold, ones = torch.arange(600) % 3, torch.ones(600).double()
    chosen = choose_end_kernels((0.0, 1.0), (1.0, 1.0), x, ones, fold)
    values = {
        factor: EndKernelChoice(
            chosen.bounds, chosen.powers, chosen.reach, factor * chosen.size, chosen.rows
        ).held_out(x, ones, fold)
        for factor in (0.25, 1.0, 4.0)
    }
    assert max(values, key=values.__getitem__) == 1.0
    # The same from densities that were fitted without each fold.
    total = 0.0
    for one in range(3):
        own = fold == one
        step = EndStep.of(chosen.bounds, chosen.powers, chosen.size, chosen.reach)
        density = EndKernelSums(step).update(x[~own], ones[~own]).model()
        total += float(density.log_densities(x[own]).sum())
    assert values[1.0] == pytest.approx(total, rel=1e-9)
    assert chosen.rows == pytest.approx(400)
    assert chosen.step(800).last == round(chosen.size * 2**0.4)
