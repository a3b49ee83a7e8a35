"""The map of a density of the sphere: a fine grid, interpolated where the flow is smooth."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest

from oism import OISM
from oism.plot._sphere import _middles, _refined, density_grid, sphere_density


@pytest.fixture(scope="module")
def model() -> OISM:
    source = np.random.default_rng(0)
    rows = np.array([70.0, -100.0]) + source.normal(size=(80, 2)) * [8.0, 30.0]
    rows[:, 0] = rows[:, 0].clip(-90, 90)
    found: OISM = OISM(sphere=(0, 1), max_eigenvalue=30, flow_steps=16, cv=2).fit(rows)
    return found


def test_functions_are_refined_across_the_poles_and_the_date_line() -> None:
    def values(side: int) -> np.ndarray:
        x, y, z = _middles(side).numpy().T
        return np.asarray(np.exp(x - 2 * y * z + z**3)).reshape(side, 2 * side)

    error = np.abs(_refined(values(36), 90) - values(90)).max(axis=1)
    assert error.max() < 1e-3
    assert error[[0, -1]].max() < 1e-4, "at the poles"
    assert np.array_equal(_refined(values(12), 12), values(12))


def test_the_grid_is_the_density(model: OISM) -> None:
    fitted = model.model_
    grid = density_grid(fitted, 90)
    exact = fitted.point_density(_middles(90)[::101]).numpy()
    gap, mass = grid.reshape(-1)[::101] - exact, np.exp(exact)
    assert np.sqrt(mass @ gap**2 / mass.sum()) < 0.01
    area = np.cos(np.radians(np.arange(-89, 90, 2.0)))[:, None] * np.radians(2.0) ** 2
    assert (area * np.exp(grid)).sum() == pytest.approx(1, abs=5e-3)


def test_the_map(model: OISM) -> None:
    figure = plt.figure()
    ax = sphere_density(model.model_, figure.add_subplot(projection="mollweide"), side=30)
    values = ax.collections[0].get_array()
    assert values is not None
    assert values.shape == (30, 60)
    plt.close(figure)
