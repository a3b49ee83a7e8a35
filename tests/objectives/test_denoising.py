"""Denoising score matching: weighted means against quadrature, minimisers, and the likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.integrate
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import Brownian, OrnsteinUhlenbeck, Torus, VarianceExploding, VariancePreserving
from oism.nn import EDM, MLP, Parametrised
from oism.objectives import (
    DenoisingScoreMatching,
    LikelihoodWeighting,
    NoiseLevels,
    NoiseWeighting,
    OutputMatching,
    UniformLogSNR,
    UniformTime,
    UniformWeighting,
    Weighting,
    low_discrepancy,
)
from oism.process import IdentityClock, Noising

VP = Noising(OrnsteinUhlenbeck(), VariancePreserving())
VE = Noising(Brownian(), VarianceExploding())
GENERAL = Noising(OrnsteinUhlenbeck(theta=0.7, sigma=0.5), IdentityClock(3.0))
TORUS = Noising(Torus(), VarianceExploding(sigma_max=5.0))
NOISINGS = {"VP": VP, "VE": VE, "general": GENERAL}


def variance(name: str, tau: float) -> float:
    """σ² by its textbook formula."""
    if name == "VP":
        return -math.expm1(-(0.1 * tau + 9.95 * tau**2))
    if name == "VE":
        return float((0.01 * 5000**tau) ** 2)
    return 0.25 / 1.4 * -math.expm1(-1.4 * tau)


def squared_noise(name: str, tau: float) -> float:
    """The squared noise coefficient of the SDE in τ."""
    if name == "VP":
        return 0.1 + 19.9 * tau
    if name == "VE":
        return 2 * math.log(5000) * variance(name, tau)  # dσ²/dτ
    return 0.25


WEIGHTS: dict[type[Weighting], Callable[[str, float], float]] = {
    UniformWeighting: lambda name, tau: 1 / variance(name, tau),
    NoiseWeighting: lambda name, tau: 1.0,
    LikelihoodWeighting: lambda name, tau: squared_noise(name, tau) / variance(name, tau),
}
LEVELS: list[type[NoiseLevels]] = [UniformTime, UniformLogSNR]
FIRST = 0.02


def even(n: int) -> Tensor:
    return (torch.arange(n, dtype=torch.float64) + 0.5) / n


def known_error(tau: Tensor) -> Tensor:
    return 0.3 + torch.sin(4 * tau).square() + 0.2 / (0.05 + tau)


@pytest.mark.parametrize("name", NOISINGS)
@pytest.mark.parametrize("levels_of", LEVELS)
@pytest.mark.parametrize("kind", WEIGHTS)
def test_the_loss_is_the_weighted_mean_of_errors(
    name: str, levels_of: type[NoiseLevels], kind: type[Weighting]
) -> None:
    """Whatever the distribution of the times; and an error of one is a loss of one."""
    levels = levels_of(NOISINGS[name], FIRST)
    objective = DenoisingScoreMatching(levels, kind())
    n = 4000
    tau, x = levels.at(even(n)), torch.zeros(n, 2, dtype=torch.float64)
    noise = torch.ones_like(x)

    def predictor_of(error: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda x, tau: noise + error(tau)[:, None].sqrt()

    def integral(error: Callable[[Tensor], Tensor]) -> float:
        def integrand(s: float) -> float:
            time = math.exp(s)
            own = float(error(torch.tensor(time, dtype=torch.float64)))
            return time * WEIGHTS[kind](name, time) * own

        ends = math.log(FIRST), math.log(levels.last)
        return float(scipy.integrate.quad(integrand, *ends, epsrel=1e-10, limit=200)[0])

    expected = integral(known_error) / integral(torch.ones_like)
    found = objective.loss(predictor_of(known_error), x, tau, noise)
    assert float(found) == pytest.approx(expected, rel=2e-4)
    assert float(objective.loss(predictor_of(torch.ones_like), x, tau, noise)) == pytest.approx(
        1, rel=2e-4
    )
    assert objective._total == pytest.approx(integral(torch.ones_like), rel=1e-9)
    assert float(objective.weights(tau).mean()) == pytest.approx(1, rel=2e-4)


@dataclass(frozen=True)
class Late(LikelihoodWeighting):
    """The weight of the likelihood, at late times alone."""

    first: float

    def __call__(self, noising: Noising, tau: Tensor) -> Tensor:
        return torch.where(tau > self.first, super().__call__(noising, tau), 0.0)


def test_weights_of_a_subclass_count_for_all_times() -> None:
    """They were left out where times are drawn by the weights of the base class."""
    levels = UniformLogSNR(VP)
    objective = DenoisingScoreMatching(levels, Late(0.5))
    tau, x = levels.at(even(1000)), torch.zeros(1000, 2, dtype=torch.float64)
    noise = torch.ones_like(x)
    wrong_early = objective.loss(lambda _, t: noise + (t < 0.5)[:, None], x, tau, noise)
    wrong_late = objective.loss(lambda _, t: noise + (t > 0.5)[:, None], x, tau, noise)
    assert float(wrong_early) == 0
    assert float(wrong_late) == pytest.approx(1, abs=0.02)


def test_weights_are_known_by_their_attributes() -> None:
    """A run is resumed with the same weights only."""
    assert repr(LikelihoodWeighting()) == "LikelihoodWeighting()"
    assert repr(Late(0.2)) != repr(Late(0.5))

    class Power(Weighting):
        def __init__(self, power: float) -> None:
            self.power = power

        def __call__(self, noising: Noising, tau: Tensor) -> Tensor:
            return self.power * tau

    assert repr(Power(2.0)) == "Power(power=2.0)"
    nothing = DenoisingScoreMatching(UniformTime(VP), Power(0.0))
    with pytest.raises(ValueError, match=r"weighting must have a positive, finite integral.*got 0"):
        nothing(lambda x, _: x, torch.zeros(3, 2))


def test_the_short_way_of_likelihood_weighting_is_the_long_one() -> None:
    objective = DenoisingScoreMatching(UniformLogSNR(VP))
    weights = objective.weights(objective.levels.at(even(100)))
    torch.testing.assert_close(weights, torch.ones_like(weights), rtol=1e-9, atol=0)
    assert isinstance(objective.weighting, LikelihoodWeighting)


def test_importance_sampling_changes_the_spread_and_not_the_mean() -> None:
    """Of single times, uniformly drawn: the same mean, and far less spread."""
    generator = torch.Generator().manual_seed(0)
    n = 50_000
    found = []
    for levels_of in LEVELS:
        levels = levels_of(VP, 1e-3)
        objective = DenoisingScoreMatching(levels, LikelihoodWeighting())
        tau = levels.at(torch.rand(n, generator=generator, dtype=torch.float64))
        values = objective.weights(tau) * known_error(tau)
        found.append((float(values.mean()), float(values.std()) / math.sqrt(n)))
    (plain, plain_error), (sampled, sampled_error) = found
    assert plain == pytest.approx(sampled, abs=4 * (plain_error + sampled_error))
    assert sampled_error < 0.3 * plain_error


# Signs have the first two moments of a normal distribution: means of quadratic functions over these
# four rows are expectations under it.
SIGNS = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)


@pytest.mark.parametrize("name", NOISINGS)
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("share", [0.03, 0.3, 0.9])
def test_the_minimiser_is_the_exact_noise(name: str, kind: type[Weighting], share: float) -> None:
    """Over ε̂ = ax for N(0, s²) at one time: a = σ/(α²s² + σ²)."""
    noising, spread = NOISINGS[name], 0.6
    objective = DenoisingScoreMatching(UniformTime(noising), kind())
    tau = torch.full((4,), share * noising.clock.horizon, dtype=torch.float64)
    x, noise = spread * SIGNS[:, :1], SIGNS[:, 1:]
    slope = torch.tensor(0.0, dtype=torch.float64)
    for _ in range(2):  # Newton's method on a parabola, and once more to see that it stays
        slope.requires_grad_()
        loss = objective.loss(lambda x, tau, a=slope: a * x, x, tau, noise)
        (first,) = torch.autograd.grad(loss, slope, create_graph=True)
        (second,) = torch.autograd.grad(first, slope)
        slope = (slope - first / second).detach()
    own = variance(name, float(tau[0]))
    alpha2 = {"VP": 1 - own, "VE": 1.0, "general": 1 - own * 1.4 / 0.25}[name]
    assert float(slope) == pytest.approx(math.sqrt(own) / (alpha2 * spread**2 + own), rel=1e-9)


@pytest.mark.parametrize("name", NOISINGS)
def test_the_likelihood_from_the_loss(name: str) -> None:
    """For densities p of the data and q of the model, and the score of q, the loss in likelihood
    weighting is the cross entropy at the least noise, but for terms without the model:

        -E_p log q_0 = -E_p log q_1 - ∫(∇·b + ½d w) + ½d ∫ w E‖ε̂_q - ε‖²/d,    w = g²/σ² = -dℓ/dτ,

    because -E_p log q changes in time at the rate ∇·b + 2G E[s_p·s_q] - G E‖s_q‖², and the error
    of ε̂_q = -σs_q is d - 2σ²E[s_p·s_q] + σ²E‖s_q‖². For q = p this is the entropy. That the model
    starts from its own q_1 makes of Song et al.'s bound an equation.
    """
    noising = NOISINGS[name]
    levels = UniformLogSNR(noising, 1e-3)
    objective = DenoisingScoreMatching(levels)
    mean_p, spread_p, mean_q, spread_q = (
        torch.tensor(values, dtype=torch.float64)
        for values in ((0.3, -0.5), (0.5, 1.2), (0.1, -0.4), (0.8, 0.9))
    )

    def cross_entropy(tau: float, mean: Tensor, spread: Tensor) -> float:
        alpha, sigma = float(noising.alpha(tau)), float(noising.sigma(tau))
        data, model = ((alpha * s) ** 2 + sigma**2 for s in (spread_p, spread))
        gap = alpha * (mean_p - mean)
        terms = 0.5 * torch.log(2 * math.pi * model) + 0.5 * (data + gap**2) / model
        return float(terms.sum())

    def predictor(x: Tensor, tau: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
        alpha, sigma = noising.alpha(tau)[:, None], noising.sigma(tau)[:, None]
        return sigma * (x - alpha * mean) / ((alpha * spread) ** 2 + sigma**2)

    n = 4000
    tau = levels.at(even(n)).repeat_interleave(4)
    x = (mean_p + spread_p * SIGNS[:, :1]).repeat(n, 1)
    noise = SIGNS[:, 1:].expand(4, 2).repeat(n, 1)
    times = noising.clock.time(torch.tensor([levels.first, levels.last], dtype=torch.float64))
    spreading = noising.process.drift_divergence(2) * float(times[1] - times[0])
    found = []
    for mean, spread in ((mean_p, spread_p), (mean_q, spread_q)):
        loss = objective.loss(lambda x, t, m=mean, s=spread: predictor(x, t, m, s), x, tau, noise)
        likelihood = (
            cross_entropy(levels.last, mean, spread) - spreading + levels.width * (float(loss) - 1)
        )
        assert likelihood == pytest.approx(cross_entropy(levels.first, mean, spread), abs=1e-4)
        found.append(likelihood)
    assert found[1] > found[0] + 0.1, "no model is better than the truth"


# --- noising -------------------------------------------------------------------------------------


@given(
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    rows=st.integers(1, 4),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    noising=st.sampled_from([VP, VE, GENERAL, TORUS]),
)
def test_any_shape(shape: list[int], rows: int, dtype: torch.dtype, noising: Noising) -> None:
    generator = torch.Generator().manual_seed(0)
    objective = DenoisingScoreMatching(UniformLogSNR(noising))
    x, noise = torch.randn(2, rows, *shape, generator=generator).to(dtype)
    tau = objective.levels.draw(rows, generator)
    found = objective.noised(x, tau, noise)
    assert found.dtype == dtype
    assert found.shape == x.shape
    for i in range(rows):
        alpha, sigma = float(noising.alpha(tau[i])), float(noising.sigma(tau[i]))
        expected = alpha * x[i].double() + sigma * noise[i].double()
        gap = found[i].double() - expected
        if noising is TORUS:
            turns = gap / (2 * math.pi)
            assert bool(((found[i] >= -math.pi) & (found[i] < math.pi)).all())
            gap = gap - 2 * math.pi * turns.round()
        assert float(gap.abs().max()) < 1e-5 * (1 + float(expected.abs().max()))
    errors = objective.errors(lambda x, tau: torch.zeros_like(x), x, tau, noise)
    np.testing.assert_allclose(errors, noise.flatten(1).square().mean(dim=1), rtol=1e-5)


def test_points_on_the_torus_are_wrapped_before_the_network() -> None:
    objective = DenoisingScoreMatching(UniformLogSNR(TORUS))
    seen: list[Tensor] = []

    def predictor(x: Tensor, tau: Tensor) -> Tensor:
        seen.append(x)
        return torch.zeros_like(x)

    x = torch.full((500, 1), 3.0)
    objective(predictor, x, torch.Generator().manual_seed(0))
    low, high = seen[0].aminmax()
    assert -math.pi <= float(low) < -2
    assert 2 < float(high) < math.pi


def test_points_of_space_are_never_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would read values, and wait for a device."""

    def refuse(*_: object) -> None:
        raise AssertionError

    for noising in (VP, VE):
        monkeypatch.setattr(type(noising.process), "wrap", refuse)
        objective = DenoisingScoreMatching(UniformLogSNR(noising))
        objective(lambda x, tau: torch.zeros_like(x), torch.zeros(3, 2))
        with pytest.raises(AssertionError):
            noising.process.wrap(torch.zeros(3, 2))


