"""The flow and the reverse SDE: measured orders, exact distributions, and argument checks."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from tqdm import tqdm

from oism import (
    Brownian,
    Flow,
    Fourier,
    Hermite,
    OrnsteinUhlenbeck,
    Torus,
    VarianceExploding,
    VariancePreserving,
    fit,
)
from oism._core.progress import Progress
from oism.data.toys import WrappedMixture
from oism.flow import (
    Adams,
    Adams4,
    Adaptive,
    EulerMaruyama,
    FixedStep,
    Heun,
    OrdinaryMethod,
    RecordedRungeKutta4,
    RungeKutta4,
    Score,
    State,
    StochasticHeun,
    StochasticMethod,
)
from oism.flow._flow import TICKS, chunks
from oism.process import Clock, Gaussian, IdentityClock, Isotropic, Uniform

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Mixture:
    """Σ p_j N(μ_j, s_j² I); after a transition with α and σ², Σ p_j N(αμ_j, (α²s_j² + σ²) I)."""

    weights: tuple[float, ...]
    means: tuple[tuple[float, ...], ...]
    deviations: tuple[float, ...]

    def parts(self, alpha: float, variance: float) -> tuple[Array, Array, Array]:
        """Weights (k,), means (k, d) and variances (k,) of the noised distribution."""
        own = alpha**2 * np.square(self.deviations) + variance
        return np.array(self.weights), alpha * np.array(self.means), own

    def score(self, process: Isotropic, factor: float = 1.0) -> Score:
        weights, means, deviations = (
            torch.tensor(part, dtype=torch.float64)
            for part in (self.weights, self.means, self.deviations)
        )

        def score(x: Tensor, t: Tensor) -> Tensor:
            alpha, noise = process.alpha(t), process.variance(t)
            variance = alpha**2 * deviations**2 + noise
            step = alpha * means.to(x.dtype) - x[:, None]
            exponent = -step.square().sum(dim=2) / (2 * variance) + weights.log()
            share = torch.softmax(exponent - 0.5 * means.shape[1] * variance.log(), dim=1)
            return (factor * (share / variance)[..., None] * step).sum(dim=1).to(x.dtype)

        return score

    def cdf(self, x: Array, alpha: float, variance: float) -> Array:
        """The distribution function on the line."""
        weights, means, own = self.parts(alpha, variance)
        inside = scipy.stats.norm.cdf((x[:, None] - means[:, 0]) / np.sqrt(own))
        return np.asarray(inside @ weights)


LAWS = {
    "gaussian": Mixture((1.0,), ((0.8,),), (0.5,)),
    "line": Mixture((0.3, 0.7), ((-1.5,), (0.9,)), (0.4, 0.6)),
    "plane": Mixture((0.2, 0.5, 0.3), ((-1.5, 0.0), (0.9, 1.0), (0.3, -1.2)), (0.5, 0.6, 0.7)),
}
NOISINGS: dict[str, tuple[Isotropic, Clock]] = {
    "ou": (OrnsteinUhlenbeck(theta=0.7, sigma=1.3), VariancePreserving(0.3, 8.0)),
    "brownian": (Brownian(), VarianceExploding(0.1, 5.0)),
}
BASES = {"ou": 1.3 / math.sqrt(1.4), "brownian": 5.0}
"""The standard deviations of the distributions that the flows start from."""
noisings = pytest.mark.parametrize("noising", NOISINGS)


def moments(process: Isotropic, clock: Clock, tau: float) -> tuple[float, float]:
    """α and σ² from their formulas."""
    if isinstance(clock, VarianceExploding):
        assert isinstance(process, Brownian)
        return 1.0, (clock.sigma_min * (clock.sigma_max / clock.sigma_min) ** tau) ** 2
    assert isinstance(clock, VariancePreserving)
    assert isinstance(process, OrnsteinUhlenbeck)
    t = 0.5 * (clock.beta_0 * tau + 0.5 * (clock.beta_1 - clock.beta_0) * tau**2)
    alpha = math.exp(-process.theta * t)
    return alpha, process.sigma**2 / (2 * process.theta) * (1 - alpha**2)


def flow_of(
    law: Mixture,
    noising: str,
    *,
    factor: float = 1.0,
    span: tuple[float, float] | None = None,
) -> Flow:
    process, clock = NOISINGS[noising]
    return Flow(law.score(process, factor), process, clock, span=span)


def exact_pull(
    law: Mixture, noising: str, z: Array, span: tuple[float, float] = (0.0, 1.0)
) -> Array:
    """The end of the flow from z on the line, where the flow preserves quantiles."""
    process, clock = NOISINGS[noising]
    level = law.cdf(z[:, 0], *moments(process, clock, span[1]))
    low, high = np.full(len(z), -30.0), np.full(len(z), 30.0)
    for _ in range(60):  # bisection
        middle = 0.5 * (low + high)
        below = law.cdf(middle, *moments(process, clock, span[0])) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(0.5 * (low + high)[:, None])


def solved_pull(law: Mixture, noising: str, z: Array) -> Array:
    """The end of the flow from z in any dimension, by SciPy, from derivatives of α and σ² only."""
    process, clock = NOISINGS[noising]
    score, h = law.score(process), 1e-3
    stencil = np.array([-1, 9, -45, 45, -9, 1]) / (60 * h)

    def field(tau: float, x: Array) -> Array:
        # t' b = (log α)' x and t' g = ½α² (σ²/α²)'
        ends = [moments(process, clock, tau + k * h) for k in (-3, -2, -1, 1, 2, 3)]
        alpha = moments(process, clock, tau)[0]
        shrink = stencil @ np.log([a for a, _ in ends])
        spread = 0.5 * alpha**2 * (stencil @ np.array([v / a**2 for a, v in ends]))
        points = torch.tensor(x.reshape(z.shape))
        t = clock.time(min(max(tau, 0.0), 1.0))
        return np.asarray(shrink * x - spread * score(points, t).numpy().ravel())

    found = scipy.integrate.solve_ivp(
        field, (1.0, 0.0), z.ravel(), method="DOP853", rtol=1e-11, atol=1e-12
    )
    return np.asarray(found.y[:, -1]).reshape(z.shape)


def starts(law: Mixture, noising: str) -> Tensor:
    """Typical noise."""
    process, clock = NOISINGS[noising]
    alpha, variance = moments(process, clock, 1.0)
    generator = torch.Generator().manual_seed(3)
    z = torch.randn(12, len(law.means[0]), generator=generator, dtype=torch.float64)
    return math.sqrt(variance + alpha**2) * z.clamp(-2, 2)


def apart(got: Tensor, exact: Array) -> float:
    return float(np.abs(got.numpy() - exact).max())


def counted(flow: Flow) -> tuple[Flow, list[tuple[Tensor, Tensor]]]:
    """The flow, and a list of the arguments of later calls of its score."""
    calls: list[tuple[Tensor, Tensor]] = []
    score = flow.score

    def spy(x: Tensor, t: Tensor) -> Tensor:
        calls.append((x, t))
        return score(x, t)

    flow.score = spy
    return flow, calls


def slope(counts: Sequence[float], errors: list[float]) -> float:
    """The measured order: errors fall like the number of steps to the power of minus this."""
    return -float(np.polyfit(np.log(counts), np.log(errors), 1)[0])


@noisings
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(
    ("method", "counts"),
    [
        (Heun, [50, 100, 200]),
        (Adams, [200, 400, 800]),
        (Adams4, [200, 400, 800]),
        (RungeKutta4, [20, 40, 80]),
        (RecordedRungeKutta4, [20, 40, 80]),
    ],
)
def test_fixed_steps_have_the_declared_order(
    name: str, noising: str, method: type[FixedStep], counts: list[int]
) -> None:
    law = LAWS[name]
    z = starts(law, noising)
    exact = (solved_pull if name == "plane" else exact_pull)(law, noising, z.numpy())
    flow = flow_of(law, noising)
    errors = [apart(flow.pull(z, method=method(n)), exact) for n in counts]
    assert slope(counts, errors) == pytest.approx(method.order, abs=0.25)
    bounds = {Heun: 1e-3, Adams: 1e-5, Adams4: 1e-7, RungeKutta4: 1e-7, RecordedRungeKutta4: 1e-7}
    assert errors[-1] < bounds[method]
    forth = flow.push(torch.tensor(exact), method=method(counts[-1]))
    assert apart(forth, z.numpy()) < 50 * errors[-1]


@pytest.mark.parametrize(
    ("method", "evaluations"),
    [
        (Heun(6), 12),
        (Adams(6), 7),
        (RungeKutta4(6), 24),
        (RecordedRungeKutta4(6), 24),
        (Adams(1), 2),
        (Adams4(20), 30),
        (Adams4(3), 13),
        (Adams4(1), 5),
    ],
)
def test_evaluations_of_fixed_steps(method: FixedStep, evaluations: int) -> None:
    law = LAWS["plane"]
    flow, calls = counted(flow_of(law, "ou"))
    flow.pull(starts(law, "ou"), method=method)
    assert len(calls) == evaluations


@pytest.mark.parametrize("ends", [(0.0, 1.0), (0.7, 0.1)])
def test_recorded_steps_are_those_of_runge_and_kutta(ends: tuple[float, float]) -> None:
    times: list[float] = []

    def field(tau: Tensor, state: State) -> State:
        times.append(float(tau))
        return torch.sin(3 * state[0] + tau), state[0] - state[1]

    start = (torch.linspace(-1, 1, 5, dtype=torch.float64), torch.ones(5, dtype=torch.float64))
    kept = [part.clone() for part in start]
    expected = RungeKutta4(7).solve(field, start, ends)
    for one, other in zip(RecordedRungeKutta4(7).solve(field, start, ends), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(list(start), kept, rtol=0, atol=0)
    assert min(ends) <= min(times)
    assert max(times) <= max(ends)


def test_adams_integrates_quadratics_exactly() -> None:
    """From the second step on; the first is the trapezoidal rule."""

    def field(tau: Tensor, state: State) -> State:
        return tau * state[0] ** 0, 3 * tau**2 * state[1] ** 0

    zero = (torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    line, cube = Adams(9).solve(field, zero, (0.0, 3.0))
    torch.testing.assert_close(line, torch.full_like(line, 4.5), rtol=1e-14, atol=0)
    start = 0.5 * (1 / 3) ** 3  # the trapezoidal rule on the first step
    torch.testing.assert_close(cube, torch.full_like(cube, 27 + start), rtol=1e-14, atol=0)


def test_adams_of_order_four_integrates_cubics_exactly() -> None:
    def field(tau: Tensor, state: State) -> State:
        return (4 * tau**3 * state[0] ** 0,)

    (found,) = Adams4(9).solve(field, (torch.zeros(2, dtype=torch.float64),), (0.0, 3.0))
    torch.testing.assert_close(found, torch.full_like(found, 81.0), rtol=1e-14, atol=0)


def test_finer_methods() -> None:
    assert Adams4(15).finer() == Adams4(30)
    assert Adams(15).finer() == Adams(30)
    assert RungeKutta4(1).finer() == RungeKutta4(2)
    assert Adaptive(1e-3, 1e-2).finer() == Adaptive(1e-4, 1e-3)
    assert Adaptive().needs_smoothness
    assert not Adams().needs_smoothness


@noisings
@pytest.mark.parametrize("name", ["gaussian", "line"])
def test_an_adaptive_step_has_order_five(name: str, noising: str) -> None:
    # With a tolerance that no step violates there is one step; its error has one order more.
    law, lengths, errors = LAWS[name], [0.025, 0.05], []
    z = starts(law, noising)
    for length in lengths:
        span = (0.8 - length, 0.8)
        flow, calls = counted(flow_of(law, noising, span=span))
        got = flow.pull(z, method=Adaptive(10.0, 10.0))
        assert len(calls) == 8, "one at the start, one for the step length, six stages"
        errors.append(apart(got, exact_pull(law, noising, z.numpy(), span)))
    assert -slope(lengths, errors) == pytest.approx(Adaptive.order + 1, abs=0.5)


@noisings
@pytest.mark.parametrize("name", LAWS)
def test_adaptive_error_is_within_a_multiple_of_the_tolerance(name: str, noising: str) -> None:
    law = LAWS[name]
    z = starts(law, noising)
    exact = (solved_pull if name == "plane" else exact_pull)(law, noising, z.numpy())
    flow, calls = counted(flow_of(law, noising))
    used = []
    for tolerance in (1e-4, 1e-6, 1e-8):
        before = len(calls)
        got = flow.pull(z, method=Adaptive(tolerance, tolerance))
        assert apart(got, exact) < 20 * tolerance
        used.append(len(calls) - before)
    assert used[0] < used[1] < used[2] < 200
    assert apart(flow.pull(z), exact) < 20e-5, "the default"


def posterior(law: Mixture, noising: str, z: Array) -> tuple[Array, Array, Array]:
    """The distribution of X at the first τ given X = z at the last, by Bayes' rule, on the line.

    Weights and means (n, k), variances (k,).
    """
    process, clock = NOISINGS[noising]
    first, last = (moments(process, clock, tau) for tau in (0.0, 1.0))
    weights, means, before = law.parts(*first)
    alpha = last[0] / first[0]
    noise = last[1] - alpha**2 * first[1]
    after = alpha**2 * before + noise
    step = z[:, None] - alpha * means[:, 0]
    likelihood = weights * np.exp(-(step**2) / (2 * after)) / np.sqrt(after)
    centres = means[:, 0] + alpha * before / after * step
    return likelihood / likelihood.sum(axis=1, keepdims=True), centres, before * noise / after


STOCHASTIC = [(EulerMaruyama, [40, 80, 160]), (StochasticHeun, [20, 40, 80])]
stochastic = pytest.mark.parametrize(("method", "counts"), STOCHASTIC)


@noisings
@stochastic
def test_weak_order_on_a_gaussian(
    noising: str,
    method: type[StochasticMethod],
    counts: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A sample is affine in the normal numbers that are drawn for it. Row i gets a 1 for the i-th
    # and 0 for all others, which gives its coefficient: mean and variance are then exact.
    law, draws = LAWS["gaussian"], 0

    def unit(x: Tensor, mean: float = 0, std: float = 1, *, generator: object = None) -> Tensor:
        nonlocal draws
        draws += 1
        x.zero_()[draws] = std
        return x

    monkeypatch.setattr(Tensor, "normal_", unit)
    flow = flow_of(law, noising)
    _, (at_zero, at_one), rest = posterior(law, noising, np.array([0.0, 1.0]))
    share = float(at_one[0] - at_zero[0])
    exact = np.array([at_zero[0], share**2 * BASES[noising] ** 2 + rest[0]])
    errors = []
    for count in counts:
        draws = 0
        x = flow.sample(count + 2, (1,), method=method(count), dtype=torch.float64)[:, 0]
        assert draws == count + 1
        found = torch.stack((x[0], (x[1:] - x[0]).square().sum()))
        errors.append(apart(found, exact))
    assert slope(counts, errors) == pytest.approx(method.order, abs=0.2)
    assert errors[-1] < 0.05


def probes(x: Array) -> Array:
    """Functions whose expectations are compared, one more axis."""
    return np.stack((np.cos(x - 0.4), np.tanh(2 * x), np.exp(-(x**2))), axis=-1)


def expectations(noising: str, method: StochasticMethod) -> Array:
    """E[probes] at the end of the reverse SDE, by u_k(x) = E[u_{k+1}(step(x, ΔM))]."""
    process, clock = NOISINGS[noising]
    score, reach = LAWS["line"].score(process), 9 * BASES[noising]
    grid = reach * np.sinh(np.linspace(-4, 4, 601)) / math.sinh(4)  # fine where the data are
    nodes, shares = np.polynomial.hermite_e.hermegauss(16)
    shares = shares / shares.sum()

    def drift(tau: Tensor, x: Tensor) -> Tensor:
        pull = (0.7 * x + 1.69 * score(x, clock.time(tau)), 2 * score(x, clock.time(tau)))
        return -clock.rate(tau) * pull[noising == "brownian"]

    def spent(tau: float) -> float:
        """∫ t' L² dτ."""
        return 1.69 * (0.15 * tau + 7.7 * tau**2 / 4) if noising == "ou" else 0.01 * 2500**tau

    taus, u = np.linspace(0, 1, method.steps + 1), probes(grid)
    points = torch.tensor(np.repeat(grid, len(nodes)))[:, None]
    for to, tau in itertools.pairwise(taus.tolist()):
        size = math.sqrt(spent(tau) - spent(to))
        noise = torch.tensor(np.tile(size * nodes, len(grid)))[:, None]
        ends = method.step(drift, points, torch.tensor(tau), torch.tensor(to), noise)
        spline = scipy.interpolate.CubicSpline(grid, u)
        values = spline(ends[:, 0].numpy().clip(-reach, reach))
        u = np.einsum("gnf,n->gf", values.reshape(len(grid), len(nodes), -1), shares)
    density = scipy.stats.norm.pdf(grid, scale=BASES[noising])[:, None]
    return np.asarray(scipy.interpolate.CubicSpline(grid, density * u).integrate(-reach, reach))


