"""What commands print about priors, trained models and images: facts for JSON, and text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oism.cli.options import LEVELS, clock_text

if TYPE_CHECKING:
    from oism.flow import Estimate
    from oism.images import Prior
    from oism.nn import Diffusion
    from oism.sampling import SamplingMethod

NAMED = 3
"""The number of damaged images that are named."""


def prior_facts(prior: Prior) -> dict[str, Any]:
    """Return the facts of a prior with its expected error at several noise levels."""
    levels = [tau for tau in LEVELS if tau <= prior.clock.horizon]
    errors = [
        {
            "tau": tau,
            "sigma": float(prior.noising.sigma(tau)),
            "expected": float(prior.expected_error(tau)),
        }
        for tau in levels
    ]
    clock, pixels = prior.clock, prior.pixels
    assert dataclasses.is_dataclass(clock)
    return {
        **prior.facts(),
        "clock": {"kind": type(clock).__name__, **dataclasses.asdict(clock)},
        "pixels": None if pixels is None else [pixels.low, pixels.high],
        "dequantised": prior.spec.dequantised,
        "noise": errors,
    }


def prior_summary(found: Mapping[str, Any]) -> str:
    """Return the facts of a prior as text."""
    local = found.get("local terms")
    table = aligned(
        [
            ["τ", *(f"{level['tau']:g}" for level in found["noise"])],
            ["σ", *(decimals(level["sigma"]) for level in found["noise"])],
            ["error", *(decimals(level["expected"]) for level in found["noise"])],
        ]
    )
    return "\n".join(
        [
            f"prior       {found['kind']}, {_size(found)}",
            f"shape       {shape_text(found['shape'])}, {_units(found)}",
            f"frame       {found['frame']}",
            *([] if local is None else [f"local       {local}"]),
            f"clock       {clock_text(found['clock'])}",
            "expected error of the predicted noise, per dimension",
            *(f"  {line}" for line in table),
        ]
    )


def trained_facts(model: Diffusion, run: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return the facts of a trained model; ``run`` are the steps taken and planned of a run."""
    progress = {} if run is None else {"run": {"steps": run[0], "planned": run[1]}}
    return {**model.facts(), "sampling": sampling_facts(model), **progress}


def sampling_facts(
    model: Diffusion, evaluations: int | None = None, sampler: SamplingMethod | None = None
) -> dict[str, Any]:
    """Return method, evaluations and expected error of `Diffusion.sample` with these arguments.

    The expected error is the root mean squared error per dimension; only `Prediction` has one. A
    method that chooses its own steps has no number of evaluations.
    """
    if sampler is None and evaluations is None and model.informed is None:
        return {"method": str(model.method), "evaluations": None, "expected_error": None}
    count = {} if evaluations is None else {"evaluations": evaluations}
    plan = model.plan(**count, sampler=sampler)
    automatic = "Polynomial" if plan.expected_error is None else "Prediction"
    return {
        "method": automatic if sampler is None else type(sampler).__name__,
        "evaluations": plan.evaluations,
        "expected_error": plan.expected_error,
    }


def sampling_text(found: Mapping[str, Any]) -> str:
    """Return the facts of sampling as text."""
    count, error = found["evaluations"], found["expected_error"]
    number = "" if count is None else f", {count} evaluations"
    return f"{found['method']}{number}" + ("" if error is None else f", expected error {error:.2g}")


def trained_summary(found: Mapping[str, Any]) -> str:
    """Return the facts of a trained model as text."""
    net, run, prior = found["network"], found.get("run"), found["prior"]
    sizes = {name: value for name, value in net.items() if name not in ("kind", "shape")}
    words = ", ".join(f"{name} {_words(value)}" for name, value in sizes.items())
    lines = [
        f"model       {net['kind']}, {found['parameters']:,} parameters",
        *([f"            {words}"] if words else []),
        f"shape       {shape_text(found['shape'])}, {_units(found)}",
    ]
    if prior is None:
        lines.append("prior       none")
    else:
        local = prior.get("local terms")
        lines.append(f"prior       {prior['kind']}, {_size(prior)}, {prior['frame']}")
        lines += [] if local is None else [f"local       {local}"]
        lines.append(f"form        {_form(found['form'])}")
    precision = {"no": "full", "bf16": "bfloat16", "fp16": "float16"}[found["precision"]]
    lines += [
        f"clock       {clock_text(found['clock'])}, from τ = {found['first']:g}",
        f"precision   {precision}",
        f"samples     {sampling_text(found['sampling'])}",
        *([] if run is None else [f"run         {run['steps']} of {run['planned']} steps"]),
    ]
    return "\n".join(lines)


def _size(prior: Mapping[str, Any]) -> str:
    for name, words in (("order", "order {}"), ("classes", "{} classes")):
        if name in prior:
            return words.format(prior[name])
    return f"{prior['components']} components"


def _units(found: Mapping[str, Any]) -> str:
    pixels = found["pixels"]
    units = "no pixels" if pixels is None else f"pixels from {pixels[0]} to {pixels[1]}"
    return units + (", dequantised" if found["dequantised"] else "")


def _form(form: Mapping[str, Any]) -> str:
    """Return in words how a prior and a network are combined."""
    if form["kind"] == "Combined":
        return "average of network and prior, weighted by noise level"
    gate = form["gate"]
    where = {
        "Open": "at all noise levels",
        "ByError": f"where its error is below {gate.get('half')}",
    }.get(gate["kind"], f"gated by {gate['kind']}")
    shown = ", which it is given as input" if form["condition"] else ""
    return f"network for the residual of the prior{shown}, {where}"


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        several = {name: one for name, one in value.items() if isinstance(one, list | tuple)}
        return ", ".join(f"{name} {_words(one)}" for name, one in several.items()) or "as usual"
    return " ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as text.

    >>> shape_text((3, 32, 32))
    '3 × 32 × 32'
    """
    return " × ".join(map(str, shape))


def count_text(count: int) -> str:
    """Return a number of images as text."""
    return f"{count} image{'' if count == 1 else 's'}"


def split_text(split: str | None) -> str:
    """Return the split of a dataset as text, or nothing."""
    return "" if split is None else f" of the split {split}"


def decimals(value: float) -> str:
    """Return a number between 0 and 1 with four decimals, or with its power of ten.

    >>> decimals(0.12345), decimals(0.000012345)
    ('0.1235', '1.2e-05')
    """
    return f"{value:.4f}" if value >= 1e-3 or value == 0 else f"{value:.1e}"


def error_text(estimate: Estimate) -> str:
    """Return a standard error as text; of one value there is none."""
    return decimals(estimate.error) if estimate.count > 1 else "?"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines, with columns aligned at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def skipped_text(broken: Sequence[str]) -> str:
    """Return the number of images that were left out with the first names, or nothing."""
    if not broken:
        return ""
    more = f" and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
    return f", {len(broken)} skipped: {', '.join(broken[:NAMED])}{more}"


def skipped_facts(broken: Sequence[str]) -> dict[str, object]:
    """Return the same for JSON."""
    return {"skipped": len(broken), "broken": list(broken[:NAMED])}
