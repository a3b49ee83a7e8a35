"""Densities beside a prior, compared with those of Gaussians and of mixtures of Gaussians."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from oism import Combined, Diffusion, OrnsteinUhlenbeck, VariancePreserving, fit_prior
from oism.basis import IdentityFrame
from oism.flow import (
    Adams,
    Adaptive,
    ExactTrace,
    FixedStep,
    Heun,
    Hutchinson,
    Pixels,
    RungeKutta4,
    log_density,
)
from oism.images import PCA, GaussianPart, Prior, add_local_terms, fit_mixture
from oism.nn import MLP, OperatorInformed
from oism.nn._likelihood import StandardisedFlow
from oism.process import Noising

CLOCK = VariancePreserving()
OU = Noising(OrnsteinUhlenbeck(), CLOCK)
SHAPE = (1, 2, 3)


class Silent(nn.Module):
    """A network that adds nothing."""

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        return torch.zeros_like(x)


def images(n: int = 400) -> Tensor:
    """Return correlated integers from 0 to 16, of two kinds."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n, 6, generator=generator)
    z = z + 0.8 * z.roll(1, dims=1) + 2.0 * (torch.arange(n) % 2)[:, None]
    return (7 + 1.5 * z).round().clamp(0, 16).reshape(n, *SHAPE)


@cache
def prior_of(kind: str) -> Prior:
    pixels, data = Pixels(0, 16), images()
    if kind == "pixels":
        return fit_prior(data, order=2, pixels=pixels, frame=IdentityFrame())
    if kind == "leading":
        return fit_prior(data, order=2, pixels=pixels, frame=PCA(2))
    if kind == "polynomials":
        return fit_prior(data, order=4, pixels=pixels)
    mixture = fit_mixture(data, components=2, pixels=pixels)
    if kind == "mixture":
        return mixture
    if kind == "local terms":
        return add_local_terms(data, mixture, side=2, degrees=2)
    return fit_prior(data, order=2, pixels=pixels)


GAUSSIANS = ("pixels", "principal", "leading")
OTHERS = ("polynomials", "mixture", "local terms")


def alone(prior: Prior) -> Diffusion:
    """A model that is its prior."""
    return Diffusion(OperatorInformed.paper(Silent(), prior)).double()


def points(prior: Prior, n: int = 8) -> Tensor:
    return prior.prepare(images()[:n], torch.Generator().manual_seed(1)).double()


def gaussian_at(prior: Prior, tau: float) -> MultivariateNormal:
    """The Gaussian with a prior's score, which is linear: -P(x - μ)."""
    t = CLOCK.time(tau)
    zero = torch.zeros(1, *SHAPE, dtype=torch.float64)
    here = prior.score(zero, t).flatten(1)
    steps = torch.eye(6, dtype=torch.float64).reshape(6, *SHAPE)
    slope = prior.score(steps, t).flatten(1) - here  # -P, row by row
    precision = -0.5 * (slope + slope.mT)
    mean = torch.linalg.solve(precision, here[0])
    return MultivariateNormal(mean, precision_matrix=precision)


@pytest.mark.parametrize("method", [Adams(1), Adams(5), Heun(1), RungeKutta4(2), Adaptive()])
@pytest.mark.parametrize("kind", GAUSSIANS)
def test_a_gaussian_is_exact_with_any_number_of_steps(
    kind: str, method: FixedStep | Adaptive
) -> None:
    prior = prior_of(kind)
    model, x = alone(prior), points(prior)
    exact = gaussian_at(prior, model.first).log_prob(x.flatten(1))  # type: ignore[no-untyped-call]
    found = model.log_density(x, method=method)
    torch.testing.assert_close(found, exact, rtol=0, atol=2e-4)
    # Without the coordinates a few steps are far from it.
    few = log_density(model.flow, x, method=RungeKutta4(2), divergence=ExactTrace())
    assert float((few - exact).abs().mean()) > 0.2
    single = model.float().log_density(x.float(), method=method)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=0, atol=2e-3)


