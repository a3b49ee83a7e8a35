"""Linear SDEs: Brownian motion and Ornstein-Uhlenbeck as special cases, and asymmetric ones."""

from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import grad, hessian, jacrev

from oism import Brownian, CriticallyDamped, Linear, OrnsteinUhlenbeck
from oism.process import (
    AdjointGenerator,
    CarreDuChamp,
    DirichletForm,
    InfinitesimalGenerator,
    Lebesgue,
    NotAProbabilityError,
    Process,
    Quadrature,
    Semigroup,
)
from oism.process._expectation import expectation

from .systems import ALL, CRITICAL, STABLE, SWIRL, UNSTABLE, hurwitz, matrix, normal

every = pytest.mark.parametrize("process", ALL.values(), ids=ALL.keys())
stationary = pytest.mark.parametrize("process", STABLE.values(), ids=STABLE.keys())
planes = pytest.mark.parametrize("name", [name for name, p in STABLE.items() if p.size == 2])

OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)
SPECIAL: dict[str, tuple[Linear, Process]] = {
    "brownian": (Linear(torch.zeros(3, 3), math.sqrt(2) * torch.eye(3).double()), Brownian()),
    "paper's": (Linear(-torch.eye(3), math.sqrt(2) * torch.eye(3).double()), OrnsteinUhlenbeck()),
    "generalised": (Linear(-0.7 * torch.eye(3).double(), 1.3 * torch.eye(3).double()), OU),
    "one copy each": (Linear(matrix([-0.7]), matrix([1.3]), copies=3), OU),
}


def f(x: Tensor) -> Tensor:
    return torch.exp(0.3 * torch.sin(x[:, 0])) * torch.cos(x[:, 1])


def g(x: Tensor) -> Tensor:
    return torch.cos(x[:, 0] - 0.7 * x[:, 1]) + torch.sin(x[:, 1])


@pytest.mark.parametrize("pair", SPECIAL.values(), ids=SPECIAL.keys())
@pytest.mark.parametrize("t", [0.0, 1e-9, 0.4, 12.0])
def test_the_processes_of_the_paper_are_special_cases(
    pair: tuple[Linear, Process], t: float
) -> None:
    linear, known = pair
    x, y = normal(7, 3), normal(7, 3, seed=1)
    for method in ("drift", "adjoint_drift", "wrap"):
        torch.testing.assert_close(getattr(linear, method)(x), getattr(known, method)(x))
    torch.testing.assert_close(linear.diffuse(y, x), known.diffuse(y, x))
    torch.testing.assert_close(linear.noise(3), known.noise(3))
    torch.testing.assert_close(linear.diffusion(3), known.diffusion(3))
    assert linear.is_symmetric
    assert linear.invariant.is_probability == known.invariant.is_probability
    ours, theirs = linear.transition(t), known.transition(t)
    torch.testing.assert_close(ours.mean(x), theirs.mean(x), rtol=1e-14, atol=0)
    torch.testing.assert_close(ours.covariance(3), theirs.covariance(3), rtol=1e-14, atol=0)
    draws = [law.sample(x, generator=torch.Generator().manual_seed(2)) for law in (ours, theirs)]
    torch.testing.assert_close(*draws)
    for one, other in zip(ours.quadrature(3, 4), theirs.quadrature(3, 4), strict=True):
        torch.testing.assert_close(one, other)
    if t:
        torch.testing.assert_close(ours.log_density(y, x), theirs.log_density(y, x))
    if known.invariant.is_probability:
        torch.testing.assert_close(linear.invariant.log_density(x), known.invariant.log_density(x))


