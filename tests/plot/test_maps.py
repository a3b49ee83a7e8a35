"""Maps show the density where it is; arrows point along the score; limits and ticks are right."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.quiver import Quiver
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from oism import OISM, Linear, OrnsteinUhlenbeck
from oism.plot import (
    cloud,
    density_curve,
    density_image,
    density_map,
    limits_of,
    ramachandran,
    score_field,
)
from oism.plot._maps import _noised

Array = NDArray[np.float64]


class Normal:
    """N(centre, deviation²) as an estimator."""

    def __init__(self, centre: tuple[float, float] = (0.0, 0.0), deviation: float = 1.0) -> None:
        self.distribution = scipy.stats.multivariate_normal(centre, deviation**2)

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        log: Array = self.distribution.logpdf(X)
        return log


def cells(limits: list[tuple[float, float]], side: int) -> Array:
    """Return the middles of cells ``(side, side, 2)``, the first axis upwards."""
    (left, right), (low, high) = limits
    result = np.empty((side, side, 2))
    for i in range(side):
        for j in range(side):
            result[i, j, 0] = left + (right - left) * (j + 0.5) / side
            result[i, j, 1] = low + (high - low) * (i + 0.5) / side
    return result


def image_of(ax: Axes) -> AxesImage:
    (image,) = ax.images
    return image


def arrows_of(ax: Axes) -> Any:
    (quiver,) = (part for part in ax.collections if isinstance(part, Quiver))
    return quiver


def labels(ax: Axes, axis: str) -> list[str]:
    ax.figure.canvas.draw()
    return [label.get_text() for label in getattr(ax, f"{axis}axis").get_ticklabels()]


def test_a_picture_is_drawn_into_the_axes_that_is_given(
    torus: OISM, line: OISM, rows: Array
) -> None:
    draw: list[Callable[..., Axes]] = [
        lambda ax=None: density_map(torus, ax, side=5),
        lambda ax=None: density_image(np.zeros((4, 4)), [(0, 1), (0, 1)], ax),
        lambda ax=None: density_curve(line, ax, points=5),
        lambda ax=None: ramachandran(torus, ax, side=5),
        lambda ax=None: cloud(rows, ax),
        lambda ax=None: score_field(torus, 0.1, ax, side=3),
        lambda ax=None: score_field(line, 0.1, ax),
    ]
    for one in draw:
        figure, (left, right) = plt.subplots(1, 2)
        assert one(left) is left
        assert left.has_data()
        assert not right.has_data()
        count = len(plt.get_fignums())
        fresh = one()
        assert fresh.figure is not figure
        assert fresh.has_data()
        assert len(plt.get_fignums()) == count + 1
        plt.close("all")


def test_limits_are_the_period_the_bounds_and_the_box(mixed: OISM, torus: OISM) -> None:
    periodic, bounded, free = limits_of(mixed)
    assert periodic == pytest.approx((-180, 180))  # there are negative angles
    assert bounded == pytest.approx((0, 1))
    inside = np.array([[0.0, 0.5, end] for end in (free[0] + 1e-9, free[1] - 1e-9)])
    outside = np.array([[0.0, 0.5, end] for end in (free[0] - 1e-9, free[1] + 1e-9)])
    assert mixed.model_.chart.covers(torch.from_numpy(inside)).all()
    assert not mixed.model_.chart.covers(torch.from_numpy(outside)).any()
    assert limits_of(torus)[0] == pytest.approx((0, 360))


@pytest.mark.parametrize("process", ["ou", OrnsteinUhlenbeck(theta=0.5, sigma=2.0)])
def test_limits_without_a_box_are_deviations(process: str | OrnsteinUhlenbeck, rows: Array) -> None:
    model = OISM(process=process, order=2, flow_steps=4).fit(rows)
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    expected = np.stack([mean - 3.5 * deviation, mean + 3.5 * deviation], axis=1)
    np.testing.assert_allclose(limits_of(model), expected, rtol=1e-6)


def test_limits_of_rows_that_came_in_batches(rows: Array) -> None:
    model = OISM(max_eigenvalue=9, flow_steps=4, bounds={0: (-20, 20), 1: (0, 20)})
    model.partial_fit(rows[:200])
    np.testing.assert_allclose(limits_of(model), [(-20, 20), (0, 20)])
    early = image_of(density_map(model, side=5)).get_array()
    model.partial_fit(rows[200:] * [1.0, 3.0])
    found = image_of(density_map(model, side=5)).get_array()
    assert early is not None
    assert found is not None
    assert not np.allclose(found, early)
    points = cells(limits_of(model), 5).reshape(-1, 2)
    np.testing.assert_allclose(found.ravel(), np.exp(model.score_samples(points)), rtol=1e-9)


def test_a_map_is_the_density_at_the_middles_of_its_cells(plane: OISM) -> None:
    limits, side = limits_of(plane), 17
    image = image_of(density_map(plane, side=side))
    points = cells(limits, side)
    expected = np.exp(plane.score_samples(points.reshape(-1, 2))).reshape(side, side)
    found = image.get_array()
    assert found is not None
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not np.allclose(found, expected.T, rtol=0.1)
    assert not np.allclose(found, expected[::-1], rtol=0.1)
    assert image.get_extent() == pytest.approx([*limits[0], *limits[1]])
    assert image.get_clim() == pytest.approx((0, expected.max()))
    cell = math.prod(high - low for low, high in limits) / side**2
    assert found.sum() * cell == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("log", [False, True])
def test_the_darkest_pixel_is_the_mode(log: bool) -> None:
    """The mode is off-centre, and the window is not square: nothing may be mirrored or swapped."""
    mode = (1.5, -0.5)
    ax = density_map(Normal(mode, 0.15), limits=[(-2, 2), (-1, 1)], side=161, log=log)
    figure = ax.figure
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3].sum(axis=2).astype(float)  # type: ignore[attr-defined]
    inside = ax.get_window_extent()
    height = len(pixels)
    left, right = math.ceil(inside.x0) + 3, int(inside.x1) - 3
    top, bottom = math.ceil(height - inside.y1) + 3, int(height - inside.y0) - 3
    window = pixels[top:bottom, left:right]
    row, column = np.argwhere(window <= window.min() + 1).mean(axis=0)
    x, y = ax.transData.transform(mode)
    assert np.hypot(left + column + 0.5 - x, height - (top + row + 0.5) - y) < 4


def test_the_ceiling_is_what_is_drawn_darkest() -> None:
    window: Any = [(-2, 2), (-2, 2)]
    assert image_of(density_map(Normal(), limits=window, ceiling=0.7)).get_clim() == (0, 0.7)
    values = Normal().score_samples(cells(window, 9).reshape(-1, 2)).reshape(9, 9)
    image = image_of(density_image(values, window))
    assert image.get_clim() == pytest.approx((0, 1 / (2 * math.pi)))


@pytest.mark.parametrize("ceiling", [None, math.exp(1.0) / (2 * math.pi)])
def test_contours_of_a_normal_density_are_circles_a_nat_apart(ceiling: float | None) -> None:
    """A nat below the mode of N(0, I) is at r²/2 = 1; a ceiling e times the mode is one above."""
    window = [(-6.0, 6.0), (-6.0, 6.0)]
    ax = density_map(Normal(), limits=window, side=241, log=True, ceiling=ceiling)
    (contours,) = ax.collections
    assert isinstance(contours, QuadContourSet)
    levels = np.asarray(contours.levels)
    np.testing.assert_allclose(levels, np.arange(-10, 1))
    above = 0.0 if ceiling is None else 1.0
    seen = 0
    for low, path in zip(levels[:-1], contours.get_paths(), strict=True):
        ends = [-low - above, -(low + 1) - above]
        radii = np.sqrt(2 * np.maximum(ends, 0))
        found = np.linalg.norm(np.asarray(path.vertices).reshape(-1, 2), axis=1)
        if ends[0] <= 0:  # above the mode there is nothing, but for rounding at the mode itself
            assert (found < 0.1).all()
            continue
        found = found[found > 0.2]  # a grid has no circle around the mode itself
        gap = np.abs(found[:, None] - radii).min(axis=1)
        assert gap.max() < 0.02
        seen += 1
    assert seen == 10 - above


def test_an_image_need_not_be_square() -> None:
    x, y = np.meshgrid((np.arange(40) + 0.5) / 40 * 4 - 2, (np.arange(20) + 0.5) / 20 * 2 - 1)
    values = Normal((1.0, 0.4), 0.3).score_samples(np.stack([x, y], axis=-1))
    for log in (False, True):
        ax = density_image(values, [(-2, 2), (-1, 1)], log=log)
        assert ax.get_xlim() == (-2, 2)
        assert ax.get_ylim() == (-1, 1)
    vertices = np.concatenate([p.vertices for p in ax.collections[0].get_paths()[-1:]])
    np.testing.assert_allclose(vertices.mean(axis=0), (1.0, 0.4), atol=0.1)


def test_limits_must_fit_the_picture(plane: OISM, line: OISM, mixed: OISM) -> None:
    with pytest.raises(ValueError, match="model must have 2 columns for this figure, got 1"):
        density_map(line)
    with pytest.raises(ValueError, match="model must have 1 columns for this figure, got 2"):
        density_curve(plane)
    with pytest.raises(ValueError, match="model must have 2 columns for this figure, got 3"):
        score_field(mixed, 0.1)
    with pytest.raises(ValueError, match="limits must be given for 2 columns, got 1"):
        density_map(plane, limits=[(0.0, 1.0)])
    with pytest.raises(TypeError, match="limits must be given unless the model is a TableModel"):
        density_map(Normal())


def test_a_model_must_be_fitted() -> None:
    for draw in (limits_of, density_map, density_curve, ramachandran):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            draw(OISM())


def test_pictures_without_a_box(rows: Array) -> None:
    model = OISM(process="ou", order=3, flow_steps=8).fit(rows)
    limits = limits_of(model)
    found = image_of(density_map(model, side=7)).get_array()
    assert found is not None
    points = cells(limits, 7).reshape(-1, 2)
    np.testing.assert_allclose(found.ravel(), np.exp(model.score_samples(points)), rtol=1e-9)
    arrows = arrows_of(score_field(model, 0.1, side=7))
    field = model.score_function(points, 0.1)
    np.testing.assert_allclose(np.asarray(arrows.get_array()), np.linalg.norm(field, axis=1))


def test_a_curve_is_the_density(line: OISM) -> None:
    ax = density_curve(line, points=101)
    x, y = (np.asarray(part) for part in ax.lines[0].get_data())
    frame = pd.DataFrame({"length": x})
    np.testing.assert_allclose(y, np.exp(line.score_samples(frame)), rtol=1e-12)
    assert (x[0], x[-1]) == pytest.approx(limits_of(line)[0])
    assert ax.get_xlabel() == "length"


def test_columns_have_their_names(torus: OISM, plane: OISM) -> None:
    for ax in (density_map(torus, side=5), score_field(torus, 0.1, side=3)):
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("phi", "psi")
    ax = density_map(plane, side=5)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("column 0", "column 1")


def test_ticks_of_angles(torus: OISM, radians: OISM, plane: OISM) -> None:
    degrees = ["0°", "90°", "180°", "270°", "360°"]
    ax = density_map(torus, side=5)
    assert labels(ax, "x") == labels(ax, "y") == degrees
    assert ax.get_aspect() == 1
    ax = density_map(radians, side=5)
    assert labels(ax, "x") == labels(ax, "y") == ["-1π", "-0.5π", "0", "0.5π", "1π"]
    assert density_map(plane, side=5).get_aspect() == "auto"


def test_ticks_of_angles_far_from_zero() -> None:
    """Ten turns are not ten."""
    box = (9 * math.pi, 11 * math.pi)
    x = np.random.default_rng(0).normal(10 * math.pi, 0.5, (50, 2))
    model = OISM(max_eigenvalue=4, flow_steps=4, box=box).fit(x)
    assert labels(density_map(model, side=5), "x") == ["9π", "9.5π", "10π", "10.5π", "11π"]


def test_a_ramachandran_plot_is_of_two_angles(
    torus: OISM, radians: OISM, plane: OISM, mixed: OISM, line: OISM, five: OISM
) -> None:
    ax = ramachandran(torus, side=9)
    across, upright = ax.lines
    assert (np.asarray(across.get_ydata()) == 180).all()
    assert (np.asarray(upright.get_xdata()) == 180).all()
    assert (np.asarray(ramachandran(radians, side=9).lines[0].get_ydata()) == 0).all()
    one = OISM(max_eigenvalue=4, flow_steps=4, periodic={0: 360}).fit(np.arange(40.0)[:, None])
    half = OISM(max_eigenvalue=4, flow_steps=4, periodic={0: 360}).fit(
        np.random.default_rng(0).normal(size=(40, 2))
    )
    for model in (plane, mixed, line, five, one, half):
        with pytest.raises(ValueError, match="needs a model of two periodic columns"):
            ramachandran(model)


@pytest.mark.parametrize("flat", [False, True])
def test_a_histogram_integrates_to_one(flat: bool, line: OISM) -> None:
    x = np.random.default_rng(0).gamma(2, 1, 500)
    for model in (None, line):
        ax = cloud(x if flat else x[:, None], model=model)
        bars = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
        area = sum(bar.get_width() * bar.get_height() for bar in bars)
        assert area == pytest.approx(1)
        low = min(bar.get_x() for bar in bars)
        assert low == pytest.approx(x.min() if model is None else limits_of(line)[0][0])
        middle = max(bars, key=lambda bar: bar.get_height())
        assert 0.3 < middle.get_x() < 2  # the mode is at 1


def test_dots_are_where_the_points_are(rows: Array, plane: OISM) -> None:
    ax = cloud(rows, model=plane, s=3)
    dots: Any = ax.collections[0]
    np.testing.assert_allclose(dots.get_offsets(), rows)
    assert ax.get_xlim() == pytest.approx(limits_of(plane)[0])
    assert dots.get_sizes() == [3]
    few, many = (cloud(np.zeros((n, 2))).collections[0].get_alpha() for n in (100, 10_000))
    assert isinstance(few, float)
    assert isinstance(many, float)
    assert many < few


def test_points_of_three_columns_are_no_picture() -> None:
    with pytest.raises(ValueError, match="points must have one or two columns, got 3"):
        cloud(np.zeros((5, 3)))


def test_arrows_point_along_the_score(torus: OISM) -> None:
    t = 0.05
    arrows = arrows_of(score_field(torus, t, side=7))
    points = pd.DataFrame(np.asarray(arrows.get_offsets()), columns=["phi", "psi"])
    np.testing.assert_allclose(points, cells(limits_of(torus), 7).reshape(-1, 2))
    field = torus.score_function(points, t)
    length = np.linalg.norm(field, axis=1)
    drawn = np.stack([arrows.U, arrows.V], axis=1)
    np.testing.assert_allclose(
        drawn / np.linalg.norm(drawn, axis=1)[:, None], field / length[:, None], atol=1e-9
    )
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), np.sqrt(length), rtol=1e-9)
    np.testing.assert_allclose(np.asarray(arrows.get_array()), length, rtol=1e-9)
    longest = np.linalg.norm(drawn, axis=1).max() / arrows.scale
    assert longest == pytest.approx(1.1 * 360 / 7)  # in units of the data: about a cell


def test_arrows_on_axes_of_different_units(plane: OISM) -> None:
    arrows = arrows_of(score_field(plane, 0.05, side=5))
    points = np.asarray(arrows.get_offsets())
    field = plane.score_function(points, 0.05)
    cross = field[:, 0] * arrows.V - field[:, 1] * arrows.U
    np.testing.assert_allclose(cross, 0, atol=1e-9 * np.abs(field).max() ** 2)
    assert (field[:, 0] * arrows.U + field[:, 1] * arrows.V > 0).all()
    assert arrows.angles == "xy"


def test_the_score_of_one_column_is_a_curve(line: OISM) -> None:
    ax = score_field(line, 0.02)
    x, y = (np.asarray(part) for part in ax.lines[0].get_data())
    expected = line.score_function(pd.DataFrame({"length": x}), 0.02)[:, 0]
    np.testing.assert_allclose(y, expected, rtol=1e-9)
    assert ax.get_ylabel() == "score"


def wrapped_kernels(points: Array, data: Array, t: float) -> Array:
    """Return the mean of wrapped N(x, 2t I) at points on the torus, by images."""
    images = 2 * math.pi * np.arange(-4, 5)
    steps = points[:, None, :, None] - data[None, :, :, None] + images
    kernels = scipy.stats.norm.pdf(steps, scale=math.sqrt(2 * t)).sum(axis=3)
    mean: Array = kernels.prod(axis=2).mean(axis=1)
    return mean


def test_the_shade_is_the_density_of_data_with_noise(torus: OISM, angles: pd.DataFrame) -> None:
    t, points = 0.2, cells(limits_of(torus), 11).reshape(-1, 2)
    exact = wrapped_kernels(np.radians(points), np.radians(angles.to_numpy()), t)
    np.testing.assert_allclose(_noised(torus, points, t), exact / exact.max(), atol=1e-6)


def test_the_shade_at_bounds_is_that_of_reflected_data() -> None:
    r = np.random.default_rng(0)
    x = np.stack([r.beta(1, 2, 200), r.normal(0, 30, 200)], axis=1)
    model = OISM(max_eigenvalue=25, flow_steps=4, bounds={0: (0, 1)}, periodic={1: 360}).fit(x)
    points = cells(limits_of(model), 9).reshape(-1, 2)
    there, data = (np.stack([math.pi * p[:, 0], np.radians(p[:, 1])], axis=1) for p in (points, x))
    both = np.concatenate([data, data * [-1, 1]])
    exact = wrapped_kernels(there, both, 0.2)
    np.testing.assert_allclose(_noised(model, points, 0.2), exact / exact.max(), atol=1e-6)


def test_the_shade_of_a_gaussian(rows: Array) -> None:
    """Order 2 is the Gaussian of the data, and white data stay white with noise."""
    model = OISM(process="ou", order=2, ridge=0.0, flow_steps=4).fit(rows)
    points = cells(limits_of(model), 9).reshape(-1, 2)
    law = scipy.stats.multivariate_normal(rows.mean(axis=0), np.cov(rows.T, bias=True))
    exact = law.pdf(points)
    np.testing.assert_allclose(_noised(model, points, 0.3), exact / exact.max(), atol=1e-6)


def test_a_table_model_is_drawn_like_its_estimator(plane: OISM, radians: OISM) -> None:
    assert limits_of(plane.model_) == limits_of(plane)
    one, two = (image_of(density_map(model, side=5)).get_array() for model in (plane, plane.model_))
    np.testing.assert_array_equal(np.asarray(one), np.asarray(two))
    arrows = arrows_of(score_field(plane.model_, 0.1, side=3))
    np.testing.assert_array_equal(arrows.U, arrows_of(score_field(plane, 0.1, side=3)).U)
    assert ramachandran(radians.model_, side=5).get_xlabel() == "column 0"
    with pytest.raises(TypeError, match=r"model must have a chart .* got Normal"):
        limits_of(Normal())  # type: ignore[arg-type]


def test_figures_of_a_linear_process(rows: Array) -> None:
    """Noise of different sizes in the columns, and order 2: the shade is the noised Gaussian."""
    process = Linear(torch.tensor([[-1.0, 0.0], [0.5, -2.0]]), torch.eye(2))
    model = OISM(process=process, order=2, flow_steps=4).fit(rows)
    found, t = model.model_, 0.3
    points = cells(limits_of(model), 9).reshape(-1, 2)
    transition = found.process.transition(t)
    mean = transition.mean(torch.from_numpy(rows.mean(axis=0)[None]))[0]
    steps = transition.mean(torch.eye(2).double()) - transition.mean(torch.zeros(2, 2).double())
    power = steps.mT.numpy()
    covariance = power @ np.cov(rows.T, bias=True) @ power.T + transition.covariance(2).numpy()
    exact = scipy.stats.multivariate_normal(mean.numpy(), covariance).pdf(points)
    np.testing.assert_allclose(_noised(model, points, t), exact / exact.max(), atol=1e-6)
    assert score_field(model, t, side=3).has_data()
