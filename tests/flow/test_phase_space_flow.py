"""Flows of positions and velocities: samples and likelihoods of a fitted score."""

from __future__ import annotations

import itertools
import math
from functools import cache

import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.datasets import make_moons
from torch import Tensor

from oism import (
    CriticallyDamped,
    Flow,
    Linear,
    Logarithmic,
    OrnsteinUhlenbeck,
    TensorHermite,
    VariancePreserving,
    fit,
    fit_linear,
)
from oism.flow import (
    Adaptive,
    ClosedForm,
    EulerMaruyama,
    ExactTrace,
    Hutchinson,
    RungeKutta4,
    StochasticHeun,
    StochasticMethod,
    log_density,
    position_log_density,
    sample_with_log_density,
)
from oism.process import PhaseSpace
from oism.score import LinearScore

TIGHT = Adaptive(rtol=1e-8, atol=1e-8)
LAST = {0.5: 40.0, 2.0: 20.0, 5.0: 40.0}
"""The last time by damping."""
LEFT = {0.5: 1e-4, 2.0: 1e-6, 5.0: 5e-4}
"""The influence of the data at the last time, by damping."""


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def moons(n: int, seed: int) -> Tensor:
    """Return two moons in units of their deviations, float64 ``(n, 2)``."""
    x = torch.from_numpy(make_moons(n, noise=0.1, random_state=seed)[0])
    return (x - torch.tensor([0.5, 0.25])) / torch.tensor([0.87, 0.5])


def energy_distance(x: Tensor, y: Tensor) -> float:
    """Return the unbiased estimate of 2E|X - Y| - E|X - X'| - E|Y - Y'|."""
    cross, left, right = (float(cdist(a, b).sum()) for a, b in ((x, y), (x, x), (y, y)))
    n, m = len(x), len(y)
    return 2 * cross / (n * m) - left / (n * (n - 1)) - right / (m * (m - 1))


def gaussian_data() -> Tensor:
    mix = torch.tensor([[0.6, 0.4], [0.0, 0.3]], dtype=torch.float64)
    return normal(200, 2) @ mix + torch.tensor([1.0, -0.5], dtype=torch.float64)


@cache
def gaussian(c: float) -> tuple[PhaseSpace, Flow]:
    space = PhaseSpace(CriticallyDamped(2, c=c), gamma=0.04)
    clock = VariancePreserving(beta_0=0.1, beta_1=4 * LAST[c])
    return space, Flow(fit_linear(gaussian_data(), space, 2, clock=clock))


@cache
def affine_map(c: float) -> tuple[Tensor, Tensor]:
    """Return offset and matrix of the flow from noise to data, which is affine for a Gaussian."""
    eye, method = torch.eye(4, dtype=torch.float64), TIGHT if c == 2 else Adaptive(1e-6, 1e-6)
    ends = gaussian(c)[1].pull(torch.cat((torch.zeros(1, 4).double(), eye)), method=method)
    return ends[0], (ends[1:] - ends[0]).mT


@pytest.mark.parametrize("c", [0.5, 2.0, 5.0])
def test_a_gaussian_is_sampled_exactly(c: float) -> None:
    # Nothing is drawn: the flow maps N(0, I) to N(offset, MMᵀ) up to the error of the solver.
    offset, matrix = affine_map(c)
    x = gaussian_data()
    covariance = torch.block_diag(torch.cov(x.mT, correction=0), 0.04 * torch.eye(2).double())  # type: ignore[no-untyped-call]
    mean = torch.cat((x.mean(dim=0), torch.zeros(2).double()))
    torch.testing.assert_close(offset, mean, rtol=0, atol=LEFT[c])
    torch.testing.assert_close(matrix @ matrix.mT, covariance, rtol=0, atol=LEFT[c])


def test_the_flow_is_solved_with_the_order_of_the_method() -> None:
    _, flow = gaussian(2.0)
    z, (offset, matrix) = normal(20, 4), affine_map(2.0)
    exact = offset + z @ matrix.mT
    errors = [
        float((flow.pull(z, method=RungeKutta4(steps)) - exact).abs().max()) for steps in (100, 200)
    ]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(4, abs=0.5)


def simulated_covariance(flow: Flow, method: StochasticMethod) -> Tensor:
    """Return the covariance at the end of a method, exactly: a step is affine here."""
    eye, zero = torch.eye(4, dtype=torch.float64), torch.zeros(5, 4, dtype=torch.float64)
    x, noise = torch.cat((zero[:1], eye, zero[1:])), torch.cat((zero, eye))
    covariance, diffusion = eye, flow.process.diffusion(4)
    grid = torch.linspace(1, 0, method.steps + 1, dtype=torch.float64)
    for tau, to in itertools.pairwise(grid):
        ends = method.step(lambda tau, x: flow.reverse_drift(x, tau), x, tau, to, noise)
        moved, kicked = (ends[1:5] - ends[0]).mT, (ends[5:] - ends[0]).mT
        passed = flow.clock.time(tau) - flow.clock.time(to)
        added = 2 * passed * kicked @ diffusion @ kicked.mT
        covariance = moved @ covariance @ moved.mT + added
    return covariance


