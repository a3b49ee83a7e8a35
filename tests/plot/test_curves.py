"""Coefficients and losses over the noise: what is drawn is what was fitted."""

from __future__ import annotations

import math
from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.container import ErrorbarContainer
from numpy.typing import NDArray

from oism import OISM, Hermite, TensorHermite, fit
from oism.plot import coefficient_traces, loss_curves, noise_of, validation_loss
from oism.score import FourierScore

Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def score(torus: OISM) -> FourierScore:
    found = torus.model_.operator_score
    assert isinstance(found, FourierScore)
    return found


def test_noise_is_the_deviation_of_the_process(score: FourierScore, five: OISM) -> None:
    t = torch.tensor([0.02, 0.5], dtype=torch.float64)
    np.testing.assert_allclose(noise_of(score, t), np.sqrt([0.04, 1.0]))
    expected = np.sqrt(1 - np.exp(-2 * t.numpy()))
    np.testing.assert_allclose(noise_of(five.model_.operator_score, t), expected)


def test_an_axes_comes_back(score: FourierScore) -> None:
    for draw in (coefficient_traces, validation_loss):
        ax = plt.subplots()[1]
        assert draw(score, ax) is ax
        assert draw(score).figure is not ax.figure
    ax = plt.subplots()[1]
    assert loss_curves([1, 2], {"a": [1, 2]}, ax) is ax
    assert loss_curves([1, 2], {"a": [1, 2]}).figure is not ax.figure


def test_traces_are_the_largest_coefficients(score: FourierScore) -> None:
    ax = coefficient_traces(score, count=5)
    *lines, zero = ax.lines
    assert (np.asarray(zero.get_ydata()) == 0).all()
    low, high = score.times
    noise = np.asarray(lines[0].get_xdata())
    assert (noise[0], noise[-1]) == pytest.approx((math.sqrt(2 * low), math.sqrt(2 * high)))
    t = torch.from_numpy(noise**2 / 2).clamp(low, high)
    size = score.basis.frequencies.norm(dim=1).repeat_interleave(2)
    exact = (score.coefficients(t) * size).numpy()
    largest = sorted(range(exact.shape[1]), key=lambda k: np.abs(exact[:, k]).max())[-5:]
    drawn = np.stack([np.asarray(line.get_ydata()) for line in lines], axis=1)
    np.testing.assert_allclose(drawn, exact[:, largest], rtol=1e-6, atol=1e-9)


def test_late_traces_are_moments_of_the_data(score: FourierScore, angles: pd.DataFrame) -> None:
    """Late log ρ_t/π is small, so α_k tends to E[φ_k(X_t)] = e^{λt} E[φ_k(X)]."""
    ax = coefficient_traces(score, count=10**6)
    drawn = {tuple(np.asarray(line.get_ydata())) for line in ax.lines[:-1]}
    assert len(drawn) == score.basis.size
    noise = np.asarray(ax.lines[0].get_xdata())
    late = int(np.searchsorted(noise, 3.0))
    t, u = noise[late] ** 2 / 2, np.radians(angles.to_numpy())
    for xi in ([1, 0], [0, 1]):
        for wave in (np.cos, np.sin):
            moment = math.sqrt(2) * wave(u @ xi).mean() * math.exp(-t)
            assert min(abs(trace[late] - moment) for trace in drawn) < 0.02 * abs(moment)


def skewed() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(300, 2, generator=generator, dtype=torch.float64).exp()


def test_traces_of_polynomials_have_their_own_eigenvalues() -> None:
    """Coefficients stand direction by direction, ``(dim, order)``: √-λ is the root of a column."""
    score = fit(skewed(), Hermite(dim=2, order=4), progress=False)
    ax = coefficient_traces(score, count=8)
    t = score.clock.time(torch.linspace(0, score.clock.horizon, 201, dtype=torch.float64))
    expected = (score.coefficients(t) * torch.arange(1.0, 5.0).sqrt()).numpy()
    drawn = np.sort([np.asarray(line.get_ydata()) for line in ax.lines[:-1]], axis=0)
    assert drawn.shape == (8, 201)
    np.testing.assert_allclose(drawn, np.sort(expected.reshape(201, 8).T, axis=0), rtol=1e-6)


