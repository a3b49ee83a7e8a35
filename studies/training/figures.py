"""The figures of the study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from oism.plot import image_grid
from studies.study import WIDTH
from studies.training.results import Result
from studies.training.trainings import GAUSSIAN, ITSELF, SIXTHS

if TYPE_CHECKING:
    from studies.training.study import TrainingStudy

COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "noise": "#444444", "oism3": "#d08a1d", "oism6": "#b3432b", "paper-principal2": "#8a5fb0",
        "v": "#3f9c5a", "edm": "#7fb8e0", "edm-own": "#1f5fa8", "operator": "#e07ba0",
        "operator-own": "#a8326b", "residual": "#9a8a3a", "edm-mixed": "#5b6ee0",
        "operator-mixed": "#d4462f", "gaussian-own": "#e0a030",
    }
)  # fmt: skip
"""The colours of trainings by name."""

REFERENCE = "noise"
"""The name of the network alone that others are compared with."""

RELATIVE = "loss relative"
PANELS: Mapping[str, str] = MappingProxyType(
    {
        "loss": "loss", RELATIVE: "loss, network alone = 1", "bits": "bits per dimension",
        "frechet": "Fréchet distance",
    }
)  # fmt: skip
"""The quantities and the titles of their panels."""

SHOWN, COLUMNS = 9, 5
"""The number of samples shown of a form, and of entries in a row of a legend."""

GALLERY: tuple[tuple[str, str], ...] = (
    ("noise", ITSELF), ("noise", GAUSSIAN), ("oism3", ITSELF), ("v", ITSELF), ("edm-own", ITSELF),
    ("edm-own", GAUSSIAN),
)  # fmt: skip
"""The names and forms whose samples are shown, as far as they were run."""


def curves(results: Sequence[Result], study: TrainingStudy) -> Figure:
    """Return the figure of loss, bits and Fréchet distance over steps, a row for each warm-up."""
    rows = _by_warmup(results, study)
    figure, parts = _rows(len(rows))
    for part, (warmup, found) in zip(parts, rows.items(), strict=True):
        part.suptitle(f"warm-up of {warmup} steps", fontsize=10)
        axes = part.subplots(1, len(PANELS))
        for ax, (quantity, title) in zip(axes, PANELS.items(), strict=True):
            for result, form in product(found, (ITSELF, GAUSSIAN)):
                points = _points(result, form, quantity, found)
                if points:
                    ax.plot(*zip(*points, strict=True), **_line(result, form, study))
            steps = study.marks if warmup == study.warmup else study.long_marks
            first = study.points[:1] if quantity in {"loss", RELATIVE} else ()
            _axes(ax, (*first, *steps), is_log=quantity != RELATIVE)
            ax.set_title(title, fontsize=9)
            ax.set_xlabel("steps", fontsize=8)
        _legend(part, found, study)
    return figure


def _rows(count: int) -> tuple[Figure, list[SubFigure]]:
    """Return a figure of rows, each with its own legend."""
    figure = plt.figure(figsize=(WIDTH, 3.6 * count), layout="constrained")
    parts = figure.subfigures(count, 1, squeeze=False)
    return figure, [row[0] for row in parts]


def _points(
    result: Result, form: str, quantity: str, found: Sequence[Result]
) -> list[tuple[int, float]]:
    """Return steps and values of a quantity, losses also relative to the network alone."""
    name = quantity.split(maxsplit=1)[0]
    points = result.curve(name, form)
    if quantity != RELATIVE:
        return points
    wanted = (REFERENCE, result.training.seed)
    bases = [one for one in found if (one.training.name, one.training.seed) == wanted]
    base = dict(bases[0].curve(name)) if bases else {}
    return [(step, value / base[step]) for step, value in points if step in base]


def sixths(results: Sequence[Result], study: TrainingStudy) -> Figure:
    """Return the figure of errors by noise level, those of the network that predicts noise = 1."""
    rows = _by_warmup(results, study)
    figure, parts = _rows(len(rows))
    places = range(1, SIXTHS + 1)
    for part, (warmup, found) in zip(parts, rows.items(), strict=True):
        part.suptitle(f"warm-up of {warmup} steps", fontsize=10)
        marks = study.marks if warmup == study.warmup else study.long_marks
        axes = part.subplots(1, len(marks), sharey=True)
        first = [one for one in found if one.training.seed == study.seed]
        alone = next((one for one in first if one.training.name == REFERENCE), None)
        for ax, step in zip(axes, marks, strict=True):
            base = None if alone is None else alone.form(step)
            for result, form in product(first, (ITSELF, GAUSSIAN)):
                one = result.form(step, form)
                if one is not None and base is not None and one is not base:
                    ratios = [a / b for a, b in zip(one.errors, base.errors, strict=True)]
                    ax.plot(places, ratios, **_line(result, form, study))
            ax.axhline(1, color="0.6", lw=0.8)
            ax.set_yscale("log")
            ax.set_title(f"{step} steps", fontsize=9)
            ax.set_xlabel("sixth of the noise levels, low to high", fontsize=8)
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_minor_locator(NullLocator())
            _plain(ax)
        axes[0].set_ylabel("error, that of the network alone = 1", fontsize=8)
        _legend(part, first, study)
    return figure


def samples(results: Sequence[Result], study: TrainingStudy) -> Figure:
    """Return the figure of samples from the same noise: marks in rows, forms in columns."""
    found = [
        (result, form)
        for name, form in GALLERY
        for result in results
        if (result.training.name, result.training.seed) == (name, study.seed) and result.samples
    ]
    found.sort(key=lambda one: one[0].training.warmup == study.warmup)  # the paper's first
    columns, rows = max(1, len(found)), (0, -1)
    figure, axes = plt.subplots(
        len(rows), columns, figsize=(WIDTH, (WIDTH / columns + 0.5) * len(rows)),
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for ax in axes.flat:
        ax.set_axis_off()
    for line, which in zip(axes, rows, strict=True):
        for ax, (result, form) in zip(line, found, strict=False):
            step = result.training.marks[which]
            drawn = result.samples.get(f"{step}|{form}")
            if drawn is None:
                continue
            grid = image_grid(drawn[:SHOWN])
            ax.imshow(grid, cmap="gray", vmin=0, vmax=255, interpolation="antialiased")
            label = result.training.label if form == ITSELF else "+ Gaussian"
            ax.set_title(f"{label}\n{step} steps\n(warm-up {result.training.warmup})", fontsize=8)
    return figure


def _by_warmup(results: Sequence[Result], study: TrainingStudy) -> dict[int, list[Result]]:
    """Return the results of the paper's warm-up and of the short one, where there are any."""
    found = {
        warmup: [one for one in results if one.training.warmup == warmup]
        for warmup in (study.long_warmup, study.warmup)
    }
    return {warmup: some for warmup, some in found.items() if some}