@pytest.mark.parametrize("kind", [EulerMaruyama, StochasticHeun])
def test_the_reverse_sde_has_the_weak_order_of_the_method(kind: type[StochasticMethod]) -> None:
    _, flow = gaussian(2.0)
    exact = torch.block_diag(  # type: ignore[no-untyped-call]
        torch.cov(gaussian_data().mT, correction=0), 0.04 * torch.eye(2).double()
    )
    errors = [
        float((simulated_covariance(flow, kind(steps)) - exact).abs().max()) for steps in (200, 400)
    ]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(kind.order, abs=0.3)


def test_the_reverse_sde_samples_a_gaussian() -> None:
    _, flow = gaussian(2.0)
    n, generator = 10_000, torch.Generator().manual_seed(3)
    points = flow.sample(
        n, (4,), method=StochasticHeun(200), generator=generator, dtype=torch.float64
    )
    x = gaussian_data()
    mean = torch.cat((x.mean(dim=0), torch.zeros(2).double()))
    covariance = torch.block_diag(torch.cov(x.mT, correction=0), 0.04 * torch.eye(2).double())  # type: ignore[no-untyped-call]
    deviation = covariance.diagonal().sqrt()
    assert float(((points.mean(dim=0) - mean) / deviation).abs().max()) < 4.5 / math.sqrt(n)
    apart = (torch.cov(points.mT) - covariance) / (deviation[:, None] * deviation)
    assert float(apart.abs().max()) < 4.5 * math.sqrt(2 / n) + 2e-3


def test_the_likelihood_of_a_gaussian_is_exact() -> None:
    space, flow = gaussian(2.0)
    x = gaussian_data()
    law = torch.distributions.MultivariateNormal(x.mean(dim=0), torch.cov(x.mT, correction=0))
    # For any velocities that are drawn; an average over several draws is exact too.
    generator = torch.Generator().manual_seed(0)
    ours = position_log_density(flow, space, x[:6], draws=3, generator=generator, method=TIGHT)
    torch.testing.assert_close(ours, law.log_prob(x[:6]), rtol=0, atol=1e-5)  # type: ignore[no-untyped-call]
    points = space.lift(x[:6], generator)
    joint = law.log_prob(x[:6]) + space.log_density(space.velocities(points))  # type: ignore[no-untyped-call]
    torch.testing.assert_close(log_density(flow, points), joint, rtol=0, atol=1e-2)


@cache
def moons_score(order: int) -> tuple[PhaseSpace, LinearScore]:
    space = PhaseSpace(CriticallyDamped(2))
    return space, fit_linear(moons(4000, 0), space, order)


@pytest.mark.parametrize("method", [Adaptive(), StochasticHeun(200)], ids=["flow", "reverse SDE"])
def test_degree_four_quarters_the_energy_distance_to_the_moons(
    method: Adaptive | StochasticHeun,
) -> None:
    distance = {}
    for order in (2, 4):
        space, score = moons_score(order)
        points = Flow(score).sample(
            2500, (4,), method=method, generator=torch.Generator().manual_seed(1)
        )
        distance[order] = energy_distance(space.positions(points), moons(2500, 1))
    assert distance[2] > 0.02
    assert distance[4] < 0.25 * distance[2]


def test_likelihood_with_velocities_equals_that_without() -> None:
    # Without velocities: the same degree under an Ornstein-Uhlenbeck process.
    space, score = moons_score(4)
    x, generator = moons(300, 2), torch.Generator().manual_seed(0)
    plain = fit(moons(4000, 0), TensorHermite(2, 4))
    method = RungeKutta4(48)
    ours = position_log_density(
        Flow(score), space, x, draws=8, generator=generator, method=method
    ).mean()
    theirs = log_density(Flow(plain), x, method=method).mean()
    _, coarse = moons_score(2)
    gaussian = position_log_density(
        Flow(coarse), space, x, generator=generator, method=method
    ).mean()
    assert float(ours) == pytest.approx(float(theirs), abs=0.1)
    assert float(ours) > float(gaussian) + 0.4


