"""Denoising for damped processes: the target is the score along velocities, and can be learned."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from oism import CriticallyDamped, Logarithmic
from oism.flow import RungeKutta4
from oism.nn import MLP, VelocityScore
from oism.objectives import HybridScoreMatching
from oism.process import PhaseSpace

CLOCK = Logarithmic(first=0.1, last=12.0)
SPREAD = 2.0


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def loss(dim: int = 1, gamma: float = 0.25) -> HybridScoreMatching:
    return HybridScoreMatching(PhaseSpace(CriticallyDamped(dim), gamma), CLOCK)


def precision(objective: HybridScoreMatching, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Return C_t⁻¹ of data N(0, SPREAD²) and ℓ₂₂, from the transition of the process."""
    transition = objective.space.process.transition(objective.clock.time(tau))
    start = torch.diag(torch.tensor([SPREAD**2, objective.space.gamma]).double())
    given = torch.diag(torch.tensor([0.0, objective.space.gamma]).double())
    whole = transition.means @ start @ transition.means.mT + transition.covariances
    noise = transition.means @ given @ transition.means.mT + transition.covariances
    # The variance of V_t given X_t and the data.
    own = noise[..., 1, 1] - noise[..., 0, 1].square() / noise[..., 0, 0]
    return torch.linalg.inv(whole), own.sqrt()


class Exact:
    """ε̂ = -ℓ₂₂∇_v log ρ_t of data N(0, SPREAD² I)."""

    def __init__(self, objective: HybridScoreMatching) -> None:
        self.objective = objective

    def __call__(self, x: Tensor, tau: Tensor, /) -> Tensor:
        inverse, own = precision(self.objective, tau)
        dim = self.objective.space.dim
        pull = inverse[:, 1, :1] * x[:, :dim] + inverse[:, 1, 1:] * x[:, dim:]
        return own[:, None] * pull


def least(objective: HybridScoreMatching) -> float:
    """Return the loss of the exact predictor: 1 - ℓ₂₂² E(∂_v log ρ_t)², averaged over τ."""
    tau = torch.linspace(objective.first, 1, 4001, dtype=torch.float64)
    inverse, own = precision(objective, tau)
    return float((1 - own.square() * inverse[:, 1, 1]).mean())


@pytest.mark.parametrize("c", [0.5, 2.0, 5.0])
def test_the_noise_is_the_score_given_the_data(c: float) -> None:
    objective = HybridScoreMatching(PhaseSpace(CriticallyDamped(2, c=c), 0.09), CLOCK)
    x, noise, tau = normal(6, 2), normal(6, 4, seed=1), torch.linspace(0.1, 1, 6).double()
    points = objective.noised(x, tau, noise)
    transition = objective.space.process.transition(CLOCK.time(tau))
    kicked = 0.09 * transition.means[:, :, 1:] @ transition.means[:, :, 1:].mT
    covariance = torch.kron(transition.covariances + kicked, torch.eye(2).double()[None])
    centre = transition.mean(torch.cat((x, torch.zeros(6, 2).double()), dim=1))
    given = torch.distributions.MultivariateNormal(centre, covariance)
    points.requires_grad_()
    (slope,) = torch.autograd.grad(given.log_prob(points).sum(), points)  # type: ignore[no-untyped-call]

    def target(x: Tensor, tau: Tensor) -> Tensor:
        return noise[:, 2:]

    ours = VelocityScore(target, objective.space, CLOCK).score(points.detach(), CLOCK.time(tau))
    torch.testing.assert_close(ours[:, 2:], slope[:, 2:], rtol=1e-9, atol=1e-9)
    assert not ours[:, :2].any()