@pytest.mark.slow
@noisings
@stochastic
def test_weak_order_on_a_mixture(
    noising: str, method: type[StochasticMethod], counts: list[int]
) -> None:
    z = BASES[noising] * np.linspace(-9, 9, 1001)
    weights, centres, variances = posterior(LAWS["line"], noising, z)
    nodes, shares = np.polynomial.hermite_e.hermegauss(40)
    inner = probes(centres[..., None] + np.sqrt(variances)[:, None] * nodes)
    given = np.einsum("zk,zknf,n->zf", weights, inner, shares / shares.sum())
    density = scipy.stats.norm.pdf(z, scale=BASES[noising])[:, None]
    exact = scipy.integrate.simpson(given * density, x=z, axis=0)
    errors = [float(np.abs(expectations(noising, method(n)) - exact).max()) for n in counts]
    assert slope(counts, errors) == pytest.approx(method.order, abs=0.2)
    assert errors[-1] < 0.01


LONG: dict[str, tuple[Isotropic, Clock]] = {  # the last time does not depend on the data
    "ou": (OrnsteinUhlenbeck(theta=0.7, sigma=1.3), VariancePreserving(0.3, 30.0)),
    "brownian": (Brownian(), VarianceExploding(0.02, 100.0)),
}
SAMPLERS: list[OrdinaryMethod | StochasticMethod] = [
    Adaptive(),
    Heun(80),
    Adams(80),
    Adams4(80),
    RungeKutta4(40),
    EulerMaruyama(250),
    StochasticHeun(80),
]