def test_the_density_of_points_integrates_to_one() -> None:
    # By importance sampling from the Gaussian with the mean and twice the covariance.
    space, score = moons_score(4)
    flow, n = Flow(score), 2000
    scale = 2.0
    law = torch.distributions.MultivariateNormal(
        torch.zeros(2).double(), scale * torch.cov(moons(4000, 0).mT)
    )
    x = normal(n, 2, seed=4) @ torch.linalg.cholesky(scale * torch.cov(moons(4000, 0).mT)).mT
    points = torch.cat((x, 0.2 * scale**0.5 * normal(n, 2, seed=5)), dim=1)
    wide = PhaseSpace(space.process, 0.04 * scale)
    proposal = law.log_prob(x) + wide.log_density(points[:, 2:])  # type: ignore[no-untyped-call]
    ratio = (log_density(flow, points, method=RungeKutta4(32)) - proposal).exp()
    assert float(ratio.mean()) == pytest.approx(1, abs=4 * float(ratio.std()) / math.sqrt(n))


def test_all_divergences_agree() -> None:
    space, score = moons_score(4)
    flow, points = Flow(score), space.lift(moons(300, 2)[:40], torch.Generator().manual_seed(0))
    method = RungeKutta4(16)
    closed = log_density(flow, points, method=method)
    exact = log_density(flow, points, method=method, divergence=ExactTrace())
    torch.testing.assert_close(closed, exact, rtol=1e-9, atol=1e-9)
    generator = torch.Generator().manual_seed(0)
    guessed = log_density(flow, points, method=method, divergence=Hutchinson(generator, probes=16))
    assert float((guessed - exact).mean().abs()) < 0.2
    drawn, dense = sample_with_log_density(
        flow, 20, (4,), method=RungeKutta4(64), generator=generator, dtype=torch.float64
    )
    again = log_density(flow, drawn, method=RungeKutta4(64))
    torch.testing.assert_close(again, dense, rtol=0, atol=5e-3)


def test_a_linear_process_with_scalar_matrices_equals_ornstein_uhlenbeck() -> None:
    # F = -θI is the Ornstein-Uhlenbeck process: the same noise, drift, samples and densities.
    process = Linear(-0.7 * torch.eye(2).double(), 1.3 * torch.eye(2).double())
    known = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)

    def score(x: Tensor, t: Tensor) -> Tensor:
        return -x / (4 * known.alpha(t) ** 2 + known.variance(t))

    flows = [Flow(score, one, Logarithmic(first=0.1, last=8.0)) for one in (process, known)]
    for method in (RungeKutta4(16), StochasticHeun(16)):
        draws = [
            flow.sample(50, (2,), method=method, generator=torch.Generator().manual_seed(0))
            for flow in flows
        ]
        torch.testing.assert_close(*draws)
    dense = [log_density(flow, normal(5, 2), method=RungeKutta4(16)) for flow in flows]
    torch.testing.assert_close(*dense)


def test_invalid_arguments_are_rejected() -> None:
    space, flow = gaussian(2.0)
    with pytest.raises(ValueError, match=r"x must have shape \(n, 2\)"):
        position_log_density(flow, space, normal(3, 4))
    with pytest.raises(ValueError, match="draws must be an integer >= 1"):
        position_log_density(flow, space, normal(3, 2), draws=0)
    with pytest.raises(TypeError, match="space must be of type PhaseSpace"):
        position_log_density(flow, space.process, normal(3, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must have 4 entries"):
        flow.sample(3, (2,))
    with pytest.raises(TypeError, match="process must be of type Isotropic"):
        _ = flow.noising
    with pytest.raises(TypeError, match="process must be of type Process, got str"):
        Flow(lambda x, t: x, "fast", flow.clock)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match=r"space must have the gamma = 0\.04 of the fit, got 1"):
        position_log_density(flow, PhaseSpace(space.process, gamma=1.0), normal(3, 2))
    with pytest.raises(ValueError, match="space must have the process"):
        position_log_density(flow, PhaseSpace(CriticallyDamped(2, c=3.0)), normal(3, 2))
    with pytest.raises(TypeError, match="flow must be of type Flow, got LinearScore"):
        log_density(flow.source, normal(3, 4))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="process must be that of the fitted model"):
        Flow(flow.source, CriticallyDamped(2, c=3.0))
    same = CriticallyDamped(2)
    assert Flow(flow.source, same).process == space.process == Linear(*same._matrices, copies=2)
    assert hash(same) == hash(space.process)
    assert log_density(flow, normal(0, 4)).shape == (0,)
    with pytest.raises(ValueError, match=r"score must return a tensor of the shape \(3, 4\)"):
        Flow(lambda x, t: -x[:1], space.process, flow.clock).sample(3, (4,))
    with pytest.raises(ValueError, match=r"score must return a tensor .* got NoneType"):
        Flow(lambda x, t: None, space.process, flow.clock).sample(3, (4,))  # type: ignore[arg-type]

    def score(x: Tensor, t: Tensor) -> Tensor:
        return -x

    plain = Flow(score, space.process, flow.clock)
    with pytest.raises(TypeError, match="score_and_diffused_divergence"):
        log_density(plain, normal(3, 4), divergence=ClosedForm())
