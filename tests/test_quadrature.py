from __future__ import annotations

import math

import pytest
import torch

from oism import quadrature


def test_gauss_hermite_integrates_polynomials_of_degree_2n_minus_1() -> None:
    points, weights = quadrature.gauss_hermite(6)
    for degree in range(12):
        exact = 0 if degree % 2 else math.prod(range(1, degree, 2))  # (degree - 1)!!
        assert float(weights @ points**degree) == pytest.approx(exact, rel=1e-12, abs=1e-11)
    assert abs(float(weights @ points**12) - 10395) > 1  # and no further


def test_equispaced_integrates_frequencies_below_n() -> None:
    points, weights = quadrature.equispaced(8)
    assert ((points >= -math.pi) & (points < math.pi)).all()
    for k in range(1, 8):
        assert abs(complex(weights.to(torch.complex128) @ torch.exp(1j * k * points))) < 1e-15
    assert abs(complex(weights.to(torch.complex128) @ torch.exp(8j * points))) > 0.9


@pytest.mark.parametrize("sigma", [1e-4, 0.1, 0.5, 3.0])
def test_circle_offsets_stay_on_the_circle(sigma: float) -> None:
    offsets, spacing = quadrature.circle_offsets(33, sigma)
    assert len(offsets) == 33
    assert offsets.min() >= -math.pi
    assert offsets.max() < math.pi
    assert float(offsets.diff().mean()) == pytest.approx(spacing)
    assert 0.0 in offsets


def test_a_product_is_a_product() -> None:
    points, weights = quadrature.product(torch.tensor([1.0, 2.0]), torch.tensor([0.25, 0.75]), 2)
    assert points.tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]
    assert weights.tolist() == [0.0625, 0.1875, 0.1875, 0.5625]


def test_a_rule_too_large_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"nodes\*\*dim <= .* got 32\*\*6: .*MonteCarlo"):
        quadrature.product(*quadrature.gauss_hermite(32), 6)