@pytest.mark.parametrize("noising", LONG)
def test_flow_and_sde_sample_the_exact_distribution(noising: str) -> None:
    law, (process, clock) = LAWS["line"], LONG[noising]
    generator = torch.Generator().manual_seed(1)

    def draw(method: OrdinaryMethod | StochasticMethod, factor: float = 1.0) -> Array:
        flow = Flow(law.score(process, factor), process, clock)
        x = flow.sample(5000, (1,), method=method, generator=generator, dtype=torch.float64)
        return x[:, 0].numpy()

    exact = partial(law.cdf, alpha=1.0, variance=0.0 if noising == "ou" else 0.02**2)
    samples = [draw(method) for method in SAMPLERS]
    for x in samples:
        assert scipy.stats.kstest(x, exact).pvalue > 0.01
        assert scipy.stats.ks_2samp(x, samples[0]).pvalue > 0.01
    for method in SAMPLERS[1::3]:  # the test detects a score that is wrong by a fifth
        assert scipy.stats.kstest(draw(method, factor=1.2), exact).pvalue < 1e-6


CIRCLE = WrappedMixture((0.4, 0.6), (-2.9, 1.0), (0.5, 0.3))
"""A distribution on the circle with mass on both sides of ±π."""


def test_samples_on_the_circle(generator: torch.Generator) -> None:
    grid = torch.linspace(-math.pi, math.pi, 4001, dtype=torch.float64)[:, None]
    clock = VarianceExploding(0.02, 5.0)
    density = CIRCLE.density(grid, float(clock.time(0.0)))
    cdf = torch.cumulative_trapezoid(density, grid[:, 0])
    exact = partial(np.interp, xp=grid[1:, 0].numpy(), fp=cdf.numpy())
    for factor, methods in ((1.0, SAMPLERS), (1.3, SAMPLERS[1:2])):

        def score(x: Tensor, t: Tensor, factor: float = factor) -> Tensor:
            return factor * CIRCLE.score(x.remainder(2 * math.pi), float(t))

        flow = Flow(score, Torus(), clock)
        for method in methods:
            x = flow.sample(1500, (1,), method=method, generator=generator, dtype=torch.float64)
            assert bool(Torus().domain.contains(x).all())
            found = scipy.stats.kstest(x[:, 0].numpy(), exact).pvalue
            assert found > 0.01 if factor == 1 else found < 1e-6


