from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.special
import torch
from torch import Tensor

from oism import Hermite
from oism.basis import Standardised
from oism.basis._frame import power_sums
from oism.estimation import HermiteMoments, dithered, uniform_averages, uniform_reach
from oism.estimation._moments.dither import REACH

NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)  # exact for degrees below 20


def noise_rule(v: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of W = Σ v_j U_j by a product rule, U uniform of a width."""
    places = np.array(list(itertools.product(NODES, repeat=len(v)))) * width / 2
    weights = np.prod(list(itertools.product(WEIGHTS / 2, repeat=len(v))), axis=1)
    return places @ v, weights


def phi(u: np.ndarray, degree: int) -> np.ndarray:
    n = np.arange(degree + 1)[:, None]
    values = scipy.special.eval_hermitenorm(n, u) / np.sqrt(scipy.special.factorial(n))
    return np.asarray(values)


DIRECTIONS = {
    1: [[1.0], [-1.0]],
    2: [[0.6, 0.8], [1.0, 0.0], [math.sqrt(0.5), -math.sqrt(0.5)]],
    3: [[2 / 3, -1 / 3, 2 / 3], [0.0, 0.8, 0.6], [0.48, 0.6, 0.64]],
}


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_averages_of_noise_by_quadrature(dim: int) -> None:
    directions = torch.tensor(DIRECTIONS[dim], dtype=torch.float64)
    found = uniform_averages(power_sums(directions, 16))
    assert found.shape == (17, len(directions))
    assert found.dtype == torch.float64
    for v, own in zip(directions.numpy(), found.mT.numpy(), strict=True):
        w, weights = noise_rule(v, math.sqrt(12))  # of unit variance
        np.testing.assert_allclose(own, phi(w, 16) @ weights, rtol=1e-10, atol=1e-10)


def test_averages_are_equal_along_all_axes() -> None:
    axes = uniform_averages(power_sums(torch.ones(1, 1), 12))
    assert axes.shape == (13, 1)
    torch.testing.assert_close(uniform_averages(power_sums(torch.eye(3), 12)), axes.expand(13, 3))


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_degrees_up_to_three_vanish(degree: int) -> None:
    found = uniform_averages(power_sums(torch.tensor(DIRECTIONS[3]), degree))
    assert found.shape == (degree + 1, 3)
    assert torch.equal(found[0], torch.ones(3).double())
    assert not bool(found[1:].any())


def test_noise_along_many_coordinates_is_nearly_gaussian() -> None:
    for dim in (100, 10_000):
        even = uniform_averages(power_sums(torch.full((1, dim), dim**-0.5, dtype=torch.float64), 8))
        # The excess kurtosis of a mean of d variables is O(1/d).
        kurtosis = float(even[4] * math.sqrt(24))
        assert kurtosis == pytest.approx(-1.2 / dim, rel=1e-12)
        assert float(even[3:].abs().max()) < 1 / dim


# --- dithered averages -----------------------------------------------------------------------

ROWS = np.array([[0.3, -0.7, 0.2], [-0.4, 0.1, 0.9], [0.8, 0.6, -0.5], [0.1, -0.2, -0.3]])
WIDTH = 0.35


def clean(z: Tensor, order: int) -> Standardised:
    fold = torch.arange(len(z)) % 2
    return HermiteMoments(Hermite(z.shape[1], order), 2).update(z, fold=fold).standardised()


def by_quadrature(
    z: np.ndarray, v: np.ndarray, shift: float, scale: float, degree: int
) -> np.ndarray:
    """Return E[φ_n((z + W - m)/s)] over rows z and the noise W along v."""
    w, weights = noise_rule(v, WIDTH)
    rows = [phi((row + w - shift) / scale, degree) @ weights for row in z]
    return np.asarray(np.mean(rows, axis=0))


@pytest.mark.parametrize("order", [2, 3, 5, 9])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_dithered_averages_are_those_of_data_plus_noise(dim: int, order: int) -> None:
    directions = np.array(DIRECTIONS[dim])
    z = ROWS[:, :dim] @ directions.T
    standard = clean(torch.from_numpy(z), order)
    degree = max(order, 2 * order - 2)
    variance = WIDTH**2 / 12
    noise = uniform_averages(power_sums(torch.from_numpy(directions), degree))
    found = dithered(standard, noise, variance)
    scale = np.sqrt(z.var(axis=0) + variance)
    np.testing.assert_allclose(found.scale.numpy(), scale, rtol=1e-12)
    assert torch.equal(found.shift, standard.shift)
    reach = REACH * math.sqrt(variance)
    np.testing.assert_allclose(found.low.numpy(), z.min(axis=0) - reach)
    np.testing.assert_allclose(found.high.numpy(), z.max(axis=0) + reach)
    sets = {"total": [slice(None)], "training": [slice(1, None, 2), slice(0, None, 2)]}
    sets["heldout"] = sets["training"][::-1]
    for part, choices in sets.items():
        means = getattr(found.averages, part).reshape(len(choices), degree + 1, -1)
        for own, rows in zip(means, choices, strict=True):
            for k, v in enumerate(directions):
                shift = float(standard.shift[k])
                expected = by_quadrature(z[rows, k], v, shift, scale[k], degree)
                off = np.abs(own[:, k].numpy() - expected) / np.maximum(1, np.abs(expected))
                assert off.max() < 1e-10, (part, v)


def test_a_constant_column_has_the_averages_of_the_noise() -> None:
    z = torch.tensor([[0.25, 0.1], [0.25, -0.4], [0.25, 0.7]], dtype=torch.float64)
    standard = clean(z, 5)
    assert float(standard.scale[0]) == 0
    variance = WIDTH**2 / 12
    found = dithered(standard, uniform_averages(power_sums(torch.ones(1, 1), 8)), variance)
    assert float(found.scale[0]) == pytest.approx(math.sqrt(variance), rel=1e-14)
    w, weights = noise_rule(np.ones(1), math.sqrt(12))
    means = found.averages.total[:, 0].numpy()
    np.testing.assert_allclose(means, phi(w, 8) @ weights, rtol=1e-11, atol=1e-12)


def test_gaussian_noise_only_damps_averages() -> None:
    """If only E[φ₀(V)] is not zero, the noise is Gaussian: E[φ_n] decays by γⁿ."""
    standard = clean(torch.from_numpy(ROWS), 4)
    none = torch.zeros(7, 1, dtype=torch.float64)
    none[0] = 1
    found = dithered(standard, none, 0.5)
    decay = standard.scale / (standard.scale.square() + 0.5).sqrt()
    powers = decay ** torch.arange(7)[:, None]
    torch.testing.assert_close(found.averages.total, powers * standard.averages.total)


def test_the_reach_is_the_bound_of_the_noise_or_three_deviations() -> None:
    directions = torch.tensor([[1.0, 0.0], [0.6, -0.8]], dtype=torch.float64)
    corners = torch.tensor([[x, y] for x in (-0.5, 0.5) for y in (-0.5, 0.5)]).double()
    farthest = (corners @ directions.mT).abs().amax(dim=0) * 12**0.5
    torch.testing.assert_close(uniform_reach(power_sums(directions, 2)), farthest)
    many = torch.full((1, 400), 0.05, dtype=torch.float64)
    assert float(uniform_reach(power_sums(many, 1))) == 3