def _line(result: Result, form: str, study: TrainingStudy) -> dict[str, Any]:
    """Return the style: filled for the first seed; solid for itself, dashed if combined."""
    colour, is_first = COLOURS[result.training.name], result.training.seed == study.seed
    return {
        "color": colour, "ls": "-" if form == ITSELF else "--", "marker": "o", "ms": 3.5,
        "mfc": colour if is_first else "white", "lw": 1.3 if is_first else 0.8,
    }  # fmt: skip


def _legend(part: SubFigure, found: Sequence[Result], study: TrainingStudy) -> None:
    """Draw a legend: a line for each training, one for combined forms, and one for other seeds."""
    names = {one.training.name: one.training.label for one in found}
    handles = [
        Line2D([], [], color=COLOURS[name], marker="o", ms=3.5, lw=1.3, label=label)
        for name, label in names.items()
    ]
    grey = "0.5"
    handles.append(Line2D([], [], color=grey, ls="--", lw=1.3, label="combined with a Gaussian"))
    if any(one.training.seed != study.seed for one in found):
        handles.append(
            Line2D([], [], color=grey, marker="o", mfc="white", ms=3.5, lw=0.8, label="second seed")
        )
    part.legend(
        handles=handles, frameon=False, fontsize=8, loc="outside lower center", ncols=COLUMNS
    )


def _axes(ax: Axes, steps: Sequence[int], *, is_log: bool) -> None:
    """Draw ticks at numbers of steps, values in logarithms or not."""
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(list(steps)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter("{x:g}")
    if is_log:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_locator(NullLocator())
    _plain(ax)


def _plain(ax: Axes) -> None:
    ax.tick_params(labelsize=7)
    ax.spines[["top", "right"]].set_visible(False)
