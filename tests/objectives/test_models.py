"""Models of objectives, and the errors of others; objectives on networks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from oism import CriticallyDamped, OrnsteinUhlenbeck, Torus, fit_prior
from oism.nn import MLP
from oism.objectives import (
    FokkerPlanckResidual,
    GeneralisedScoreMatching,
    ImplicitScoreMatching,
    Objective,
    Probes,
    SlicedScoreMatching,
    TimeScoreMatching,
    TransitionScoreMatching,
    score_of,
    time_score_of,
)
from oism.objectives._models import times
from oism.process import MonteCarlo

from .distributions import DISTRIBUTIONS, OU, SHEARED, tensor

ENERGIES: list[type[Objective]] = [
    ImplicitScoreMatching,
    GeneralisedScoreMatching,
    TimeScoreMatching,
]
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


class Energy(nn.Module):
    """A small smooth energy of points of any shape."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.first, self.last = nn.Linear(dim + 1, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = torch.cat((x.flatten(1), t[:, None]), dim=1)
        result: Tensor = self.last(torch.tanh(self.first(h)))[:, 0]
        return result


@dtypes
@pytest.mark.parametrize("kind", ENERGIES)
@settings(max_examples=12)
@given(n=st.integers(1, 5), shape=st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_any_shape_and_both_kinds_of_times(
    dtype: torch.dtype, kind: type[Objective], n: int, shape: list[int]
) -> None:
    x = torch.randn(n, *shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    energy, objective = Energy(x[0].numel()).to(dtype), kind(OrnsteinUhlenbeck())
    terms = objective.terms(energy, x, 0.3)
    assert terms.shape == (n,)
    assert terms.dtype == dtype
    each = torch.full((n,), 0.3, dtype=torch.float64)
    torch.testing.assert_close(objective.terms(energy, x, each), terms)
    torch.testing.assert_close(objective(energy, x, 0.3), terms.mean())
    # Rows do not depend on each other.
    torch.testing.assert_close(objective.terms(energy, x[:1], 0.3), terms[:1])


@pytest.mark.parametrize("kind", ENERGIES)
def test_gradients_in_parameters_are_those_of_differences(kind: type[Objective]) -> None:
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    energy, objective = Energy(2).double(), kind(SHEARED)
    objective(energy, x, 0.3).backward()  # type: ignore[no-untyped-call]
    weight = energy.first.weight
    assert weight.grad is not None
    step, ends = 1e-6, []
    for sign in (1, -1):
        with torch.no_grad():
            weight[2, 0] += sign * step
            ends.append(float(objective(energy, x, 0.3)))
            weight[2, 0] -= sign * step
    assert float(weight.grad[2, 0]) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5)


def test_an_energy_that_would_overflow_does_not() -> None:
    """ν = e^f is never formed: f = 1e4 is no trouble."""
    x = tensor([0.1, 0.2], [1.0, -3.0])

    def steep(y: Tensor, t: Tensor) -> Tensor:
        return 1e4 + 300 * y.square().sum(dim=1)

    found = GeneralisedScoreMatching(OU).terms(steep, x, 0.3)
    torch.testing.assert_close(found, ImplicitScoreMatching(OU).terms(steep, x, 0.3))


def test_scores_of_energies() -> None:
    mixture = DISTRIBUTIONS["asymmetric"]
    x = tensor([0.1, 0.2], [1.0, -3.0])
    t = torch.tensor([0.3, 0.7], dtype=torch.float64)
    torch.testing.assert_close(score_of(mixture.energy, SHEARED)(x, t), mixture.score(x, t))
    torch.testing.assert_close(time_score_of(mixture.energy)(x, t), mixture.time_score(x, t))


def test_targets_of_denoising_are_those_of_the_noise() -> None:
    x, y = tensor([0.1, 0.2], [1.0, -3.0]), tensor([0.3, -0.2], [0.4, 2.9])
    transition = OU.transition(0.3)
    expected = (transition.mean(x) - y) / transition.variance
    torch.testing.assert_close(TransitionScoreMatching(OU).target(y, x, 0.3), expected)
    damped = CriticallyDamped(dim=1)
    own = damped.transition(0.3)
    solved = torch.linalg.solve(own.covariance(2), (own.mean(x) - y).mT).mT
    torch.testing.assert_close(TransitionScoreMatching(damped).target(y, x, 0.3), solved)


def test_denoising_draws_from_the_transition(generator: torch.Generator) -> None:
    """All data at zero: the score is the target itself, without error."""
    x = torch.zeros(500, 2, dtype=torch.float64)
    objective, variance = TransitionScoreMatching(OU), OU.variance(0.3)
    assert float(objective(lambda y, t: -y / variance, x, 0.3, generator)) < 1e-20
    # The error of predicting nothing is g·d/σ² in the mean.
    nothing = float(objective(lambda y, t: 0 * y, x, 0.3, generator))
    assert nothing == pytest.approx(2 * OU.diffusivity / float(variance), rel=0.15)


def test_slices_are_unbiased_and_the_reduced_form_varies_less(generator: torch.Generator) -> None:
    x = torch.randn(1, 6, generator=generator, dtype=torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = MLP(6, width=16).double().requires_grad_(False)
    exact = float(SlicedScoreMatching(OU).terms(net, x, 0.4))
    many = x.repeat(20_000, 1)
    spread = {}
    for reduced in (True, False):
        terms = SlicedScoreMatching(OU, Probes(1, generator), reduced).terms(net, many, 0.4)
        spread[reduced] = float(terms.std())
        assert float(terms.mean()) == pytest.approx(exact, abs=4 * spread[reduced] / math.sqrt(2e4))
    assert spread[True] < spread[False]


def test_probes_have_the_covariance_of_the_noise(generator: torch.Generator) -> None:
    x = torch.zeros(20_000, 2, dtype=torch.float64)
    for process in (SHEARED, OU, Torus()):
        directions = Probes(2, generator).draw(process, x)
        assert directions.shape == (2, 20_000, 2)
        second = directions[0].mT @ directions[0] / len(x)
        torch.testing.assert_close(second, process.diffusion(2), rtol=0, atol=0.03)


def test_the_form_on_clean_data_by_draws(generator: torch.Generator) -> None:
    """Above three dimensions: P_th by Monte Carlo is the mean over noised points."""
    x = torch.randn(3, 5, generator=generator)
    energy, objective = Energy(5).requires_grad_(False), ImplicitScoreMatching(OU)
    ours = objective.on_clean(energy, x, 0.3, MonteCarlo(20_000, generator))
    noised = OU.transition(0.3).sample(x.repeat_interleave(20_000, 0), generator=generator)
    expected = objective.terms(energy, noised, 0.3).reshape(3, -1).mean(dim=1)
    torch.testing.assert_close(ours, expected, rtol=0, atol=0.02)


@pytest.mark.parametrize("t", [0.3, torch.tensor(0.3), torch.tensor([0.1, 0.2, 0.3])])
def test_times_are_on_the_device_of_the_points(t: Tensor | float) -> None:
    found = times(t, torch.empty(3, 2, device="meta"))
    assert (found.device.type, found.shape, found.dtype) == ("meta", (3,), torch.float32)


def test_probes_are_drawn_where_the_generator_is(generator: torch.Generator) -> None:
    """A generator of the CPU goes on as for points there, whatever their device."""
    x = torch.zeros(5, 2)
    Probes(2, generator).draw(OU, x)
    other = torch.Generator().manual_seed(0)
    assert Probes(2, other).draw(OU, x.to("meta")).device.type == "meta"
    assert torch.equal(generator.get_state(), other.get_state())


# Bad input.

X = tensor([0.1, 0.2], [0.3, 0.4])


@pytest.mark.parametrize("kind", ENERGIES)
def test_energies_of_the_wrong_shape_are_refused(kind: type[Objective]) -> None:
    objective = kind(OU)
    name = "time_score" if kind is TimeScoreMatching else "energy"
    for wrong, got in ((lambda x, t: x, r"\(2, 2\)"), (lambda x, t: x.sum(), r"\(\)")):
        with pytest.raises(ValueError, match=rf"{name} must map points \(2, 2\).*got {got}"):
            objective.terms(wrong, X, 0.3)
    with pytest.raises(ValueError, match=f"{name} must map .*got NoneType"):
        objective.terms(lambda x, t: None, X, 0.3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"{name} must have floating-point values, got torch.int64"):
        objective.terms(lambda x, t: x[:, 0].long(), X, 0.3)
    with pytest.raises(TypeError, match=rf"{name} must be a function of \(x, t\), got int"):
        objective.terms(3, X, 0.3)  # type: ignore[arg-type]


def test_a_fitted_model_as_a_function_is_refused() -> None:
    """It is the noise at clock times, and would pass for a score at the process's own."""
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    prior, residual = fit_prior(x, order=2), FokkerPlanckResidual(OrnsteinUhlenbeck())
    with pytest.raises(TypeError, match=r"score must be a function of .* give .* model\.score"):
        residual.score(prior, x, 0.3)
    assert float(residual.score(prior.score, x, 0.3).abs().max()) < 1e-4


@pytest.mark.parametrize("kind", ENERGIES)
def test_energies_that_are_not_differentiable_are_refused(kind: type[Objective]) -> None:
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    for wrong in (
        lambda x, t: x.detach() @ weight,
        lambda x, t: torch.zeros(len(x), dtype=x.dtype),
        lambda x, t: weight.sum() * t,
    ):
        with pytest.raises(ValueError, match="must be differentiable in x"):
            kind(OU).terms(wrong, X, 0.3)


@pytest.mark.parametrize("kind", ENERGIES)
def test_energies_that_leave_torch_are_refused(kind: type[Objective]) -> None:
    def squared(x: Tensor, t: Tensor) -> Tensor:
        return torch.from_numpy(np.square(x.numpy()).sum(axis=1))

    def broken(x: Tensor, t: Tensor) -> Tensor:
        raise RuntimeError("out of luck")

    with pytest.raises(ValueError, match="must be differentiable in x, but it takes x out of"):
        kind(OU).terms(squared, X, 0.3)
    with pytest.raises(RuntimeError, match="out of luck"):  # an error of its own stays what it is
        kind(OU).terms(broken, X, 0.3)


@given(shape=st.lists(st.integers(0, 3), max_size=3))
def test_only_one_number_per_row_is_an_energy(shape: list[int]) -> None:
    def energy(x: Tensor, t: Tensor) -> Tensor:
        return x.sum() + torch.zeros(shape, dtype=x.dtype)

    objective = ImplicitScoreMatching(OU)
    if shape == [2]:
        assert objective.terms(energy, X, 0.3).shape == (2,)
    else:
        with pytest.raises(ValueError, match=r"energy must map .* one number per row, \(2,\)"):
            objective.terms(energy, X, 0.3)


def test_scores_of_energies_check_them_too() -> None:
    with pytest.raises(ValueError, match="energy must be differentiable in x"):
        score_of(lambda x, t: x.detach().sum(dim=1), OU)(X, torch.ones(2).double())
    with pytest.raises(TypeError, match="process must be of type Process, got the class Torus"):
        score_of(lambda x, t: x.sum(dim=1), Torus)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [*ENERGIES, SlicedScoreMatching, TransitionScoreMatching])
@pytest.mark.parametrize("wrong", ["ou", None, OrnsteinUhlenbeck])
def test_what_is_no_process_is_refused(kind: Any, wrong: object) -> None:
    with pytest.raises(TypeError, match="process must be of type Process, got"):
        kind(wrong)


def test_times_are_checked() -> None:
    objective = ImplicitScoreMatching(OU)

    def energy(x: Tensor, t: Tensor) -> Tensor:
        return x.square().sum(dim=1)

    for t in (-0.1, math.nan, torch.tensor([0.1, -1.0])):
        with pytest.raises(ValueError, match="t must be"):
            objective.terms(energy, X, t)
    with pytest.raises(ValueError, match="one number or one per row: 2 rows, 3 values"):
        objective.terms(energy, X, torch.ones(3))
    with pytest.raises(ValueError, match="t must be one number"):
        objective.on_clean(energy, X, torch.ones(2))
    # At t = 0 the distribution of a point has no density, and denoising no target.
    with pytest.raises(ValueError, match="t must be positive for a transition density"):
        TransitionScoreMatching(OU).terms(lambda y, t: -y, X, X, 0.0)
    assert objective.terms(energy, X, 0.0).shape == (2,)  # but clean data may have one


def test_points_are_checked() -> None:
    with pytest.raises(ValueError, match="x must be finite"):
        ImplicitScoreMatching(OU).terms(lambda x, t: x.sum(dim=1), X * math.inf, 0.3)
    with pytest.raises(ValueError, match=r"y must have the shape \(2, 2\) of x"):
        TransitionScoreMatching(OU).terms(lambda y, t: -y, X, X[:1], 0.3)


def test_probes_are_checked() -> None:
    with pytest.raises(ValueError, match="count must be an integer >= 1, got 0"):
        Probes(0)
    with pytest.raises(TypeError, match="generator must be of type Generator, got int"):
        Probes(1, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="probes must be of type Probes, got int"):
        SlicedScoreMatching(OU, 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reduced must be True without probes"):
        SlicedScoreMatching(OU, reduced=False)
