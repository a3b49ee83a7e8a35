"""Spherical harmonics: definition, transforms and sums at scattered points."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import jacrev, vmap

from oism.basis import SphericalHarmonics
from oism.basis._sphere_grid import SphereTransform, gauss_legendre
from oism.basis._sphere_legendre import LegendreTable
from oism.basis._sphere_scattered import ScatteredHarmonics
from oism.process import CarreDuChamp, InfinitesimalGenerator, Quadrature, Semigroup


def unit(n: int, seed: int = 0) -> Tensor:
    draws = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found: Tensor = draws / draws.norm(dim=1, keepdim=True)
    return found


def with_poles(n: int) -> Tensor:
    poles = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]], dtype=torch.float64)
    return torch.cat((poles, unit(n)))


def reference(degree: int, x: Tensor) -> Tensor:
    """Return the harmonics from SciPy's complex ones, without the constant: ``(n, size)``."""
    theta = np.arccos(np.clip(x[:, 2].numpy(), -1, 1))
    phi = np.arctan2(x[:, 1].numpy(), x[:, 0].numpy())
    columns = []
    for l in range(1, degree + 1):  # noqa: E741
        for m in range(-l, l + 1):
            found = math.sqrt(4 * math.pi) * scipy.special.sph_harm_y(l, abs(m), theta, phi)
            part = found.real if m >= 0 else found.imag
            columns.append(part if m == 0 else math.sqrt(2) * (-1) ** m * part)
    return torch.from_numpy(np.stack(columns, axis=1))


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_values_are_those_of_scipy() -> None:
    x = with_poles(20)
    values = SphericalHarmonics(20).values(x)
    torch.testing.assert_close(values, reference(20, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("degree", [3, 40])
def test_sums_at_scattered_points_are_direct_sums(degree: int) -> None:
    x, c = with_poles(60), normal(3, (degree + 1) ** 2)
    values = torch.cat((torch.ones(len(x), 1), reference(degree, x)), dim=1)
    scattered = ScatteredHarmonics(degree)
    size = float((c.abs() @ values.abs().mT).max())
    assert float((scattered.sums(x, c) - c @ values.mT).abs().max()) < 1e-13 * size
    weights = normal(2, len(x))
    averages = scattered.averages(x, weights)
    assert float((averages - weights @ values).abs().max()) < 1e-12 * float(values.abs().max())


def test_high_degrees_at_scattered_points() -> None:
    """Zonal harmonics of degree 512: by SciPy's Legendre polynomials, next to the poles too."""
    l, theta = 512, torch.tensor([0.0, 1e-3, 0.01, 0.5, 1.5, 3.0, 3.1], dtype=torch.float64)  # noqa: E741
    x = torch.stack((theta.sin(), torch.zeros_like(theta), theta.cos()), dim=1)
    c = torch.zeros(1, (l + 1) ** 2, dtype=torch.float64)
    c[0, l * l + l] = 1.0
    exact = math.sqrt(2 * l + 1) * scipy.special.eval_legendre(l, theta.cos().numpy())
    found = ScatteredHarmonics(l).sums(x, c)[0]
    torch.testing.assert_close(found, torch.from_numpy(exact), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("degree", "exact"), [(1, 4), (5, 17), (12, 36)])
def test_the_transform_is_a_direct_sum(degree: int, exact: int) -> None:
    transform = SphereTransform(degree, exact)
    points, weights = transform.grid.rule()
    values = reference(degree, points)
    c = normal(2, 3, transform.size)
    assert float((transform.synthesise(c) - c @ values.mT).abs().max()) < 1e-12
    f = normal(2, transform.points)
    assert float((transform.analyse(f) - (weights * f) @ values).abs().max()) < 1e-12


@pytest.mark.parametrize("degree", [64, 256])
def test_analysis_inverts_synthesis(degree: int) -> None:
    transform = SphereTransform(degree, 2 * degree)
    c = normal(1, transform.size)
    assert float((transform.analyse(transform.synthesise(c)) - c).abs().max()) < 1e-12


def test_the_rule_is_exact_for_products_and_not_for_more() -> None:
    basis = SphericalHarmonics(3)
    wide = basis.doubled()
    points, weights = basis.rule()
    a, b, c = basis.values(points), basis.values(points), wide.values(points)
    triple = torch.einsum("p,pi,pj,pk->ijk", weights, a, b, c)
    fine, mass = SphericalHarmonics(8).rule()
    exact = torch.einsum(
        "p,pi,pj,pk->ijk", mass, basis.values(fine), basis.values(fine), wide.values(fine)
    )
    torch.testing.assert_close(triple, exact, rtol=0, atol=1e-12)
    coarse = SphereTransform(3, 7)  # too small for squares of degree 6
    c = normal(1, coarse.size)
    mean = (coarse.grid.rule()[1] * coarse.synthesise(c) ** 4).sum()
    assert abs(float(mean - (mass * (basis.values(fine) @ c[0]) ** 4).sum())) > 1e-6


def test_common_points_of_the_two_transforms() -> None:
    basis = SphericalHarmonics(9)
    own, wide = basis.transforms(5 * 6)
    assert (own.degree, wide.degree) == (9, 5)
    assert own.points == wide.points
    assert basis.transforms()[1].degree == 18


def test_gauss_weights_are_exact_to_rounding() -> None:
    nodes, weights = gauss_legendre(300)
    assert abs(weights.sum() - 1) < 1e-14
    for degree in (2, 100, 598):
        assert abs(weights @ nodes**degree - 1 / (degree + 1)) < 1e-15


def test_legendre_tables_are_orthonormal() -> None:
    nodes, weights = gauss_legendre(80)
    table = LegendreTable(70, torch.from_numpy(nodes))
    unit_vectors = torch.eye(71**2, dtype=torch.float64)[[70 * 70 + 70 + m for m in (0, 33, 70)]]
    rings = table.synthesise(unit_vectors)
    back = table.analyse(rings * torch.from_numpy(weights)[:, None])
    torch.testing.assert_close(back, unit_vectors, rtol=0, atol=1e-13)


def test_identities_of_the_generator() -> None:
    basis, x = SphericalHarmonics(5), unit(20)
    process = basis.process
    generated = InfinitesimalGenerator(process)(basis)(x)
    torch.testing.assert_close(generated, basis.eigenvalues * basis(x), rtol=0, atol=1e-11)
    jacobian = vmap(jacrev(lambda y: basis(y[None])[0]))(x)
    torch.testing.assert_close(basis.gradients(x), jacobian, rtol=0, atol=1e-12)
    assert float((basis.gradients(x) @ x[:, :, None]).abs().max()) < 1e-13  # tangent

    def first(y: Tensor) -> Tensor:
        return basis(y)[:, 6]

    def second(y: Tensor) -> Tensor:
        return basis(y)[:, 11]

    gamma = CarreDuChamp(process)(first, second)(x)
    product = (basis.gradients(x)[:, 6] * basis.gradients(x)[:, 11]).sum(dim=1)
    torch.testing.assert_close(gamma, product, rtol=0, atol=1e-12)


@pytest.mark.parametrize("t", [1e-6, 1e-3, 0.1, 0.6])
def test_the_semigroup(t: float) -> None:
    basis, x = SphericalHarmonics(7), unit(4)
    averaged = Semigroup(basis.process, t, Quadrature(10))(basis)(x)
    expected = torch.exp(basis.eigenvalues * t) * basis(x)
    torch.testing.assert_close(averaged, expected, rtol=0, atol=1e-12)


def test_fast_series_are_those_of_single_functions() -> None:
    basis, x = SphericalHarmonics(11), with_poles(50)
    alpha = normal(basis.size)
    jet = basis.jet(x)
    torch.testing.assert_close(basis.series(x, alpha), jet.values @ alpha, rtol=0, atol=1e-10)
    gradient = torch.einsum("nkd,k->nd", jet.gradients, alpha)
    torch.testing.assert_close(basis.series(x, alpha, 1), gradient, rtol=0, atol=1e-9)
    both = basis._gradient_and_generated(x, alpha)
    laplacian = jet.laplacians @ alpha
    torch.testing.assert_close(
        both, torch.cat((gradient, laplacian[:, None]), 1), rtol=0, atol=1e-8
    )
    slow = basis._gradient_and_generated(x, alpha.expand(len(x), -1))  # one set for each row
    torch.testing.assert_close(both, slow, rtol=0, atol=1e-8)


@given(degree=st.integers(1, 6), rows=st.integers(0, 3), single=st.booleans())
def test_shapes_and_dtypes(degree: int, rows: int, single: bool) -> None:
    basis, dtype = SphericalHarmonics(degree), torch.float32 if single else torch.float64
    x = unit(rows).to(dtype)
    assert basis.values(x).shape == (rows, basis.size)
    assert basis.gradients(x).shape == (rows, basis.size, 3)
    assert basis.values(x).dtype == basis.gradients(x).dtype == basis.laplacians(x).dtype == dtype
    assert len(basis.eigenvalues) == basis.size == (degree + 1) ** 2 - 1


@pytest.mark.parametrize("degree", [0, 513, 2.5])
def test_bad_degrees(degree: float) -> None:
    with pytest.raises((ValueError, TypeError), match="degree"):
        SphericalHarmonics(degree)  # type: ignore[arg-type]


def test_truncation() -> None:
    basis = SphericalHarmonics(8)
    assert basis.truncated(20).degree == 4
    assert basis.truncated(19.9).degree == 3
    assert basis.truncated(0.1).degree == 1
    assert basis.truncated(math.inf) is basis
