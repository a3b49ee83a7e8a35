"""A corner plot: the marginals of all columns and pairs of columns, of data, model and samples.

On the diagonal the density of the model over a histogram of the data. Below it, for each pair, the
regions in which the model is densest, which hold given shares of its mass, and the data as dots.
Above it samples of the model as dots, as many as there are dots of data. Levels are drawn as bars,
as strips beside an interval, and as boxes whose area is the probability of a pair of levels: filled
for the model, outlined for the data.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Scale
from matplotlib.collections import PatchCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from oism._core import checks
from oism.plot._frame import INK, column_names
from oism.plot._marginals import Axis, density_levels, marginal_density, pair_density
from oism.tables import Column

Array = NDArray[np.float64]

SAMPLES = 10_000
DOTS = 1500
"""The largest number of dots in a panel."""

SHARES = (0.95, 0.8, 0.5, 0.2)
"""The shares of the model's mass that the regions hold, the outermost first."""

TINTS = ("#e3e9f4", "#bccae4", "#8aa3d0", "#5577b3")
HISTOGRAM, DATA = "#d9d5cf", "#3a3632"

MOST_COLUMNS = 12
"""The number of columns, the first ones, that a figure shows."""

STRIP = 0.8
"""The width of a strip or bar, and the largest box, as a share of the place of a level."""

LONGEST = 14
"""The number of characters of a line of a column's name."""

GAP, EDGE, LINE = 0.07, 0.1, 0.17
"""Between panels, around the figure, and the height of a line of the legend, in inches."""


class Sampler(Protocol):
    """A model that a corner plot can show."""

    n_features_in_: int

    def sample(self, n_samples: int = 1, random_state: int = 0) -> Any:  # noqa: ANN401
        """Return random rows, as an array or a frame."""


@dataclass(frozen=True)
class View:
    """One column: its axis, and the places of data, if any, and of samples."""

    axis: Axis
    data: Array | None
    samples: Array


def corner(
    model: Sampler,
    X: ArrayLike | None = None,  # noqa: N803
    *,
    columns: Sequence[int | str] | None = None,
    n_samples: int = SAMPLES,
    random_state: int = 0,
) -> Figure:
    """Return a corner plot of a model, beside rows if they are given.

    Parameters
    ----------
    model
        An `OISM`, or any estimator with ``sample``.
    X
        Rows in the columns of the model, an array or a frame.
    columns
        The columns to show, by index or name; all by default, at most the first 12.
    n_samples
        The number of samples that the marginals of the model are computed from.
    random_state
        The seed of the samples.
    """
    drawn = model.sample(checks.integer(n_samples, "n_samples", minimum=2), random_state)
    names = column_names(model, model.n_features_in_)
    chosen = _chosen(columns, names)
    kinds = getattr(model, "columns_", None) or [Column() for _ in names]
    views = []
    for j in chosen:
        values = _column(drawn, j, names, "samples")
        rows = None if X is None else _column(X, j, names, "X")
        views.append(_view(kinds[j], names[j], rows, values))
    figure, panels = _panels(len(views))
    picked = _dots(views, random_state)
    for i, row in enumerate(views):
        _diagonal(panels[i, i], row)
        for j, column in enumerate(views[:i]):
            _below(panels[i, j], column, row, picked)
            _above(panels[j, i], row, column, picked)
    _labels(panels, [view.axis for view in views])
    lines = 1 if len(views) > 2 else 3
    _fit_margins(figure, EDGE + lines * LINE + GAP)
    _legend(figure, views, lines, more=len(names) - len(chosen) if columns is None else 0)
    return figure


def _chosen(columns: Sequence[int | str] | None, names: list[str]) -> list[int]:
    """Return the indices of the columns to show."""
    if columns is None:
        return list(range(min(len(names), MOST_COLUMNS)))
    found = []
    for one in columns:
        if isinstance(one, str):
            if one not in names:
                raise ValueError(f"columns names {one!r}; the columns are {names}")
            found.append(names.index(one))
            continue
        found.append(checks.integer(one, "columns", minimum=0))
        if found[-1] >= len(names):
            raise ValueError(f"columns must be out of 0 to {len(names) - 1}, got {one}")
    if not found or len(set(found)) < len(found):
        raise ValueError(f"columns must be distinct, at least one, got {list(columns)}")
    return found