def test_noised_points_have_the_distribution_of_the_process() -> None:
    objective = loss(gamma=0.3)
    x, n = torch.full((100_000, 1), 1.5, dtype=torch.float64), 100_000
    tau = torch.full((n,), 0.5, dtype=torch.float64)
    ours = objective.noised(x, tau, normal(n, 2))
    lifted = objective.space.lift(x, torch.Generator().manual_seed(1))
    transition = objective.space.process.transition(CLOCK.time(0.5))
    theirs = transition.sample(lifted, generator=torch.Generator().manual_seed(2))
    deviation = theirs.std(dim=0)
    apart = (ours.mean(dim=0) - theirs.mean(dim=0)) / deviation
    assert float(apart.abs().max()) < 4.5 * math.sqrt(2 / n)
    covariances = (torch.cov(ours.mT) - torch.cov(theirs.mT)) / (deviation[:, None] * deviation)
    assert float(covariances.abs().max()) < 4.5 * math.sqrt(4 / n)


def test_the_exact_predictor_has_the_least_loss() -> None:
    objective = loss(dim=2)
    data = SPREAD * normal(50_000, 2)
    generator = torch.Generator().manual_seed(1)
    value = float(objective(Exact(objective), data, generator))
    assert value == pytest.approx(least(objective), abs=0.01)


@pytest.mark.slow
def test_training_comes_near_the_optimum_and_samples() -> None:
    torch.manual_seed(0)
    objective, network = loss(), MLP(1, extra=1, width=48, depth=2)
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    test = SPREAD * normal(20_000, 1, seed=9).float()

    def value() -> float:
        with torch.no_grad():
            return float(objective(network, test, torch.Generator().manual_seed(5)))

    before, best = value(), least(objective)
    for _ in range(250):
        data = SPREAD * torch.randn(512, 1, generator=generator)
        optimiser.zero_grad()
        objective(network, data, generator).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert before > best + 0.4
    assert best - 0.01 < value() < best + 0.03
    model = VelocityScore(network, objective.space, CLOCK, objective.first)
    points = model.sample(2000, generator, method=RungeKutta4(32))
    assert float(objective.space.positions(points).std()) == pytest.approx(SPREAD, rel=0.25)


def test_wrong_arguments_are_named() -> None:
    objective = loss(dim=2)
    with pytest.raises(ValueError, match=r"x must have shape \(n, 2\)"):
        objective(MLP(2, extra=2), torch.zeros(3, 4))
    with pytest.raises(
        ValueError, match=r"noise of shape \(3, 2\), that of velocities, got \(3, 4\)"
    ):
        objective(MLP(4), torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"noise must have shape \(3, 4\)"):
        objective.noised(torch.zeros(3, 2), torch.full((3,), 0.5), torch.zeros(3, 2))
    with pytest.raises(ValueError, match="first must be less than the clock's horizon"):
        HybridScoreMatching(objective.space, CLOCK, first=1.0)
    with pytest.raises(ValueError, match="first must be a positive"):
        HybridScoreMatching(objective.space, CLOCK, first=0.0)
    with pytest.raises(TypeError, match="space must be of type PhaseSpace"):
        HybridScoreMatching(CriticallyDamped(2), CLOCK)  # type: ignore[arg-type]
    model = VelocityScore(MLP(2, extra=2), objective.space, CLOCK)
    with pytest.raises(ValueError, match="t must be positive"):
        model.score(torch.zeros(3, 4), 0.0)
    with pytest.raises(TypeError, match="process must be of type Isotropic"):
        model.noise(torch.zeros(3, 4), 0.5)


def test_noise_is_drawn_where_the_generator_is() -> None:
    """A generator of the CPU goes on as for positions there, whatever their device."""
    states, objective = [], loss(dim=2)
    objective.errors = lambda predictor, x, tau, noise: noise  # type: ignore[method-assign]
    for device in ("cpu", "meta"):
        generator = torch.Generator().manual_seed(0)
        found = objective(MLP(2, extra=2), torch.zeros(3, 2, device=device), generator)
        assert found.device.type == device
        states.append(generator.get_state())
    assert torch.equal(*states)
