"""Polynomials under linear SDEs: the matrices of L and P_t, compared with autodiff and others."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oism import CriticallyDamped, Linear, OrnsteinUhlenbeck, Polynomials, TensorHermite
from oism.basis import WhitenedHermite
from oism.process import (
    AdjointGenerator,
    InfinitesimalGenerator,
    NotAProbabilityError,
    Quadrature,
    Semigroup,
)


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


SYMMETRIC = Linear(matrix([-2.0, 1.0], [1.0, -2.0]), 2 * torch.eye(2).double())
STABLE: dict[str, Linear] = {
    "under-damped": CriticallyDamped(1, c=0.5),
    "critically damped": CriticallyDamped(1),
    "over-damped": CriticallyDamped(1, c=5.0),
    "swirl": Linear(matrix([-1.0, -1.5], [1.5, -1.0]), 2**0.5 * torch.eye(2).double()),
    "sheared": Linear(matrix([-1.0, 2.0], [0.0, -0.5]), matrix([1.0, 0.0, 0.3], [0.4, 0.8, -1.0])),
    "symmetric": SYMMETRIC,
    "two copies": CriticallyDamped(2),
}
OTHERS: dict[str, Linear] = {
    "growing": Linear(matrix([0.6, 0.2], [-0.3, -1.0]), torch.eye(2)),
    "integrator": Linear(matrix([0.0, 1.0], [0.0, 0.0]), matrix([0.0], [1.0])),
    "brownian": Linear(torch.zeros(2, 2), torch.eye(2)),
    "noise in one direction only": Linear(-torch.eye(2), matrix([1.0], [0.0])),
}
ALL = STABLE | OTHERS
every = pytest.mark.parametrize("name", ALL)
stationary = pytest.mark.parametrize("name", STABLE)


def order(process: Linear) -> int:
    return 3 if process.size == 4 else 4


@every
def test_the_matrix_of_the_generator_agrees_with_autodiff(name: str) -> None:
    basis = Polynomials(ALL[name], order(ALL[name]))
    x = normal(5, basis.dim)
    expected = InfinitesimalGenerator(basis.process)(basis)(x)
    torch.testing.assert_close(basis(x) @ basis.generator.mT, expected, rtol=1e-11, atol=1e-11)
    assert basis.is_stationary == (name in STABLE)


@stationary
def test_the_adjoint_is_the_transpose(name: str) -> None:
    basis = Polynomials(STABLE[name], order(STABLE[name]))
    x = normal(5, basis.dim)
    expected = AdjointGenerator(basis.process)(basis)(x)
    torch.testing.assert_close(basis(x) @ basis.adjoint.mT, expected, rtol=1e-11, atol=1e-11)
    symmetric = torch.allclose(basis.generator, basis.adjoint, rtol=0, atol=1e-12)
    assert symmetric == basis.process.is_symmetric


@stationary
def test_degrees_do_not_mix_under_the_stationary_distribution(name: str) -> None:
    basis = Polynomials(STABLE[name], 3)
    degree = basis.indices.sum(dim=1)
    assert not basis.generator[degree[:, None] != degree].any()
    # Its spectrum is that of sums of eigenvalues of F.
    rates = torch.linalg.eigvals(basis.process.drift_matrix).repeat_interleave(basis.process.copies)
    expected = (basis.indices.to(rates) @ rates).sum()
    assert float(basis.generator.trace()) == pytest.approx(float(expected.real), rel=1e-11)


@every
@pytest.mark.parametrize("t", [0.0, 1e-6, 0.7, 3.0])
def test_the_semigroup_agrees_with_quadrature(name: str, t: float) -> None:
    # Gauss's rule for the transition is exact for polynomials.
    basis = Polynomials(ALL[name], order(ALL[name]))
    x = normal(4, basis.dim)
    expected = Semigroup(basis.process, t, rule=Quadrature(order(basis.process)))(basis)(x)
    ours = basis(x) @ basis.semigroup(t).mT
    scale = float(expected.abs().max())
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12 * max(1.0, scale))


def test_symmetric_processes_decay_by_eigenvalues() -> None:
    t = torch.tensor([1e-3, 0.3, 2.0, 9.0], dtype=torch.float64)
    ou = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)
    process = Linear(-0.7 * torch.eye(2).double(), 1.3 * torch.eye(2).double())
    basis = Polynomials(process, 4)
    eigenvalues = torch.cat((torch.zeros(1).double(), TensorHermite(2, 4, ou).eigenvalues))
    expected = torch.diag_embed(torch.exp(t[:, None] * eigenvalues))
    torch.testing.assert_close(basis.semigroup(t), expected, rtol=0, atol=1e-12)
    # If directions have different rates, eigenfunctions are combinations.
    basis, known = Polynomials(SYMMETRIC, 4), WhitenedHermite(SYMMETRIC, 4)
    x = normal(400, 2)
    weights = torch.linalg.lstsq(basis(x), known(x)).solution
    moved = weights.mT @ basis.semigroup(t)
    decayed = torch.exp(t[:, None] * known.eigenvalues)[..., None] * weights.mT
    torch.testing.assert_close(moved, decayed, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["under-damped", "critically damped", "over-damped", "growing"])
def test_evolved_moments_agree_with_a_simulation(name: str) -> None:
    basis = Polynomials(ALL[name], 3)
    start = 0.5 * normal(200_000, basis.dim).exp() - 1.0  # skewed
    x, generator = start, torch.Generator().manual_seed(1)
    steps = 4
    for _ in range(steps):
        x = basis.process.transition(0.2).sample(x, generator=generator)
    expected, values = basis.evolve(basis(start).mean(dim=0), 0.2 * steps), basis(x)
    error = values.mean(dim=0) - expected
    # Paths and averages share their starts, so the error is below that of independent samples.
    deviation = values.std(dim=0) / math.sqrt(len(x))
    assert float((error[1:] / deviation[1:]).abs().max()) < 4.5
    still = basis(start).mean(dim=0) - expected
    assert float((still[1:] / deviation[1:]).abs().max()) > 50, "the moments must change in time"


@settings(max_examples=20)
@given(st.integers(1, 4), st.lists(st.integers(1, 3), max_size=2), st.integers(0, 3))
def test_shapes_of_evolved_moments(n: int, batch: list[int], times: int) -> None:
    basis = Polynomials(STABLE["swirl"], n)
    t = torch.linspace(0, 1, times, dtype=torch.float64) if times else torch.tensor(0.5)
    means = normal(*batch, basis.size)
    evolved = basis.evolve(means, t)
    assert evolved.shape == (*t.shape, *batch, basis.size)
    torch.testing.assert_close(evolved[..., 0], means[..., 0].expand(evolved.shape[:-1]))


@every
def test_derivatives(name: str) -> None:
    basis, x = Polynomials(ALL[name], 3), normal(3, ALL[name].size)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda y: basis._values(basis._table(y[None]))[0]))
    torch.testing.assert_close(basis.gradients(x), jacobian(x), rtol=1e-11, atol=1e-11)
    second = torch.func.vmap(torch.func.hessian(lambda y: basis._table(y[None])[0]))(x)
    laplacians = second.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    torch.testing.assert_close(basis.laplacians(x), laplacians, rtol=1e-11, atol=1e-11)
    alpha = normal(basis.size, seed=1)
    torch.testing.assert_close(basis.series(x, alpha, 1), alpha @ basis.gradients(x))


def test_the_semigroup_does_not_depend_on_the_reference() -> None:
    process, x = STABLE["critically damped"], normal(4, 2)
    stationary = Polynomials(process, 3)
    other = Polynomials(process, 3, matrix([2.0, 0.3], [0.3, 0.5]))
    weights = torch.linalg.lstsq(other(normal(300, 2)), stationary(normal(300, 2))).solution
    ours = stationary(x) @ stationary.semigroup(0.8).mT
    torch.testing.assert_close(other(x) @ other.semigroup(0.8).mT @ weights, ours)


def test_invalid_arguments_are_rejected() -> None:
    process = STABLE["swirl"]
    with pytest.raises(ValueError, match="order must be an integer >= 1, got 0"):
        Polynomials(process, 0)
    with pytest.raises(TypeError, match="process must be of type Linear"):
        Polynomials(OrnsteinUhlenbeck(), 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"covariance must have shape \(2, 2\)"):
        Polynomials(process, 2, torch.eye(3))
    with pytest.raises(ValueError, match="covariance must be positive definite"):
        Polynomials(process, 2, torch.ones(2, 2))
    with pytest.raises(NotAProbabilityError, match="covariance must be the stationary one"):
        _ = Polynomials(OTHERS["growing"], 2).adjoint
    with pytest.raises(NotAProbabilityError, match="covariance must be the stationary one"):
        _ = Polynomials(OTHERS["noise in one direction only"], 2).adjoint
    with pytest.raises(ValueError, match="means must have shape"):
        Polynomials(process, 2).evolve(torch.zeros(4), 1.0)
    with pytest.raises(ValueError, match="t must be so small"):
        Polynomials(OTHERS["growing"], 4).semigroup(1e4)
    with pytest.raises(ValueError, match="t must be in"):
        Polynomials(process, 2).semigroup(-1.0)
