"""The pictures and the kept numbers of `oism.studies.cifar10`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from oism.plot import image_grid
from oism.studies.arms import ALONE, COMBINED, DDPM, SIXTHS, Result

if TYPE_CHECKING:
    from oism.studies.cifar10 import Cifar10

COLOURS = {
    DDPM: "#444444", "combined": "#1f5fa8", "residual": "#3f9c5a", "OISM(3)": "#d08a1d",
    "OISM(6)": "#b3432b",
}  # fmt: skip
LEGEND = "lines: in training\n(combined as DDPM)\ncircles: test images"
SHOWN = 16
"""How many samples are shown of each arm at each mark."""


def colour(result: Result) -> str:
    """Return the colour of an arm."""
    return COLOURS[result.arm.name]


def style(result: Result, study: Cifar10) -> str:
    """Return the line of an arm: full for the first seed, dashed for others."""
    return "-" if study.is_first(result) else "--"


def label(result: Result, study: Cifar10) -> str:
    """Return the words of an arm in a legend."""
    seed = "" if study.is_first(result) else f", seed {result.arm.seed}"
    return f"{result.arm.name}{seed}"


def curves(results: Sequence[Result], study: Cifar10) -> Figure:
    """Draw losses and bits per dimension over the steps, and the losses of the long warm-up.

    A combined arm has no line of its own: what is trained is the network, which is DDPM.
    """
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    for result in results:
        arm = result.arm
        line: dict[str, Any] = {"color": colour(result), "ls": style(result, study)}
        ax = axes[0] if arm.warmup == study.warmup else axes[2]
        if arm.form != COMBINED:
            ax.plot(*zip(*result.losses, strict=True), lw=1.4, **line)
        steps, means = zip(*((mark.step, mark.mean) for mark in result.marks), strict=True)
        filled = line["color"] if line["ls"] == "-" else "white"
        circle = {**line, "marker": "o", "ms": 5, "mfc": filled, "label": label(result, study)}
        ax.plot(steps, means, **{**circle, "ls": ""}, zorder=3)
        bits = [(m.step, float(np.mean(m.bits))) for m in result.marks if m.bits is not None]
        if bits:
            axes[1].plot(*zip(*bits, strict=True), **circle)
    axes[0].set(title=f"loss, warm-up of {study.warmup} steps")
    axes[2].set(title=f"loss, the paper's warm-up of {study.long_warmup}")
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
        ax.xaxis.set_major_formatter("{x:g}")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=9)
    for ax in (axes[0], axes[2]):
        ax.legend(frameon=False, fontsize=9, title=LEGEND, title_fontsize=9)
    return figure


def sixths(results: Sequence[Result], study: Cifar10) -> Figure:
    """Draw the errors by noise level as multiples of DDPM's, at every mark."""
    figure, axes = plt.subplots(
        1, len(study.marks), figsize=(13, 4), layout="constrained", sharey=True, squeeze=False
    )
    by_key = {result.arm.key: result for result in results}
    for ax, step in zip(axes[0], study.marks, strict=True):
        for result in results:
            arm = result.arm
            measured = {mark.step for mark in result.marks}
            if arm.warmup != study.warmup or arm.form == ALONE or step not in measured:
                continue
            own, other = result.at(step).errors, by_key[arm.alone.key].at(step).errors
            ratios = [a / b for a, b in zip(own, other, strict=True)]
            line = f"{style(result, study)}o"
            name = label(result, study)
            ax.plot(range(1, SIXTHS + 1), ratios, line, color=colour(result), label=name, ms=5)
        ax.axhline(1, color="0.6", lw=0.8)
        ax.set(title=f"{step} steps", xlabel="sixth of the log-SNR range, low noise first")
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("error of the noise, as a multiple of DDPM's")
    axes[0][0].legend(frameon=False, fontsize=9)
    return figure


def shown(results: Sequence[Result], study: Cifar10) -> list[Result]:
    """Return the arms whose samples are drawn: of the first seed, without the long warm-up."""
    first = {
        one.arm.name: one
        for one in results
        if one.arm.warmup == study.warmup and study.is_first(one)
    }
    return [first[name] for name in COLOURS if name in first]


def samples(results: Sequence[Result], study: Cifar10) -> Figure:
    """Draw samples, all from the same noise: arms side by side, marks below each other."""
    arms = shown(results, study)
    figure, axes = plt.subplots(
        len(study.marks), len(arms), figsize=(2.7 * len(arms), 2.9 * len(study.marks)),
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for row, step in zip(axes, study.marks, strict=True):
        for ax, result in zip(row, arms, strict=True):
            ax.set_axis_off()
            measured = [mark.step for mark in result.marks]
            if step not in measured:
                continue
            drawn = result.samples[measured.index(step)][:SHOWN]
            ax.imshow(image_grid(drawn, pad=1), cmap="gray", interpolation="nearest")
            ax.set_title(f"{result.arm.name}, {step} steps", fontsize=10)
    return figure


def numbers_of(result: Result) -> dict[str, Any]:
    """Return the numbers of an arm, with the mean of the bits."""
    marks = []
    for mark in result.marks:
        bits = None if mark.bits is None else float(np.mean(mark.bits))
        marks.append({**asdict(mark), "bits": bits, "mean": mark.mean})
    return {**asdict(result.arm), "marks": marks, "losses": result.losses}
