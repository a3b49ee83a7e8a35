"""Products of eigenfunctions, compared with averages over noised points, and both objectives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from oism import Fourier, Hermite, OrnsteinUhlenbeck, TensorHermite
from oism.basis import Basis, OrthogonalFrame, WhitenedHermite
from oism.estimation import (
    FourierEquations,
    FourierMoments,
    ProductEquations,
    ProductMoments,
    fit_ratio,
)
from oism.estimation._moments.gathering import gather_into
from oism.objectives import ImplicitScoreMatching, TimeScoreMatching
from oism.process import Brownian, Linear, Quadrature

OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)
TURN = OrthogonalFrame(torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64))
BASES: dict[str, Basis] = {
    "line": TensorHermite(1, 5),
    "plane, turned": TensorHermite(2, 3, OU, TURN),
    "space": TensorHermite(3, 2, OU),
    "circle": Fourier.lattice(1, 16),
    "torus": Fourier.lattice(2, 5),
    "asymmetric rates": WhitenedHermite(
        Linear(torch.tensor([[-2.0, 1.0], [1.0, -2.0]]), 2 * torch.eye(2)), 3
    ),
    "some frequencies": Fourier(torch.tensor([[0.0, -1.0], [2.0, 1.0], [-3.0, 1.0]])),
}
every_basis = pytest.mark.parametrize("name", BASES)
TIMES = torch.tensor([0.0, 0.05, 0.8], dtype=torch.float64)


def data(basis: Basis, n: int = 30) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return 0.3 + 0.8 * torch.randn(n, basis.dim, generator=generator, dtype=torch.float64)


def equations_of(x: object, basis: Basis, weights: object = None) -> ProductEquations:
    moments = gather_into(ProductMoments(basis, folds=1), x, weights)
    return ProductEquations(basis, moments.averages().total)


def noised(basis: Basis, x: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """Return points and weights for E_t, by a rule for the transition from each row."""
    law = basis.process.transition(t)
    offsets, weights = law.quadrature(basis.dim, 40 if basis.dim < 3 else 8)
    y = basis.process.wrap((law.mean(x)[:, None] + offsets).flatten(0, 1))
    return y, weights.repeat(len(x)) / len(x)


@every_basis
def test_products_are_averages_over_noised_points(name: str) -> None:
    basis = BASES[name]
    x = data(basis)
    found = equations_of(x, basis).gram(TIMES)
    for t, matrix in zip(TIMES.tolist(), found, strict=True):
        y, weights = noised(basis, x, t)
        phi = torch.cat((torch.ones(len(y), 1, dtype=torch.float64), basis.values(y)), dim=1)
        expected = phi.mT @ (weights[:, None] * phi)
        torch.testing.assert_close(matrix, expected, rtol=1e-9, atol=1e-9)


@every_basis
def test_energies_are_averages_of_products_of_gradients(name: str) -> None:
    """½(dM/dt - ΛM - MΛ) = E_t[Γ(φ_k, φ_ℓ)], with Γ from the gradients."""
    basis = BASES[name]
    x = data(basis)
    found = equations_of(x, basis).energies(TIMES)
    metric = basis.process.diffusion(basis.dim)
    for t, matrix in zip(TIMES.tolist(), found, strict=True):
        y, weights = noised(basis, x, t)
        slopes = basis.gradients(y)
        expected = torch.einsum("n,nki,ij,nlj->kl", weights, slopes, metric, slopes)
        torch.testing.assert_close(matrix, expected, rtol=1e-8, atol=1e-8)


@every_basis
def test_the_derivative_of_the_gram_matrix_agrees_with_differences(name: str) -> None:
    equations = equations_of(data(BASES[name]), BASES[name])
    step = 1e-5
    t = torch.tensor([0.3 - step, 0.3 + step], dtype=torch.float64)
    below, above = equations.gram(t)
    slope = equations.gram(t.mean().reshape(1), 1)[0]
    torch.testing.assert_close(slope, (above - below) / (2 * step), rtol=1e-6, atol=1e-6)


def test_equations_agree_with_those_of_the_torus() -> None:
    basis = Fourier.lattice(2, 5)
    x = data(basis)
    moments = FourierMoments(basis, folds=1).update(x)
    known = FourierEquations.of(basis, moments.frequencies, moments.averages().total)
    ours = equations_of(x, basis)
    torch.testing.assert_close(ours.energies(TIMES), known.dense(TIMES))
    torch.testing.assert_close(ours.right(TIMES)[:, 1:], known.right(TIMES))
    assert float(ours.right(TIMES)[:, 0].abs().max()) == 0


@pytest.mark.parametrize("name", ["line", "plane, turned", "circle", "torus"])
def test_both_objectives_agree_with_operators_and_quadrature(name: str) -> None:
    """E_0[P_th] by operators and quadrature equals the quadratic form, and so do gradients."""
    basis = BASES[name]
    x, t = data(basis, 5), 0.2
    equations = equations_of(x, basis)
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(1 + basis.size, generator=generator, dtype=torch.float64) / 10
    a.requires_grad_()

    def series(y: Tensor, t: Tensor) -> Tensor:
        return basis.values(y) @ a[1:] + a[0]

    rule = Quadrature(40)
    implicit = ImplicitScoreMatching(basis.process).on_clean(series, x, t, rule).mean()
    torch.testing.assert_close(equations.implicit(a[1:], t), implicit)
    time = TimeScoreMatching(basis.process).on_clean(series, x, t, rule).mean()
    torch.testing.assert_close(equations.time(a, t), time)
    closed = torch.autograd.grad(equations.time(a, t), a)[0]
    torch.testing.assert_close(closed, torch.autograd.grad(time, a)[0])


def test_weights_are_repetitions_and_batches_equal_one_pass() -> None:
    basis = BASES["line"]
    x = data(basis, 6)
    counts = torch.tensor([1, 0, 3, 2, 1, 1])
    repeated = equations_of(x.repeat_interleave(counts, 0), basis)
    weighted = equations_of(x.numpy(), basis, counts.numpy())
    batched = equations_of([x[:2], x[2:]], basis, [counts[:2], counts[2:]])
    for other in (weighted, batched):
        torch.testing.assert_close(other.means, repeated.means)


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(TypeError, match=r"Hermite has no method doubled\(\)"):
        Hermite(2, 3).doubled()
    with pytest.raises(TypeError, match=r"Hermite has no method rule\(\)"):
        Hermite(2, 3).rule()
    with pytest.raises(TypeError, match="process must be of type Torus"):
        Fourier(torch.ones(1, 1), Brownian()).doubled()
    with pytest.raises(TypeError, match="basis must be of type Basis, got str"):
        fit_ratio(torch.zeros(2, 1), "hermite")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"means must hold one average for each of the 10"):
        ProductEquations(BASES["line"], torch.zeros(5))
    with pytest.raises(ValueError, match="data must hold at least one row"):
        equations_of(torch.zeros(0, 1), BASES["line"])
    with pytest.raises(ValueError, match="data must have rows of 1 entries"):
        equations_of(torch.zeros(3, 2), BASES["line"])
    with pytest.raises(ValueError, match="finite"):
        equations_of(np.array([[math.nan]]), BASES["line"])
