"""The figures of the study, and the numbers of a variant for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from oism.plot import image_grid
from studies.cifar10.variants import COMBINED, DDPM, Result
from studies.study import WIDTH
from studies.training.trainings import ALONE, SIXTHS

COLOURS = {
    DDPM: "#444444", "combined": "#1f5fa8", "residual": "#3f9c5a", "OISM(3)": "#d08a1d",
    "OISM(6)": "#b3432b",
}  # fmt: skip
LEGEND = "lines: in training\n(combined as DDPM)\ncircles: test images"
SHOWN = 16
"""The number of samples shown of each variant at each mark."""


@dataclass(frozen=True)
class Plan:
    """The marks, both warm-ups, and the first seed, which all variants have."""

    marks: tuple[int, ...]
    warmup: int
    long_warmup: int
    seed: int

    def is_first(self, result: Result) -> bool:
        """Return whether a result has the first seed."""
        return result.variant.seed == self.seed


def colour(result: Result) -> str:
    """Return the colour of a variant."""
    return COLOURS[result.variant.name]


def style(result: Result, plan: Plan) -> str:
    """Return the line style of a variant: solid for the first seed, dashed for others."""
    return "-" if plan.is_first(result) else "--"


def label(result: Result, plan: Plan) -> str:
    """Return the label of a variant in a legend."""
    seed = "" if plan.is_first(result) else f", seed {result.variant.seed}"
    return f"{result.variant.name}{seed}"


def curves(results: Sequence[Result], plan: Plan) -> Figure:
    """Return the figure of losses and bits over the steps, and of losses with the long warm-up.

    A combined variant has no line of its own: it trains the network alone, which is DDPM.
    """
    figure, axes = plt.subplots(1, 3, figsize=(WIDTH, 3.8), layout="constrained")
    for result in results:
        variant = result.variant
        line: dict[str, Any] = {"color": colour(result), "ls": style(result, plan)}
        ax = axes[0] if variant.warmup == plan.warmup else axes[2]
        if variant.form != COMBINED:
            ax.plot(*zip(*result.losses, strict=True), lw=1.4, **line)
        steps, means = zip(*((mark.step, mark.mean) for mark in result.marks), strict=True)
        filled = line["color"] if line["ls"] == "-" else "white"
        circle = {**line, "marker": "o", "ms": 5, "mfc": filled, "label": label(result, plan)}
        ax.plot(steps, means, **{**circle, "ls": ""}, zorder=3)
        bits = [(m.step, float(np.mean(m.bits))) for m in result.marks if m.bits is not None]
        if bits:
            axes[1].plot(*zip(*bits, strict=True), **circle)
    axes[0].set(title=f"loss, warm-up of {plan.warmup} steps")
    axes[2].set(title=f"loss, the paper's warm-up of {plan.long_warmup}")
    axes[1].set(title="test images, average weights", ylabel="bits per dimension")
    for ax in (axes[0], axes[2]):
        ax.set(xscale="log", yscale="log", ylabel="mean squared error of the noise")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_locator(LogLocator(subs=range(1, 10)))
        ax.yaxis.set_minor_formatter("")
        ax.xaxis.set_minor_formatter("")
        ax.yaxis.set_major_formatter("{x:g}")
    for ax in axes:
        ax.set_xlabel("steps")
        ax.set_title(ax.get_title(), fontsize=10)
        ax.tick_params(labelsize=8)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=9)
    for ax in (axes[0], axes[2]):
        ax.legend(frameon=False, fontsize=8, title=LEGEND, title_fontsize=8)
    return figure


def sixths(results: Sequence[Result], plan: Plan) -> Figure:
    """Return the figure of errors by noise level, as multiples of DDPM's, at every mark."""
    figure, axes = plt.subplots(
        1, len(plan.marks), figsize=(WIDTH, 3.5), layout="constrained", sharey=True, squeeze=False
    )
    by_key = {result.variant.key: result for result in results}
    for ax, step in zip(axes[0], plan.marks, strict=True):
        for result in results:
            variant = result.variant
            measured = {mark.step for mark in result.marks}
            if variant.warmup != plan.warmup or variant.form == ALONE or step not in measured:
                continue
            own, other = result.at(step).errors, by_key[variant.alone.key].at(step).errors
            ratios = [a / b for a, b in zip(own, other, strict=True)]
            line = f"{style(result, plan)}o"
            name = label(result, plan)
            ax.plot(range(1, SIXTHS + 1), ratios, line, color=colour(result), label=name, ms=5)
        ax.axhline(1, color="0.6", lw=0.8)
        ax.set(title=f"{step} steps", xlabel="sixth of the noise levels, low to high")
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("error of the noise, DDPM's = 1")
    axes[0][0].legend(frameon=False, fontsize=9)
    return figure


def shown(results: Sequence[Result], plan: Plan) -> list[Result]:
    """Return the variants whose samples are shown: first seed, short warm-up."""
    first = {
        one.variant.name: one
        for one in results
        if one.variant.warmup == plan.warmup and plan.is_first(one)
    }
    return [first[name] for name in COLOURS if name in first]


def samples(results: Sequence[Result], plan: Plan) -> Figure:
    """Return the figure of samples from the same noise: variants in columns, marks in rows."""
    variants = shown(results, plan)
    height = 1.07 * WIDTH / len(variants) * len(plan.marks)
    figure, axes = plt.subplots(
        len(plan.marks), len(variants), figsize=(WIDTH, height), layout="constrained", squeeze=False
    )
    for row, step in zip(axes, plan.marks, strict=True):
        for ax, result in zip(row, variants, strict=True):
            ax.set_axis_off()
            measured = [mark.step for mark in result.marks]
            if step not in measured:
                continue
            drawn = result.samples[measured.index(step)][:SHOWN]
            ax.imshow(image_grid(drawn, pad=1), cmap="gray", interpolation="nearest")
            ax.set_title(f"{result.variant.name}, {step} steps", fontsize=10)
    return figure


def numbers_of(result: Result) -> dict[str, Any]:
    """Return the numbers of a variant for JSON, with the mean of the bits."""
    marks = []
    for mark in result.marks:
        bits = None if mark.bits is None else float(np.mean(mark.bits))
        marks.append({**asdict(mark), "bits": bits, "mean": mark.mean})
    return {**asdict(result.variant), "marks": marks, "losses": result.losses}