@every
@pytest.mark.parametrize("t", [0.05, 0.7, 2.5])
def test_transition_density_solves_the_fokker_planck_equation(process: Linear, t: float) -> None:
    # ∂_t ρ = -∇·(bρ) + ∇·G∇ρ, divided by ρ: an identity of drift, noise and density together.
    time = torch.tensor(t, dtype=torch.float64)
    x = normal(1, process.size)
    y = process.transition(time).sample(x, generator=torch.Generator().manual_seed(3))[0]

    def log_density(point: Tensor, at: Tensor) -> Tensor:
        return process.transition(at).log_density(point[None], x)[0]

    def drift(point: Tensor) -> Tensor:
        return process.drift(point[None])[0]

    in_time, slope = grad(log_density, argnums=1)(y, time), grad(log_density)(y, time)
    diffusion = process.diffusion(process.size)
    curvature = (diffusion * hessian(log_density)(y, time)).sum() + slope @ diffusion @ slope
    divergence = torch.trace(jacrev(drift)(y))
    assert float(divergence) == pytest.approx(process.drift_divergence(process.size), abs=1e-14)
    right = -divergence - drift(y) @ slope + curvature
    torch.testing.assert_close(in_time, right, rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@every
def test_euler_maruyama_paths_have_the_transition_distribution(
    process: Linear, generator: torch.Generator
) -> None:
    paths, steps, t = 20_000, 400, 0.8
    x = normal(1, process.size).expand(paths, -1)
    y, step = x.clone(), t / steps
    noise = process.noise(process.size)
    for _ in range(steps):
        dw = torch.randn(paths, noise.shape[1], generator=generator, dtype=torch.float64)
        y = y + step * process.drift(y) + math.sqrt(step) * dw @ noise.mT
    law = process.transition(t)
    scale = law.covariance(process.size).diagonal().sqrt()
    moved = (y - law.mean(x)) / scale
    correlation = law.covariance(process.size) / (scale[:, None] * scale)
    # Five standard errors of the samples, plus the error of the scheme, its step 1/400.
    assert float(moved.mean(dim=0).abs().max()) < 5 / math.sqrt(paths) + 0.01
    assert float((moved.mT.cov() - correlation).abs().max()) < 10 / math.sqrt(paths) + 0.01
    for column in law.sample(x, generator=generator).sub(law.mean(x)).div(scale).mT:
        assert scipy.stats.kstest(column, scipy.stats.norm.cdf).pvalue > 0.005
        assert scipy.stats.kstest(column + 0.1, scipy.stats.norm.cdf).pvalue < 1e-6


@every
def test_two_steps_have_the_distribution_of_one(
    process: Linear, generator: torch.Generator
) -> None:
    x = normal(1, process.size).expand(50_000, -1)
    half = process.transition(0.3).sample(x, generator=generator)
    y = process.transition(0.5).sample(half, generator=generator)
    law = process.transition(0.8)
    covariance = law.covariance(process.size)
    scale = covariance.diagonal().sqrt()
    assert float(((y - law.mean(x)).mean(dim=0) / scale).abs().max()) < 0.025
    error = (y.mT.cov() - covariance) / (scale[:, None] * scale)
    assert float(error.abs().max()) < 0.04


@planes
def test_the_semigroup_property(name: str) -> None:
    process, x = STABLE[name], normal(4, 2)
    rule = Quadrature(40)
    twice = Semigroup(process, 0.2, rule)(Semigroup(process, 0.5, rule)(g))(x)
    torch.testing.assert_close(twice, Semigroup(process, 0.7, rule)(g)(x), rtol=0, atol=1e-9)


@planes
def test_the_semigroup_solves_kolmogorovs_equation(name: str) -> None:
    process, x, t = STABLE[name], normal(4, 2), torch.tensor(0.3, dtype=torch.float64)
    rule, generator = Quadrature(40), InfinitesimalGenerator(process)
    in_time = torch.func.jacfwd(lambda s: Semigroup(process, s, rule)(g)(x))(t)
    torch.testing.assert_close(
        in_time, generator(Semigroup(process, t, rule)(g))(x), rtol=0, atol=1e-8
    )
    torch.testing.assert_close(
        in_time, Semigroup(process, t, rule)(generator(g))(x), rtol=0, atol=1e-8
    )


def test_the_generator_agrees_with_its_matrices() -> None:
    process, x = STABLE["sheared, three noises"], normal(9, 2)
    first = torch.func.vmap(grad(lambda y: f(y[None])[0]))(x)
    second = torch.func.vmap(hessian(lambda y: f(y[None])[0]))(x)
    diffusion = 0.5 * process.noise_matrix @ process.noise_matrix.mT
    expected = ((x @ process.drift_matrix.mT) * first).sum(dim=1) + (diffusion * second).sum((1, 2))
    torch.testing.assert_close(InfinitesimalGenerator(process)(f)(x), expected)
    gamma = torch.einsum("ni,ij,nj->n", first, diffusion, first)
    torch.testing.assert_close(CarreDuChamp(process)(f)(x), gamma)


@planes
def test_the_adjoint_satisfies_integration_by_parts(name: str) -> None:
    # ∫ f Lg dπ = ∫ g L*f dπ, and for the semigroups ∫ f P_t g dπ = ∫ g P*_t f dπ.
    process, rule = STABLE[name], Quadrature(96)
    generator, adjoint = InfinitesimalGenerator(process), AdjointGenerator(process)

    def integral(h: object) -> Tensor:
        return expectation(h, process.invariant, (2,), rule)  # type: ignore[arg-type]

    left = integral(lambda x: f(x) * generator(g)(x))
    right = integral(lambda x: g(x) * adjoint(f)(x))
    torch.testing.assert_close(left, right, rtol=0, atol=1e-8)
    assert abs(float(left - integral(lambda x: g(x) * generator(f)(x)))) > 1e-2
    # The generator of the reversed process is the adjoint.
    backwards = InfinitesimalGenerator(process.adjoint)
    x = normal(6, 2)
    torch.testing.assert_close(adjoint(f)(x), backwards(f)(x))
    few = Quadrature(24)
    left = integral(lambda x: f(x) * Semigroup(process, 0.4, few)(g)(x))
    right = integral(lambda x: g(x) * Semigroup(process.adjoint, 0.4, few)(f)(x))
    torch.testing.assert_close(left, right, rtol=0, atol=1e-7)
    half = integral(lambda x: -0.5 * f(x) * (generator(g)(x) + adjoint(g)(x)))
    form = DirichletForm(process, (2,), rule)(f, g)
    torch.testing.assert_close(form, half, rtol=0, atol=1e-8)


@given(process=hurwitz)
def test_the_reversed_process(process: Linear) -> None:
    sigma, drift = process.stationary_covariance, process.drift_matrix
    backwards = process.adjoint
    condition = float(torch.linalg.cond(sigma))
    size = float(backwards.drift_matrix.norm())
    torch.testing.assert_close(
        backwards.drift_matrix,
        sigma @ drift.mT @ torch.linalg.inv(sigma),
        rtol=0,
        atol=1e-13 * condition * size,
    )
    x = normal(3, process.size)
    torch.testing.assert_close(
        process.adjoint_drift(x), backwards.drift(x), rtol=0, atol=1e-13 * condition * size
    )
    # Symmetric if and only if it equals its reversal; in one dimension every process is.
    assert process.is_symmetric == (process.size == 1)


@given(seed=st.integers(0, 1000), size=st.integers(1, 4))
def test_symmetric_processes_are_recognised(seed: int, size: int) -> None:
    # F = -GΣ∞⁻¹ is symmetric with respect to N(0, Σ∞), and an antisymmetric Q in -(G + Q)Σ∞⁻¹
    # breaks it without a change of Σ∞.
    a, b = (m @ m.mT + 0.2 * torch.eye(size) for m in normal(2, size, size, seed=seed))
    factor = torch.linalg.cholesky(2 * a)
    symmetric = Linear(-torch.linalg.solve(b, a, left=False), factor)
    assert symmetric.is_symmetric
    torch.testing.assert_close(symmetric.stationary_covariance, b, rtol=1e-8, atol=1e-10)
    x = normal(3, size)
    torch.testing.assert_close(symmetric.adjoint_drift(x), symmetric.drift(x), rtol=1e-6, atol=1e-6)
    if size > 1:
        turn = torch.zeros(size, size, dtype=torch.float64)
        turn[0, 1], turn[1, 0] = 1e-3, -1e-3
        turned = Linear(-torch.linalg.solve(b, a + turn, left=False), factor)
        torch.testing.assert_close(turned.stationary_covariance, b, rtol=1e-8, atol=1e-10)
        assert not turned.is_symmetric


@stationary
def test_the_stationary_distribution_is_stationary(
    process: Linear, generator: torch.Generator
) -> None:
    sigma = process.stationary_covariance
    x = process.invariant.sample((50_000, process.size), generator=generator, dtype=torch.float64)
    y = process.transition(0.9).sample(x, generator=generator)
    scale = sigma.diagonal().sqrt()
    for draws in (x, y):
        error = (draws.mT.cov() - sigma) / (scale[:, None] * scale)
        assert float(error.abs().max()) < 0.04
    # E[X_t X_0ᵀ] = S_tΣ∞, which is symmetric only for a symmetric process.
    lagged = y.mT @ x / len(x)
    right = process.transition(0.9).mean(sigma).mT  # rows of Σ∞ are points
    assert float(((lagged - right) / (scale[:, None] * scale)).abs().max()) < 0.04


@stationary
def test_the_kernel_is_symmetric_only_between_a_process_and_its_reversal(process: Linear) -> None:
    x, y = normal(5, process.size), normal(5, process.size, seed=1)
    forward, backward = (Semigroup(p, 0.6).log_kernel for p in (process, process.adjoint))
    torch.testing.assert_close(forward(x, y), backward(y, x), rtol=1e-9, atol=1e-9)
    assert float((forward(x, y) - forward(y, x)).abs().max()) > 0.1


@pytest.mark.parametrize("process", [Linear(SWIRL.drift_matrix, SWIRL.noise_matrix, 3), CRITICAL])
@given(
    rows=st.integers(0, 4),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    per_row=st.booleans(),
    flat=st.booleans(),
)
def test_shapes_and_dtypes(
    process: Linear, rows: int, dtype: torch.dtype, per_row: bool, flat: bool
) -> None:
    shape = (process.size,) if flat else (2, process.copies, 1)
    x = torch.full((rows, *shape), 0.5, dtype=dtype)
    t = torch.linspace(0.5, 1, rows, dtype=torch.float64) if per_row else 0.7
    law = process.transition(t)
    y = law.sample(x, generator=torch.Generator().manual_seed(0))
    for result in (
        y,
        law.mean(x),
        process.drift(x),
        process.adjoint_drift(x),
        process.diffuse(x, x),
    ):
        assert result.shape == x.shape
        assert result.dtype == dtype
    assert law.log_density(y, x).shape == (rows,)
    assert law.log_density(y, x).dtype == dtype
    size = process.size
    assert law.covariance(size).shape == ((rows, size, size) if per_row else (size, size))


@every
def test_one_time_per_row_agrees_with_single_times(process: Linear) -> None:
    x, y = (normal(5, process.size, seed=seed) for seed in range(2))
    t = torch.tensor([1e-3, 0.2, 1.4, 2.0, 6.0], dtype=torch.float64)
    law, laws = process.transition(t), [process.transition(s) for s in t]
    each = [x[i : i + 1] for i in range(5)], [y[i : i + 1] for i in range(5)]
    together = law.log_density(y, x)
    alone = torch.cat([one.log_density(b, a) for one, a, b in zip(laws, *each, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    means = torch.cat([one.mean(a) for one, a in zip(laws, each[0], strict=True)])
    torch.testing.assert_close(law.mean(x), means, rtol=1e-14, atol=1e-15)
    covariances = torch.stack([one.covariance(process.size) for one in laws])
    torch.testing.assert_close(law.covariance(process.size), covariances, rtol=1e-14, atol=0)


@every
def test_zero_time_is_the_identity_but_has_no_density(process: Linear) -> None:
    x = normal(2, process.size)
    for law in (process.transition(0.0), process.transition(torch.tensor([0.0, 0.0]))):
        assert torch.equal(law.sample(x), x)
        assert torch.equal(law.mean(x), x)
        assert not law.covariance(process.size).any()
        with pytest.raises(ValueError, match=r"t must be positive for a transition density"):
            law.log_density(x, x)
    offsets, weights = process.transition(0.0).quadrature(process.size, 8)
    assert offsets.tolist() == [[0.0] * process.size]
    assert weights.tolist() == [1.0]
    # A row at time zero does not change the others.
    law = process.transition(torch.tensor([0.0, 0.5], dtype=torch.float64))
    draws = law.sample(x, generator=torch.Generator().manual_seed(1))
    assert torch.equal(draws[0], x[0])
    assert float((draws[1] - x[1]).abs().min()) > 1e-6


@every
def test_gradients_reach_points_and_times(process: Linear) -> None:
    x, y = (normal(1, process.size, seed=seed).requires_grad_() for seed in range(2))
    t = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda y, x, t: process.transition(t).log_density(y, x), (y, x, t)
    )

    def drawn(x: Tensor, t: Tensor) -> Tensor:
        return process.transition(t).sample(x, generator=torch.Generator().manual_seed(1))

    assert torch.autograd.gradcheck(drawn, (x, t))


def test_compiles_without_a_graph_break() -> None:
    def log_density(y: Tensor, x: Tensor, t: Tensor) -> Tensor:
        return SWIRL.transition(t).log_density(SWIRL.wrap(y), x)

    arguments = torch.ones(3, 2), torch.zeros(3, 2), torch.full((3,), 0.5)
    torch.compiler.reset()
    compiled = torch.compile(log_density, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*arguments), log_density(*arguments))


@pytest.mark.parametrize("per_row", [False, True])
def test_points_may_be_on_another_device_than_times(per_row: bool) -> None:
    # The meta device computes nothing, but like a GPU it cannot be mixed with the CPU.
    x = torch.empty(3, 2, device="meta")
    law = SWIRL.transition(torch.linspace(0.1, 2, 3) if per_row else 0.3)
    results = [law.mean(x), law.sample(x), law.log_density(x, x), SWIRL.wrap(x)]
    results += [SWIRL.drift(x), SWIRL.diffuse(x, x), SWIRL.adjoint_drift(x)]
    results += [SWIRL.invariant.score(x), SWIRL.invariant.log_density(x)]
    assert {result.device.type for result in results} == {"meta"}


def test_the_matrices_are_copied() -> None:
    drift = -torch.eye(2, dtype=torch.float64)
    process = Linear(drift, torch.eye(2))
    drift[0, 0] = 7.0
    assert torch.equal(process.drift_matrix, -torch.eye(2, dtype=torch.float64))
    assert process.noise_matrix.dtype == torch.float64


def test_without_drift_lebesgue_measure_is_invariant() -> None:
    process = Linear(torch.zeros(2, 2), matrix([1.0, 0.0], [2.0, 1.0]))
    assert process.invariant == Lebesgue()
    assert process.is_symmetric
    assert process.adjoint is process
    with pytest.raises(NotAProbabilityError, match=r"it has the eigenvalue 0"):
        _ = process.stationary_covariance


@pytest.mark.parametrize("name", UNSTABLE)
def test_unstable_processes_have_no_stationary_distribution(name: str) -> None:
    process = UNSTABLE[name]
    eigenvalue = {"growing": "0.561577", "turning": "[+-]?2j", "integrator": "0[+]0j"}[name]
    for what in ("stationary_covariance", "invariant", "is_symmetric", "adjoint"):
        with pytest.raises(
            NotAProbabilityError, match=f"must be Hurwitz.*eigenvalue.*{eigenvalue}"
        ):
            getattr(process, what)
    with pytest.raises(NotAProbabilityError, match="drift_matrix must be Hurwitz"):
        process.adjoint_drift(torch.zeros(1, 2))


def test_noise_that_does_not_act_in_every_direction() -> None:
    # The second coordinate acts on the first, and no noise acts on the second.
    process = Linear(matrix([-1.0, 1.0], [0.0, -2.0]), matrix([1.0], [0.0]))
    x = normal(4, 2)
    law = process.transition(0.5)
    draws = law.sample(x, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws[:, 1], math.exp(-1) * x[:, 1])
    assert float((draws - law.mean(x))[:, 0].abs().min()) > 1e-3
    with pytest.raises(ValueError, match=r"\(F, L\) must be controllable"):
        law.log_density(x, x)
    with pytest.raises(ValueError, match=r"rank 1, not 2 .*\(F, L\) is not controllable"):
        process.invariant.log_density(x)
    for singular in (lambda: process.adjoint, lambda: process.adjoint_drift(x)):
        with pytest.raises(ValueError, match="covariance must be positive definite for a density"):
            singular()
    # Averages and their derivatives in time exist.
    t = torch.tensor(0.4, dtype=torch.float64)
    in_time = torch.func.jacfwd(lambda s: Semigroup(process, s)(g)(x))(t)
    right = InfinitesimalGenerator(process)(Semigroup(process, t)(g))(x)
    torch.testing.assert_close(in_time, right, rtol=0, atol=1e-9)


def test_invalid_matrices_are_rejected() -> None:
    eye = torch.eye(2)
    for wrong in (torch.zeros(2, 3), torch.zeros(2), torch.zeros(0, 0), torch.zeros(1, 2, 2)):
        with pytest.raises(ValueError, match="drift_matrix must be square, got shape"):
            Linear(wrong, eye)
    for wrong in (torch.zeros(3, 2), torch.zeros(2), torch.zeros(2, 0)):
        with pytest.raises(ValueError, match=r"noise_matrix must have shape \(2, k\).*got"):
            Linear(eye, wrong)
    for bad in (math.nan, math.inf):
        with pytest.raises(
            ValueError, match=r"drift_matrix must be finite, but drift_matrix\[0, 0"
        ):
            Linear(bad * torch.ones(2, 2), eye)
        with pytest.raises(
            ValueError, match=r"noise_matrix must be finite, but noise_matrix\[0, 0"
        ):
            Linear(eye, bad * torch.ones(2, 2))
    with pytest.raises(TypeError, match=r"drift_matrix must be a torch\.Tensor, got list"):
        Linear([[1.0]], eye)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="noise_matrix must have a floating-point dtype"):
        Linear(eye, torch.eye(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="copies must be an integer >= 1, got 0"):
        Linear(eye, eye, 0)


@given(entries=st.integers(1, 9))
def test_points_of_another_size_are_rejected(entries: int) -> None:
    process, x = CriticallyDamped(2), torch.zeros(2, entries)
    law = process.transition(0.5)
    for method in (process.drift, lambda v: process.diffuse(v, x), law.mean, law.sample):
        if entries == 4:
            assert method(x).shape == x.shape
        else:
            with pytest.raises(ValueError, match=r"[xv] must have 4 entries per point, got shape"):
                method(x)
    for of_dim in (process.noise, law.covariance, process.drift_divergence):
        if entries != 4:
            with pytest.raises(ValueError, match=f"dim must be 4, .*got {entries}"):
                of_dim(entries)


def test_invalid_times_and_points_are_rejected() -> None:
    x = torch.zeros(2, 2)
    for t, words in ((-1.0, "t = -1.0"), (math.nan, "nan"), (torch.tensor([0.1, -1]), r"t\[1\]")):
        with pytest.raises(ValueError, match=words):
            SWIRL.transition(t)
    law = SWIRL.transition(0.5)
    with pytest.raises(ValueError, match=r"y must have the shape \(2, 2\) of x, got \(3, 2\)"):
        law.log_density(torch.zeros(3, 2), x)
    with pytest.raises(ValueError, match="x must be a batch of points"):
        law.sample(torch.zeros(3))
    with pytest.raises(ValueError, match="one per row: 2 rows, 3 values"):
        SWIRL.transition(torch.ones(3)).mean(x)
    with pytest.raises(ValueError, match="t must be one number for a rule, got 3"):
        SWIRL.transition(torch.ones(3)).quadrature(2, 4)
    with pytest.raises(ValueError, match="nodes must be an integer >= 1, got 0"):
        law.quadrature(2, 0)
    with pytest.raises(ValueError, match="t must be positive if a rule is differentiated in t"):
        grad(lambda s: Semigroup(SWIRL, s)(g)(x).sum())(torch.tensor(0.0))
    with pytest.raises(
        ValueError, match=r"t must be so small that S_t and Σ_t are finite, got 1e\+"
    ):
        UNSTABLE["growing"].transition(1e6)
    with pytest.raises(ValueError, match=r"Σ_t\^\(-1/2\) is finite in torch.float16"):
        CRITICAL.transition(1e-4).log_density(x.half(), x.half())