def drifting(x: Tensor, t: Tensor) -> Tensor:
    """A constant score, for which points go around the circle."""
    return torch.full_like(x, 3.0)


def test_points_are_wrapped_and_may_be_given_modulo_2_pi() -> None:
    flow = Flow(drifting, Torus(), IdentityClock(2.0))
    x = torch.tensor([[-3.0, 3.0], [0.0, 1.0]], dtype=torch.float64)
    for method in (Adaptive(), Heun(3)):
        pushed, pulled = flow.push(x, method=method), flow.pull(x, method=method)
        for got, way in ((pushed, -6.0), (pulled, 6.0)):  # dx/dt = -3 for a time of 2
            turns = (got - x - way) / (2 * math.pi)
            torch.testing.assert_close(turns, turns.round(), rtol=0, atol=1e-12)
            assert bool(Torus().domain.contains(got).all())
            assert float((got - x - way).abs().max()) > 1, "something was wrapped"
        torch.testing.assert_close(flow.push(x - 6 * math.pi, method=method), pushed)
    noisy = flow.sample(50, (2,), method=EulerMaruyama(4), generator=torch.Generator())
    assert bool(Torus().domain.contains(noisy).all())
    free = Flow(drifting, Brownian(), IdentityClock(2.0))
    torch.testing.assert_close(free.push(x), x - 6)


