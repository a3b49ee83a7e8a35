"""A prior as one safetensors file: tensors, and settings as JSON in its header; no pickle."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from oism.basis import CosineFrame, Frame, IdentityFrame, TransformFrame
from oism.prior.base import Prior, Setting
from oism.prior.convolution import ConvolutionalPrior, Responses
from oism.prior.framed import FramedPrior
from oism.prior.hermite import HermitePrior
from oism.prior.mixture import Components, MixturePrior
from oism.prior.pixels import Pixels
from oism.score import HermiteScore, storage
from oism.score.interpolation import Curve

FORMAT = "oism.Prior"


def save(prior: Prior, path: str | os.PathLike[str]) -> None:
    """Write a prior to one file, atomically."""
    storage.write(path, *describe(prior), kind=FORMAT)


def load(path: str | os.PathLike[str], frame: TransformFrame | None = None) -> Prior:
    """Return the prior in a file, on the CPU."""
    settings, tensors = storage.read(Path(path), FORMAT)
    return restore(settings, tensors, frame)


def is_prior(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file holds a prior, of whatever version, as far as its header says."""
    return storage.format_of(Path(path)) == FORMAT


def describe_setting(setting: Setting) -> dict[str, Any]:
    """Return what `setting_of` makes a setting of again."""
    return {
        "shape": list(setting.shape),
        "clock": storage.describe_clock(setting.clock),
        "table": storage.describe_clock(setting.table),
        "dequantised": setting.dequantised,
        "pixels": None if setting.pixels is None else dataclasses.asdict(setting.pixels),
    }


def setting_of(settings: Mapping[str, Any]) -> Setting:
    """Return the setting that was described."""
    return Setting(
        shape=tuple(settings["shape"]),
        clock=storage.clock_of(settings["clock"]),
        table=storage.clock_of(settings["table"]),
        pixels=None if settings["pixels"] is None else Pixels(**settings["pixels"]),
        dequantised=settings["dequantised"],
    )


def describe(prior: Prior) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return settings and tensors of a prior, from which `restore` makes it again."""
    settings: dict[str, Any] = {
        "kind": type(prior).__name__,
        **describe_setting(prior.setting),
    }
    state = prior.state_dict()
    if isinstance(prior, FramedPrior):
        settings |= {"rest": prior.rest, "frame": _describe_frame(prior.frame)}
    if isinstance(prior, ConvolutionalPrior):
        settings["base"], base = describe(prior.base)
        state = {name: part for name, part in state.items() if not name.startswith("base.")}
        state |= {f"base.{name}": part for name, part in base.items()}
    if isinstance(prior, HermitePrior):
        settings["lines"], lines = storage.describe(prior.lines)
        state = {name: part for name, part in state.items() if not name.startswith("lines.")}
        state |= {f"lines.{name}": part for name, part in lines.items()}
    return settings, state


def _describe_frame(frame: Frame | None) -> dict[str, Any] | None:
    if frame is None:
        return None
    if isinstance(frame, CosineFrame | TransformFrame):
        return {"kind": type(frame).__name__, "shape": list(frame.shape)}
    if isinstance(frame, IdentityFrame):
        return {"kind": "IdentityFrame"}
    raise TypeError(f"frame must be one of the library's to be saved, got {frame!r}")


def restore(
    settings: Mapping[str, Any], state: dict[str, Tensor], frame: TransformFrame | None = None
) -> Prior:
    """Return the prior that was described."""
    kind = settings["kind"]
    if kind not in {"ConvolutionalPrior", "HermitePrior", "MixturePrior"}:
        raise ValueError(f"the file holds a prior of an unknown kind, {kind!r}")
    error = Curve(state["error.knots"], state["error.values"], order=4)
    if kind == "ConvolutionalPrior":
        base = restore(settings["base"], under("base.", state), frame)
        parts = (state[name] for name in ("filters", "filter_mean", "filter_deviation"))
        c = Curve(state["coefficients.knots"], state["coefficients.values"], order=2)
        return ConvolutionalPrior(base, error, Responses(*parts), c)
    setting = setting_of(settings)
    directions = state["directions"] if "directions" in state else _frame(settings["frame"], frame)
    common = (setting, error, directions, state["mean"], settings["rest"])
    if kind == "MixturePrior":
        parts = (state[name] for name in ("log_weights", "means", "variances"))
        return MixturePrior(*common, Components(*parts))
    lines = storage.restore(settings["lines"], under("lines.", state))
    assert isinstance(lines, HermiteScore)
    return HermitePrior(*common, lines)


def under(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without it."""
    names = [name for name in state if name.startswith(prefix)]
    return {name.removeprefix(prefix): state[name] for name in names}


def _frame(settings: Mapping[str, Any], given: TransformFrame | None) -> Frame:
    if settings["kind"] == "IdentityFrame":
        return IdentityFrame()
    shape = tuple(settings["shape"])
    if settings["kind"] == "CosineFrame":
        return CosineFrame(shape)
    if given is None or given.shape != shape:
        raise ValueError(
            f"frame must be given to load a prior in a transform of one's own: a TransformFrame of "
            f"shape {shape}"
        )
    return given
