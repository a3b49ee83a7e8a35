"""The pictures and the kept numbers of `oism.studies.cifar10`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from oism.plot import image_grid
from oism.studies.arms import SIXTHS, Result

if TYPE_CHECKING:
    from oism.studies.cifar10 import Cifar10

COLOURS = {
    "DDPM": "#444444", "OISM(3)": "#d08a1d", "OISM(6)": "#b3432b", "gated": "#1f5fa8",
    "residual": "#3f9c5a",
}  # fmt: skip
SHOWN = 16
"""How many samples are shown of each arm at each mark."""


def colour(result: Result) -> str:
    """Return the colour of an arm."""
    return COLOURS[result.arm.name]


def style(result: Result, study: Cifar10) -> str:
    """Return the line of an arm: full for the first seed, dashed for others."""
    return "-" if result.arm.seed == study.seed + study.seeds[0] else "--"


def curves(results: Sequence[Result], study: Cifar10) -> Figure:
    """Draw loss and bits per dimension over the steps, and the losses of the long warm-up."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    for result in results:
        arm = result.arm
        ax = axes[0] if arm.warmup == study.warmup else axes[2]
        first = style(result, study) == "-"
        label = f"{arm.name}{'' if first else f', seed {arm.seed}'}"
        steps, losses = zip(*result.losses, strict=True)
        ax.plot(steps, losses, style(result, study), color=colour(result), label=label, lw=1.4)
        bits = [(m.step, float(np.mean(m.bits))) for m in result.marks if m.bits is not None]
        if bits:
            line = f"{style(result, study)}o"
            axes[1].plot(*zip(*bits, strict=True), line, color=colour(result), label=label)
    axes[0].set(title=f"training loss, warm-up of {study.warmup} steps", xscale="log")
    axes[2].set(title=f"the same with the paper's {study.long_warmup}", xscale="log")
    axes[1].set(title="test images, average weights", ylabel="bits per dimension")
    for ax in (axes[0], axes[2]):
        ax.set_yscale("log")
        ax.set_ylabel("mean squared error of the noise")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("{x:g}")
    for ax in axes:
        ax.set_xlabel("steps")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter("")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=9)
    return figure


def sixths(results: Sequence[Result], study: Cifar10) -> Figure:
    """Draw the errors by noise level as multiples of DDPM's, at every mark."""
    figure, axes = plt.subplots(
        1, len(study.marks), figsize=(13, 4), layout="constrained", sharey=True, squeeze=False
    )
    base = {r.arm.seed: r for r in results if r.arm.name == "DDPM" and r.arm.warmup == study.warmup}
    for ax, step in zip(axes[0], study.marks, strict=True):
        for result in results:
            arm = result.arm
            measured = {mark.step for mark in result.marks}
            if arm.warmup != study.warmup or arm.name == "DDPM" or step not in measured:
                continue
            own, other = result.at(step).errors, base[arm.seed].at(step).errors
            ratios = [a / b for a, b in zip(own, other, strict=True)]
            first = style(result, study) == "-"
            label = f"{arm.name}{'' if first else f', seed {arm.seed}'}"
            line = f"{style(result, study)}o"
            ax.plot(range(1, SIXTHS + 1), ratios, line, color=colour(result), label=label)
        ax.axhline(1, color="0.6", lw=0.8)
        ax.set(title=f"{step} steps", xlabel="sixth of the log-SNR range, low noise first")
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("error of the noise, as a multiple of DDPM's")
    axes[0][0].legend(frameon=False, fontsize=9)
    return figure


def samples(results: Sequence[Result], study: Cifar10) -> Figure:
    """Draw samples of the first seed: a row for each arm, a column for each mark."""
    first = [
        one
        for one in results
        if one.arm.warmup == study.warmup and one.arm.seed == study.seed + study.seeds[0]
    ]
    figure, axes = plt.subplots(
        len(first), len(study.marks), figsize=(3.3 * len(study.marks), 3.5 * len(first)),
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for row, result in zip(axes, first, strict=True):
        measured = [mark.step for mark in result.marks]
        for ax, step in zip(row, study.marks, strict=True):
            ax.set_axis_off()
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