@pytest.mark.parametrize("kind", [*GAUSSIANS, *OTHERS])
def test_coordinates_do_not_change_the_density(kind: str) -> None:
    """Fine steps in standardised coordinates, and in those of the tensors."""
    prior = prior_of(kind)
    model, x = alone(prior), points(prior, 4)
    found = model.log_density(x, method=RungeKutta4(32), divergence=ExactTrace())
    plain = log_density(model.flow, x, method=RungeKutta4(48), divergence=ExactTrace())
    torch.testing.assert_close(found, plain, rtol=0, atol=5e-3)
    # The divergence of a prior is known: there is nothing to estimate.
    known = model.log_density(x, method=RungeKutta4(32))
    torch.testing.assert_close(known, found, rtol=0, atol=1e-4)


class Mixture(nn.Module):
    """The exact noise predictor of a mixture of two Gaussians in six dimensions."""

    @staticmethod
    def at(tau: float | Tensor) -> MixtureSameFamily:
        alpha, sigma = float(OU.alpha(tau)), float(OU.sigma(tau))
        root = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(7)).double()
        covariance = 0.02 * root @ root.mT + 0.01 * torch.eye(6, dtype=torch.float64)
        means = torch.tensor([[-0.3], [0.25]], dtype=torch.float64).expand(2, 6)
        eye = torch.eye(6, dtype=torch.float64)
        parts = MultivariateNormal(alpha * means, alpha**2 * covariance + sigma**2 * eye)
        weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
        return MixtureSameFamily(Categorical(weights), parts)

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        recorded = x.requires_grad
        with torch.enable_grad():
            own = x if recorded else x.detach().requires_grad_()
            total = self.at(tau[0]).log_prob(own.double().flatten(1)).sum()  # type: ignore[no-untyped-call]
            (slope,) = torch.autograd.grad(total, own, create_graph=recorded)
        return -OU.sigma(tau[0]) * slope


@cache
def prior_of_draws(kind: str) -> Prior:
    data = drawn(2000)
    if kind == "mixture":
        return fit_mixture(data, components=2)
    return fit_prior(data, order=2, frame=PCA(2) if kind == "leading" else PCA())


def part() -> GaussianPart:
    return prior_of_draws("principal").gaussian_part()


def beside(kind: str = "principal") -> Diffusion:
    """The exact model of the mixture beside a prior of its samples."""
    combined = Combined(Mixture(), prior_of_draws(kind))
    combined.share.fill_(1.0)
    return Diffusion(combined)


def drawn(n: int) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        found: Tensor = Mixture.at(1e-5).sample((n,)).reshape(n, *SHAPE)  # type: ignore[no-untyped-call]
    return found


def test_a_prior_of_other_data_costs_accuracy_only_at_the_end() -> None:
    """Where coordinates do not fit, N(0, I) is a worse model of u at the largest noise level."""
    combined = Combined(Mixture(), prior_of("mixture"))
    combined.share.fill_(1.0)
    model, x = Diffusion(combined), drawn(10)
    found = model.log_density(x, method=RungeKutta4(32), divergence=ExactTrace())
    torch.testing.assert_close(found, exact_density(model, x), rtol=0, atol=5e-3)


def exact_density(model: Diffusion, x: Tensor) -> Tensor:
    found: Tensor = Mixture.at(model.first).log_prob(x.flatten(1))  # type: ignore[no-untyped-call]
    return found


@pytest.mark.parametrize("kind", ["principal", "leading", "mixture"])
def test_the_density_of_a_mixture_is_exact(kind: str) -> None:
    model, x = beside(kind), drawn(10)
    found = model.log_density(x, method=RungeKutta4(32), divergence=ExactTrace())
    torch.testing.assert_close(found, exact_density(model, x), rtol=0, atol=2e-3)


def test_the_order_in_standardised_coordinates() -> None:
    model, x = beside(), drawn(10)
    flow, counts = StandardisedFlow(model, part()), np.array([32, 64, 128])
    fine = flow.log_density(x, method=RungeKutta4(96), divergence=ExactTrace(), chunk=10)
    errors = [
        float(
            (flow.log_density(x, method=Adams(int(n)), divergence=ExactTrace(), chunk=10) - fine)
            .square()
            .mean()
            .sqrt()
        )
        for n in counts
    ]
    slope = -float(np.polyfit(np.log(counts), np.log(errors), 1)[0])
    assert slope == pytest.approx(Adams.order, abs=0.4)