def _column(table: Any, j: int, names: list[str], what: str) -> NDArray[Any]:  # noqa: ANN401
    """Return the values of a column of an array or a frame."""
    labels = getattr(table, "column_names", getattr(table, "columns", None))
    if labels is not None:
        if names[j] in list(labels):
            return np.asarray(table[names[j]])
        if len(labels) != len(names) or set(names) & set(labels):
            raise ValueError(
                f"{what} must have column {names[j]!r}; its columns are {list(labels)}"
            )
        return np.asarray(table[labels[j]])
    rows = np.asarray(table)
    if rows.ndim != 2 or rows.shape[1] != len(names):
        raise ValueError(
            f"{what} must have the {len(names)} columns of the model, got shape {rows.shape}"
        )
    return rows[:, j]


def _view(kind: Column, name: str, rows: NDArray[Any] | None, drawn: NDArray[Any]) -> View:
    sources = [drawn] if rows is None else [rows, drawn]
    numbers: list[Array] = []
    if kind.is_numeric:
        numbers = [np.asarray(one, dtype=np.float64) for one in sources]
        numbers = [one[np.isfinite(one)] for one in numbers]
        if not all(len(one) for one in numbers):
            raise ValueError(f"X must have values in column {name!r}, got none")
    axis = Axis.of(kind, name, numbers)
    return View(axis, None if rows is None else axis.places(rows), axis.places(drawn))


