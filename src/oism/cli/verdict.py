"""What is said of a trained model's worth, with how it was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oism.cli.prior_worth import spread
from oism.cli.priors import (
    aligned,
    figure,
    images_text,
    shape_text,
    skipped_facts,
    skipped_text,
    split_text,
)

if TYPE_CHECKING:
    from oism.cli.evaluate import Evaluate
    from oism.cli.trained_worth import Worth
    from oism.data.files import Images
    from oism.flow import OrdinaryMethod
    from oism.nn import Diffusion
    from oism.training._evaluation import Interval


def facts(
    command: Evaluate, model: Diffusion, images: Images, found: Worth, method: OrdinaryMethod
) -> dict[str, object]:
    """Return what was found, and how, as JSON can hold it."""
    alone: list[Interval | None] = [*found.alone] or [None] * len(found.intervals)
    return {
        "model": command.model,
        "data": command.data,
        "split": images.split,
        "images": found.count,
        **skipped_facts(images.skipped),
        "shape": list(model.shape),
        "noise": [
            {
                "tau": list(one.tau),
                "log_snr": list(one.log_snr),
                "error": one.error.mean,
                "standard_error": one.error.error,
                "prior": None if prior is None else prior.error.mean,
            }
            for one, prior in zip(found.intervals, alone, strict=True)
        ],
        "loss": _mean(found.intervals) if found.intervals else None,
        "bits_per_dim": None
        if found.bits is None
        else {
            "mean": found.bits.bits.mean,
            "standard_error": found.bits.bits.error,
            "first": model.first,
            "dequantisation": "uniform",
            "divergence": "Hutchinson, one probe",
            "method": repr(method),
            "evaluations": found.bits.evaluations,
        },
        "frechet": None
        if found.distance is None
        else {
            "distance": found.distance,
            "features": command.features,
            "samples": found.samples,
            "method": repr(method),
        },
    }


def text(
    command: Evaluate, model: Diffusion, images: Images, found: Worth, method: OrdinaryMethod
) -> str:
    """Return the same for people."""
    lines = [
        f"{images_text(found.count)} of {shape_text(model.shape)}{split_text(images.split)} "
        f"evaluated{skipped_text(images.skipped)}"
    ]
    if found.intervals:
        lines.append("error of the predicted noise, per dimension, in equal parts of the log-SNR")
        lines += [f"  {line}" for line in aligned(_table(found))]
    if found.bits is not None:
        lines += [
            f"bits per dimension  {found.bits.bits.mean:.4f} ± {spread(found.bits.bits)}",
            f"  uniform dequantisation, from τ = {model.first:g}, {method!r}, "
            f"{found.bits.evaluations:.0f} evaluations, one probe of the divergence",
        ]
    if found.distance is not None:
        lines += [
            f"Fréchet distance    {found.distance:.4g}",
            f"  features {command.features}, {images_text(found.count)}, {found.samples} samples",
        ]
    return "\n".join(lines)


def _table(found: Worth) -> list[list[str]]:
    heads = ["τ from", "to", "log-SNR from", "to", "error", "±"]
    rows = [heads]
    rows += [
        [
            *(f"{tau:.2g}" for tau in one.tau),
            *(f"{ratio:.1f}" for ratio in one.log_snr),
            figure(one.error.mean),
            spread(one.error),
        ]
        for one in found.intervals
    ]
    rows.append(["", "", "", "mean", figure(_mean(found.intervals)), ""])
    if found.alone:
        more = [figure(one.error.mean) for one in found.alone]
        column = ["prior alone", *more, figure(_mean(found.alone))]
        rows = [[*row, cell] for row, cell in zip(rows, column, strict=True)]
    return rows


def _mean(intervals: list[Interval]) -> float:
    return sum(one.error.mean for one in intervals) / len(intervals)
