"""Drift, noise and transition of every process, and their consistency."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, hessian

from oism import Brownian, OrnsteinUhlenbeck, Torus
from oism.process import Isotropic
from oism.process._torus import CROSSING, wrapped_log_density

PROCESSES: list[Isotropic] = [
    Brownian(),
    OrnsteinUhlenbeck(),
    OrnsteinUhlenbeck(theta=0.3, sigma=2.5),
    Torus(),
]
processes = pytest.mark.parametrize("process", PROCESSES, ids=repr)


def brute_force_density(delta: float, t: float) -> float:
    """The image sum with enough terms for any t ≤ 20; all terms are positive."""
    images = delta + 2 * math.pi * np.arange(-40, 41)
    return float(scipy.stats.norm(scale=math.sqrt(2 * t)).pdf(images).sum())


@pytest.mark.parametrize("t", [1e-6, 1e-3, 0.3, 1.0, CROSSING - 1e-9, CROSSING, 1.6, 3.0, 20.0])
def test_torus_density_equals_a_long_image_sum(t: float) -> None:
    scale = min(math.pi, 8 * math.sqrt(2 * t))
    delta = torch.linspace(-scale, scale, 25, dtype=torch.float64)
    ours = wrapped_log_density(delta, torch.tensor(t, dtype=torch.float64)).exp()
    exact = torch.tensor([brute_force_density(float(d), t) for d in delta], dtype=torch.float64)
    torch.testing.assert_close(ours, exact, rtol=2e-14 * (1 + scale**2 / t), atol=0)


def test_both_series_of_the_torus_density_agree_at_the_crossing() -> None:
    delta = torch.linspace(-math.pi, math.pi, 101, dtype=torch.float64)
    below, above = (
        wrapped_log_density(delta, torch.tensor(CROSSING + h, dtype=torch.float64))
        for h in (-1e-15, 1e-15)
    )
    torch.testing.assert_close(below, above, rtol=0, atol=1e-14)


@processes
@pytest.mark.parametrize("t", [0.05, 0.7, 1.49, 2.5])
def test_transition_density_solves_the_fokker_planck_equation(process: Isotropic, t: float) -> None:
    # ∂_t ρ = -∇·(bρ) + gΔρ, divided by ρ: an identity of drift, noise and density together.
    x, y = torch.tensor([[0.4, -1.1]]).double(), torch.tensor([[0.9, 0.2]]).double()

    def log_density(point: Tensor, time: Tensor) -> Tensor:
        return process.transition(time).log_density(point[None], x)[0]

    def drift(point: Tensor) -> Tensor:
        return process.drift(point[None])[0]

    time = torch.tensor(t, dtype=torch.float64)
    in_time = grad(log_density, argnums=1)(y[0], time)
    slope = grad(log_density)(y[0], time)
    curvature = torch.trace(hessian(log_density)(y[0], time)) + slope.square().sum()
    divergence = torch.trace(torch.func.jacrev(drift)(y[0]))
    right = -divergence - drift(y[0]) @ slope + process.diffusivity * curvature
    torch.testing.assert_close(in_time, right, rtol=1e-11, atol=1e-11)


@processes
@pytest.mark.parametrize("t", [1e-3, 0.4, 3.0])
def test_samples_have_the_transition_density(
    process: Isotropic, t: float, generator: torch.Generator
) -> None:
    x = torch.full((5000, 1), 0.8, dtype=torch.float64)
    law = process.transition(t)
    y = law.sample(x, generator=generator)
    assert process.domain.contains(y).all()
    assert torch.equal(y, law.sample(x, generator=torch.Generator().manual_seed(0)))
    # A grid much finer than the density; on the torus one period.
    reach = min(10 * float(law.sigma), math.pi) if process == Torus() else 10 * float(law.sigma)
    offsets = torch.linspace(-reach, reach, 20001, dtype=torch.float64)[:, None]
    grid = law.mean(x[:1]) + offsets
    density = law.log_density(grid, x[:1].expand_as(grid)).exp()
    cdf = torch.cumulative_trapezoid(density, offsets[:, 0])
    moved = process.wrap(y - law.mean(x))[:, 0].numpy()

    distribution = partial(np.interp, xp=offsets[1:, 0].numpy(), fp=cdf.numpy())
    assert scipy.stats.kstest(moved, distribution).pvalue > 0.01
    assert scipy.stats.kstest(moved + 0.2 * float(law.sigma), distribution).pvalue < 1e-6


@processes
def test_samples_have_the_mean_and_covariance(
    process: Isotropic, generator: torch.Generator
) -> None:
    x = torch.tensor([[0.3, -0.5]]).double().expand(200_000, 2)
    law = process.transition(0.05)  # so short that nothing wraps on the torus
    y = law.sample(x, generator=generator)
    assert float((y.mean(dim=0) - law.mean(x[:1])[0]).abs().max()) < 5e-3
    assert float((y.T.cov() - law.covariance(2)).abs().max()) < 5e-3 * process.diffusivity


def test_the_variance_of_a_short_step_does_not_cancel() -> None:
    process = OrnsteinUhlenbeck(theta=0.5, sigma=2.0)
    for t in (1e-18, 1e-12, 1e-6):
        series = 4 * t * (1 - 0.5 * t)  # σ²t(1 - θt + …)
        assert float(process.variance(t)) == pytest.approx(series, rel=1e-11, abs=0)


@processes
def test_zero_time_is_the_identity_but_has_no_density(process: Isotropic) -> None:
    x = torch.tensor([[0.25, -1.5]])
    law = process.transition(0.0)
    assert torch.equal(law.sample(x), x)
    assert torch.equal(law.mean(x), x)
    assert not law.covariance(2).any()
    offsets, weights = law.quadrature(2, 8)
    assert offsets.tolist() == [[0.0, 0.0]]
    assert weights.tolist() == [1.0]
    with pytest.raises(ValueError, match="t must be positive for a transition density"):
        law.log_density(x, x)


@processes
@given(
    rows=st.integers(0, 4),
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    per_row=st.booleans(),
)
def test_shapes_and_dtypes(
    process: Isotropic, rows: int, shape: list[int], dtype: torch.dtype, per_row: bool
) -> None:
    x = torch.full((rows, *shape), 0.5, dtype=dtype)
    t = torch.linspace(0.1, 1, rows, dtype=torch.float64) if per_row else 0.3
    law = process.transition(t)
    y = law.sample(x, generator=torch.Generator().manual_seed(0))
    for result in (y, law.mean(x), process.drift(x), process.adjoint_drift(x), process.wrap(y)):
        assert result.shape == x.shape
        assert result.dtype == dtype
    assert law.log_density(y, x).shape == (rows,)
    assert law.log_density(y, x).dtype == dtype
    dim = math.prod(shape)
    assert law.covariance(dim).shape == ((rows, dim, dim) if per_row else (dim, dim))


@processes
def test_one_time_per_row_agrees_with_single_times(
    process: Isotropic, generator: torch.Generator
) -> None:
    x, y = (torch.randn(6, 2, generator=generator).double() for _ in range(2))
    t = torch.tensor([1e-3, 0.2, 1.4, 1.5, 1.6, 9.0], dtype=torch.float64)
    together = process.transition(t).log_density(y, x)
    one_by_one = [
        process.transition(s).log_density(y[i : i + 1], x[i : i + 1]) for i, s in enumerate(t)
    ]
    torch.testing.assert_close(together, torch.cat(one_by_one), rtol=1e-14, atol=0)
    covariances = torch.stack([process.transition(s).covariance(2) for s in t])
    assert torch.equal(process.transition(t).covariance(2), covariances)


def test_points_on_the_torus_may_be_given_modulo_2_pi(generator: torch.Generator) -> None:
    x, y = (torch.randn(20, 2, generator=generator).double() for _ in range(2))
    for t in (0.01, 0.5, 2.0):
        law = Torus().transition(t)
        shifted = law.log_density(y + 4 * math.pi, x - 6 * math.pi)
        torch.testing.assert_close(shifted, law.log_density(y, x), rtol=1e-11, atol=1e-11)


@processes
def test_the_adjoint_drift_of_reversible_processes_is_the_drift(process: Isotropic) -> None:
    x = torch.tensor([[0.3, -2.0]]).double()
    torch.testing.assert_close(process.adjoint_drift(x), process.drift(x))
    sigma = process.sigma if isinstance(process, OrnsteinUhlenbeck) else math.sqrt(2)
    torch.testing.assert_close(process.noise(3), sigma * torch.eye(3).double())
    torch.testing.assert_close(process.diffusion(3), 0.5 * sigma**2 * torch.eye(3).double())
    torch.testing.assert_close(process.diffuse(x, x), 0.5 * sigma**2 * x)


@processes
def test_gradients_reach_points_and_times(process: Isotropic) -> None:
    x, y = (torch.tensor([[a, 0.2]]).double().requires_grad_() for a in (0.4, 0.9))
    t = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda y, x, t: process.transition(t).log_density(y, x), (y, x, t)
    )


@processes
def test_compiles_without_a_graph_break(process: Isotropic) -> None:
    def log_density(y: Tensor, x: Tensor, t: Tensor) -> Tensor:
        return process.transition(t).log_density(process.wrap(y), x)

    arguments = torch.ones(3, 2), torch.zeros(3, 2), torch.full((3,), 0.5)
    compiled = torch.compile(log_density, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*arguments), log_density(*arguments))


@processes
@pytest.mark.parametrize("t", [1e-12, 1e6])
def test_a_variance_that_overflows_the_dtype_is_rejected(process: Isotropic, t: float) -> None:
    x = torch.zeros(2, 2, dtype=torch.float16)
    law = process.transition(t)
    if t < 1 or not process.invariant.is_probability or process == Torus():
        with pytest.raises(ValueError, match=r"t must be positive.* σ² finite in torch.float16"):
            law.log_density(x, x)
    else:
        assert law.log_density(x, x).isfinite().all()


def test_numbers_of_other_libraries_are_converted() -> None:
    process = OrnsteinUhlenbeck(theta=Fraction(1, 3), sigma=np.int8(20))  # type: ignore[arg-type]
    assert type(process.theta) is type(process.sigma) is float
    assert float(process.variance(1.0)) == pytest.approx(600 * -math.expm1(-2 / 3), rel=1e-14)


@processes
def test_half_precision_times_are_converted_exactly(process: Isotropic) -> None:
    x = torch.ones(1, 1, dtype=torch.float64)
    means = [process.transition(t).mean(x) for t in (0.5, torch.tensor(0.5, dtype=torch.float16))]
    assert torch.equal(*means)
    assert process.alpha(torch.tensor(0.5)).dtype == torch.float32


@processes
@pytest.mark.parametrize("per_row", [False, True])
def test_points_may_be_on_another_device_than_times(process: Isotropic, per_row: bool) -> None:
    # The meta device computes nothing, but like a GPU it cannot be mixed with the CPU.
    x = torch.empty(3, 2, device="meta")
    law = process.transition(torch.linspace(0.1, 2, 3) if per_row else 0.3)
    results = [law.mean(x), law.sample(x), law.log_density(x, x), process.wrap(x)]
    results += [process.drift(x), process.diffuse(x, x), process.adjoint_drift(x)]
    assert {result.device.type for result in results} == {"meta"}


@processes
def test_invalid_arguments_are_rejected(process: Isotropic) -> None:
    x = torch.zeros(2, 3)
    for t, words in ((-1.0, "t = -1.0"), (math.nan, "nan"), (torch.tensor([0.1, -1]), r"t\[1\]")):
        for method in (process.transition, process.alpha, process.variance):
            with pytest.raises(ValueError, match=words):
                method(t)
    law = process.transition(0.5)
    with pytest.raises(ValueError, match=r"y must have the shape \(2, 3\) of x, got \(3, 3\)"):
        law.log_density(torch.zeros(3, 3), x)
    with pytest.raises(ValueError, match="x must be a batch of points"):
        law.sample(torch.zeros(3))
    with pytest.raises(ValueError, match="one per row: 2 rows, 3 values"):
        process.transition(torch.ones(3)).mean(x)
    with pytest.raises(ValueError, match="dim must be an integer >= 1, got 0"):
        process.noise(0)
    with pytest.raises(ValueError, match="t must be one number for a rule, got 3"):
        process.transition(torch.ones(3)).quadrature(1, 4)
    with pytest.raises(TypeError, match="x must have a floating-point dtype"):
        process.drift(torch.zeros(2, 3, dtype=torch.int32))


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["theta", "sigma"])
def test_parameters_of_ornstein_uhlenbeck(name: str, value: float) -> None:
    for extreme in (1e-200, 1e200):
        with pytest.raises(ValueError, match=r"sigma² / \(2 theta\) must be a positive finite"):
            OrnsteinUhlenbeck(sigma=extreme)
    with pytest.raises(ValueError, match=f"{name} must be a positive finite number, got"):
        OrnsteinUhlenbeck(**{name: value})
