"""The figures of the study: distances over evaluations, and samples by evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator, ScalarFormatter
from numpy.typing import NDArray

from oism.plot import image_grid
from studies.sampling.results import CaseResults
from studies.study import WIDTH

OURS_COLOURS = ("#1f5fa8", "#6aa5dd", "#0b2f5c")
PEER_COLOURS = {
    "DPM-Solver++(2M)": "#b3432b", "DPM-Solver++(3M)": "#e08b76", "UniPC-2": "#3f9c5a",
    "UniPC-3": "#9ccfa9", "DEIS-2": "#8a5fa8", "DEIS-3": "#c2a5d6", "Heun": "#999999",
    "DDIM": "#d08a1d",
}  # fmt: skip
TITLES = {"combined": "network combined with the prior", "bare": "network alone"}
COLUMNS = 4
"""The number of samples of a method for each number of evaluations."""


def colour(results: CaseResults, name: str) -> str:
    """Return the colour of a method."""
    if name in PEER_COLOURS:
        return PEER_COLOURS[name]
    place = results.ours.index(name) if name in results.ours else 0
    return OURS_COLOURS[place % len(OURS_COLOURS)]


def curves(results: CaseResults) -> Figure:
    """Return the figure of distances to the reference, and of Fréchet distances."""
    forms = results.forms
    figure, axes = plt.subplots(1, len(forms) + 1, figsize=(WIDTH, 4.4), layout="constrained")
    for ax, form in zip(axes, forms, strict=False):
        _distances(ax, results, form)
        ax.set_title(TITLES[form], fontsize=10)
    _frechet(axes[-1], results)
    axes[0].set(ylabel="RMSE to the reference, per dimension")
    entries: dict[str, Any] = {}
    for ax in axes:
        entries |= dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", frameon=False, fontsize=8,
        ncols=5,
    )  # fmt: skip
    return figure


def _distances(ax: Axes, results: CaseResults, form: str) -> None:
    counts = results.evaluations
    for name in (*PEER_COLOURS, *results.ours):
        found = [results.rmse(form, name, n) for n in counts]
        is_ours = name in results.ours
        ax.plot(
            counts, found, "o-" if is_ours else ".-", color=colour(results, name),
            lw=2 if is_ours else 1, ms=5, label=name, zorder=3 if is_ours else 2,
        )  # fmt: skip
    _axis(ax, counts)
    values = [
        results.rmse(form, name, n)
        for name in (*PEER_COLOURS, *results.ours)
        for n in counts
        if name != "Heun"
    ]
    finite = [value for value in values if np.isfinite(value)]
    if finite:
        ax.set_ylim(0.7 * min(finite), 1.4 * max(finite))
    ax.set(yscale="log")
    ax.yaxis.set_minor_formatter(NullFormatter())


def _frechet(ax: Axes, results: CaseResults) -> None:
    rows = results.frechet_rows
    names = dict.fromkeys(
        row["method"] for row in rows if row["evaluations"] in results.evaluations
    )
    for name in names:
        points = sorted(
            (row["evaluations"], row["distance"])
            for row in rows
            if (row["method"], row["form"], row["step"]) == (name, "combined", results.step)
        )
        if points:
            is_ours = name in results.ours
            ax.plot(
                *zip(*points, strict=True), "o-" if is_ours else ".-",
                color=colour(results, name), lw=2 if is_ours else 1, label=name,
            )  # fmt: skip
    for form, style in (("combined", "--"), ("bare", ":")):
        value = results.converged(results.step, form)
        if np.isfinite(value):
            ax.axhline(value, color="#444444", lw=1, ls=style, label=f"{form}, converged")
    _axis(ax, results.evaluations)
    limit = results.converged(results.step, "combined")
    if np.isfinite(limit):
        top = max(results.converged(results.step, "bare"), 2.2 * limit)
        ax.set_ylim(0.85 * limit, 1.05 * top if np.isfinite(top) else None)
    ax.set(ylabel="Fréchet distance to the images, combined")


def _axis(ax: Axes, counts: Sequence[int]) -> None:
    ax.set(xscale="log", xlabel="evaluations of the network")
    ax.tick_params(labelsize=9)
    ax.set_xticks(list(counts))
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", lw=0.3)


def samples(results: CaseResults, pictures: Mapping[str, NDArray[np.uint8]], high: int) -> Figure:
    """Return the figure of samples: a row for a method, a column for a number of evaluations."""
    names = [
        *results.ours[:1],
        *(name for name in PEER_COLOURS if name not in ("UniPC-3", "DEIS-2")),
    ]
    counts = results.evaluations
    figure = plt.figure(
        figsize=(WIDTH, 0.27 * WIDTH / (len(counts) + 1) * (len(names) + 0.7)), layout="constrained"
    )
    axes = figure.subplots(len(names), len(counts) + 1, squeeze=False)
    for row, name in zip(axes, names, strict=True):
        keys = [results.best_key("combined", name, n) for n in counts]
        for ax, key in zip(row, [*keys, "combined|reference"], strict=True):
            _strip(ax, pictures.get(key or ""), high)
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    heads = [*(f"{n} evaluations" for n in counts), "reference"]
    for ax, head in zip(axes[0], heads, strict=True):
        ax.set_title(head, fontsize=9)
    return figure


def _strip(ax: Axes, images: Any, high: int) -> None:  # noqa: ANN401
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    if images is not None:
        shown = (images[:COLUMNS].astype(np.float64) * 255 / high).round().astype(np.uint8)
        ax.imshow(image_grid(shown, columns=len(shown), pad=1), cmap="gray", vmin=0, vmax=255)
