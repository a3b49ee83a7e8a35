"""Densities along the flow, compared with exact ones and each other; they integrate to one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from oism import (
    Brownian,
    Flow,
    Fourier,
    Hermite,
    OrnsteinUhlenbeck,
    TensorHermite,
    Torus,
    VarianceExploding,
    VariancePreserving,
    fit,
)
from oism.flow import (
    Adaptive,
    ClosedForm,
    Divergence,
    EulerMaruyama,
    ExactTrace,
    Heun,
    Hutchinson,
    RungeKutta4,
    Score,
    log_density,
    sample_with_log_density,
)
from oism.process import Clock, IdentityClock, Isotropic
from oism.score import OperatorScore

OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)
NOISINGS: list[tuple[Isotropic, Clock]] = [
    (OrnsteinUhlenbeck(), VariancePreserving(0.1, 40.0)),
    (OU, VariancePreserving(0.1, 60.0)),
    (Brownian(), VarianceExploding(0.05, 20.0)),
]
noisings = pytest.mark.parametrize(("process", "clock"), NOISINGS)
FINE = Adaptive(1e-8, 1e-8)


def law(process: Isotropic, t: Tensor, dim: int, parts: int) -> MixtureSameFamily:
    """A Gaussian mixture with mean 0, noised for a time t."""
    means = torch.randn(
        parts, dim, generator=torch.Generator().manual_seed(dim), dtype=torch.float64
    )
    means = means - means.mean(dim=0)
    deviations = torch.linspace(0.5, 0.9, parts, dtype=torch.float64)
    alpha, noise = process.alpha(t), process.variance(t)
    spread = (alpha**2 * deviations**2 + noise).sqrt()[:, None].expand(parts, dim)
    return MixtureSameFamily(
        Categorical(torch.ones(parts, dtype=torch.float64), validate_args=False),
        Independent(Normal(alpha * means, spread, validate_args=False), 1, validate_args=False),
        validate_args=False,
    )


def score_of(process: Isotropic, dim: int, parts: int) -> Score:
    """∇ log ρ_t by automatic differentiation, twice differentiable."""

    def score(x: Tensor, t: Tensor) -> Tensor:
        recorded = x.requires_grad
        with torch.enable_grad():
            own = x if recorded else x.detach().requires_grad_()
            total = law(process, t, dim, parts).log_prob(own).sum()  # type: ignore[no-untyped-call]
            (slope,) = torch.autograd.grad(total, own, create_graph=recorded)
        return slope.to(x.dtype)

    return score


def log_prob(process: Isotropic, clock: Clock, tau: float, x: Tensor, parts: int) -> Tensor:
    found: Tensor = law(process, clock.time(tau), x.shape[1], parts).log_prob(x)  # type: ignore[no-untyped-call]
    return found


def normal(n: int, *shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, *shape, generator=generator, dtype=torch.float64)


@noisings
@pytest.mark.parametrize(("dim", "parts"), [(1, 1), (1, 2), (2, 3), (5, 1), (5, 2)])
def test_densities_are_exact(process: Isotropic, clock: Clock, dim: int, parts: int) -> None:
    x, flow = normal(6, dim), Flow(score_of(process, dim, parts), process, clock)
    got = log_density(flow, x, method=FINE)
    # The error of the base: at the last time the true distribution still depends on the data.
    z = flow.push(x, method=FINE)
    rest = log_prob(process, clock, 1.0, z, parts) - flow.base.log_density(z)
    exact = log_prob(process, clock, 0.0, x, parts)
    torch.testing.assert_close(got, exact - rest, rtol=0, atol=1e-6)
    if isinstance(process, OrnsteinUhlenbeck):  # at the last time the data have no influence
        torch.testing.assert_close(got, exact, rtol=0, atol=1e-6)
    else:
        torch.testing.assert_close(got, exact, rtol=0, atol=0.02)
        torch.testing.assert_close(log_density(flow, x), got, rtol=0, atol=1e-3)


@noisings
def test_a_scaled_score_has_another_density(process: Isotropic, clock: Clock) -> None:
    right, x = score_of(process, 2, 2), normal(6, 2)
    flow = Flow(lambda x, t: 1.05 * right(x, t), process, clock)
    exact = log_prob(process, clock, 0.0, x, 2)
    assert float((log_density(flow, x) - exact).abs().min()) > 1e-2


@pytest.mark.parametrize("process", [OU, Brownian(), Torus()], ids=repr)
def test_drift_divergence_is_the_trace_of_the_jacobian(process: Isotropic) -> None:
    for shape in ((1,), (3,), (2, 2)):
        x = normal(1, *shape).requires_grad_()
        (slope,) = torch.autograd.functional.jacobian(process.drift, (x,))  # type: ignore[no-untyped-call]
        dim = math.prod(shape)
        expected = float(slope.reshape(dim, dim).trace())
        assert process.drift_divergence(dim) == pytest.approx(expected, rel=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("method", [Adaptive(1e-8, 1e-8), RungeKutta4(80)])
@noisings
def test_forward_and_backward_densities_agree(
    process: Isotropic, clock: Clock, method: Adaptive, generator: torch.Generator
) -> None:
    flow = Flow(score_of(process, 2, 2), process, clock)
    x, made = sample_with_log_density(
        flow, 5, (2,), method=method, generator=generator, dtype=torch.float64
    )
    torch.testing.assert_close(log_density(flow, x, method=method), made, rtol=0, atol=1e-4)
    z = flow.base.sample((5, 2), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(flow.pull(z, method=method), x, rtol=0, atol=1e-7)
    assert float(made.diff().abs().min()) > 1e-3


@cache
def fitted(name: str) -> OperatorScore:
    x = normal(400, 2, seed=4)
    x = torch.stack((x[:, 0], x[:, 1].abs() + 0.4 * x[:, 0]), dim=1)
    return {
        "circle": lambda: fit(x[:, :1], Fourier.lattice(1, 64), clock=VarianceExploding(0.1, 5.0)),
        "torus": lambda: fit(x, Fourier.lattice(2, 16), clock=VarianceExploding(0.2, 5.0)),
        "hermite": lambda: fit(x, Hermite(2, 4, OU)),
        "tensor hermite": lambda: fit(x, TensorHermite(2, 3)),
    }[name]()


def grid(dim: int, side: int) -> Tensor:
    """Evenly spaced points of the torus, ``(side**dim, dim)``."""
    axis = torch.linspace(-math.pi, math.pi, side + 1, dtype=torch.float64)[:-1]
    return torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)


@pytest.mark.parametrize(("name", "dim", "side"), [("circle", 1, 128), ("torus", 2, 32)])
def test_densities_integrate_to_one(name: str, dim: int, side: int) -> None:
    flow, x = Flow(fitted(name)), grid(dim, side)
    density = log_density(flow, x, method=RungeKutta4(40)).exp()
    assert float(density.mean()) * (2 * math.pi) ** dim == pytest.approx(1, abs=1e-4)
    assert float(density.max()) > 5 * float(density.min())
    adaptive = log_density(flow, x).exp()
    assert float(adaptive.mean()) * (2 * math.pi) ** dim == pytest.approx(1, abs=1e-3)
    # It is close to the density of which the first score is the gradient.
    rough = fitted(name).log_ratio(x, fitted(name).times[0])
    rough = torch.softmax(rough, dim=0) * len(x) / (2 * math.pi) ** dim
    assert float((density - rough).abs().mean() / density.mean()) < 0.2


@pytest.mark.parametrize("name", ["circle", "torus", "hermite", "tensor hermite"])
def test_closed_form_and_exact_trace_agree(name: str) -> None:
    score, x = fitted(name), normal(5, fitted_dim(name))
    flow = Flow(score)
    for method in (Heun(5), RungeKutta4(4)):
        closed = log_density(flow, x, method=method, divergence=ClosedForm())
        traced = log_density(flow, x, method=method, divergence=ExactTrace())
        torch.testing.assert_close(closed, traced, rtol=1e-11, atol=1e-10)
        assert torch.equal(log_density(flow, x, method=method), closed), "the default"


def fitted_dim(name: str) -> int:
    return fitted(name).basis.dim


def test_each_divergence_of_a_known_matrix(generator: torch.Generator) -> None:
    matrix = normal(4, 4)

    def score(x: Tensor, t: Tensor) -> Tensor:
        return (x.flatten(1) @ matrix.mT).sin().reshape(x.shape) * t

    x, t = normal(3, 2, 2), torch.tensor(0.3, dtype=torch.float64)
    jacobian = 0.3 * (x.flatten(1) @ matrix.mT).cos()[:, :, None] * matrix
    expected = jacobian.diagonal(dim1=1, dim2=2).sum(dim=1)
    value, trace = ExactTrace().bind(Flow(score, OrnsteinUhlenbeck(), VariancePreserving()), x)(
        x, t
    )
    torch.testing.assert_close(value, score(x, t), rtol=0, atol=0)
    torch.testing.assert_close(trace, expected, rtol=1e-12, atol=1e-12)
    joint = Hutchinson(generator, probes=3).bind(
        Flow(score, OrnsteinUhlenbeck(), VariancePreserving()), x
    )
    signs = torch.empty(3, 3, 2, 2, dtype=torch.float64)
    signs.bernoulli_(generator=torch.Generator().manual_seed(0)).mul_(2).sub_(1)
    flat = signs.flatten(2)
    guess = torch.einsum("pni,nij,pnj->n", flat, jacobian, flat) / 3
    value, first = joint(x, t)
    torch.testing.assert_close(value, score(x, t), rtol=0, atol=0)
    torch.testing.assert_close(first, guess, rtol=1e-12, atol=1e-12)
    assert torch.equal(joint(x, t)[1], first), "the signs are drawn once"
    assert not first.requires_grad
    for divergence in (ExactTrace(), Hutchinson(generator)):
        flow = Flow(lambda x, t: 0 * x + 1, OrnsteinUhlenbeck(), VariancePreserving())
        constant = divergence.bind(flow, x)
        assert not bool(constant(x, t)[1].any())


def test_a_score_without_gradients_is_rejected(generator: torch.Generator) -> None:
    process, clock = NOISINGS[0]
    x = normal(3, 2)

    def exact(x: Tensor, t: Tensor) -> Tensor:
        return -x

    def detached(x: Tensor, t: Tensor) -> Tensor:
        with torch.no_grad():
            return exact(x, t)

    for divergence in (ExactTrace(), Hutchinson(generator)):
        with pytest.raises(ValueError, match="score must be differentiable in x"):
            log_density(Flow(detached, process, clock), x, divergence=divergence, method=Heun(4))
        with torch.inference_mode(), pytest.raises(ValueError, match="inference_mode"):
            log_density(Flow(exact, process, clock), x, divergence=divergence, method=Heun(4))


def test_hutchinson_is_unbiased(generator: torch.Generator) -> None:
    process, clock = NOISINGS[0]
    point, count = normal(1, 2, seed=3), 1500
    flow, method = Flow(score_of(process, 2, 2), process, clock), Heun(25)
    exact = float(log_density(flow, point, method=method))
    spreads = []
    for probes in (1, 4):
        random = Hutchinson(generator, probes=probes)
        found = log_density(flow, point.expand(count, 2), method=method, divergence=random)
        spreads.append(float(found.std()))
        assert abs(float(found.mean()) - exact) < 4 * spreads[-1] / math.sqrt(count)
    assert spreads[0] > 0.01, "it is random"
    assert spreads[1] == pytest.approx(spreads[0] / 2, rel=0.1)
    # In one dimension v² = 1, so the estimate is exact.
    line = Flow(score_of(process, 1, 2), process, clock)
    x = normal(4, 1)
    torch.testing.assert_close(
        log_density(line, x, method=method, divergence=Hutchinson(generator)),
        log_density(line, x, method=method),
    )


class Leaning:
    """A score with a known divergence: that of N(0, M⁻¹), M symmetric, at every time."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix

    def __call__(self, x: Tensor, t: Tensor) -> Tensor:
        return -x @ self.matrix

    def score_and_divergence(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return self(x, t), -self.matrix.trace().expand(len(x))


def leaning() -> Tensor:
    root = 0.3 * normal(4, 4, seed=5)
    return root @ root.mT + torch.eye(4, dtype=torch.float64)


def test_the_variance_of_an_estimate() -> None:
    """Half the sum of squares of the off-diagonal entries of J + Jᵀ; of the residual's J only."""
    matrix, process = leaning(), OU
    bent = torch.diag_embed(torch.ones(3, dtype=torch.float64), 1)  # not symmetric

    def score(x: Tensor, t: Tensor) -> Tensor:
        return -x @ matrix + 0.03 * x @ bent

    flow, x = Flow(score, process, VariancePreserving()), normal(1, 4).expand(4000, 4)
    t = torch.tensor(0.1, dtype=torch.float64)
    exact = process.diffusivity * float((0.03 * bent - matrix).trace())
    deviations = []
    for known, jacobian in ((None, 0.03 * bent - matrix), (Leaning(matrix), 0.03 * bent)):
        signs = Hutchinson(torch.Generator().manual_seed(1), 1, known)
        value, found = signs.bind(flow, x)(x, t)
        torch.testing.assert_close(value, score(x, t), rtol=0, atol=0)
        both = jacobian + jacobian.mT
        variance = 0.5 * (both - both.diag().diag()).square().sum() * process.diffusivity**2
        deviations.append(math.sqrt(float(variance)))
        assert float(found.std()) == pytest.approx(deviations[-1], rel=0.05)
        assert float(found.mean()) == pytest.approx(exact, abs=4 * deviations[-1] / math.sqrt(4000))
    assert deviations[1] < deviations[0] / 10


def test_a_known_score_leaves_nothing_to_estimate(generator: torch.Generator) -> None:
    score = Leaning(leaning())
    flow, x = Flow(score, OU, VariancePreserving()), normal(5, 4)
    method = RungeKutta4(5)
    exact = log_density(flow, x, method=method, divergence=ExactTrace())
    random = log_density(flow, x, method=method, divergence=Hutchinson(generator))
    assert float((random - exact).abs().min()) > 1e-3
    known = log_density(flow, x, method=method, divergence=Hutchinson(generator, known=score))
    torch.testing.assert_close(known, exact, rtol=1e-12, atol=1e-12)


def test_new_signs_at_every_evaluation_average_out() -> None:
    """For a constant Jacobian, k evaluations of equal weight have a k-th of the variance."""
    flow = Flow(Leaning(leaning()), OU, VariancePreserving())
    x = torch.zeros(600, 4, dtype=torch.float64)
    exact = float(log_density(flow, x[:1], method=Heun(20), divergence=ExactTrace()))

    def spread(steps: int, *, fixed: bool) -> float:
        signs = Hutchinson(torch.Generator().manual_seed(2), fixed=fixed)
        # Over the clock of the process itself the weights of all steps are equal.
        even = Flow(flow.score, OU, IdentityClock(flow.clock.time(1.0).item()))
        found = log_density(even, x, method=Heun(steps), divergence=signs)
        assert float(found.mean()) == pytest.approx(exact, abs=4 * float(found.std()) / 600**0.5)
        return float(found.std())

    whole = spread(20, fixed=True)
    assert spread(5, fixed=True) == pytest.approx(whole, rel=1e-6)
    # The weights of Heun's two evaluations are ½ each: 2·(1/(2·20))²·20 = 1/40.
    assert spread(20, fixed=False) == pytest.approx(whole / math.sqrt(40), rel=0.1)
    assert spread(5, fixed=False) == pytest.approx(whole / math.sqrt(10), rel=0.1)


def test_adaptive_methods_get_a_smooth_integrand() -> None:
    flow, x = Flow(Leaning(leaning()), OU, VariancePreserving()), normal(3, 4)
    one, other = (
        log_density(
            flow,
            x,
            method=Adaptive(1e-7, 1e-7),
            divergence=Hutchinson(torch.Generator().manual_seed(0), fixed=fixed),
        )
        for fixed in (False, True)
    )
    assert torch.equal(one, other)


def test_all_randomness_comes_from_the_generator() -> None:
    process, clock = NOISINGS[0]
    flow, x = Flow(score_of(process, 2, 2), process, clock), normal(4, 2)
    before, own = torch.get_rng_state(), torch.Generator().manual_seed(1)

    def estimate(generator: torch.Generator) -> Tensor:
        return log_density(flow, x, method=Heun(5), divergence=Hutchinson(generator))

    first, second = estimate(own), estimate(own)
    assert torch.equal(first, estimate(torch.Generator().manual_seed(1)))
    assert not torch.equal(first, second)
    draws = [
        sample_with_log_density(
            flow, 3, (2,), method=Heun(5), generator=torch.Generator().manual_seed(seed)
        )
        for seed in (1, 1, 2)
    ]
    assert all(torch.equal(one, other) for one, other in zip(draws[0], draws[1], strict=True))
    assert not torch.equal(draws[0][0], draws[2][0])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["circle", "torus", "hermite"])