def test_velocity_equals_its_formula(generator: torch.Generator) -> None:
    x = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    flow = flow_of(LAWS["plane"], "ou")
    tau = torch.tensor(0.6, dtype=torch.float64)
    t = 0.15 * 0.6 + 7.7 * 0.36 / 4
    score = LAWS["plane"].score(NOISINGS["ou"][0])(x, torch.tensor(t, dtype=torch.float64))
    rate = 0.15 + 7.7 * 0.6 / 2
    expected = rate * (-0.7 * x - 0.5 * 1.3**2 * score)
    torch.testing.assert_close(flow.velocity(x, tau), expected, rtol=1e-13, atol=1e-13)
    flow = flow_of(LAWS["plane"], "brownian")
    t, rate = 0.005 * 50 ** (2 * 0.6), 0.005 * 50 ** (2 * 0.6) * 2 * math.log(50)
    score = LAWS["plane"].score(Brownian())(x, torch.tensor(t, dtype=torch.float64))
    torch.testing.assert_close(flow.velocity(x, tau), -rate * score, rtol=1e-13, atol=1e-13)


def test_base_distribution_of_the_flow(generator: torch.Generator) -> None:
    whole, half = (0.0, 1.0), (0.1, 0.5)
    variances = {("ou", whole): 1.3**2 / 1.4, ("ou", half): 1.3**2 / 1.4}
    variances |= {("brownian", whole): 5.0**2, ("brownian", half): 0.1**2 * 50}
    for (noising, span), variance in variances.items():
        base = flow_of(LAWS["line"], noising, span=span).base
        assert isinstance(base, Gaussian)
        assert base.variance == pytest.approx(variance, rel=1e-13)
    assert Flow(drifting, Torus(), VarianceExploding()).base == Uniform()

    def still(x: Tensor, t: Tensor) -> Tensor:
        return torch.zeros_like(x)

    # With a score of zero the flow of Brownian motion is constant: samples are the base's.
    for method in (Adaptive(), Heun(2)):
        z = Flow(still, Brownian(), VarianceExploding(0.1, 5.0)).sample(
            4000, (1,), method=method, generator=generator
        )
        assert scipy.stats.kstest(z[:, 0].numpy(), "norm", args=(0, 5)).pvalue > 0.01


