"""A density model as one safetensors file: its score, as `OperatorScore.save` writes it, and more.

The file of a model is also the file of its score. Parameters of the estimator are kept as JSON;
processes and clocks by name and settings. Nothing is pickled.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oism.clock import Clock
from oism.density.chart import BoxChart, Chart, WhiteChart
from oism.density.defence import Defence
from oism.density.model import DensityModel
from oism.process import OrnsteinUhlenbeck, Process, Torus
from oism.score import storage

CHARTS: dict[str, type[BoxChart] | type[WhiteChart]] = {
    kind.__name__: kind for kind in (BoxChart, WhiteChart)
}
PROCESSES: dict[str, type[Torus] | type[OrnsteinUhlenbeck]] = {
    kind.__name__: kind for kind in (Torus, OrnsteinUhlenbeck)
}


def save(
    model: DensityModel, path: str | os.PathLike[str], parameters: Mapping[str, object]
) -> None:
    """Write a model with the estimator's parameters, atomically."""
    settings: dict[str, object] = {
        "chart": type(model.chart).__name__,
        "span": model.span,
        "steps": model.steps,
        "share": None if model.defence is None else model.defence.share,
        **parameters,
    }
    tensors = _parts("chart", model.chart)
    if model.defence is not None:
        tensors |= _parts("defence", model.defence)
    storage.save(model.score, path, more_settings={"density": settings}, more_tensors=tensors)


def load(path: str | os.PathLike[str]) -> tuple[DensityModel, dict[str, Any]]:
    """Return the model and the settings that were saved to a file."""
    settings, tensors = storage.read(Path(path))
    density = settings.get("density")
    if not isinstance(density, dict):
        raise ValueError(f"{path} holds a score without a model: OperatorScore.load reads it")
    score = storage.restore(settings, tensors)
    chart: Chart = CHARTS[density["chart"]](**_under("chart", tensors))
    defence = None
    if density["share"] is not None:
        defence = Defence(share=float(density["share"]), **_under("defence", tensors))
    first, last = density["span"]
    span = (float(first), float(last))
    return DensityModel(score, chart, defence, span, int(density["steps"])), density


def plain(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return an estimator's parameters as JSON can hold them."""
    return {name: _plain(value, name) for name, value in parameters.items()}


def _plain(value: object, name: str) -> object:
    if isinstance(value, Mapping):  # JSON would turn the index of a column into text
        return {"pairs": [[_plain(k, name), _plain(v, name)] for k, v in value.items()]}
    if isinstance(value, Clock):
        return {"clock": storage.describe_clock(value)}
    if isinstance(value, Process):
        if type(value) is not PROCESSES.get(type(value).__name__):
            raise TypeError(f"process must be one of {sorted(PROCESSES)} to be saved: {value!r}")
        return {"process": {"kind": type(value).__name__, **dataclasses.asdict(value)}}
    if isinstance(value, tuple | list):
        return [_plain(entry, name) for entry in value]
    if isinstance(value, torch.device):
        value = str(value)
    elif name == "random_state" and not isinstance(value, int):
        value = None  # a generator's state is not a setting
    elif isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{name} must be made of numbers and text to be saved, got {value!r}")


def parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the estimator's parameters from what `plain` made of them."""
    return {name: _restored(value) for name, value in settings.items()}


def _restored(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        return tuple(_restored(entry) for entry in value)
    if not isinstance(value, dict):
        return value
    if "pairs" in value:
        return {_restored(key): _restored(entry) for key, entry in value["pairs"]}
    if "clock" in value:
        return storage.clock_of(value["clock"])
    arguments = dict(value["process"])
    return PROCESSES[arguments.pop("kind")](**arguments)


def _parts(prefix: str, owner: Chart | Defence) -> dict[str, Tensor]:
    fields = {f"{prefix}.{name}": part for name, part in vars(owner).items()}
    return {name: part for name, part in fields.items() if isinstance(part, Tensor)}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {
        name.removeprefix(start): part for name, part in tensors.items() if name.startswith(start)
    }
