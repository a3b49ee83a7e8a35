"""One figure of a model: its density, samples and scores, beside the rows it was fitted to.

Of more than two columns, of columns with levels, and of mixtures it is a corner plot.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from oism.plot._corner import corner
from oism.plot._frame import Array, fitted, limits_of, periods_of, table_model
from oism.plot._maps import cloud, density_curve, density_map, ramachandran, score_field
from oism.plot._sphere import sphere_overview
from oism.tables import OISM

SAMPLES = 5000
PANEL = 3.4
"""The side of a panel in inches."""

ROWS = "#6b6f76"
"""The colour of rows beside samples."""

NOISE = 0.1
"""The noise whose score is drawn, in the process's coordinates: 0.1 radian or deviation."""


def overview(
    model: OISM,
    rows: ArrayLike | None = None,
    *,
    columns: Sequence[int | str] | None = None,
    random_state: int = 0,
) -> Figure:
    """Return a figure that shows a model: its density, samples and scores, beside rows if given.

    With more than two columns it is a `corner` plot of all, or of the ``columns``. Points of the
    sphere are shown on maps, see `sphere_overview`.
    """
    if model.sphere is not None:
        return sphere_overview(model, rows, random_state=random_state)
    wide = model.n_features_in_ > 2 or (columns is not None and len(columns) < 2)
    if wide or table_model(model) is None:
        return corner(model, rows, columns=columns, random_state=random_state)
    data = None if rows is None else np.asarray(rows, dtype=np.float64)
    if data is not None and data.shape[1:] != (model.n_features_in_,):
        raise ValueError(
            f"rows must have the {model.n_features_in_} columns of the model, got {data.shape}"
        )
    count = SAMPLES if data is None else min(len(data), 4 * SAMPLES)
    samples = np.asarray(model.sample(count, random_state=random_state), dtype=np.float64)
    return (_line if model.n_features_in_ == 1 else _plane)(model, data, samples)


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
