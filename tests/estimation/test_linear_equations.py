"""A_t and b_t of linear SDEs in both metrics, compared with quadrature."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from oism import CriticallyDamped, Linear, Polynomials, TensorHermite
from oism._core import quadrature
from oism.basis import Ladder
from oism.basis._hermite import TensorGram, products
from oism.estimation import HermiteFamilyMoments, LinearEquations, gather
from oism.estimation._equations.linear import matched, start
from oism.process import PhaseSpace
from oism.process._covariance import spread
from oism.score import LinearLaw, Metric


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


SWIRL = Linear(matrix([-1.0, -1.5], [1.5, -1.0]), matrix([1.0, 0.2], [0.0, 0.7]))
SPACES: dict[str, Linear | PhaseSpace] = {
    "under-damped, positions": PhaseSpace(CriticallyDamped(1, c=0.5), gamma=0.3),
    "critically damped, positions": PhaseSpace(CriticallyDamped(1), gamma=0.04),
    "over-damped, positions and velocities": CriticallyDamped(1, c=5.0),
    "swirl": SWIRL,
    "growing": Linear(matrix([0.6, 0.2], [-0.3, -1.0]), matrix([0.0], [1.0])),
}
ORDER = 3
TIMES = torch.tensor([0.02, 0.4, 2.0], dtype=torch.float64)
cases = pytest.mark.parametrize("name", SPACES)
metrics = pytest.mark.parametrize("whole", [False, True])


def process_of(space: Linear | PhaseSpace) -> Linear:
    return space.process if isinstance(space, PhaseSpace) else space


def data_for(space: Linear | PhaseSpace) -> Tensor:
    width = space.dim if isinstance(space, PhaseSpace) else space.size
    return normal(5, width).exp() - 1.5


def equations(name: str, whole: bool, order: int = ORDER) -> LinearEquations:
    space = SPACES[name]
    x = data_for(space)
    moments = gather(x, TensorHermite(x.shape[1], order), folds=1)
    assert isinstance(moments, HermiteFamilyMoments)
    standard = moments.standardised()
    process = process_of(space)
    eye = torch.eye(process.size, dtype=torch.float64)
    metric = Metric(eye if whole else process.diffusion(process.size))
    return LinearEquations(order, start(space, standard), metric, standard.averages.total)


RULE = quadrature.product(*quadrature.gauss_hermite(6), 2)


def components(name: str, t: float) -> tuple[Tensor, Tensor]:
    """Return means and the covariance of X_t given each row of the data."""
    space = SPACES[name]
    law, x = process_of(space).transition(t), data_for(space)
    if not isinstance(space, PhaseSpace):
        return law.mean(x), law.covariances
    kick = law.means @ matrix([0.0, 0.0], [0.0, space.gamma]) @ law.means.mT
    return law.mean(torch.cat((x, torch.zeros_like(x)), dim=1)), law.covariances + kick


def law_points(name: str, t: float) -> tuple[Tensor, Tensor]:
    """Return points and weights for X_t: Gauss's rule around every row of the data."""
    centres, covariance = components(name, t)
    nodes, weights = RULE
    points = (centres[:, None] + nodes @ torch.linalg.cholesky(covariance).mT).flatten(0, 1)
    return points, weights.repeat(len(centres)) / len(centres)


@cases
@metrics
def test_mean_covariance_and_moments_agree_with_quadrature(name: str, whole: bool) -> None:
    ours = equations(name, whole)
    for place, t in enumerate(TIMES.tolist()):
        points, weights = law_points(name, t)
        mean, covariance = (part[place] for part in ours.law.at(TIMES)[:2])
        torch.testing.assert_close(mean, weights @ points)
        apart = points - mean
        torch.testing.assert_close(covariance, (weights[:, None] * apart).mT @ apart)
        whiten, _ = ours.metric.whiten(covariance)
        exact = weights @ products(apart @ whiten.mT, ours.ladder.indices)
        torch.testing.assert_close(ours.evolved(TIMES)[place], exact, rtol=0, atol=1e-10)


