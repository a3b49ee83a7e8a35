"""Brownian motion on the sphere: transition density, samples, nodes, flow."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from torch import Tensor

from oism.process import DirichletForm, InfinitesimalGenerator, Quadrature, Sphere, UnitSphere
from oism.process._sphere import CROSSING, ENVELOPE, heat_log_density


def unit(n: int, seed: int = 0) -> Tensor:
    draws = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found: Tensor = draws / draws.norm(dim=1, keepdim=True)
    return found


def series(angle: Tensor, t: float, terms: int = 400) -> Tensor:
    """Return ρ_t by the series: accurate to 1e-13 of its largest value."""
    z, total = angle.cos().numpy(), 0.0
    for l in range(terms):  # noqa: E741
        rate = (2 * l + 1) * math.exp(-l * (l + 1) * t)
        total = total + rate * scipy.special.eval_legendre(l, z)
        if rate < 1e-20:
            break
    return torch.as_tensor(total) / (4 * math.pi)


@pytest.mark.parametrize("t", [0.002, 0.03, 0.2, 0.2499, 0.2501, 1.0, 4.0])
def test_the_transition_density_is_its_series(t: float) -> None:
    angle = torch.linspace(0, math.pi, 101, dtype=torch.float64)
    found = heat_log_density(angle, torch.tensor(t, dtype=torch.float64)).exp()
    exact = series(angle, t)
    torch.testing.assert_close(found, exact, rtol=1e-11, atol=1e-12 * float(exact.max()))


def test_both_forms_agree_where_the_series_cancels() -> None:
    """Relative accuracy at the antipode, next to the crossing of the two forms."""
    angle = torch.linspace(0, math.pi, 50, dtype=torch.float64)
    early, late = (
        heat_log_density(angle, torch.tensor(t, dtype=torch.float64))
        for t in (CROSSING * (1 - 1e-13), CROSSING)
    )
    torch.testing.assert_close(early, late, rtol=0, atol=1e-11)


@pytest.mark.parametrize("t", [1e-5, 0.01, 0.24, 0.5])
def test_transition_densities_integrate_to_one(t: float) -> None:
    reach = min(math.pi, 14 * math.sqrt(t))
    nodes, weights = scipy.special.roots_legendre(200)
    angle = torch.from_numpy(0.5 * reach * (nodes + 1))
    density = heat_log_density(angle, torch.tensor(t, dtype=torch.float64)).exp()
    mass = (torch.from_numpy(0.5 * reach * weights) * 2 * math.pi * angle.sin() * density).sum()
    assert abs(float(mass) - 1) < 1e-12


@pytest.mark.parametrize("t", [1e-4, 0.01, 0.1, 0.249])
def test_the_envelope_of_the_sampler_holds(t: float) -> None:
    angle = torch.linspace(1e-6, math.pi, 2000, dtype=torch.float64)
    density = heat_log_density(angle, torch.tensor(t, dtype=torch.float64))
    ratio = torch.exp(density + angle.square() / (4 * t)) * 4 * math.pi * t
    assert float((ratio * angle.sin() / angle).max()) < ENVELOPE


@pytest.mark.parametrize("t", [0.003, 0.1, 0.24, 0.3, 2.0])
def test_samples_follow_the_density(t: float) -> None:
    start = unit(1).expand(20_000, 3)
    generator = torch.Generator().manual_seed(5)
    angle = torch.acos((Sphere().transition(t).sample(start, generator=generator) * start).sum(1))
    grid = torch.linspace(0, math.pi, 4001, dtype=torch.float64)
    density = heat_log_density(grid[1:], torch.tensor(t, dtype=torch.float64)).exp()
    steps = torch.cat((torch.zeros(1), 2 * math.pi * grid[1:].sin() * density * grid[1]))
    cdf = torch.cumulative_trapezoid(steps / grid[1], grid)
    values = torch.cat((torch.zeros(1).double(), cdf)).numpy()

    def distribution(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.interp(x, grid.numpy(), values))

    assert scipy.stats.kstest(angle.numpy(), distribution).pvalue > 1e-3
    assert scipy.stats.kstest(1.05 * angle.numpy(), distribution).pvalue < 1e-3  # a wrong one


def test_one_time_for_each_row() -> None:
    x, y = unit(5, 1), unit(5, 2)
    t = torch.tensor([0.01, 0.1, 0.3, 1.0, 3.0], dtype=torch.float64)
    many = Sphere().transition(t).log_density(y, x)
    single = [Sphere().transition(float(one)).log_density(y, x)[k] for k, one in enumerate(t)]
    torch.testing.assert_close(many, torch.stack(single))
    still = Sphere().transition(torch.tensor([0.0, 0.5]).double()).sample(x[:2])
    torch.testing.assert_close(still[0], x[0])


def test_the_density_solves_the_heat_equation() -> None:
    x, y, t = unit(6, 1), unit(6, 2), 0.2

    generated = InfinitesimalGenerator(Sphere())(lambda z: _at(x[0], z, t))(y)
    x = x[:1].expand(6, 3)
    h = 1e-5
    late, early = (Sphere().transition(t + s * h).log_density(y, x).exp() for s in (1, -1))
    torch.testing.assert_close(generated, (late - early) / (2 * h), rtol=0, atol=1e-8)


def _at(x: Tensor, z: Tensor, t: float) -> Tensor:
    return Sphere().transition(t).log_density(z, x.expand_as(z)).exp()


def test_domain_and_measure() -> None:
    domain, x = UnitSphere(), unit(3)
    assert domain.contains(x).all()
    assert not domain.contains(1.1 * x).any()
    torch.testing.assert_close(domain.wrap(3 * x), x)
    uniform = Sphere().invariant
    draws = uniform.sample((4000, 3), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws.norm(dim=1), torch.ones(4000))
    assert scipy.stats.kstest(draws[:, 0].numpy(), scipy.stats.uniform(-1, 2).cdf).pvalue > 1e-3
    torch.testing.assert_close(uniform.log_density(x).exp() * 4 * math.pi, torch.ones(3).double())


def test_the_dirichlet_form_of_coordinates() -> None:
    """∫ |∇z|² dπ = 2 ∫ z² dπ = 2/3."""
    form = DirichletForm(Sphere(), (3,), Quadrature(6))
    z = lambda x: x[:, 2] / x.norm(dim=1)  # noqa: E731
    assert abs(float(form(z, z)) - 2 / 3) < 1e-12


def test_a_density_needs_a_positive_time() -> None:
    with pytest.raises(ValueError, match="t must be positive"):
        Sphere().transition(0.0).log_density(unit(2), unit(2))


def test_simulated_paths_have_the_transition_density() -> None:
    """The SDE in the space around the sphere, by Euler steps with projection."""
    process, x = Sphere(), unit(1).expand(20_000, 3).clone()
    generator, start, steps, t = torch.Generator().manual_seed(0), x.clone(), 100, 0.2
    for _ in range(steps):
        noise = process._sample_noise(x, generator) * math.sqrt(t / steps)
        x = process.domain._wrap(x + process.drift(x) * (t / steps) + noise)
    cosine = (x * start).sum(dim=1)
    error = (cosine.mean() - math.exp(-2 * t)) / (cosine.std() / math.sqrt(len(x)))
    assert abs(float(error)) < 4.5