def _dots(views: list[View], seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of the data and the samples that are drawn as dots: as many of both."""
    data, drawn = views[0].data, len(views[0].samples)
    total = drawn if data is None else len(data)
    count = min(DOTS, total, drawn)
    picked = np.random.default_rng(seed).choice(total, count, replace=False)
    return picked, np.arange(count)


def _panels(count: int) -> tuple[Figure, NDArray[Any]]:
    side = 1.25 if count > 6 else 1.5 if count > 4 else 1.9
    inner = count * side + (count - 1) * GAP
    figure, panels = plt.subplots(count, count, figsize=(inner, inner), squeeze=False)
    figure.subplots_adjust(0, 0, 1, 1, wspace=GAP / side, hspace=GAP / side)
    for panel in panels.flat:
        panel.tick_params(labelsize=7, length=2.5, width=0.6, labelleft=False, labelbottom=False)
        for spine in panel.spines.values():
            spine.set(linewidth=0.6, color="#777777")
    return figure, panels


def _fit_margins(figure: Figure, top: float) -> None:
    """Enlarge a figure whose panels fill it, so that labels and the legend fit around them."""
    figure.draw_without_rendering()
    width, height = figure.get_size_inches()
    box = figure.get_tightbbox()
    left, bottom = max(0.0, -box.x0) + EDGE, max(0.0, -box.y0) + EDGE
    wide, high = width + left + max(EDGE, box.x1 - width + 0.02), height + bottom + top
    figure.set_size_inches(wide, high)
    figure.subplots_adjust(
        left / wide, bottom / high, (left + width) / wide, (bottom + height) / high
    )


def _diagonal(panel: Axes, view: View) -> None:
    axis = view.axis
    edges, density = marginal_density(axis, view.samples)
    heights: Array = np.zeros(1)
    middles = 0.5 * (edges[1:] + edges[:-1])
    if axis.levels:
        if view.data is not None:
            heights = np.histogram(view.data, edges)[0] / max(1, np.isfinite(view.data).sum())
            panel.bar(middles, heights, STRIP, color=HISTOGRAM)
        panel.hlines(density, middles - 0.5 * STRIP, middles + 0.5 * STRIP, color=INK, lw=1.6)
    else:
        if view.data is not None:
            known = view.data[np.isfinite(view.data)]
            bins = axis.edges(int(np.clip(2 * len(known) ** (1 / 3), 8, 40)))
            heights = np.histogram(known, bins)[0] / max(1, len(known)) / np.diff(bins)
            panel.stairs(heights, bins, fill=True, color=HISTOGRAM)
        ends = np.concatenate(([axis.low], middles, [axis.high]))
        panel.plot(ends, np.pad(density, 1, mode="edge"), color=INK, lw=1.2)
    top = max(float(density.max()), float(heights.max()))
    panel.set(xlim=(axis.low, axis.high), ylim=(0, 1.08 * top or 1.0), yticks=[])


def _below(panel: Axes, x: View, y: View, picked: tuple[NDArray[np.intp], ...]) -> None:
    """Draw the densest regions of the model, and dots of data."""
    panel.set(xlim=(x.axis.low, x.axis.high), ylim=(y.axis.low, y.axis.high))
    table = pair_density(x.axis, y.axis, x.samples, y.samples)
    if x.axis.levels and y.axis.levels:
        _boxes(panel, x, y, table)
        return
    if x.axis.levels or y.axis.levels:
        _strips(panel, x.axis, y.axis, table)
    else:
        _regions(panel, x.axis, y.axis, table)
    if x.data is not None and y.data is not None:
        _scatter(panel, x.axis, y.axis, x.data[picked[0]], y.data[picked[0]], DATA)


def _above(panel: Axes, x: View, y: View, picked: tuple[NDArray[np.intp], ...]) -> None:
    """Draw dots of samples."""
    panel.set(xlim=(x.axis.low, x.axis.high), ylim=(y.axis.low, y.axis.high))
    _scatter(panel, x.axis, y.axis, x.samples[picked[1]], y.samples[picked[1]], INK)


def _thresholds(table: Array) -> list[float]:
    """Return increasing densities that enclose the regions, with one above all."""
    levels = density_levels(table, SHARES)
    for k in range(1, len(levels)):  # a table with few different values has equal ones
        levels[k] = max(levels[k], levels[k - 1] * (1 + 1e-9))
    return [*levels, max(float(table.max()), levels[-1]) * (1 + 1e-6)]


def _regions(panel: Axes, x: Axis, y: Axis, table: Array) -> None:
    places = []
    for axis, cells in ((x, table.shape[1]), (y, table.shape[0])):
        edges = axis.edges(cells)
        places.append(np.concatenate(([axis.low], 0.5 * (edges[1:] + edges[:-1]), [axis.high])))
    whole = np.pad(table, 1, mode="edge")  # up to the bounds, not to the middle of the last cell
    panel.contourf(*places, whole, levels=_thresholds(table), colors=TINTS)


def _strips(panel: Axes, x: Axis, y: Axis, table: Array) -> None:
    """Draw a strip for each level, coloured by the density along the other column."""
    region = np.digitize(table, _thresholds(table)[:-1]).astype(np.float64)
    region[region == 0] = np.nan
    upright = bool(x.levels)
    edges = (y if upright else x).edges(table.shape[0] if upright else table.shape[1])
    for place in range(table.shape[1] if upright else table.shape[0]):
        ends = np.array([place - 0.5 * STRIP, place + 0.5 * STRIP])
        cells = region[:, place : place + 1] if upright else region[place : place + 1]
        panel.pcolormesh(
            *((ends, edges) if upright else (edges, ends)),
            cells,
            cmap=ListedColormap(TINTS),
            vmin=0.5,
            vmax=len(TINTS) + 0.5,
            rasterized=True,
        )


def _boxes(panel: Axes, x: View, y: View, table: Array) -> None:
    """Draw boxes whose areas are the probabilities of pairs of levels."""
    observed = None
    if x.data is not None and y.data is not None:
        known = np.isfinite(x.data) & np.isfinite(y.data)
        edges = y.axis.edges(0), x.axis.edges(0)
        observed = np.histogram2d(y.data[known], x.data[known], edges)[0] / max(1, known.sum())
    largest = max(float(t.max()) for t in (table, observed) if t is not None) or 1.0
    styles: list[tuple[Array | None, dict[str, Any]]] = [
        (table, {"facecolor": TINTS[2], "edgecolor": "none"}),
        (observed, {"facecolor": "none", "edgecolor": DATA, "linewidth": 0.7}),
    ]
    for shares, style in styles:
        if shares is not None:
            sides = STRIP * np.sqrt(shares / largest)
            boxes = [
                Rectangle((j - side / 2, i - side / 2), side, side)
                for (i, j), side in np.ndenumerate(sides)
                if side > 0
            ]
            panel.add_collection(PatchCollection(boxes, **style))


def _scatter(panel: Axes, x: Axis, y: Axis, a: Array, b: Array, colour: str) -> None:
    """Draw dots; those of a level are spread over its strip."""
    rng = np.random.default_rng(0)
    a, b = (
        places + (STRIP * (rng.random(len(places)) - 0.5) if axis.levels else 0.0)
        for axis, places in ((x, a), (y, b))
    )
    faint = float(np.clip(14 / math.sqrt(max(1, len(a))), 0.3, 0.8))
    panel.scatter(a, b, s=1.6, color=colour, alpha=faint, linewidths=0, rasterized=True)


def _labels(panels: NDArray[Any], axes: list[Axis]) -> None:
    """Label the panels at the left and at the bottom."""
    count = len(axes)
    for k, axis in enumerate(axes):
        for panel in panels[:, k]:
            _ticks(panel.xaxis, axis)
        for panel in np.delete(panels[k], k):
            _ticks(panel.yaxis, axis)
        name = _short(axis.name)
        panels[-1, k].set_xlabel(name, fontsize=8.5)
        panels[-1, k].tick_params(labelbottom=True)
        panels[k, 0].set_ylabel(name if count > 1 else "density", fontsize=8.5)
        if k:
            panels[k, 0].tick_params(labelleft=True)
        if _crowded(panels[-1, k].xaxis, axis, count):
            panels[-1, k].tick_params(axis="x", labelrotation=90)
        else:
            _keep_inside(panels[-1, k].xaxis, axis, ("left", "center", "right"))
        if k:
            _keep_inside(panels[k, 0].yaxis, axis, ("bottom", "center", "top"))
    panels[0, 0].figure.align_labels()


def _ticks(scale: Scale, axis: Axis) -> None:
    if axis.levels:
        step = math.ceil(len(axis.levels) / 8)
        places = list(range(0, len(axis.levels), step))
        scale.set_major_locator(FixedLocator(places))
        texts = {k: _level(axis.levels[k]) for k in places}
        scale.set_major_formatter(FuncFormatter(lambda v, _: texts.get(round(v), "")))
    elif axis.period is not None:
        scale.set_major_locator(FixedLocator(np.linspace(axis.low, axis.high, 3).tolist()))
        period = axis.period
        scale.set_major_formatter(FuncFormatter(lambda v, _: _angle(v, period)))
    else:
        scale.set_major_locator(MaxNLocator(3, steps=[1, 2, 2.5, 5, 10]))
        scale.set_major_formatter(FuncFormatter(lambda v, _: _number(v)))


def _keep_inside(scale: Scale, axis: Axis, words: tuple[str, str, str]) -> None:
    """Align labels at the ends of an axis so that they do not reach into the next panel."""
    if axis.levels:
        return
    # Formatting fixes the places of the ticks, which `get_ticklabels` creates.
    ticks = [t for t in scale.get_major_locator()() if axis.low <= t <= axis.high]
    scale.set_ticks(ticks)
    for label, tick in zip(scale.get_ticklabels(), ticks, strict=True):
        place = (tick - axis.low) / (axis.high - axis.low)
        word = words[0] if place < 0.06 else words[2] if place > 0.94 else words[1]
        label.set(**{"ha" if words[0] == "left" else "va": word})


def _number(value: float) -> str:
    """Return a number as short as possible: 0.25, 1200, 3e6."""
    if abs(value) < 1e-12:
        return "0"
    text = f"{value:.4g}"
    return text.replace("e+0", "e").replace("e-0", "e-").replace("e+", "e").replace("-", "−")


def _angle(value: float, period: float) -> str:
    if math.isclose(period, 360.0):
        return f"{_number(value)}°"
    if math.isclose(period, 2 * math.pi):
        turns = value / math.pi
        unit = {1.0: "π", -1.0: "−π"}.get(round(turns, 6), f"{_number(turns)}π")
        return "0" if abs(turns) < 1e-9 else unit
    return _number(value)


def _level(level: object) -> str:
    number = isinstance(level, float | int) and not isinstance(level, bool)
    text = _number(float(level)) if number else str(level)  # type: ignore[arg-type]
    return text if len(text) <= 10 else text[:9] + "…"


def _short(name: str) -> str:
    """Return a name on at most two lines."""
    lines = textwrap.wrap(name.replace("_", " "), LONGEST) if len(name) > LONGEST else [name]
    return "\n".join(lines) if len(lines) <= 2 else "\n".join((lines[0], lines[1][:-1] + "…"))


def _crowded(scale: Scale, axis: Axis, count: int) -> bool:
    """Return whether the labels along the bottom would overlap."""
    ticks = [t for t in scale.get_major_locator()() if axis.low <= t <= axis.high]
    characters = sum(len(scale.get_major_formatter()(t)) + 1.5 for t in ticks)
    return characters > (17 if count > 6 else 21 if count > 4 else 27)


def _legend(figure: Figure, views: list[View], lines: int, more: int) -> None:
    shares = ", ".join(f"{100 * share:.0f}" for share in sorted(SHARES))
    model = (Line2D([], [], color=INK, lw=1.2), Patch(color=TINTS[1]))
    handles: list[Any] = [model, _dot(INK)]
    hidden = f" ({more} more columns are not shown)" if more else ""
    labels = [f"model, regions of {shares}% of its mass", f"samples{hidden}"]
    if len(views) == 1:
        handles, labels = [model[0]], ["model"]
    data = views[0].data
    if data is not None:
        rows = Patch(color=HISTOGRAM)
        handles.insert(0, (rows, _dot(DATA)) if len(views) > 1 else rows)
        labels.insert(0, f"{len(data):,} rows")
    figure.legend(
        handles,
        labels,
        loc="upper center",
        ncols=1 if lines > 1 else len(handles),
        frameon=False,
        fontsize=8,
        borderaxespad=0.1,
        handlelength=2.6,
        handler_map={tuple: HandlerTuple(ndivide=None)},
    )


def _dot(colour: str) -> Line2D:
    return Line2D([], [], color=colour, marker="o", ms=3, lw=0)