def test_fixed_steps_give_each_point_a_result_independent_of_others(name: str) -> None:
    flow, x = Flow(fitted(name)), normal(3000, fitted_dim(name)).clamp(-2.5, 2.5)
    method = RungeKutta4(6)
    together = log_density(flow, x, method=method)
    alone = torch.cat([log_density(flow, one[None], method=method) for one in x[:3]])
    torch.testing.assert_close(together[:3], alone, rtol=0, atol=1e-8)
    parts = log_density(flow, x, method=method, chunk=701)
    torch.testing.assert_close(parts, together, rtol=0, atol=1e-8)


def test_chunks_bound_the_batch() -> None:
    sizes: list[int] = []

    def score(x: Tensor, t: Tensor) -> Tensor:
        sizes.append(len(x))
        return -x

    flow, x = Flow(score, OU, VariancePreserving()), normal(7, 2)
    whole = log_density(flow, x, method=Heun(3))
    assert set(sizes) == {7}
    sizes.clear()
    torch.testing.assert_close(log_density(flow, x, method=Heun(3), chunk=3), whole)
    assert set(sizes) == {3, 1}
    sizes.clear()
    draws = [
        sample_with_log_density(
            flow, 7, (2,), method=Heun(3), chunk=chunk, generator=torch.Generator().manual_seed(0)
        )
        for chunk in (3, 100)
    ]
    assert set(sizes) == {3, 1, 7}
    for one, other in zip(*draws, strict=True):
        torch.testing.assert_close(one, other)