def test_span_restricts_the_flow_to_part_of_the_clock() -> None:
    law, span = LAWS["line"], (0.25, 0.75)
    flow, calls = counted(flow_of(law, "ou", span=span))
    assert flow.span == span
    assert flow_of(law, "ou").span == (0.0, 1.0)
    assert Flow(drifting, Brownian(), IdentityClock(7.0)).span == (0.0, 7.0)
    z = torch.linspace(-1.5, 1.5, 9, dtype=torch.float64)[:, None]
    assert (
        apart(flow.pull(z, method=RungeKutta4(40)), exact_pull(law, "ou", z.numpy(), span)) < 1e-6
    )
    flow.pull(z)
    flow.sample(3, (1,), method=StochasticHeun(5))
    flow.sample(3, (1,), method=EulerMaruyama(5))
    clock = NOISINGS["ou"][1]
    times = torch.stack([t for _, t in calls])
    ends = [float(clock.time(end)) for end in span]
    assert (float(times.min()), float(times.max())) == pytest.approx(ends, rel=1e-12)
    assert all(t.ndim == 0 and t.dtype == torch.float64 for _, t in calls)


@pytest.mark.parametrize(
    "span", [(-0.1, 0.5), (0.5, 0.5), (0.7, 0.2), (0.0, 1.1), (0.0, math.nan), (math.inf, 1.0)]
)
def test_invalid_spans_are_rejected(span: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="span"):
        flow_of(LAWS["line"], "ou", span=span)


def test_no_method_evaluates_the_score_outside_of_the_clock() -> None:
    clock = VarianceExploding(0.01, 35.0)  # in float32, t(1) exceeds the end by seven roundings
    low, high = float(clock.time(0.0)), float(clock.time(1.0))

    def score(x: Tensor, t: Tensor) -> Tensor:
        assert low * (1 - 1e-12) <= float(t) <= high * (1 + 1e-12)
        return -x / (1 + 2 * t)

    flow = Flow(score, Brownian(), clock)
    for dtype in (torch.float32, torch.float64):
        x = torch.ones(3, 1, dtype=dtype)
        for method in (
            Adaptive(),
            Adaptive(1.0, 1.0),
            Heun(7),
            Adams(7),
            Adams4(7),
            RungeKutta4(7),
        ):
            flow.push(x, method=method)
            flow.pull(x, method=method)
        for noisy in (EulerMaruyama(7), StochasticHeun(7)):
            flow.sample(3, (1,), method=noisy, dtype=dtype)


@pytest.mark.parametrize("method", SAMPLERS, ids=lambda one: type(one).__name__)
def test_all_randomness_comes_from_the_generator(method: OrdinaryMethod | StochasticMethod) -> None:
    flow, own = flow_of(LAWS["line"], "ou"), torch.Generator().manual_seed(5)
    before = torch.get_rng_state()
    draw = partial(flow.sample, 5, (1,), method=method)
    first, second = draw(generator=own), draw(generator=own)
    again = draw(generator=torch.Generator().manual_seed(5))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert float((first - second).abs().min()) > 1e-6
    torch.manual_seed(1)
    third = draw()
    torch.manual_seed(1)
    assert torch.equal(third, draw()), "torch's own generator if none is given"
    torch.set_rng_state(before)


def test_steps_of_the_sde_have_independent_noise() -> None:
    # With a score of zero there is only noise: its variance adds to that of the base.
    def still(x: Tensor, t: Tensor) -> Tensor:
        return torch.zeros_like(x)

    flow = Flow(still, Brownian(), VarianceExploding(1.0, 3.0))
    for method in (EulerMaruyama(8), StochasticHeun(8)):
        x = flow.sample(4000, (1,), method=method, generator=torch.Generator().manual_seed(0))
        total = math.sqrt(9 + (9 - 1))
        assert scipy.stats.kstest(x[:, 0].numpy(), "norm", args=(0, total)).pvalue > 0.01


@given(
    n=st.integers(0, 5),
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    chunk=st.integers(1, 6),
    which=st.integers(0, 4),
)
def test_shapes_and_dtypes(
    n: int, shape: list[int], dtype: torch.dtype, chunk: int, which: int
) -> None:
    def score(x: Tensor, t: Tensor) -> Tensor:
        assert x.shape[1:] == tuple(shape)
        assert x.dtype == dtype
        assert 0 < len(x) <= chunk
        return -x / (1 + t)

    method = (Adaptive(0.1, 0.1), Heun(2), RungeKutta4(2), EulerMaruyama(2), StochasticHeun(2))[
        which
    ]
    flow = Flow(score, OrnsteinUhlenbeck(), VariancePreserving())
    x = flow.sample(n, shape, method=method, dtype=dtype, chunk=chunk, generator=torch.Generator())
    assert x.shape == (n, *shape)
    assert x.dtype == dtype
    if isinstance(method, OrdinaryMethod):
        for way in (flow.push, flow.pull):
            there = way(x, method=method, chunk=chunk)
            assert there.shape == x.shape
            assert there.dtype == dtype


