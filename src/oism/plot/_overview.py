"""One figure of a model: its density, samples and scores, beside the rows it was fitted to."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from oism._core import checks
from oism.plot._frame import INK, PALE, Array, column_names, fitted, limits_of, periods_of
from oism.plot._maps import cloud, density_curve, density_map, ramachandran, score_field
from oism.tables import OISM

SAMPLES = 5000
PANEL = 3.4
"""The side of a panel in inches."""

ROWS = "#6b6f76"
"""The colour of rows beside samples."""

MOST_COLUMNS = 6
"""The number of columns, the first ones, that a figure of all pairs shows."""

NOISE = 0.1
"""The noise whose score is drawn, in the process's coordinates: 0.1 radian or deviation."""


def overview(
    model: OISM,
    rows: ArrayLike | None = None,
    *,
    columns: tuple[int, int] | None = None,
    random_state: int = 0,
) -> Figure:
    """Return a figure that shows a model: its density, samples and scores, beside rows if given.

    With more than two columns it shows samples of all pairs, or of the two ``columns``.
    """
    data = None if rows is None else np.asarray(rows, dtype=np.float64)
    if data is not None and data.shape[1:] != (model.n_features_in_,):
        raise ValueError(
            f"rows must have the {model.n_features_in_} columns of the model, got {data.shape}"
        )
    count = SAMPLES if data is None else min(len(data), 4 * SAMPLES)
    samples = model.sample(count, random_state=random_state)
    if columns is not None:
        chosen = [checks.integer(c, "columns", minimum=0) for c in columns]
        if len(chosen) != 2 or len(set(chosen)) != 2 or max(chosen) >= model.n_features_in_:
            raise ValueError(f"columns must be two of {model.n_features_in_}, got {columns}")
        if model.n_features_in_ > 2:
            return _pair(model, data, samples, chosen)
    if model.n_features_in_ == 1:
        return _line(model, data, samples)
    if model.n_features_in_ == 2:
        return _plane(model, data, samples)
    return _corner(model, data, samples)


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    figure, panels = plt.subplots(
        1, count, figsize=(PANEL * count, PANEL + 0.4), layout="constrained", squeeze=False
    )
    return figure, list(panels[0])


def _time(model: OISM) -> float:
    low, high = fitted(model).times
    return float(np.clip(NOISE**2 / 2, low, high))


def _noise(model: OISM) -> str:
    """Return the noise of the score that is drawn, in the units of the columns."""
    deviations = fitted(model).noise_deviations(_time(model)).tolist()
    figures = list(dict.fromkeys(f"{deviation:.2g}" for deviation in deviations))
    return figures[0] if len(figures) == 1 else f"({', '.join(figures)})"


def _line(model: OISM, data: Array | None, samples: Array) -> Figure:
    figure, (left, right) = _panels(2)
    shown, title = (samples, "samples") if data is None else (data, "rows")
    cloud(shown, left, model=model, label=f"{len(shown):,} {title}")
    density_curve(model, left, label="fitted density")
    left.legend(frameon=False, fontsize="small")
    score_field(model, _time(model), right)
    right.set_title(f"score, noise σ = {_noise(model)}")
    return figure


def _plane(model: OISM, data: Array | None, samples: Array) -> Figure:
    limits = limits_of(model)
    angles = all(periods_of(model)) and bool(periods_of(model))
    figure, panels = _panels(4 if data is not None else 3)
    if data is not None:
        cloud(data, panels[0], model=model, limits=limits, color=ROWS).set_title(
            f"{len(data):,} rows"
        )
    density, drawn, score = panels[-3:]
    (ramachandran if angles else density_map)(model, density)
    density.set_title("fitted log-density" if angles else "fitted density")
    shade = density.images[-1] if density.images else density.collections[0]
    label, shrink = ("nats below the mode", 0.74) if angles else ("density", 1.0)
    figure.colorbar(shade, ax=density, label=label, shrink=shrink, pad=0.02, aspect=25)
    cloud(samples, drawn, model=model, limits=limits).set_title(f"{len(samples):,} samples")
    score_field(model, _time(model), score).set_title(f"score, noise σ = {_noise(model)}")
    for panel in panels[1:]:
        panel.set_ylabel("")
        panel.tick_params(labelleft=False)
    return figure


def _pair(model: OISM, data: Array | None, samples: Array, columns: list[int]) -> Figure:
    names, limits = column_names(model, model.n_features_in_), limits_of(model)
    figure, panels = _panels(1 if data is None else 2)
    for panel, points, what in zip(
        panels[::-1], (samples, data), ("samples", "rows"), strict=False
    ):
        if points is not None:
            cloud(points[:, columns], panel, color=INK if what == "samples" else ROWS)
            panel.set(xlim=limits[columns[0]], ylim=limits[columns[1]], xlabel=names[columns[0]])
            panel.set(title=f"{len(points):,} {what}", ylabel=names[columns[1]])
    return figure


def _corner(model: OISM, data: Array | None, samples: Array) -> Figure:
    count = min(model.n_features_in_, MOST_COLUMNS)
    names, limits = column_names(model, model.n_features_in_), limits_of(model)
    side = 1.9 * count
    figure = plt.figure(figsize=(side, side), layout="constrained")
    panels = figure.subplots(count, count)
    for i in range(count):
        for j in range(count):
            panel = panels[i, j]
            if j > i and data is None:
                panel.axis("off")
                continue
            if i == j:
                if data is not None:
                    cloud(data[:, [i]], panel, limits=[limits[i]], color=PALE, label="rows")
                look: dict[str, Any] = {"histtype": "step", "color": INK, "label": "samples"}
                cloud(samples[:, [i]], panel, limits=[limits[i]], **look)
                panel.set(yticks=[])
                if i == 0 and data is not None:
                    panel.legend(frameon=False, fontsize=6)
            else:  # samples below the diagonal, rows above it
                points = samples if j < i or data is None else data
                cloud(points[:, [j, i]], panel, color=INK if points is samples else ROWS)
                panel.set(ylim=limits[i])
            panel.set(xlim=limits[j])
            panel.tick_params(labelleft=j == 0 and i > 0, labelbottom=i == count - 1, labelsize=7)
            if i == count - 1:
                panel.set_xlabel(names[j])
            if j == 0:
                panel.set_ylabel(names[i])
    upper = "" if data is None else f", above it {len(data):,} rows"
    shown = "" if count == model.n_features_in_ else f" (the first {count} columns)"
    figure.suptitle(f"below the diagonal {len(samples):,} samples{upper}{shown}", fontsize=10)
    return figure