def test_points_on_the_torus_may_be_given_modulo_2_pi(generator: torch.Generator) -> None:
    flow, x = Flow(fitted("torus")), normal(5, 2)
    method = RungeKutta4(8)
    here = log_density(flow, x, method=method)
    torch.testing.assert_close(log_density(flow, x + 4 * math.pi, method=method), here)
    y, _ = sample_with_log_density(flow, 200, (2,), method=Heun(8), generator=generator)
    assert bool(Torus().domain.contains(y).all())


@given(
    n=st.integers(0, 4),
    shape=st.lists(st.integers(1, 2), min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    which=st.integers(0, 1),
)
def test_shapes_and_dtypes(n: int, shape: list[int], dtype: torch.dtype, which: int) -> None:
    def score(x: Tensor, t: Tensor) -> Tensor:
        assert x.shape[1:] == tuple(shape)
        assert x.dtype == dtype
        return -x / (4 * OU.alpha(t) ** 2 + OU.variance(t))

    flow, method = Flow(score, OU, VariancePreserving(0.1, 40.0)), RungeKutta4(12)
    divergence = (ExactTrace(), Hutchinson(torch.Generator()))[which]
    x, made = sample_with_log_density(
        flow, n, shape, method=method, divergence=divergence, dtype=dtype
    )
    assert x.shape == (n, *shape)
    found = log_density(flow, x, method=method, divergence=divergence)
    dim = math.prod(shape)  # N(0, 4I), whose Jacobian is diagonal: Hutchinson is exact
    exact = -x.double().flatten(1).square().sum(dim=1) / 8 - 0.5 * dim * math.log(8 * math.pi)
    for result in (made, found):
        assert result.shape == (n,)
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), exact, rtol=2e-3, atol=2e-3)
    assert x.dtype == dtype


