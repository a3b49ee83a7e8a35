"""Measurements of priors and trained models, and their reports, for ``oism evaluate``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oism.cli.fidelity import Fidelity
from oism.cli.options import naming_options
from oism.cli.reports import (
    aligned,
    count_text,
    decimals,
    error_text,
    shape_text,
    skipped_facts,
    skipped_text,
    split_text,
)
from oism.data.files import Images
from oism.flow import Adaptive, OrdinaryMethod, TensorModel
from oism.images import Evaluation
from oism.nn import Diffusion
from oism.objectives import IntervalError, errors_by_level
from oism.training import Bits, bits_per_dim

FIDELITY = ("frechet", "precision", "recall", "neighbours", "nearest")
"""The entries of the report about samples."""


@dataclass(frozen=True)
class How:
    """How a trained model is measured: method of densities, probes, seed, rows at a time.

    ``sampling`` are arguments of `Diffusion.sample`.
    """

    method: OrdinaryMethod
    sampling: Mapping[str, Any]
    probes: int
    seed: int
    batch: int


@dataclass(frozen=True)
class Measured:
    """What was measured of a trained model; ``alone`` are the errors of its prior."""

    count: int
    labels: bool
    first: float
    method: OrdinaryMethod
    intervals: list[IntervalError]
    alone: list[IntervalError]
    bits: Bits | None
    fidelity: Fidelity | None


def first_images(images: Images, limit: int | None) -> Iterator[Tensor]:
    """Yield the first images, or all, in batches."""
    left = limit
    for batch in images:
        yield torch.from_numpy(batch[:left])
        if left is not None:
            left -= len(batch)
            if left <= 0:
                return


def adaptive_method(tolerance: float | None) -> OrdinaryMethod | None:
    """Return the adaptive method of a tolerance, None without one."""
    if tolerance is None:
        return None
    with naming_options({"rtol": "tolerance"}):
        return Adaptive(rtol=tolerance, atol=tolerance)


def errors(
    model: Diffusion, values: Tensor, labels: Tensor | None, intervals: int, how: How
) -> tuple[list[IntervalError], list[IntervalError]]:
    """Return the errors of a model, and of its prior alone on the same draws, if it has one."""

    def measured(source: TensorModel | None) -> list[IntervalError]:
        if source is None or not intervals:
            return []
        return errors_by_level(
            source, values, labels=labels, intervals=intervals, first=model.first, seed=how.seed,
            batch=how.batch,
        )  # fmt: skip

    return measured(model), measured(None if model.informed is None else model.informed.prior)


def bits(model: Diffusion, values: Tensor, labels: Tensor | None, how: How) -> Bits:
    """Return the bits per dimension of images."""
    return bits_per_dim(
        model, values, labels=labels, method=how.method, probes=how.probes, seed=how.seed,
        batch=how.batch,
    )  # fmt: skip


def sampling_text(sampling: Mapping[str, Any]) -> str:
    """Return how samples were drawn, for reports."""
    chosen = {name: value for name, value in sampling.items() if value is not None}
    return ", ".join(f"{name} {value}" for name, value in chosen.items()) or "default"


def prior_facts(found: Evaluation, images: Images, shape: Sequence[int]) -> dict[str, Any]:
    """Return the evaluation of a prior for JSON."""
    return {
        "split": images.split,
        "images": found.count,
        **skipped_facts(images.skipped),
        "shape": list(shape),
        "noise": [
            {
                "tau": level.tau,
                "sigma": level.sigma,
                "error": level.error.mean,
                "standard_error": level.error.error,
                "expected": level.expected,
            }
            for level in found.levels
        ],
        "bits_per_dim": None
        if found.bits is None
        else {"mean": found.bits.mean, "standard_error": found.bits.error},
    }


def prior_text(found: Evaluation, images: Images, shape: Sequence[int]) -> str:
    """Return the evaluation of a prior as text."""
    lines = [_head(found.count, images, shape)]
    if found.levels:
        rows = [["τ", "σ", "error", "±", "expected"]]
        rows += [
            [
                f"{level.tau:g}",
                decimals(level.sigma),
                decimals(level.error.mean),
                error_text(level.error),
                decimals(level.expected),
            ]
            for level in found.levels
        ]
        lines.append("error of the predicted noise, per dimension, and the error that was expected")
        lines += [f"  {line}" for line in aligned(rows)]
    if found.bits is not None:
        lines.append(f"bits per dimension  {found.bits.mean:.4f} ± {error_text(found.bits)}")
    return "\n".join(lines)


def trained_facts(found: Measured, images: Images, shape: Sequence[int]) -> dict[str, Any]:
    """Return the evaluation of a trained model for JSON."""
    alone: list[IntervalError | None] = [*found.alone] or [None] * len(found.intervals)
    return {
        "split": images.split,
        "images": found.count,
        **skipped_facts(images.skipped),
        "shape": list(shape),
        "labels": found.labels,
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
            **_bits_facts(found.bits),
            "first": found.first,
            "dequantisation": "uniform",
            "method": repr(found.method),
        },
        **(dict.fromkeys(FIDELITY) if found.fidelity is None else found.fidelity.facts()),
    }


def trained_text(found: Measured, images: Images, shape: Sequence[int]) -> str:
    """Return the evaluation of a trained model as text."""
    lines = [_head(found.count, images, shape) + (", with their labels" if found.labels else "")]
    if found.intervals:
        lines.append("error of the predicted noise, per dimension, in equal parts of the log-SNR")
        lines += [f"  {line}" for line in aligned(_table(found))]
    if found.bits is not None:
        lines += [
            f"bits per dimension  {found.bits.bits.mean:.4f} ± {error_text(found.bits.bits)}",
            f"  uniform dequantisation, from τ = {found.first:g}, {found.method!r}, "
            f"{found.bits.evaluations:.0f} evaluations, {_probes_text(found.bits)}",
        ]
    if found.fidelity is not None:
        lines += found.fidelity.lines(found.count)
    return "\n".join(lines)


def _bits_facts(found: Bits) -> dict[str, Any]:
    return {
        "mean": found.bits.mean,
        "standard_error": found.bits.error,
        "evaluations": found.evaluations,
        "probes": found.probes,
        "probe_deviation": found.probe_deviation,
        "discretisation_error": found.discretisation,
        "accurate": found.is_accurate,
    }


def _probes_text(found: Bits) -> str:
    """Return the number of probes, and the errors that are due to probes and steps."""
    text = "1 probe" if found.probes == 1 else f"{found.probes} probes"
    if found.probe_deviation is not None:
        text += f" (± {found.probe_deviation:.2g} for one image)"
    if found.discretisation is not None:
        text += f", error of the steps about {found.discretisation:+.1g}"
    return text


def _head(count: int, images: Images, shape: Sequence[int]) -> str:
    return (
        f"{count_text(count)} of {shape_text(shape)}{split_text(images.split)} evaluated"
        f"{skipped_text(images.skipped)}"
    )


def _table(found: Measured) -> list[list[str]]:
    rows = [["τ from", "to", "log-SNR from", "to", "error", "±"]]
    rows += [
        [
            *(f"{tau:.2g}" for tau in one.tau),
            *(f"{ratio:.1f}" for ratio in one.log_snr),
            decimals(one.error.mean),
            error_text(one.error),
        ]
        for one in found.intervals
    ]
    rows.append(["", "", "", "mean", decimals(_mean(found.intervals)), ""])
    if found.alone:
        errors = [decimals(one.error.mean) for one in found.alone]
        column = ["prior alone", *errors, decimals(_mean(found.alone))]
        rows = [[*row, cell] for row, cell in zip(rows, column, strict=True)]
    return rows


def _mean(intervals: list[IntervalError]) -> float:
    return sum(one.error.mean for one in intervals) / len(intervals)