@cases
@metrics
def test_equations_agree_with_their_definition(name: str, whole: bool) -> None:
    # A = E[∇φᵀR∇φ], b = E[∇·R∇φ - ⟨RC⁻¹(x - m), ∇φ⟩], derivatives in x by autodiff.
    ours = equations(name, whole)
    matrices, rights = ours.at(TIMES)
    metric = ours.metric.matrix
    for place, t in enumerate(TIMES.tolist()):
        points, weights = law_points(name, t)
        mean, covariance = (part[place] for part in ours.law.at(TIMES)[:2])
        whiten, _ = ours.metric.whiten(covariance)

        def functions(x: Tensor, mean: Tensor = mean, whiten: Tensor = whiten) -> Tensor:
            return products(((x - mean) @ whiten.mT)[None], ours.indices)[0]

        slopes = torch.func.vmap(torch.func.jacrev(functions))(points)
        bends = torch.func.vmap(torch.func.hessian(functions))(points)
        form = torch.einsum("n,nki,ij,nlj->kl", weights, slopes, metric, slopes)
        pull = (points - mean) @ torch.linalg.inv(covariance) @ metric
        terms = torch.einsum("nkij,ij->nk", bends, metric)
        terms = terms - torch.einsum("nki,ni->nk", slopes, pull)
        scale = float(form.abs().max())
        torch.testing.assert_close(matrices[place], form, rtol=0, atol=1e-9 * scale)
        torch.testing.assert_close(rights[place], weights @ terms, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("name", [name for name in SPACES if name != "growing"])  # it is narrow
@metrics
def test_the_solution_minimises_the_error_in_the_metric(name: str, whole: bool) -> None:
    # E‖R^½(∇f - s̃)‖² with the exact s̃ of the mixture is minimal if E[∇φᵀR(∇f - s̃)] = 0.
    ours, t = equations(name, whole), TIMES[2:]
    alpha = -torch.linalg.solve(*ours.at(t))[0]
    mean, covariance = (part[0] for part in ours.law.at(t)[:2])
    whiten, _ = ours.metric.whiten(covariance)
    mixture = torch.distributions.MultivariateNormal(*components(name, float(t)))
    gaussian = torch.distributions.MultivariateNormal(mean, covariance)

    def log_ratio(x: Tensor) -> Tensor:
        each: Tensor = mixture.log_prob(x)  # type: ignore[no-untyped-call]
        whole: Tensor = gaussian.log_prob(x)  # type: ignore[no-untyped-call]
        return torch.logsumexp(each, dim=0) - math.log(len(each)) - whole

    line = torch.linspace(-9, 9, 241, dtype=torch.float64)  # the trapezoidal rule
    points = mean + torch.cartesian_prod(line, line) @ torch.linalg.inv(whiten).mT
    weights = torch.func.vmap(log_ratio)(points) + gaussian.log_prob(points)  # type: ignore[no-untyped-call]
    weights = weights.exp()
    assert float(weights.sum() * 0.075**2 / whiten.det().abs()) == pytest.approx(1, abs=1e-9)
    weights = weights / weights.sum()
    exact = torch.func.vmap(torch.func.grad(log_ratio))(points)
    u = (points - mean) @ whiten.mT
    slopes = torch.func.vmap(torch.func.jacrev(lambda y: products(y[None], ours.indices)[0]))(u)
    slopes = slopes @ whiten

    def gradient(residual: Tensor) -> float:
        terms = torch.einsum("n,nki,ij,nj->k", weights, slopes, ours.metric.matrix, residual)
        return float(terms.abs().max())

    assert gradient(alpha @ slopes - exact) < 1e-7 * gradient(exact)


def gaussian_fit(process: Linear, t: float, part: str) -> tuple[Tensor, Tensor]:
    """Return G∇log ρ_t of a Gaussian: fitted with one form of b, and exact."""
    basis, dim = Polynomials(process, 2), process.size
    mean, covariance = normal(dim, seed=4), 0.3 * torch.eye(dim).double() + 0.1
    points = mean + normal(9, dim) @ torch.linalg.cholesky(covariance).mT
    # Its moments up to degree two, by an exact rule.
    nodes, weights = quadrature.product(*quadrature.gauss_hermite(3), dim)
    begin = weights @ basis(mean + nodes @ torch.linalg.cholesky(covariance).mT)
    means = basis.evolve(begin, t)
    metric = Metric(process.diffusion(dim))
    whiten = spread(basis._whitener, process.copies)
    directions = whiten @ metric.turn.mT @ metric._root
    ladder: Ladder = basis.ladder
    form, half = matched(ladder.slopes(directions.mT), TensorGram(dim, 1, 2)(means), means)
    right = {"L": basis.generator @ means, "L*": basis.adjoint @ means, "½(L + L*)": half}[part]
    torch.testing.assert_close(half, 0.5 * (basis.generator + basis.adjoint) @ means)
    solution = -torch.linalg.pinv(form, rtol=1e-10) @ right  # without the kernel of A
    ours = basis.series(points, solution, derivative=1) + process.invariant.score(points)
    law = process.transition(t)
    power = spread(law.means, process.copies)
    precision = torch.linalg.inv(power @ covariance @ power.mT + law.covariance(dim))
    exact = -(points - power @ mean) @ precision
    return process.diffuse(ours, points), process.diffuse(exact, points)


@pytest.mark.parametrize(
    "process",
    [CriticallyDamped(1, c=0.5), CriticallyDamped(1), CriticallyDamped(1, c=5.0), SWIRL,
     CriticallyDamped(2)],
)  # fmt: skip
@pytest.mark.parametrize("t", [0.1, 0.7])
def test_the_mean_of_generator_and_adjoint_gives_the_right_hand_side(
    process: Linear, t: float
) -> None:
    ours, exact = gaussian_fit(process, t, "½(L + L*)")
    torch.testing.assert_close(ours, exact, rtol=0, atol=1e-12 * float(exact.abs().max()))
    for wrong in ("L", "L*"):
        ours, exact = gaussian_fit(process, t, wrong)
        assert float((ours - exact).abs().max()) > 0.05 * float(exact.abs().max())


def test_functions_of_positions_only_are_left_out() -> None:
    damped = equations("critically damped, positions", whole=False)
    assert damped.metric.hidden == 1
    assert len(damped.indices) == 9 - ORDER  # u₁, u₁², u₁³ depend on the position only
    torch.testing.assert_close(damped.metric.projection, matrix([0.0, 0.0], [0.0, 1.0]))
    assert len(equations("critically damped, positions", whole=True).indices) == 9
    assert len(equations("swirl", whole=False).indices) == 9
    smallest = torch.linalg.eigvalsh(damped.at(TIMES)[0])[:, 0]
    assert bool((smallest > 0).all())


def test_independent_velocities_have_product_moments() -> None:
    # Positions with velocities N(0, γ) have the moments of data with such velocities.
    space = PhaseSpace(CriticallyDamped(1), gamma=0.09)
    x = data_for(space)
    # Every position with three velocities, which have the moments of N(0, 1) up to degree 5.
    velocity = torch.tensor([-(3.0**0.5), 0.0, 3.0**0.5], dtype=torch.float64) * 0.3
    full = torch.cat((x.repeat_interleave(3, dim=0), velocity.repeat(5)[:, None]), dim=1)
    weights = torch.tensor([1.0, 4.0, 1.0], dtype=torch.float64).repeat(5)
    parts = []
    for given, law in ((x, space), (full, space.process)):
        own = weights if given is full else None
        moments = gather(given, TensorHermite(given.shape[1], 3), folds=1, sample_weight=own)
        assert isinstance(moments, HermiteFamilyMoments)
        standard = moments.standardised()
        metric = Metric(space.process.diffusion(2))
        beginning: LinearLaw = start(law, standard)
        parts.append(LinearEquations(3, beginning, metric, standard.averages.total).at(TIMES))
    for one, other in zip(*parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_metric_of_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match="metric must not be zero"):
        Metric(torch.zeros(2, 2, dtype=torch.float64))
