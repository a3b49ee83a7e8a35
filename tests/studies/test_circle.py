"""Losses on the circle, compared with known values or computed by brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from oism.estimation import Modulation, SampleMeans, fit
from studies import circle

POINTS = circle.CIRCLE[:, 0].numpy()


@pytest.fixture(scope="module")
def x() -> Tensor:
    return circle.TRUTH.sample(300, torch.Generator().manual_seed(0))


def test_frequencies_are_counted() -> None:
    assert circle.frequencies(25).frequencies[:, 0].tolist() == list(range(1, 26))


def test_the_exact_score_has_no_loss_and_a_shift_its_square() -> None:
    for t in (5e-5, 0.02, 1.0):
        assert circle.loss(circle.TRUTH.score, t) == 0

        def shifted(x: Tensor, t: float) -> Tensor:
            return circle.TRUTH.score(x, t) + 0.7

        assert circle.loss(shifted, t) == pytest.approx(0.49, rel=1e-10)
    found = circle.losses(lambda x, t: circle.TRUTH.score(x, t) + t, np.array([0.1, 0.2]))
    np.testing.assert_allclose(found, [0.01, 0.04])


def test_the_loss_of_a_zero_score_is_the_fisher_information() -> None:
    """E‖∇ log ρ‖² of the mixture, by SciPy."""
    t = 0.02
    density = sum(
        p * scipy.stats.norm.pdf(POINTS[:, None] + 2 * math.pi * np.arange(-3, 4), m, v).sum(axis=1)
        for p, m, v in zip(
            circle.TRUTH.weights,
            circle.TRUTH.means,
            np.sqrt(np.square(circle.TRUTH.deviations) + 2 * t),
            strict=True,
        )
    )
    slope = (np.roll(density, -1) - np.roll(density, 1)) / (2 * (POINTS[1] - POINTS[0]))
    expected = np.mean(slope**2 / density) * 2 * math.pi
    assert circle.loss(lambda x, _: 0 * x, t) == pytest.approx(expected, rel=1e-3)


def test_losses_with_exact_moments() -> None:
    score = circle.exact_fit(25)
    found = [circle.loss(score.score, t) for t in (5e-5, 0.005, 0.02)]
    assert found == pytest.approx([0.0101, 0.0016, 7.7e-8], rel=0.01)


def test_the_bound_is_the_integral_over_t() -> None:
    times = np.geomspace(1e-3, 2.0, 400)
    assert circle.divergence_bound(times, 1 / times) == pytest.approx(math.log(2000))
    assert circle.divergence_bound(times, times**2) == pytest.approx(8 / 3, rel=1e-3)


def gradients(count: int) -> np.ndarray:
    """Return the slopes of √2 cos kx and √2 sin kx on the circle, ``(points, 2 count)``."""
    k = np.arange(1, count + 1)
    phase = POINTS[:, None] * k
    slopes = k[:, None] * np.stack([-np.sin(phase), np.cos(phase)], axis=-1)
    flat: np.ndarray = math.sqrt(2) * slopes.reshape(len(POINTS), 2 * count)
    return flat


def blurred(x: Tensor, t: float) -> np.ndarray:
    """Return the weights of points of the circle under data with noise of variance 2t."""
    steps = POINTS[:, None] - x[:, 0].numpy()
    images = 2 * math.pi * np.arange(-2, 3)
    density = np.zeros(len(POINTS))
    for image in images:
        density += scipy.stats.norm.pdf(steps + image, scale=math.sqrt(2 * t)).sum(axis=1)
    weights: np.ndarray = density / density.sum()
    return weights


def test_eigenvalues_against_a_matrix_by_quadrature(x: Tensor) -> None:
    """A_t = E[∇φ_j ∇φ_k] under the noised data, divided by √(λ_j λ_k)."""
    count, times = 6, np.array([1e-4, 0.02, 0.5])
    system = circle.unregularised(x, count, SampleMeans())
    found = circle.smallest_eigenvalues(system, times)
    assert found.shape == (3,)
    scale = 1 / np.repeat(np.arange(1, count + 1), 2)
    for value, t in zip(found, times, strict=True):
        slopes = gradients(count) * scale
        matrix = slopes.T @ (blurred(x, float(t))[:, None] * slopes)
        assert value == pytest.approx(np.linalg.eigvalsh(matrix)[0], rel=1e-6)
    late = circle.smallest_eigenvalues(system, np.array([20.0]))
    assert late == pytest.approx([1], abs=1e-6)  # the uniform distribution


def test_shrinking_each_mean_by_itself_can_give_a_negative_eigenvalue(x: Tensor) -> None:
    system = circle.unregularised(x, 25, Modulation(project=False))
    assert circle.smallest_eigenvalues(system, np.array([5e-5]))[0] < 0


def test_the_plain_solution_is_the_least_squares_fit(x: Tensor) -> None:
    """Minimising E‖Σα∇φ - s‖² is Aα = E[∇φ s] = -E[Δφ], here with matrices by quadrature."""
    count, t = 8, 0.01
    found = circle.plain_solution(circle.unregularised(x, count, SampleMeans()))(circle.CIRCLE, t)
    weights, slopes = blurred(x, t), gradients(count)
    k = np.arange(1, count + 1)
    phase = POINTS[:, None] * k
    waves = math.sqrt(2) * np.stack([np.cos(phase), np.sin(phase)], axis=-1)
    laplacians = (-(k**2)[:, None] * waves).reshape(len(POINTS), -1)
    alpha = np.linalg.solve(slopes.T @ (weights[:, None] * slopes), -weights @ laplacians)
    np.testing.assert_allclose(found[:, 0], slopes @ alpha, rtol=1e-5, atol=1e-5)


def test_the_plain_solution_is_a_fit_without_ridge(x: Tensor) -> None:
    count, t = 10, 0.005
    score = fit(x, circle.frequencies(count), ridge=0.0, progress=False)
    plain = circle.plain_solution(circle.unregularised(x, count, SampleMeans()))(circle.CIRCLE, t)
    alpha = score.coefficients(t, exact=True)
    exact = score.basis.series(circle.CIRCLE, alpha, derivative=1)
    np.testing.assert_allclose(plain, exact, rtol=1e-8, atol=1e-8)
    size = float(plain.square().mean().sqrt())
    np.testing.assert_allclose(score.score(circle.CIRCLE, t), plain, atol=5e-3 * size)
