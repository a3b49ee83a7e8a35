"""Maps of the sphere: rows, density, samples and score in Mollweide's equal-area projection.

Densities are per steradian, so equal areas of the map with equal colours hold equal mass.
"""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike
from scipy.interpolate import RectBivariateSpline

from oism.plot._frame import DENSITY, INK, Array
from oism.tables import OISM, SphereModel

SAMPLES = 5000
ROWS = "#6b6f76"
NOISE = 0.15
"""The noise √(2t) whose score is drawn, in radians."""

LEAST_SIDE, PAD = 72, 6
"""The least number of cells of a coarse grid, and of those that continue it beyond its ends."""

RANGE = 7.0
"""The log-densities that are shown, in nats below the largest."""


def _globe(figure: Figure, place: tuple[int, int, int], title: str) -> Axes:
    ax = figure.add_subplot(*place, projection="mollweide")
    ax.set_title(title, pad=10)
    ax.set_xticks(np.radians([-120, -60, 0, 60, 120]))
    ax.set_yticks(np.radians([-60, -30, 0, 30, 60]))
    degrees = FuncFormatter(lambda angle, _: f"{math.degrees(angle):.0f}°")
    ax.xaxis.set_major_formatter(degrees)
    ax.yaxis.set_major_formatter(degrees)
    ax.tick_params(labelsize="x-small", colors="#6b6f76")
    for label in ax.get_xticklabels():  # on the equator, over points and colours
        label.set_path_effects([withStroke(linewidth=2, foreground="white", alpha=0.8)])
    ax.grid(linewidth=0.4, alpha=0.6)
    return ax


def _points(latitude: Array, longitude: Array) -> torch.Tensor:
    """Return unit vectors of angles in radians."""
    flat = np.cos(latitude)
    parts = (flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude))
    return torch.from_numpy(np.stack(parts, axis=-1).reshape(-1, 3))


def _angles(model: SphereModel, rows: ArrayLike) -> tuple[Array, Array]:
    """Return longitude and latitude in radians of rows."""
    x = model.directions.to_points(torch.from_numpy(np.array(rows, dtype=np.float64))).numpy()
    return np.arctan2(x[:, 1], x[:, 0]), np.arcsin(np.clip(x[:, 2], -1, 1))


def sphere_cloud(model: SphereModel, rows: ArrayLike, ax: Axes, color: str = INK) -> Axes:
    """Return the map with the rows as dots."""
    longitude, latitude = _angles(model, rows)
    size = float(np.clip(6000 / len(longitude), 0.5, 6.0))
    ax.scatter(longitude, latitude, s=size, color=color, linewidths=0, alpha=0.6, rasterized=True)
    return ax


def sphere_density(model: SphereModel, ax: Axes, side: int = 180) -> Axes:
    """Return the map with log-densities as colours, ``side`` cells from pole to pole."""
    latitude = np.linspace(-0.5 * np.pi, 0.5 * np.pi, side + 1)
    longitude = np.linspace(-np.pi, np.pi, 2 * side + 1)
    log = density_grid(model, side)
    top = float(log.max())
    # Cells without edges and antialiasing: either would draw lines between them.
    ax.pcolormesh(
        longitude,
        latitude,
        log,
        vmin=top - RANGE,
        vmax=top,
        cmap=DENSITY,
        antialiased=False,
        linewidth=0,
        rasterized=True,
    )
    return ax


def density_grid(model: SphereModel, side: int) -> Array:
    """Return log-densities at the middles of cells: ``(side, 2 side)``, from the south pole.

    The log-density of the flow has a limited degree: it is computed on a coarser grid and
    interpolated by a cubic spline. The other parts of the pool are computed at all places.
    """
    coarse = min(side, max(LEAST_SIDE, int(model.operator_score.basis.facts()["finest"])))
    flow = model.flow_density(_middles(coarse)).reshape(coarse, 2 * coarse).numpy()
    x = _middles(side)
    fine = torch.from_numpy(_refined(flow, side)).reshape(-1, 1)
    others = [part.log_densities(x) for part in model.pool.parts[1:]]
    log = torch.logsumexp(torch.cat((fine, *others), dim=1) + model.weights.log(), dim=1)
    return log.reshape(side, 2 * side).numpy()