def test_a_call_draws_times_and_noise_from_the_generator() -> None:
    objective = DenoisingScoreMatching(UniformLogSNR(VP))
    x = torch.randn(16, 2, 3, generator=torch.Generator().manual_seed(5))

    def predictor(x: Tensor, tau: Tensor) -> Tensor:
        return 0.5 * x

    one, two, other = (
        objective(predictor, x, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    source = torch.Generator().manual_seed(0)
    tau = objective.levels.draw(16, source)
    noise = torch.randn(x.shape, generator=source)
    torch.testing.assert_close(objective.loss(predictor, x, tau, noise), one)


def test_low_discrepancy_steadies_the_loss() -> None:
    """Over the times alone: against independent ones the spread of a batch's loss is far less."""
    levels = UniformLogSNR(VP)
    generator = torch.Generator().manual_seed(0)
    even_ = [float(known_error(levels.draw(64, generator)).mean()) for _ in range(200)]
    free = [
        float(known_error(levels.at(torch.rand(64, generator=generator))).mean())
        for _ in range(200)
    ]
    assert np.std(even_) < 0.1 * np.std(free)
    error = float(np.std(free)) / math.sqrt(200)
    assert np.mean(even_) == pytest.approx(np.mean(free), abs=5 * error)


def test_mistakes() -> None:
    levels = UniformLogSNR(VP)
    with pytest.raises(TypeError, match="levels must be of type NoiseLevels, got Noising"):
        DenoisingScoreMatching(VP)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="weighting must be of type Weighting, got the class Noise"):
        DenoisingScoreMatching(levels, NoiseWeighting)  # type: ignore[arg-type]
    objective = DenoisingScoreMatching(levels)
    x, tau = torch.zeros(3, 2), torch.full((3,), 0.5)
    with pytest.raises(ValueError, match=r"must return noise of shape \(3, 2\), got \(3, 1\)"):
        objective.loss(lambda x, tau: x[:, :1], x, tau, torch.zeros(3, 2))
    with pytest.raises(ValueError, match=r"noise must have the shape \(3, 2\) of x, got \(3, 1\)"):
        objective.loss(lambda x, tau: x, x, tau, torch.zeros(3, 1))
    with pytest.raises(ValueError, match="tau must be one number or one per row: 3 rows, 2 values"):
        objective.loss(lambda x, tau: x, x, tau[:2], torch.zeros(3, 2))


def test_bytes_are_no_clean_tensors() -> None:
    """They must be converted to a model's units first (`TensorModel.prepare`)."""
    images = torch.zeros(3, 2, dtype=torch.uint8)
    with pytest.raises(TypeError, match=r"x must have a floating-point dtype, .* got torch.uint8"):
        DenoisingScoreMatching(UniformLogSNR(VP))(lambda x, tau: x, images)


@pytest.mark.parametrize("kind", ["denoising", "output"])
def test_noise_is_drawn_where_the_generator_is(kind: str, generator: torch.Generator) -> None:
    """A generator of the CPU gives the same numbers for tensors of every device."""
    drawn: list[Tensor] = []
    levels, x = UniformLogSNR(VP), torch.zeros(20, 3)
    objective = (
        DenoisingScoreMatching(levels)
        if kind == "denoising"
        else OutputMatching(levels, Parametrised(MLP(3), EDM(), VP.clock))
    )

    def loss(predictor: object, x: Tensor, tau: Tensor, noise: Tensor) -> Tensor:
        drawn.extend((tau, noise))
        return noise.sum()

    objective.loss = loss  # type: ignore[method-assign]
    objective(lambda x, tau: x, x, generator)
    other = torch.Generator().manual_seed(0)
    tau = levels.at(low_discrepancy(20, other))
    assert torch.equal(drawn[0], tau)
    assert torch.equal(drawn[1], torch.empty_like(x).normal_(generator=other))
    third = torch.Generator().manual_seed(0)
    objective(lambda x, tau: x, x.to("meta"), third)
    assert drawn[3].device.type == "meta"
    assert torch.equal(third.get_state(), other.get_state())


def test_outputs_of_another_shape_are_refused() -> None:
    """They would broadcast against the noise."""
    objective = OutputMatching(UniformLogSNR(VP), Parametrised(MLP(2), EDM(), VP.clock))
    x, tau = torch.zeros(3, 2), torch.full((3,), 0.5)
    with pytest.raises(ValueError, match=r"must return noise of shape \(3, 2\), got \(3, 1\)"):
        objective.loss(lambda x, tau: x[:, :1], x, tau, torch.zeros(3, 2))
