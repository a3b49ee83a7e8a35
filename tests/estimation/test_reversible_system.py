"""The matrix-free system of a basis with transforms, against dense algebra."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from oism import load
from oism.basis import Averages, SphericalHarmonics
from oism.estimation import (
    CrossValidation,
    KnownKnots,
    Modulation,
    ProductEquations,
    ReversibleSystem,
    SampleMeans,
    fit,
    gather,
)
from oism.estimation._equations.reversible import ReversibleEquations
from oism.flow import ExactTrace, RungeKutta4, StochasticHeun
from oism.flow import log_density as along
from oism.score import RIDGES, OperatorScore

BASIS = SphericalHarmonics(5)


def points(n: int, seed: int = 0) -> Tensor:
    """Return a von Mises-Fisher-like cluster with κ = 10 around z, exact."""
    source = torch.Generator().manual_seed(seed)
    u, turn = torch.rand(2, n, generator=source, dtype=torch.float64)
    z = 1 + torch.log(u + (1 - u) * math.exp(-20)) / 10
    s, turn = (1 - z * z).clamp(min=0).sqrt(), 2 * math.pi * turn
    return torch.stack((s * turn.cos(), s * turn.sin(), z), dim=1)


def log_density(x: Tensor) -> Tensor:
    return math.log(10 / (2 * math.pi * (1 - math.exp(-20)))) + 10 * (x[:, 2] - 1)


def system(n: int = 300) -> ReversibleSystem:
    found = gather(points(n), BASIS).system(SampleMeans())
    assert isinstance(found, ReversibleSystem)
    return found


def test_averages_are_those_of_the_values() -> None:
    x, wide = points(50), BASIS.doubled()
    direct = wide.values(x).mean(dim=0)
    torch.testing.assert_close(system(50).averages.total, direct, rtol=0, atol=1e-12)


@pytest.mark.parametrize("t", [0.0, 0.05, 2.0])
def test_the_operator_is_the_dense_matrix(t: float) -> None:
    means, times = system().averages.total, torch.tensor([t], dtype=torch.float64)
    dense = ProductEquations(BASIS, means)
    free = ReversibleEquations(BASIS, BASIS.doubled().eigenvalues, means)
    identity = torch.eye(BASIS.size, dtype=torch.float64)
    operator = free.operator(times)
    columns = torch.cat([operator(row[None]) for row in identity])
    torch.testing.assert_close(columns, dense.energies(times)[0], rtol=0, atol=1e-11)
    torch.testing.assert_close(free.right(times)[0], dense.right(times)[0, 1:], rtol=0, atol=1e-12)


def test_exact_solutions_solve_the_penalised_equations() -> None:
    one, t = system(), torch.tensor([0.03, 0.3], dtype=torch.float64)
    ridge, level = torch.tensor([1e-3, 1e-2]).double(), torch.tensor([0.0, 0.5]).double()
    alpha = one.solve(t, ridge, level).alpha
    dense = ProductEquations(BASIS, one.averages.total)
    penalty = one.penalty(level, BASIS.eigenvalues) * -BASIS.eigenvalues
    matrix = dense.energies(t) + torch.diag_embed(ridge[:, None] * penalty)
    exact = torch.linalg.solve(matrix, -dense.right(t)[:, 1:])
    torch.testing.assert_close(alpha, exact, rtol=0, atol=1e-8)
    norm = (alpha * (dense.energies(t) @ alpha[..., None])[..., 0]).sum(dim=1).sqrt()
    torch.testing.assert_close(one.norm(t, alpha), norm, rtol=1e-8, atol=0)


def test_losses_are_those_of_held_out_rows() -> None:
    one, t = system(), torch.tensor([0.02, 0.2], dtype=torch.float64)
    losses = one.losses(t).values
    level = int(torch.isfinite(losses[0, 0]).any(dim=1).nonzero()[0])
    place = int(torch.isfinite(losses[0, 0, level]).nonzero()[-3])
    training = ProductEquations(BASIS, one.averages.training[0])
    heldout = ProductEquations(BASIS, one.averages.heldout[0])
    penalty = one.penalty(torch.tensor([float(level)]), BASIS.eigenvalues) * -BASIS.eigenvalues
    matrix = training.energies(t[:1])[0] + torch.diag(RIDGES[place] * penalty[0])
    alpha = torch.linalg.solve(matrix, -training.right(t[:1])[0, 1:])
    value = alpha @ heldout.energies(t[:1])[0] @ alpha + 2 * alpha @ heldout.right(t[:1])[0, 1:]
    assert abs(float(losses[0, 0, level, place] - value)) < 1e-2 * abs(float(value))
    assert bool(torch.isfinite(losses).flatten(2).any(dim=2).all())  # something at every time


@pytest.fixture(scope="module")
def score() -> OperatorScore:
    basis = SphericalHarmonics(12)
    return fit(points(3000), basis, ridge=CrossValidation(times=17), knots=KnownKnots())


def test_a_fit_is_close_to_the_truth(score: OperatorScore) -> None:
    x = points(500, seed=9)
    found = score.log_density(x, method=RungeKutta4(32))
    gap = log_density(x) - found
    assert abs(float(gap.mean())) < 0.02
    assert float(gap.abs().mean()) < 0.12


def test_densities_integrate_to_one(score: OperatorScore) -> None:
    x, weights = SphericalHarmonics(12).rule()
    density = score.log_density(x, method=RungeKutta4(48)).exp()
    assert abs(float((weights * density).sum()) * 4 * math.pi - 1) < 1e-3


@pytest.mark.parametrize("method", [RungeKutta4(32), StochasticHeun(128)])
def test_samples_follow_the_density(
    score: OperatorScore, method: RungeKutta4 | StochasticHeun
) -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = score.sample(2000, generator, method=method).double()
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(2000).double(), rtol=0, atol=1e-5)
    truth = points(2000, seed=4)
    error = (drawn[:, 2].mean() - truth[:, 2].mean()) / truth[:, 2].std() * math.sqrt(1000)
    assert abs(float(error)) < 4.5
    assert abs(float(drawn[:, 0].mean() - 0.0)) < 0.05


def test_the_likelihood_has_no_divergence_error(score: OperatorScore) -> None:
    """Lu along the path, and the divergence by differentiation, are the same density."""
    x = points(3, seed=2)
    closed = along(score.flow, x, method=RungeKutta4(32))
    traced = along(score.flow, x, method=RungeKutta4(32), divergence=ExactTrace())
    torch.testing.assert_close(closed, traced, rtol=0, atol=1e-3)


def test_saving(score: OperatorScore, tmp_path: Path) -> None:
    x = points(20, seed=3)
    score.save(tmp_path / "score.safetensors")
    again = load(tmp_path / "score.safetensors")
    assert torch.equal(again.score(x, 0.1), score.score(x, 0.1))
    assert again.coefficients(0.2, exact=True).shape == (again.basis.size,)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="variances"):
        fit(points(20), BASIS, shrinkage=Modulation())
    with pytest.raises(ValueError, match="one average for each of the 120"):
        ReversibleSystem(BASIS, Averages.of_all(torch.zeros(5).double()))