def test_traces_need_a_coefficient_for_every_function() -> None:
    gaussian = fit(skewed(), TensorHermite(dim=2, order=2), progress=False)
    with pytest.raises(TypeError, match="one coefficient for every eigenfunction"):
        coefficient_traces(gaussian)


def test_the_loss_is_the_error_of_the_noise(score: FourierScore) -> None:
    ax = validation_loss(score, color="red")
    noise, error = (np.asarray(part) for part in ax.lines[0].get_data())
    t, loss = score.diagnostics.t.numpy(), score.diagnostics.loss.numpy()
    np.testing.assert_allclose(noise, np.sqrt(2 * t))
    np.testing.assert_allclose(error, 1 + 2 * t * loss / 2)
    assert ax.lines[0].get_color() == "red"


def test_the_loss_is_the_error_on_fresh_rows(
    score: FourierScore, draw_angles: Callable[[int, int], Array]
) -> None:
    """Against the error on fresh rows with fresh noise; the score never saw either.

    Cross-validated scores come from four fifths of the rows, so they may err a little more.
    """
    noise, drawn = (np.asarray(part) for part in validation_loss(score).lines[0].get_data())
    generator = torch.Generator().manual_seed(0)
    fresh = torch.from_numpy(np.radians(draw_angles(40_000, 99)))
    gaps = []
    for k in range(0, len(noise), 2):
        epsilon = torch.randn(fresh.shape, generator=generator, dtype=torch.float64)
        t = float(score.diagnostics.t[k])
        noised = torch.remainder(fresh + noise[k] * epsilon + math.pi, 2 * math.pi) - math.pi
        predicted = -noise[k] * score.score(noised, t)
        gaps.append(float((predicted - epsilon).square().mean()) - drawn[k])
    assert np.abs(gaps).max() < 0.02
    assert drawn.min() < 0.8
    assert drawn[0] == pytest.approx(1, abs=0.02)  # the smallest noise cannot be predicted
    # Late the points are uniform, and say nothing about their noise.
    assert drawn[-1] == pytest.approx(1, abs=0.02)


def test_the_loss_of_polynomials_is_the_loss() -> None:
    score = fit(skewed(), Hermite(dim=2, order=4), progress=False)
    assert score.diagnostics.loss.ndim == 2
    ax = validation_loss(score)
    drawn = np.asarray(ax.lines[0].get_ydata())
    np.testing.assert_allclose(drawn, score.diagnostics.loss.numpy().mean(axis=1))
    assert ax.get_ylabel() == "held-out loss"


def test_curves_have_bars_where_errors_are_given() -> None:
    x, high, low = [1.0, 10.0, 100.0], np.array([1.0, 2.0, 4.0]), np.array([1.0, 0.1, 0.01])
    spread = np.array([0.5, 0.05, 1.0])  # the last is wider than what it belongs to
    ax = loss_curves(
        x, {"high": high, "low": low}, errors={"low": spread}, colours={"high": "#123456"}
    )
    assert ax.lines[0].get_color() == "#123456"
    np.testing.assert_allclose(np.asarray(ax.lines[0].get_ydata()), high)
    (bars,) = ax.containers
    assert isinstance(bars, ErrorbarContainer)
    np.testing.assert_allclose(np.asarray(bars.lines[0].get_ydata()), low)
    segments = np.array(bars.lines[2][0].get_segments())
    np.testing.assert_allclose(segments[:, 0, 0], x)
    np.testing.assert_allclose(segments[:, 0, 1], [0.5, 0.05, 0.001])  # a tenth, not below zero
    np.testing.assert_allclose(segments[:, 1, 1], low + spread)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    names = ax.get_legend_handles_labels()[1]
    assert sorted(names) == ["high", "low"]
