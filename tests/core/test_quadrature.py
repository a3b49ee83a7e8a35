from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from oism._core import quadrature


def test_gauss_hermite_integrates_polynomials_of_degree_2n_minus_1() -> None:
    points, weights = quadrature.gauss_hermite(6)
    for degree in range(12):
        exact = 0 if degree % 2 else math.prod(range(1, degree, 2))  # (degree - 1)!!
        assert float(weights @ points**degree) == pytest.approx(exact, rel=1e-12, abs=1e-11)
    assert abs(float(weights @ points**12) - 10395) > 1  # degree 2n is not exact


def test_gauss_legendre_integrates_polynomials_of_degree_2n_minus_1() -> None:
    points, weights = quadrature.gauss_legendre(4)
    for degree in range(8):
        assert float(weights @ points**degree) == pytest.approx(1 / (degree + 1), rel=1e-13)
    assert abs(float(weights @ points**8) - 1 / 9) > 1e-6  # degree 2n is not exact


def test_equispaced_integrates_frequencies_below_n() -> None:
    points, weights = quadrature.equispaced(8)
    assert ((points >= -math.pi) & (points < math.pi)).all()
    for k in range(1, 8):
        assert abs(complex(weights.to(torch.complex128) @ torch.exp(1j * k * points))) < 1e-15
    assert abs(complex(weights.to(torch.complex128) @ torch.exp(8j * points))) > 0.9


def test_gauss_hermite_with_many_nodes() -> None:
    points, weights = quadrature.gauss_hermite(1000)
    assert float(weights @ points**4) == pytest.approx(3, rel=1e-12)


@pytest.mark.parametrize("nodes", [1, 2, 16, 33, 64])
def test_normal_trapezoid_has_mass_one_and_its_declared_error(nodes: int) -> None:
    points, weights = quadrature.normal_trapezoid(nodes)
    assert float(weights.sum()) == pytest.approx(1, abs=1e-15)
    torch.testing.assert_close(points, -points.flip(0))
    for omega in (0.5, 2.0, 6.0, 15.0):
        gap = max(math.pi * nodes / quadrature.REACH - omega, 0)
        error = abs(float(weights @ torch.cos(omega * points)) - math.exp(-0.5 * omega**2))
        assert error <= 2.1 * math.exp(-0.5 * gap**2) + 1e-14


def test_product_rules_integrate_products() -> None:
    points, weights = quadrature.product(torch.tensor([1.0, 2.0]), torch.tensor([0.25, 0.75]), 2)
    assert points.tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]
    assert weights.tolist() == [0.0625, 0.1875, 0.1875, 0.5625]


def test_rules_that_are_too_large_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"nodes\*\*dim <= .* got 32\*\*6: .*MonteCarlo"):
        quadrature.product(*quadrature.gauss_hermite(32), 6)


@pytest.mark.parametrize(
    "rule", [quadrature.gauss_hermite, quadrature.equispaced, quadrature.normal_trapezoid]
)
def test_invalid_nodes_are_rejected(rule: Callable[[int], object]) -> None:
    with pytest.raises(ValueError, match="nodes must be an integer >= 1, got 0"):
        rule(0)
    with pytest.raises(TypeError, match=r"nodes must be an integer >= 1, got float 1.5"):
        rule(1.5)  # type: ignore[arg-type]