def test_progress_bar_is_shown_if_progress_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    flow, x = Flow(lambda x, t: -x, OU, VariancePreserving()), torch.ones(2, 1)
    log_density(flow, x, method=Heun(2), progress=True)
    assert "densities along the flow" in capsys.readouterr().err
    sample_with_log_density(flow, 2, (1,), method=Heun(2), progress=True)
    assert "densities along the flow" in capsys.readouterr().err
    log_density(flow, x, method=Heun(2))
    sample_with_log_density(flow, 2, (1,), method=Heun(2), progress=False)
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


def test_results_do_not_require_gradients() -> None:
    flow = Flow(score_of(OU, 1, 2), OU, VariancePreserving())
    x = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    assert not log_density(flow, x, method=Heun(2)).requires_grad


def test_default_divergence_by_dimension(generator: torch.Generator) -> None:
    plain = Flow(lambda x, t: -x, OU, VariancePreserving())
    for dim in (1, 16):
        x = normal(2, dim)
        found = log_density(plain, x, method=Heun(4))
        traced = log_density(plain, x, method=Heun(4), divergence=ExactTrace())
        assert torch.equal(found, traced)
    many = normal(2, 17)
    with pytest.raises(ValueError, match=r"divergence must be given in 17 dimensions: Hutchinson"):
        log_density(plain, many)
    with pytest.raises(ValueError, match="divergence must be given in 20 dimensions"):
        sample_with_log_density(plain, 2, (4, 5))
    torch.testing.assert_close(
        log_density(plain, many, method=Heun(4), divergence=Hutchinson(generator)),
        log_density(plain, many, method=Heun(4), divergence=ExactTrace()),
    )


