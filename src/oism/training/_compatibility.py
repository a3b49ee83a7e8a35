"""Checks that predictor, data and noise levels belong together, and that a run can continue."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from oism import storage
from oism.images import Prior
from oism.nn import Diffusion, as_informed
from oism.objectives import DenoisingScoreMatching, NoiseLevels
from oism.process import Clock
from oism.training._config import TrainingConfig
from oism.training._data import Rows

OPTIONAL = ("pixels", "level_arguments")
"""Settings that a checkpoint may lack, and that are compared where it has them."""

FIRST_OBJECTIVE = {"loss": "DenoisingScoreMatching", "weighting": "LikelihoodWeighting()"}
"""The loss of checkpoints from before it was a setting."""


def check_alike(
    predictor: nn.Module, rows: Rows, levels: NoiseLevels, config: TrainingConfig
) -> None:
    """Raise unless predictor, data, noise levels and configuration belong together."""
    informed = as_informed(predictor)
    if informed is not None:
        rows.check(informed.spec, "prior")
        check_clock(informed.spec.clock, levels.noising.clock)
    shape = getattr(predictor, "shape", None)
    if shape is not None and tuple(shape) != rows.shape:
        raise ValueError(
            f"net must take tensors of the data's shape {rows.shape}, got {tuple(shape)}"
        )
    check_classes(predictor, rows)
    if config.first != levels.first:
        raise ValueError(f"levels must begin at first = {config.first:g}, got {levels.first:g}")
    first = getattr(informed, "first", config.first)
    if first != config.first:
        raise ValueError(f"predictor must begin at first = {config.first:g}, got {first:g}")
    if rows.pixels is not None and config.dequantise != rows.dequantise:
        raise ValueError(
            f"data must be those of dequantise = {config.dequantise}, got {rows.dequantise}"
        )


def check_classes(predictor: nn.Module, rows: Rows) -> None:
    """Raise unless data have labels where a predictor takes them, of as many classes."""
    classes = getattr(predictor, "classes", None)
    if classes == rows.classes:
        return
    if rows.classes is None:
        raise ValueError(
            f"data must have labels for a network with {classes} classes: Rows(values, labels=…)"
        )
    got = "none" if classes is None else f"{classes}"
    raise ValueError(
        f"net must have classes = {rows.classes}, the number of classes of the data, got {got}"
    )


def check_clock(own: Clock, clock: Clock) -> None:
    """Raise unless the clock of a prior is the one of the noise levels."""
    if own != clock:
        raise ValueError(f"prior must have been fitted for the clock {clock!r}, got {own!r}")


def settings_of(
    model: Diffusion, rows: Rows, objective: DenoisingScoreMatching, config: TrainingConfig
) -> dict[str, Any]:
    """Return what determines the weights of a run, and must not change when it is resumed."""
    facts, informed, levels = model.facts(), model.informed, objective.levels
    return {
        **config.fixed(),
        "rows": len(rows),
        "checksum": rows.checksum,
        "pixels": None if rows.pixels is None else [rows.pixels.low, rows.pixels.high],
        "levels": type(levels).__name__,
        "level_arguments": levels.settings(),
        "objective": objective.settings(),
        "clock": repr(levels.noising.clock),  # models have the same process
        "prior": None if informed is None else fingerprint(informed.prior),
        "form": facts.get("form"),
        "network": facts["network"],
        "parameters": facts["parameters"],
    }


def completed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a checkpoint, with those of now for the optional ones it lacks."""
    optional = {name: now[name] for name in OPTIONAL}
    return {**optional, "objective": FIRST_OBJECTIVE, **before}


def fingerprint(prior: Prior) -> str:
    """Return a digest of a prior: equal for equal priors only, to the last bit."""
    return hashlib.sha256(storage.to_bytes(prior)).hexdigest()[:16]


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], within: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the entries in which settings differ, with both values.

    >>> list(differences({"net": {"width": 8}, "seed": 0}, {"net": {"width": 16}, "seed": 0}))
    [('net.width', 8, 16)]
    """
    for name in (*now, *(name for name in before if name not in now)):
        first, second = before.get(name), now.get(name)
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            yield from differences(first, second, f"{within}{name}.")
        elif first != second:
            yield f"{within}{name}", first, second


def difference_text(name: str, before: object, now: object) -> str:
    """Return a difference as text.

    >>> difference_text("rate", 0.1, 0.2)
    'rate = 0.1 (not 0.2)'
    """
    return f"{name} = {before!r} (not {now!r})"