def _middles(side: int) -> torch.Tensor:
    """Return unit vectors at the middles of ``side`` times 2 ``side`` cells."""
    step = np.pi / side
    latitude = step * (np.arange(side) + 0.5) - 0.5 * np.pi
    return _points(
        *np.meshgrid(latitude, step * (np.arange(2 * side) + 0.5) - np.pi, indexing="ij")
    )


def _refined(values: Array, side: int) -> Array:
    """Return values at the middles of ``side`` times 2 ``side`` cells, from those of fewer."""
    count = len(values)
    if side == count:
        return values
    # Over a pole a meridian goes on as the one opposite to it.
    opposite = np.roll(values, count, axis=1)
    tall = np.concatenate((opposite[:PAD][::-1], values, opposite[-PAD:][::-1]))
    wide = np.concatenate((tall[:, -PAD:], tall, tall[:, :PAD]), axis=1)
    places = [np.arange(-PAD, size + PAD) + 0.5 for size in values.shape]
    spline = RectBivariateSpline(*places, wide)
    at = [(np.arange(k * side) + 0.5) * count / side for k in (1, 2)]
    return np.asarray(spline(*at), dtype=np.float64)


def sphere_score(model: SphereModel, ax: Axes, noise: float = NOISE) -> Axes:
    """Return the map with the scores at a noise as arrows, towards denser regions."""
    low, high = model.times
    t = float(np.clip(0.5 * noise**2, low, high))
    rings = np.radians(np.arange(-75, 76, 15.0))
    places = [
        (ring, turn)
        for ring in rings
        for turn in np.linspace(-np.pi, np.pi, max(6, round(24 * np.cos(ring))), endpoint=False)
    ]
    latitude, longitude = np.array(places).T
    longitude = longitude + np.pi / 24
    x = _points(latitude, longitude)
    score = model.operator_score.score(x, t).numpy()
    east = np.stack((-np.sin(longitude), np.cos(longitude), np.zeros_like(longitude)), axis=1)
    north = np.cross(x.numpy(), east)
    u, v = (score * east).sum(axis=1), (score * north).sum(axis=1)
    size = np.hypot(u, v)
    shrink = np.log1p(size / np.median(size)) / np.maximum(size, 1e-12)
    # A step to the east by a length is one of length / cos latitude in longitude.
    ax.quiver(
        longitude,
        latitude,
        u * shrink,
        v * shrink,
        color=INK,
        width=0.0025,
        scale=40,
        pivot="mid",
    )
    return ax


def sphere_overview(model: OISM, rows: ArrayLike | None = None, *, random_state: int = 0) -> Figure:
    """Return maps of a model of points of the sphere: rows if given, density, samples, score.

    Other columns are left out.
    """
    columns = list(model.model_.sphere_columns)
    fitted: SphereModel = model.model_.marginal(columns)
    data = None if rows is None else np.asarray(rows)[:, columns].astype(np.float64)
    count = SAMPLES if data is None else min(len(data), 4 * SAMPLES)
    samples = np.asarray(model.sample(count, random_state=random_state))
    samples = samples[:, columns].astype(np.float64)
    figure = plt.figure(figsize=(11.0, 6.4 if data is not None else 3.4), layout="constrained")
    shape = (2, 2) if data is not None else (1, 3)
    places = iter(range(1, 5))
    if data is not None:
        ax = _globe(figure, (*shape, next(places)), f"{len(data):,} rows")
        sphere_cloud(fitted, data, ax, ROWS)
    ax = sphere_density(fitted, _globe(figure, (*shape, next(places)), "fitted log-density"))
    figure.colorbar(
        ax.collections[0], ax=ax, label="nats per steradian", shrink=0.7, pad=0.03, aspect=25
    )
    ax = _globe(figure, (*shape, next(places)), f"{len(samples):,} samples")
    sphere_cloud(fitted, samples, ax)
    title = f"score of the flow, noise {math.degrees(NOISE):.0f}°"
    sphere_score(fitted, _globe(figure, (*shape, next(places)), title))
    return figure