def test_fewer_evaluations_than_without_the_coordinates() -> None:
    model, x = beside(), drawn(40)
    exact = exact_density(model, x)

    def error(found: Tensor) -> float:
        return float((found - exact).square().mean().sqrt())

    ours = error(model.log_density(x, divergence=ExactTrace()))
    plain = [
        error(log_density(model.flow, x, method=RungeKutta4(n), divergence=ExactTrace()))
        for n in (8, 24)
    ]
    assert ours < plain[0] / 10, "as many evaluations"
    assert ours < plain[1], "three times as many"


def test_the_estimate_is_unbiased_and_varies_less() -> None:
    model, count = beside(), 1000
    x = drawn(1).expand(count, *SHAPE)
    method = Adams(12)
    exact = float(model.log_density(x[:1], method=method, divergence=ExactTrace()))
    deviations = []
    for known, fixed in ((None, True), (model.informed.prior, True), (model.informed.prior, False)):  # type: ignore[union-attr]
        signs = Hutchinson(torch.Generator().manual_seed(0), 1, known, fixed)
        found = model.log_density(x, method=method, divergence=signs)
        deviations.append(float(found.std()))
        assert float(found.mean()) == pytest.approx(exact, abs=4 * deviations[-1] / count**0.5)
    assert deviations[2] < 0.55 * deviations[0]
    assert deviations[2] < 0.75 * deviations[1]
    own = model.divergence(torch.Generator().manual_seed(0))
    assert torch.equal(model.log_density(x, method=method, divergence=own), found), "the default"


def test_default_methods() -> None:
    model = beside()
    assert model.likelihood_method() == Adams(31)
    assert model.likelihood_method(16) == Adams(15)
    bare = Diffusion(MLP(6), model.spec.__class__((6,), CLOCK))
    assert bare.likelihood_method() == RungeKutta4(24)
    assert bare.divergence(torch.Generator()).known is None
    with pytest.raises(ValueError, match="evaluations must be an integer >= 2, got 1"):
        model.likelihood_method(1)


def test_levels_run_from_data_to_noise() -> None:
    flow = StandardisedFlow(beside(), part())
    s = torch.linspace(0, 1, 401, dtype=torch.float64)
    level = flow._level(s)
    ends = OU.log_snr(torch.tensor([1e-5, 1.0], dtype=torch.float64)) / 2
    torch.testing.assert_close(level[[0, -1]], ends, rtol=1e-9, atol=1e-9)
    assert bool((level.diff() < 0).all())
    rate = (level[2:] - level[:-2]) * 200
    torch.testing.assert_close(rate, -flow._length / flow._density(level[1:-1]), rtol=1e-3, atol=0)
    assert float(rate.abs().max()) > 3 * float(rate.abs().min()), "not even in λ"


@given(
    n=st.integers(0, 5),
    chunk=st.integers(1, 6),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_shapes_dtypes_and_chunks(n: int, chunk: int, dtype: torch.dtype) -> None:
    prior = prior_of("principal")
    model, x = alone(prior), points(prior, 5)[:n].to(dtype)
    whole = model.log_density(x, method=Adams(2))
    model.chunk = chunk
    found = model.log_density(x, method=Adams(2))
    assert (found.shape, found.dtype) == ((n,), dtype)
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-3)


def test_mistakes() -> None:
    prior = prior_of("principal")
    model, x = alone(prior), points(prior)
    with pytest.raises(TypeError, match="part must be of type GaussianPart, got Silent"):
        StandardisedFlow(model, Silent())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="method must be of type OrdinaryMethod, got int"):
        model.log_density(x, method=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="divergence must be of type Divergence, got str"):
        model.log_density(x, divergence="exact")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="x must be finite"):
        model.log_density(x * math.nan)
