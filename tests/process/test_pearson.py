"""Jacobi and Laguerre diffusions: coefficients, operators, transitions, and what they refuse."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism._core.orthogonal import beta_recurrence, gamma_recurrence
from oism.process import (
    AdjointGenerator,
    CarreDuChamp,
    DirichletForm,
    InfinitesimalGenerator,
    Jacobi,
    Laguerre,
    MonteCarlo,
    Pearson,
    Quadrature,
    Semigroup,
    SymmetricPart,
)
from oism.process._expectation import expectation
from oism.process._laguerre import log_bessel

PROCESSES: list[Pearson] = [
    Jacobi(),
    Jacobi(0.5, 0.5),
    Jacobi(0.5, 2.0),
    Jacobi(3.0, 0.8),
    Laguerre(1.0),
    Laguerre(0.7),
    Laguerre(4.0),
]
processes = pytest.mark.parametrize("process", PROCESSES, ids=repr)


def points(process: Pearson, n: int = 40, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = process.invariant.sample((n, 1), generator=generator, dtype=torch.float64)
    return x.clamp(1e-3, min(process.domain.high, 30.0) - 1e-3)  # type: ignore[attr-defined]


def f(x: Tensor) -> Tensor:
    return torch.exp(-0.4 * x[:, 0]) + x[:, 0].square() / 5


def g(x: Tensor) -> Tensor:
    return torch.sin(1.3 * x[:, 0])


@processes
def test_the_drift_is_that_of_a_symmetric_generator(process: Pearson) -> None:
    """b = G∇log π + ∇·G, by differentiation, and the flow's part is G∇log π."""
    x = points(process)
    flat = x[:, 0].clone().requires_grad_()
    diffusion = process.diffusion_at(flat[:, None])[:, 0]
    slope = torch.autograd.grad(diffusion.sum(), flat)[0]
    flux = diffusion.detach() * process.invariant.score(x)[:, 0]
    torch.testing.assert_close(process.flow_drift(x)[:, 0], flux, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(process.drift(x)[:, 0], flux + slope, rtol=1e-12, atol=1e-12)
    by_differences = super(type(process), process)._flow_drift_divergence(x)
    expected = torch.full((len(x),), float(process._flow_drift_divergence(x))).double()
    torch.testing.assert_close(by_differences, expected)


@processes
def test_noise_and_diffusion_agree(process: Pearson) -> None:
    x, v = points(process), points(process, seed=1)
    noise = process.noise_at(x)
    assert noise.shape == (len(x), 1, 1)
    matrix = 0.5 * noise @ noise.mT
    torch.testing.assert_close(process.diffuse(v, x), (matrix @ v[..., None])[..., 0])
    assert not process.has_constant_noise
    with pytest.raises(TypeError, match=r"no constant noise matrix: use noise_at\(x\)"):
        process.noise(1)
    start = x[:1].expand(200_000, 1)
    draws = process._sample_noise(start, torch.Generator().manual_seed(0))
    expected = 2 * float(process.diffusion_at(x[:1]))
    error = 3 * expected * math.sqrt(2 / len(draws))
    assert float(draws.var()) == pytest.approx(expected, abs=error)


@processes
def test_the_operators_of_a_reversible_process(process: Pearson) -> None:
    x = points(process)
    generator = InfinitesimalGenerator(process)
    product = generator(lambda y: f(y) * g(y))(x)
    by_definition = 0.5 * (product - f(x) * generator(g)(x) - g(x) * generator(f)(x))
    gamma = CarreDuChamp(process)
    torch.testing.assert_close(gamma(f, g)(x), by_definition, rtol=1e-12, atol=1e-12)
    for other in (AdjointGenerator(process), SymmetricPart(process)):
        torch.testing.assert_close(other(f)(x), generator(f)(x), rtol=0, atol=0)
    # ∫ Γ(f, g) dπ = -∫ f Lg dπ
    rule = Quadrature(60)
    form = DirichletForm(process, (1,), rule)(f, g)
    parts = expectation(lambda y: f(y) * generator(g)(y), process.invariant, (1,), rule)
    torch.testing.assert_close(form, -parts, rtol=1e-9, atol=1e-9)
    # ∫ Lf dπ = 0: π is invariant
    total = expectation(generator(f), process.invariant, (1,), rule)
    assert abs(float(total)) < 1e-9


def x3(x: Tensor) -> Tensor:
    return x[:, 0] ** 3


def power(x: Tensor, k: int) -> Tensor:
    return x[:, 0] ** k


@processes
def test_the_semigroup_solves_the_backward_equation(process: Pearson) -> None:
    x = points(process, 12)
    generator = InfinitesimalGenerator(process)
    there = Semigroup(process, 0.3, Quadrature(8))
    torch.testing.assert_close(Semigroup(process, 0.0, Quadrature(8))(x3)(x), x3(x))
    step = 1e-4
    ends = [Semigroup(process, 0.3 + s, Quadrature(8))(x3)(x) for s in (-step, step)]
    slope = (ends[1] - ends[0]) / (2 * step)
    torch.testing.assert_close(there(generator(x3))(x), slope, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(generator(there(x3))(x), slope, rtol=1e-6, atol=1e-6)
    twice = Semigroup(process, 0.1, Quadrature(8))(Semigroup(process, 0.2, Quadrature(8))(x3))
    torch.testing.assert_close(twice(x), there(x3)(x), rtol=1e-10, atol=1e-10)


@processes
@pytest.mark.parametrize("t", [0.02, 0.3, 2.0])
def test_samples_have_the_moments_of_the_semigroup(process: Pearson, t: float) -> None:
    n = 20_000
    for start in (0.0, 0.3, 0.9):
        x = torch.full((n, 1), start, dtype=torch.float64)
        y = process.transition(t).sample(x, generator=torch.Generator().manual_seed(3))
        assert bool(process.domain.contains(y).all())
        powers = torch.cat((y, y.square(), y**3), dim=1)
        for k, values in enumerate(powers.mT, start=1):
            exact = Semigroup(process, t, Quadrature(8))(partial(power, k=k))(x[:1])
            error = 3.5 * float(values.std()) / math.sqrt(n)  # 126 comparisons
            assert float(values.mean()) == pytest.approx(float(exact), abs=error)
    monte_carlo = Semigroup(process, t, MonteCarlo(4000, torch.Generator().manual_seed(0)))
    found = monte_carlo(lambda z: z[:, 0])(x[:3])
    mean = process.transition(t).mean(x[:3])[:, 0]
    assert bool(((found - mean).abs() < 0.1).all())


@processes
@pytest.mark.parametrize("t", [0.01, 0.25, 1.5])
def test_transition_densities(process: Pearson, t: float) -> None:
    """They integrate to 1, are symmetric relative to π, and samples follow them."""
    law = process.transition(t)
    start = 0.35
    if isinstance(process, Jacobi):
        angle = (torch.arange(4000, dtype=torch.float64) + 0.5) * math.pi / 4000
        y = 0.5 * (1 - angle.cos())
        mass = 0.5 * angle.sin() * math.pi / 4000
    else:
        share = (torch.arange(8000, dtype=torch.float64) + 0.5) / 8000
        y, mass = 40 * share**4, 160 * share**3 / 8000
    grid = y[:, None]
    density = law.log_density(grid, torch.full_like(grid, start)).exp()
    assert float((density * mass).sum()) == pytest.approx(1, abs=1e-3)
    semigroup = Semigroup(process, t)
    x, z = points(process, 30), points(process, 30, seed=2)
    near = (x - z).abs()[:, 0] < 3 * math.sqrt(t)  # elsewhere log-densities are those of rounding
    torch.testing.assert_close(
        semigroup.log_kernel(x, z)[near], semigroup.log_kernel(z, x)[near], rtol=1e-6, atol=1e-6
    )
    draws = law.sample(
        torch.full((4000, 1), start, dtype=torch.float64),
        generator=torch.Generator().manual_seed(5),
    )

    def distance(weights: Tensor) -> float:
        table = (weights * mass).cumsum(dim=0)
        cdf = np.interp(np.sort(draws[:, 0].numpy()), y.numpy(), (table / table[-1]).numpy())
        ranks = np.arange(1, len(cdf) + 1) / len(cdf)
        return float(np.abs(cdf - ranks + 0.5 / len(cdf)).max()) * math.sqrt(len(cdf))

    assert distance(density) < 1.63  # Kolmogorov and Smirnov at 1%
    other = process.transition(t / 3).log_density(grid, torch.full_like(grid, start)).exp()
    assert distance(other) > 1.63, "another density fails"


def test_the_laguerre_transition_is_noncentral_chi_square() -> None:
    x = torch.tensor([0.01, 0.5, 1.3, 4.0, 20.0], dtype=torch.float64)[:, None]
    y = torch.flip(x, dims=(0,)) * 0.9
    for a, t in ((0.7, 0.3), (1.0, 1.0), (3.5, 0.05), (0.7, 4.0)):
        c = -math.expm1(-t)
        kept = x[:, 0].numpy() * math.exp(-t)
        expected = scipy.stats.ncx2.logpdf(y[:, 0].numpy() * 2 / c, 2 * a, 2 * kept / c)
        found = Laguerre(a).transition(t).log_density(y, x).numpy()
        usable = expected > -200  # scipy's series underflows
        np.testing.assert_allclose(
            found[usable], (expected + math.log(2 / c))[usable], rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("order", [-0.7, -0.3, 0.0, 0.5, 3.0, 9.0])
def test_bessel_functions(order: float) -> None:
    z = torch.tensor([1e-3, 1.0, 30.0, 59.9, 60.1, 161.9, 162.1, 1e3, 1e6], dtype=torch.float64)
    known = np.log(scipy.special.ive(order, z.numpy())) + z.numpy()
    expected = torch.from_numpy(known - order * np.log(z.numpy() / 2))
    torch.testing.assert_close(log_bessel(order, z), expected, rtol=1e-14, atol=1e-14)
    assert float(log_bessel(order, 0 * z[:1])) == pytest.approx(-math.lgamma(order + 1))
    free = z.clone().requires_grad_()
    slope = torch.autograd.grad(log_bessel(order, free).sum(), free)[0]
    ratio = scipy.special.ive(order + 1, z.numpy()) / scipy.special.ive(order, z.numpy())
    torch.testing.assert_close(slope, torch.from_numpy(ratio), rtol=1e-9, atol=1e-12)


@given(a=st.floats(0.2, 6.0), b=st.floats(0.2, 6.0), nodes=st.integers(1, 40))
def test_gauss_rules_are_those_of_scipy(a: float, b: float, nodes: int) -> None:
    points, weights = beta_recurrence(a, b, nodes).gauss()
    known, masses = scipy.special.roots_jacobi(nodes, b - 1, a - 1)
    np.testing.assert_allclose(points, (known + 1) / 2, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weights, masses / masses.sum(), rtol=1e-8, atol=1e-12)
    points, weights = gamma_recurrence(a, nodes).gauss()
    known, masses = scipy.special.roots_genlaguerre(nodes, a - 1)
    np.testing.assert_allclose(points, known, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weights, masses / masses.sum(), rtol=1e-6, atol=1e-12)


@processes
def test_invariant_distributions(process: Pearson) -> None:
    law, x = process.invariant, points(process)
    known = (
        scipy.stats.beta(process.a, process.b)
        if isinstance(process, Jacobi)
        else scipy.stats.gamma(process.a)  # type: ignore[attr-defined]
    )
    expected = torch.from_numpy(known.logpdf(x[:, 0].numpy()))
    torch.testing.assert_close(law.log_density(x), expected, rtol=1e-12, atol=1e-12)
    free = x.clone().requires_grad_()
    slope = torch.autograd.grad(law.log_density(free).sum(), free)[0]
    torch.testing.assert_close(law.score(x), slope)
    draws = law.sample((5000, 1), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert scipy.stats.kstest(draws[:, 0].numpy(), known.cdf).pvalue > 1e-3
    outside = torch.tensor([[-0.1]], dtype=torch.float64)
    assert float(law.log_density(outside)) == -math.inf
    weighted, mass = law.weighted()
    total = expectation(lambda y: process.diffusion_at(y)[:, 0], law, (1,))
    assert float(total) == pytest.approx(mass, rel=1e-12)
    ratio = weighted.log_density(x) - law.log_density(x) - process.diffusion_at(x)[:, 0].log()
    torch.testing.assert_close(ratio, torch.full_like(ratio, -math.log(mass)))


def test_points_outside_are_refused() -> None:
    x = torch.tensor([[0.2], [1.2]])
    with pytest.raises(ValueError, match=r"x must be in \[0, 1\], but x\[1\] = \[1.2.*rescale"):
        Jacobi().transition(0.1).sample(x)
    with pytest.raises(ValueError, match=r"must be in \[0, inf\], but x\[0\] = \[-0.2"):
        Laguerre().transition(0.1).log_density(-x, -x)
    assert Jacobi().wrap(x).tolist() == [[pytest.approx(0.2)], [pytest.approx(1.0)]]
    assert float(Jacobi().wrap(x).max()) < 1
    for bad in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="a must be a positive finite number"):
            Jacobi(a=bad)
        with pytest.raises(ValueError, match="a must be a positive finite number"):
            Laguerre(a=bad)
    with pytest.raises(ValueError, match=r"t must be at least 0\.0001 for the transition density"):
        Jacobi().transition(1e-5).log_density(x[:1], x[:1])
    with pytest.raises(ValueError, match="t must be positive for a transition density"):
        Laguerre().transition(0.0).log_density(x, x)
    with pytest.raises(TypeError, match="no rule of common offsets"):
        Jacobi().transition(0.1).quadrature(1, 4)
    with pytest.raises(ValueError, match="x must have one entry per point"):
        Jacobi().transition(0.1).nodes(torch.full((2, 2), 0.5), 4)
    with pytest.raises(ValueError, match="t must be one number for a rule"):
        Jacobi().transition(torch.tensor([0.1, 0.2])).nodes(x[:1].repeat(2, 1), 4)


@processes
def test_no_time_changes_nothing_and_times_may_differ(process: Pearson) -> None:
    x = points(process, 5)
    same = process.transition(0.0).sample(x, generator=torch.Generator().manual_seed(0))
    assert torch.equal(same, x)
    times = torch.tensor([0.0, 0.01, 0.1, 1.0, 9.0], dtype=torch.float64)
    y = process.transition(times).sample(x, generator=torch.Generator().manual_seed(0))
    assert torch.equal(y[0], x[0])
    assert bool((y[1:] != x[1:]).all())
    single = [process.transition(float(t)).log_density(y[i : i + 1], x[i : i + 1])
              for i, t in enumerate(times) if i]  # fmt: skip
    torch.testing.assert_close(
        process.transition(times[1:]).log_density(y[1:], x[1:]), torch.cat(single)
    )