@pytest.mark.parametrize(
    ("make", "arguments", "kind", "message"),
    [
        (Hutchinson, (3,), TypeError, "generator must be of type Generator"),
        (Hutchinson, (torch.Generator(), 0), ValueError, "probes must be an integer >= 1"),
        (Hutchinson, (torch.Generator(), 0.5), TypeError, "probes must be an integer >= 1"),
        (Hutchinson, (), TypeError, "generator"),
        (Hutchinson, (torch.Generator(), 1, 5), TypeError, "known must have a method score_and_"),
        (Divergence, (), TypeError, "abstract"),
    ],
)
def test_invalid_divergences_are_rejected(
    make: Callable[..., object], arguments: tuple[object, ...], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        make(*arguments)


def test_invalid_arguments_are_rejected() -> None:
    flow, x = Flow(lambda x, t: -x, OU, VariancePreserving()), torch.ones(3, 1)
    with pytest.raises(TypeError, match=r"score_and_divergence.* for ClosedForm\(\), got function"):
        log_density(flow, x, divergence=ClosedForm())
    with pytest.raises(TypeError, match="divergence must be of type Divergence"):
        log_density(flow, x, divergence="hutchinson")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the class ExactTrace"):
        log_density(flow, x, divergence=ExactTrace)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="method must be of type OrdinaryMethod"):
        log_density(flow, x, method=EulerMaruyama())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="chunk must be an integer >= 1, got 0"):
        log_density(flow, x, chunk=0)
    with pytest.raises(ValueError, match="x must be a batch of points"):
        log_density(flow, x[0])
    with pytest.raises(ValueError, match="x must be finite"):
        log_density(flow, x / 0)
    with pytest.raises(TypeError, match="x must have a floating-point dtype"):
        log_density(flow, x.int())
    with pytest.raises(ValueError, match="n must be an integer >= 0"):
        sample_with_log_density(flow, -1, (1,))
    with pytest.raises(ValueError, match="shape must have at least one axis"):
        sample_with_log_density(flow, 1, ())
    with pytest.raises(ValueError, match="x must have rows of 2 entries"):
        log_density(Flow(fitted("torus")), x)