def test_float32_agrees_with_float64() -> None:
    law = LAWS["line"]
    z = starts(law, "ou")
    for method in (Adaptive(), RungeKutta4(40)):
        flow = flow_of(law, "ou")
        single = flow.pull(z.float(), method=method)
        torch.testing.assert_close(
            single.double(), flow.pull(z, method=method), rtol=1e-4, atol=1e-4
        )


def test_no_rows() -> None:
    flow, calls = counted(flow_of(LAWS["plane"], "ou"))
    for method in SAMPLERS:
        assert flow.sample(0, (2,), method=method).shape == (0, 2)
    empty = torch.zeros(0, 2)
    for one in (Adaptive(), Heun(2)):
        assert flow.push(empty, method=one).shape == flow.pull(empty, method=one).shape == (0, 2)
    assert not calls


@pytest.mark.parametrize("noising", NOISINGS)
def test_pull_undoes_push(noising: str) -> None:
    x = starts(LAWS["plane"], "ou")
    flow = flow_of(LAWS["plane"], noising)
    kept = x.clone()
    for method, allowed in ((Adaptive(1e-9, 1e-9), 1e-7), (RungeKutta4(80), 1e-5), (None, 3e-3)):
        z = flow.push(x, method=method)
        assert float((z - x).abs().max()) > 0.1
        assert apart(flow.pull(z, method=method), x.numpy()) < allowed
    assert torch.equal(x, kept), "the argument is unchanged"


def test_chunks_bound_the_batch_without_changing_results() -> None:
    law, x = LAWS["plane"], starts(LAWS["plane"], "ou")
    flow, calls = counted(flow_of(law, "ou"))
    for method in (Heun(9), Adams(9), Adams4(9), RungeKutta4(5)):
        for way in (flow.push, flow.pull):
            whole = way(x, method=method)
            for chunk in (5, 12, 100):
                calls.clear()
                assert float((way(x, method=method, chunk=chunk) - whole).abs().max()) < 1e-14
                assert max(len(seen) for seen, _ in calls) == min(chunk, 12)
    for sampler in (Adaptive(), Heun(3), EulerMaruyama(3), StochasticHeun(3)):
        calls.clear()
        flow.sample(7, (2,), method=sampler, chunk=3)
        assert {len(seen) for seen, _ in calls} == {3, 1}
    # With whole blocks of the generator, samples of the flow do not depend on the chunk either.
    draws = [
        flow.sample(64, (2,), method=Heun(3), chunk=c, generator=torch.Generator().manual_seed(0))
        for c in (16, 64)
    ]
    torch.testing.assert_close(*draws, rtol=0, atol=1e-6)


def test_one_step_of_each_stochastic_method_equals_its_formula() -> None:
    # a(x, τ) = τx, from τ = 1 to ½ with ΔM = 0.1.
    x, tau, to = torch.tensor([[2.0]]), torch.tensor(1.0), torch.tensor(0.5)
    noise = torch.tensor([[0.1]])
    euler, heun = (
        method.step(lambda tau, x: tau * x, x, tau, to, noise)
        for method in (EulerMaruyama(), StochasticHeun())
    )
    assert float(euler) == pytest.approx(2 - 0.5 * 2 + 0.1)
    assert float(heun) == pytest.approx(2 - 0.25 * (2 + 0.5 * 1.1) + 0.1)
    flow, calls = counted(flow_of(LAWS["line"], "ou"))
    flow.sample(1, (1,), method=EulerMaruyama(4))
    asked = torch.stack([t for _, t in calls])
    taus = torch.tensor([1.0, 0.75, 0.5, 0.25], dtype=torch.float64)  # not at τ = 0
    torch.testing.assert_close(asked, flow.noising.clock.time(taus))


def test_results_do_not_require_gradients() -> None:
    weight = torch.tensor(1.0, requires_grad=True)

    def score(x: Tensor, t: Tensor) -> Tensor:
        return -weight * x

    flow = Flow(score, OrnsteinUhlenbeck(), VariancePreserving())
    assert not flow.push(torch.ones(2, 1), method=Heun(2)).requires_grad
    for method in (Heun(2), EulerMaruyama(2)):
        assert not flow.sample(2, (1,), method=method).requires_grad


def test_progress_bar_is_shown_if_progress_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    flow, x = flow_of(LAWS["line"], "ou"), torch.ones(3, 1)
    flow.push(x, progress=True)
    assert "following the flow" in capsys.readouterr().err
    flow.sample(3, (1,), method=Heun(2), progress=True)
    assert "following the flow" in capsys.readouterr().err
    flow.sample(3, (1,), method=EulerMaruyama(2), progress=True)
    assert "running the reverse SDE" in capsys.readouterr().err
    for silent in (False, None):
        flow.pull(x, progress=silent)
        flow.sample(3, (1,), method=EulerMaruyama(2), progress=silent)
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


