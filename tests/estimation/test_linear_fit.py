"""Scores under linear SDEs, compared with autodiff, exact Gaussians and other fits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oism import (
    CriticallyDamped,
    Flow,
    Linear,
    Logarithmic,
    OrnsteinUhlenbeck,
    TensorHermite,
    fit,
    fit_linear,
    storage,
)
from oism.basis import WhitenedHermite
from oism.estimation import (
    Modulation,
    PlacedKnots,
    TensorHermiteMoments,
    fit_linear_moments,
)
from oism.flow import Adaptive, log_density
from oism.process import (
    IdentityClock,
    NotAProbabilityError,
    PhaseSpace,
    Quadrature,
    Semigroup,
    Whitening,
)
from oism.score import LinearScore, OperatorScore


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def skewed(n: int = 400, dim: int = 2) -> Tensor:
    x = normal(n, dim, seed=5)
    return torch.cat((x[:, :1], x[:, 1:].abs() + 0.4 * x[:, :1]), dim=1)


SWIRL = Linear(matrix([-1.0, -1.5], [1.5, -1.0]), matrix([1.0, 0.2], [0.0, 0.7]))
CASES: dict[str, tuple[Linear | PhaseSpace, int, bool]] = {
    "damped, one position": (PhaseSpace(CriticallyDamped(1), gamma=0.3), 4, False),
    "damped, one position, whole": (PhaseSpace(CriticallyDamped(1), gamma=0.3), 4, True),
    "damped, two positions": (PhaseSpace(CriticallyDamped(2)), 3, False),
    "damped, given velocities": (CriticallyDamped(1, c=5.0), 3, False),
    "swirl": (SWIRL, 3, False),
    "swirl, gaussian": (SWIRL, 2, True),
}
cases = pytest.mark.parametrize("name", CASES)
TIMES = torch.tensor([0.01, 0.02, 0.1, 0.3, 0.05, 1.0], dtype=torch.float64)


@cache
def fitted(name: str) -> LinearScore:
    space, order, whole = CASES[name]
    width = space.dim if isinstance(space, PhaseSpace) else space.size
    data = skewed(dim=2)[:, 2 - width :]
    return fit_linear(data, space, order, whole=whole)


def points(name: str) -> Tensor:
    """Some inside the range of the data, two outside of it."""
    dim = fitted(name).basis.dim
    return torch.cat((0.5 * normal(4, dim), 4 + normal(2, dim, seed=1)))


@cases
def test_divergences_agree_with_autodiff_of_the_score(name: str) -> None:
    score, x = fitted(name), points(name).requires_grad_()
    value = score.score(x, TIMES)
    rows = [
        torch.autograd.grad(value[:, i].sum(), x, retain_graph=True, materialize_grads=True)[0]
        for i in range(score.basis.dim)
    ]
    jacobian, x = torch.stack(rows, dim=1), x.detach()
    trace = jacobian.diagonal(dim1=1, dim2=2).sum(dim=1)
    torch.testing.assert_close(score.divergence(x, TIMES), trace, rtol=1e-9, atol=1e-9)
    diffusion = score.basis.process.diffusion(score.basis.dim)
    value, diffused = score.score_and_diffused_divergence(x, TIMES)
    expected = torch.einsum("ij,nji->n", diffusion, jacobian)
    torch.testing.assert_close(diffused, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(value, score.score(x, TIMES))


@pytest.mark.parametrize("name", ["damped, one position, whole", "swirl", "swirl, gaussian"])
def test_the_score_is_the_gradient_of_the_log_density(name: str) -> None:
    score, x = fitted(name), points(name).requires_grad_()
    (slope,) = torch.autograd.grad(score.log_ratio(x, TIMES).sum(), x)
    expected = slope + score.basis.process.invariant.score(x.detach())
    torch.testing.assert_close(score.score(x, TIMES), expected, rtol=1e-9, atol=1e-9)


@cases
def test_one_time_or_one_per_row_and_float32(name: str) -> None:
    score, x = fitted(name), points(name)
    together = score.score(x, TIMES)
    for row, t in enumerate(TIMES.tolist()):
        torch.testing.assert_close(score.score(x[row : row + 1], t), together[row : row + 1])
    torch.testing.assert_close(
        score.score(x.float(), TIMES), together.float(), rtol=2e-3, atol=2e-3
    )


@cases
def test_a_saved_score_is_loaded_unchanged(name: str, tmp_path: Path) -> None:
    score, x = fitted(name), points(name)
    score.save(tmp_path / "score.safetensors")
    again = storage.load(tmp_path / "score.safetensors", expected=OperatorScore)
    assert isinstance(again, LinearScore)
    assert torch.equal(again.score(x, TIMES), score.score(x, TIMES))
    assert type(again.basis.process) is type(score.basis.process)
    if score.basis.order > 2:
        exact = again.coefficients(TIMES, exact=True)
        torch.testing.assert_close(exact, score.coefficients(TIMES, exact=True))


def test_the_score_along_positions_is_zero() -> None:
    score = fitted("damped, two positions")
    x = points("damped, two positions")
    assert not score.score(x, TIMES)[:, :2].any()
    with pytest.raises(ValueError, match="metric must be definite"):
        score.log_ratio(x, TIMES)
    # The whole score agrees approximately along velocities: both metrics estimate the same score.
    whole = fitted("damped, one position, whole").score(0.3 * normal(50, 2), 0.5)
    along = fitted("damped, one position").score(0.3 * normal(50, 2), 0.5)
    assert float((whole - along)[:, 1].abs().max()) < 0.1 * float(whole[:, 1].abs().max())
    assert float(whole[:, 0].abs().max()) > 0.1


@pytest.mark.parametrize("t", [0.05, 0.4])
def test_symmetric_processes_agree_with_the_equations_of_eigenfunctions(t: float) -> None:
    """With different rates in each direction: α = -A⁻¹b, b = λe^{λt}E[φ], A by quadrature."""
    process = Linear(matrix([-2.0, 1.0], [1.0, -2.0]), matrix([2.0, 0.0], [0.0, 2.0]))
    data, basis = skewed(60), WhitenedHermite(process, order=3)
    assert Whitening(process).rates.tolist() == pytest.approx([1.0, 3.0])
    metric = process.diffusion(2)

    def products(y: Tensor) -> Tensor:
        slopes = basis.gradients(y)
        return (slopes @ metric @ slopes.mT).flatten(1)

    noised = Semigroup(process, t, Quadrature(8))(products)(data)
    gram = noised.mean(dim=0).reshape(basis.size, basis.size)
    decay = basis.eigenvalues * (basis.eigenvalues * t).exp()
    alpha = -torch.linalg.solve(gram, decay * basis(data).mean(dim=0))
    x = data[:10]
    expected = process.invariant.score(x) + torch.einsum("k,nki->ni", alpha, basis.gradients(x))
    found = fit_linear(data, process, order=3, ridge=0.0, knots=PlacedKnots(1e-6))
    torch.testing.assert_close(found.score(x, t), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_ornstein_uhlenbeck_is_a_special_case(order: int) -> None:
    # The polynomials are the same in other coordinates: without a ridge the estimates agree.
    process = Linear(-0.7 * torch.eye(2).double(), 1.3 * torch.eye(2).double())
    basis = TensorHermite(2, order, OrnsteinUhlenbeck(theta=0.7, sigma=1.3))
    clock = Logarithmic(first=0.05, last=6.0)
    data, x = skewed(), 0.7 * normal(20, 2, seed=2)
    ours = fit_linear(data, process, order, clock=clock, ridge=0.0)
    known = fit(data, basis, clock=clock, ridge=0.0)
    for t in (0.0, 0.03, 0.4, 2.0):
        # Both are interpolated in tables with different knots, to a relative error of 1e-3.
        torch.testing.assert_close(ours.score(x, t), known.score(x, t), rtol=2e-3, atol=2e-3)


@settings(max_examples=10)
@given(st.integers(1, 3), st.integers(0, 50), st.sampled_from([0.5, 2.0, 5.0]), st.booleans())
def test_order_two_is_the_exact_gaussian(dim: int, seed: int, c: float, whole: bool) -> None:
    space = PhaseSpace(CriticallyDamped(dim, c=c), gamma=0.2)
    data = normal(30, dim, seed=seed) @ normal(dim, dim, seed=seed + 1) + 2
    score = fit_linear(data, space, 2, whole=whole)
    start = torch.block_diag(  # type: ignore[no-untyped-call]
        torch.cov(data.mT, correction=0).reshape(dim, dim), 0.2 * torch.eye(dim).double()
    )
    x = normal(5, 2 * dim, seed=seed + 2)
    for t in (0.0, 1e-4, 0.7, 3.0):
        law = space.process.transition(t)
        mean = law.mean(torch.cat((data.mean(dim=0), torch.zeros(dim).double()))[None])
        power = torch.kron(law.means, torch.eye(dim).double())
        covariance = power @ start @ power.mT + law.covariance(2 * dim)
        exact = -torch.linalg.solve(covariance, (x - mean).mT).mT
        if not whole:
            exact[:, :dim] = 0
        ours = score.score(x, t)
        assert float((ours - exact).abs().max()) < 1e-9 * float(exact.abs().max() + 1)


def test_order_two_in_many_dimensions() -> None:
    data = normal(300, 60) * torch.linspace(0.1, 2, 60).double()
    space = PhaseSpace(CriticallyDamped(60))
    score = fit_linear(data, space, 2)
    assert score.score(normal(3, 120), 0.5).shape == (3, 120)
    value, diffused = score.score_and_diffused_divergence(normal(3, 120), 0.5)
    assert bool(value.isfinite().all() and diffused.isfinite().all())


def test_higher_orders_fit_a_gaussian_exactly() -> None:
    # Averages of a Gaussian vanish from degree three on; these points have its moments.
    third = 3.0**0.5
    line = torch.tensor([-third, 0.0, third], dtype=torch.float64)
    weights = torch.tensor([1.0, 4.0, 1.0], dtype=torch.float64)
    data = torch.cartesian_prod(line, line) @ matrix([0.6, 0.2], [0.0, 0.3])
    together = torch.cartesian_prod(weights, weights).prod(dim=1)
    space = PhaseSpace(CriticallyDamped(2))
    clock = Logarithmic(first=0.1, last=12.0)
    # Degree three needs moments up to degree four, which Gauss's rule of three points has.
    score = fit_linear(data, space, 3, clock=clock, ridge=0.0, sample_weight=together)
    assert float(score.coefficients(TIMES).abs().max()) < 1e-11


def test_processes_without_a_stationary_distribution_can_be_fitted() -> None:
    growing = Linear(matrix([0.6, 0.2], [-0.3, -1.0]), matrix([0.5, 0.0], [0.0, 1.0]))
    score = fit_linear(skewed(), growing, 3, clock=IdentityClock(2.0))
    assert bool(score.score(0.5 * normal(4, 2), 1.5).isfinite().all())
    with pytest.raises(NotAProbabilityError, match="drift_matrix must be Hurwitz"):
        _ = Flow(score).base
    with pytest.raises(NotAProbabilityError, match="drift_matrix must be Hurwitz"):
        fit_linear(skewed(), growing, 3)
    brownian = Linear(torch.zeros(2, 2), torch.eye(2))
    score = fit_linear(skewed(), brownian, 2, clock=IdentityClock(2.0))
    with pytest.raises(NotAProbabilityError, match="process must have a stationary distribution"):
        _ = Flow(score).base


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_data_in_a_plane_have_scores_at_all_times(unit: float) -> None:
    data = unit * skewed()[:, :1].repeat(1, 2)
    for space in (PhaseSpace(CriticallyDamped(2)), CriticallyDamped(1)):
        score = fit_linear(data, space, 3, whole=True)
        for t in (0.0, 1e-6, 0.1, 5.0):
            assert bool(score.score(normal(5, score.basis.dim), t).isfinite().all())


def test_shrinkage_and_weights_have_an_effect() -> None:
    space, x = PhaseSpace(CriticallyDamped(1)), normal(5, 2)
    data = skewed()[:, 1:]
    plain = fit_linear(data, space, 4).score(x, 0.3)
    shrunk = fit_linear(data, space, 4, shrinkage=Modulation()).score(x, 0.3)
    assert 0 < float((plain - shrunk).abs().max()) < 1
    twice = fit_linear(data.repeat(2, 1), space, 4, ridge=0.1).score(x, 0.3)
    weighted = fit_linear(data, space, 4, ridge=0.1, sample_weight=torch.full((400,), 2.0))
    torch.testing.assert_close(weighted.score(x, 0.3), twice)


def test_at_the_end_of_the_default_clock_the_data_have_no_influence() -> None:
    for c in (0.5, 2.0, 5.0):
        process = CriticallyDamped(1, c=c)
        score = fit_linear(normal(50, 2), process, 2)
        left = process.transition(score.clock.time(1.0)).means
        assert float(left.abs().max()) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "shift"), [(1e4, 0.0), (1.0, 1e3), (1e-3, 0.0)])
def test_data_far_from_the_stationary_distribution_are_sampled(scale: float, shift: float) -> None:
    data = scale * normal(300, 2, seed=1) + shift
    flow = Flow(fit_linear(data, SWIRL, order=2))
    law = torch.distributions.MultivariateNormal(data.mean(dim=0), torch.cov(data.mT, correction=0))
    found = log_density(flow, data[:5], method=Adaptive(1e-8, 1e-8 * min(1.0, scale)))
    expected = law.log_prob(data[:5])  # type: ignore[no-untyped-call]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


def unread() -> Iterator[Tensor]:
    """Yield no batch of data: it must not be asked for one."""
    pytest.fail("rows were read")
    yield


def test_equations_that_are_too_large_are_refused_before_rows_are_read() -> None:
    with pytest.raises(ValueError, match="order must be smaller in 12 dimensions, got 3"):
        fit_linear(unread(), PhaseSpace(CriticallyDamped(6)), 3)
    moments = TensorHermiteMoments(TensorHermite(6, 3)).update(normal(20, 6))
    with pytest.raises(ValueError, match="order must be smaller in 12 dimensions, got 3"):
        fit_linear_moments(moments, PhaseSpace(CriticallyDamped(6)))


def test_invalid_arguments_are_rejected() -> None:
    space = PhaseSpace(CriticallyDamped(2))
    with pytest.raises(ValueError, match="order must be an integer >= 2, got 1"):
        fit_linear(skewed(), space, 1)
    with pytest.raises(ValueError, match="order must be an integer >= 2, got 0"):
        fit_linear(skewed(), space, 0)
    with pytest.raises(ValueError, match="order must be smaller in 10 dimensions, got 4"):
        fit_linear(normal(30, 5), PhaseSpace(CriticallyDamped(5)), 4)
    with pytest.raises(ValueError, match=r"data must have 2 columns, got shape \(10, 3\)"):
        fit_linear(normal(10, 3), space, 2)
    with pytest.raises(ValueError, match="data must have 4 columns: for positions without veloc"):
        fit_linear(skewed(), space.process, 2)
    with pytest.raises(ValueError, match="data must have 2 columns: positions only"):
        fit_linear(normal(10, 4), space, 2)
    with pytest.raises(ValueError, match="data must have rows of 2 entries"):
        fit_linear(iter([normal(10, 3)]), space, 2)
    with pytest.raises(ValueError, match="space must have noise, but its noise_matrix is zero"):
        fit_linear(skewed(), Linear(-torch.eye(2), torch.zeros(2, 1)), 2, clock=IdentityClock(1.0))
    with pytest.raises(NotAProbabilityError, match=r"eigenvalue 1.*a clock must be given"):
        fit_linear(skewed(), Linear(torch.eye(2), torch.eye(2)), 2)
    with pytest.raises(TypeError, match="space must be a Linear process or a PhaseSpace"):
        fit_linear(skewed(), OrnsteinUhlenbeck(), 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ridge must be"):
        fit_linear(skewed(), space, 3, ridge=-1.0)
    with pytest.raises(ValueError, match=r"t must be in \[0, 10\.3"):
        fitted("damped, two positions").score(normal(1, 4), 13.0)
    with pytest.raises(ValueError, match="x must have rows of 4 entries"):
        fitted("damped, two positions").score(normal(1, 2), 1.0)
    halted = Linear(-torch.eye(2), matrix([1.0], [0.0]))  # Σ∞ is singular
    score = fit_linear(skewed(), halted, 2, clock=IdentityClock(60.0))
    assert bool(score.score(normal(1, 2), 1.0).isfinite().all())
    with pytest.raises(ValueError, match="covariance must be positive definite"):
        Flow(score).base.log_density(normal(1, 2))
