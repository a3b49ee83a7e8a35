"""Jacobi and Laguerre polynomials as eigenfunctions: the identities that fits rely on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism.basis import JacobiPolynomials, LaguerrePolynomials, PolynomialEigenfunctions
from oism.estimation._equations.products import ProductEquations
from oism.process import (
    CarreDuChamp,
    InfinitesimalGenerator,
    Jacobi,
    Laguerre,
    Quadrature,
    Semigroup,
)

BASES: list[PolynomialEigenfunctions] = [
    JacobiPolynomials(Jacobi(), 12),
    JacobiPolynomials(Jacobi(0.5, 0.5), 12),
    JacobiPolynomials(Jacobi(0.6, 2.5), 12),
    LaguerrePolynomials(Laguerre(1.0), 8),
    LaguerrePolynomials(Laguerre(0.7), 8),
    LaguerrePolynomials(Laguerre(3.0), 8),
]
bases = pytest.mark.parametrize("basis", BASES, ids=repr)


def points(basis: PolynomialEigenfunctions, n: int = 25) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return basis.process.invariant.sample((n, 1), generator=generator, dtype=torch.float64)


def close(found: Tensor, expected: Tensor, scale: Tensor | float = 1.0) -> None:
    """Compare to 1e-12 of the largest value: sums of that size are rounded in float64."""
    assert float(((found - expected) / scale).abs().max()) < 1e-12


@bases
def test_they_are_eigenfunctions(basis: PolynomialEigenfunctions) -> None:
    """Lφ = λφ, by two derivatives of the recurrence."""
    x = points(basis)
    values = basis.values(x)
    scale = basis.eigenvalues * values.abs().amax(dim=0)
    generated = InfinitesimalGenerator(basis.process)(basis.values)(x)
    close(generated, basis.eigenvalues * values, scale)
    close(basis.generated(x), generated, scale)


@bases
def test_they_are_orthonormal(basis: PolynomialEigenfunctions) -> None:
    x, weights = basis.rule()
    values = torch.cat((torch.ones(len(x), 1).double(), basis.values(x)), dim=1)
    close(values.mT @ (weights[:, None] * values), torch.eye(basis.size + 1).double())
    assert len(x) == 2 * basis.degree + 1
    # The rule is exact for φ_jφ_kψ: products with the wider basis agree with those of a finer rule.
    wide = basis.doubled()
    finer, masses = basis.process.invariant.quadrature(1, 3 * basis.degree + 5)
    last = [(w @ (b.values(p)[:, -1].square() * wide.values(p)[:, -1]))
            for p, w, b in ((x, weights, basis), (finer, masses, basis))]  # fmt: skip
    size = masses @ (basis.values(finer)[:, -1].square() * wide.values(finer)[:, -1]).abs()
    close(last[0], last[1], size)


@bases
def test_gradients(basis: PolynomialEigenfunctions) -> None:
    x = points(basis)
    by_autograd = torch.func.jacrev(lambda y: basis.values(y).sum(dim=0))(x)[:, :, 0].mT
    scale = by_autograd.abs().amax(dim=0)
    close(basis.gradients(x)[..., 0], by_autograd, scale)
    alpha = torch.randn(basis.size, generator=torch.Generator().manual_seed(1)).double()
    torch.testing.assert_close(basis.series(x, alpha), basis.values(x) @ alpha)
    torch.testing.assert_close(basis.series(x, alpha, 1)[:, 0], basis.gradients(x)[..., 0] @ alpha)
    rows = alpha.expand(len(x), -1)
    torch.testing.assert_close(basis.series(x, rows, 1), basis.series(x, alpha, 1))
    with pytest.raises(TypeError, match="has no Laplacians"):
        basis.laplacians(x)


@bases
def test_squared_field_and_products(basis: PolynomialEigenfunctions) -> None:
    """Γ(φ_j, φ_k) = ½(L(φ_jφ_k) - …) and φ_jφ_k = Σ_n c^n φ_n over the doubled basis."""
    x, j, k = points(basis), basis.size - 1, basis.size // 2

    def one(index: int) -> object:
        return lambda y: basis.values(y)[:, index]

    gamma = CarreDuChamp(basis.process)(one(j), one(k))(x)  # type: ignore[arg-type]
    slopes = basis.gradients(x)[..., 0]
    diffusion = basis.process.diffusion_at(x)[:, 0]
    size = float(gamma.abs().max())
    close(gamma, diffusion * slopes[:, j] * slopes[:, k], size)
    wide, (nodes, weights) = basis.doubled(), basis.rule()
    product = basis.values(nodes)[:, j] * basis.values(nodes)[:, k]
    coefficients = wide.values(nodes).mT @ (weights * product)
    constant = float(weights @ product)
    values = basis.values(x)
    expanded = constant + wide.values(x) @ coefficients
    terms = (wide.values(x) * coefficients).abs().sum(dim=1)
    close(expanded, values[:, j] * values[:, k], terms)
    rates = basis.eigenvalues
    by_products = 0.5 * ((wide.eigenvalues * coefficients) @ wide.values(x).mT
                         - (rates[j] + rates[k]) * expanded)  # fmt: skip
    close(by_products, gamma, rates[-1] * terms)


@bases
@pytest.mark.parametrize("t", [0.0, 0.01, 0.7])
def test_the_semigroup_multiplies_them(basis: PolynomialEigenfunctions, t: float) -> None:
    x = points(basis, 9)
    there = Semigroup(basis.process, t, Quadrature(basis.size + 1))(basis.values)(x)
    scale = basis.values(x).abs().amax(dim=0).clamp(min=1)
    # The sum over nodes has terms of the size of φ_n² at the nodes: digits are lost for Laguerre.
    loss = 1.0 if isinstance(basis.process, Jacobi) else 30.0
    close(there, torch.exp(basis.eigenvalues * t) * basis.values(x), loss * scale)


def test_they_are_the_polynomials_of_scipy() -> None:
    x = torch.linspace(0, 1, 30, dtype=torch.float64)[:, None]
    for n in (1, 5, 20):
        ours = JacobiPolynomials(Jacobi(0.6, 2.5), n).values(x)[:, -1]
        known = torch.from_numpy(scipy.special.eval_jacobi(n, 1.5, -0.4, 2 * x[:, 0].numpy() - 1))
        close(ours / ours.abs().max(), known / known.abs().max())
        ours = LaguerrePolynomials(Laguerre(0.7), n).values(20 * x)[:, -1]
        known = scipy.special.eval_genlaguerre(n, -0.3, 20 * x[:, 0].numpy())
        size = np.exp(0.5 * (math.lgamma(n + 0.7) - math.lgamma(n + 1) - math.lgamma(0.7)))
        close(ours, torch.from_numpy((-1) ** n * known / size), ours.abs().max())


@bases
def test_equations_from_products_are_averages(basis: PolynomialEigenfunctions) -> None:
    """A_0 and b_0 of the equations are averages over the data; A_t those of P_tΓ."""
    x = points(basis, 50)
    means = basis.doubled().values(x).mean(dim=0)
    equations = ProductEquations(basis, means)
    for t in (0.0, 0.2):

        def energies(y: Tensor) -> Tensor:
            slopes = basis.gradients(y)[..., 0]
            return basis.process.diffusion_at(y)[..., None] * slopes[:, :, None] * slopes[:, None]

        rule = Quadrature(2 * basis.degree + 2)
        expected = Semigroup(basis.process, t, rule)(energies)(x).mean(dim=0)
        found = equations.energies(torch.tensor([t], dtype=torch.float64))[0]
        scale = expected.diagonal().rsqrt()
        error = (scale[:, None] * (found - expected) * scale).abs().max()
        assert float(error) < (1e-11 if isinstance(basis.process, Jacobi) else 1e-8)
    right = equations.right(torch.zeros(1).double())[0, 1:]
    close(right, basis.eigenvalues * basis.values(x).mean(dim=0), right.abs().max() * 1e3)


KINDS = st.sampled_from([torch.float32, torch.float64])


@given(degree=st.integers(1, 20), n=st.integers(0, 4), dtype=KINDS)
def test_shapes_and_dtypes(degree: int, n: int, dtype: torch.dtype) -> None:
    jacobi = JacobiPolynomials(Jacobi(0.7, 1.2), degree)
    for basis in (jacobi, LaguerrePolynomials(Laguerre(2.0), degree)):
        x = torch.linspace(0.1, 0.9, n, dtype=dtype)[:, None]
        assert basis.values(x).shape == (n, degree)
        assert basis.gradients(x).shape == (n, degree, 1)
        assert basis.values(x).dtype == basis.gradients(x).dtype == dtype
        assert basis.doubled().size == 2 * degree
        assert basis.eigenvalues.tolist() == sorted(basis.eigenvalues.tolist(), reverse=True)
        with pytest.raises(ValueError, match=r"x must have shape \(n, 1\)"):
            basis.values(torch.zeros(2, 2))


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match="process must be of type Jacobi"):
        JacobiPolynomials(Laguerre())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="process must be of type Laguerre"):
        LaguerrePolynomials(Jacobi())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="degree must be an integer >= 1"):
        JacobiPolynomials(Jacobi(), 0)
    with pytest.raises(ValueError, match="degree must be at most 80"):
        LaguerrePolynomials(Laguerre(), 81)
    with pytest.raises(ValueError, match="reach must be positive"):
        LaguerrePolynomials(Laguerre(), 4, reach=0.0)