@pytest.mark.parametrize("ends", [(0.0, 2.0), (2.0, 0.0)])
def test_progress_bar_never_decreases_over_chunks(ends: tuple[float, float]) -> None:
    with tqdm(file=io.StringIO()) as bar:
        places, rows = [], []
        for part, report in chunks(7, 3, ends, Progress(bar), "name"):
            rows.append(part)
            for share in (0.0, 0.5, 0.25, 1.0):
                report(torch.tensor(ends[0] + share * (ends[1] - ends[0])))
                places.append(bar.n)
        assert rows == [slice(0, 3), slice(3, 6), slice(6, 7)]
        per = [0, TICKS // 2, TICKS // 2, TICKS]
        assert places == [k * TICKS + place for k in range(3) for place in per]
        assert (bar.n, bar.total, bar.desc) == (3 * TICKS, 3 * TICKS, "name")


def test_flow_takes_process_and_clock_from_a_fitted_model(generator: torch.Generator) -> None:
    x = CIRCLE.sample(300, generator)
    clock = VarianceExploding(0.1, 4.0)
    score = fit(x, Fourier.lattice(1, 16), clock=clock)
    flow = Flow(score)
    assert flow.noising.process == Torus()
    assert flow.noising.clock is score.clock is clock
    inner = VarianceExploding(0.2, 3.0)
    assert Flow(score, clock=inner).noising.clock is inner
    assert Flow(score, Brownian()).noising.process == Brownian()
    for method in (None, Heun(20), StochasticHeun(50)):
        y = flow.sample(1000, (1,), method=method, generator=generator)
        assert scipy.stats.ks_2samp(x[:, 0].numpy(), y[:, 0].numpy()).pvalue > 1e-3
    process = OrnsteinUhlenbeck(0.7, 1.3)
    images = fit(torch.randn(200, 1, 2, 2, generator=generator), Hermite(4, 3, process))
    assert Flow(images).noising.process == process
    assert Flow(images).sample(3, (1, 2, 2), method=Heun(3)).shape == (3, 1, 2, 2)


@pytest.mark.parametrize(
    ("make", "arguments", "kind", "message"),
    [
        (Flow, (drifting,), TypeError, "process and clock must be given"),
        (Flow, (drifting, Torus()), TypeError, "process and clock must be given"),
        (
            Flow,
            (3, Torus(), IdentityClock()),
            TypeError,
            "score must be a fitted model or a function",
        ),
        (Flow, (drifting, "ou", IdentityClock()), TypeError, "process must be of type"),
        (Flow, (drifting, Torus(), 1.0), TypeError, "clock must be of type Clock"),
        (Adaptive, (0.0,), ValueError, "rtol must be a positive"),
        (Adaptive, (1e-3, math.nan), ValueError, "atol must be a positive"),
        (Heun, (0,), ValueError, "steps must be an integer >= 1"),
        (RungeKutta4, (1.5,), TypeError, "steps must be an integer >= 1"),
        (EulerMaruyama, (0,), ValueError, "steps must be an integer >= 1"),
        (StochasticHeun, (True,), TypeError, "steps must be an integer >= 1"),
        (StochasticMethod, (), TypeError, "abstract"),
        (OrdinaryMethod, (), TypeError, "abstract"),
    ],
)
def test_invalid_flows_and_methods_are_rejected(
    make: Callable[..., object], arguments: tuple[object, ...], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        make(*arguments)


def test_invalid_arguments_are_rejected() -> None:
    flow, x = flow_of(LAWS["line"], "ou"), torch.ones(3, 1)
    for way in (flow.push, flow.pull):
        with pytest.raises(TypeError, match="method must be of type OrdinaryMethod"):
            way(x, method=EulerMaruyama())  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="chunk must be an integer >= 1, got 0"):
            way(x, chunk=0)
        with pytest.raises(ValueError, match="x must be a batch of points"):
            way(x[0])
        with pytest.raises(ValueError, match="x must be finite"):
            way(x / 0)
        with pytest.raises(TypeError, match="x must have a floating-point dtype"):
            way(x.long())
    with pytest.raises(TypeError, match="method must be of type StochasticMethod, got str"):
        flow.sample(3, (1,), method="heun")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n must be an integer >= 0, got -1"):
        flow.sample(-1, (1,))
    with pytest.raises(ValueError, match="shape must have at least one axis"):
        flow.sample(3, ())
    with pytest.raises(ValueError, match=r"shape\[0\] must be an integer >= 1"):
        flow.sample(3, (0,))
    with pytest.raises(TypeError, match="dtype must be one of"):
        flow.sample(3, (1,), dtype=torch.int64)
    for method in (Heun(2), EulerMaruyama(2)):
        with pytest.raises(ValueError, match="chunk must be an integer >= 1, got 0"):
            flow.sample(3, (1,), method=method, chunk=0)
