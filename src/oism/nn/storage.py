"""A model as one safetensors file: network, prior, and settings as JSON in its header."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from oism.basis import TransformFrame
from oism.nn.ddpmpp import DDPMpp
from oism.nn.informed import OperatorInformed
from oism.nn.mlp import MLP
from oism.nn.model import Diffusion
from oism.prior import storage as priors
from oism.prior.gate import ByError, Gate, Open
from oism.score import storage

FORMAT = "oism.Diffusion"

NETWORKS: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in (DDPMpp, MLP)}
GATES: dict[str, type[Gate]] = {kind.__name__: kind for kind in (ByError, Open)}


def save(model: Diffusion, path: str | os.PathLike[str]) -> None:
    """Write a model to one file, atomically."""
    settings, tensors = describe(model)
    storage.write(path, settings, tensors, kind=FORMAT)


def load(path: str | os.PathLike[str], frame: TransformFrame | None = None) -> Diffusion:
    """Return the model in a file, on the CPU."""
    settings, tensors = storage.read(Path(path), FORMAT)
    return restore(settings, tensors, frame)


def is_diffusion(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file holds a model with a network, of whatever version."""
    return storage.format_of(Path(path)) == FORMAT


def describe(model: Diffusion) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return settings and tensors of a model, from which `restore` makes it again."""
    predictor = model.predictor
    informed = predictor if isinstance(predictor, OperatorInformed) else None
    net = predictor if informed is None else informed.net
    settings: dict[str, Any] = {
        "setting": priors.describe_setting(model.setting),
        "first": model.first,
        "precision": model.precision,
        "net": describe_net(net),
        "prior": None,
    }
    tensors = {f"net.{name}": part for name, part in net.state_dict().items()}
    if informed is not None:
        found, state = priors.describe(informed.prior)
        settings["prior"] = found
        settings["gate"] = _describe_gate(informed.gate)
        settings["condition"] = informed.condition
        tensors |= {f"prior.{name}": part for name, part in state.items()}
    return settings, tensors


def restore(
    settings: dict[str, Any], tensors: dict[str, Tensor], frame: TransformFrame | None = None
) -> Diffusion:
    """Return the model that was described."""
    net = net_of(settings["net"])
    net.load_state_dict(priors.under("net.", tensors))
    predictor = net
    if settings["prior"] is not None:
        prior = priors.restore(settings["prior"], priors.under("prior.", tensors), frame)
        gate = _gate_of(settings["gate"])
        predictor = OperatorInformed(net, prior, gate=gate, condition=settings["condition"])
    setting = priors.setting_of(settings["setting"])
    return Diffusion(
        predictor.eval(), setting, first=settings["first"], precision=settings["precision"]
    )


def describe_net(net: nn.Module) -> dict[str, Any]:
    """Return the kind and the arguments of a network."""
    kind, arguments = type(net).__name__, getattr(net, "settings", None)
    if type(net) is not NETWORKS.get(kind) or not isinstance(arguments, dict):
        raise TypeError(f"net must be one of {sorted(NETWORKS)} to be saved, got {kind}")
    return {"kind": kind, **arguments}


def net_of(settings: dict[str, Any]) -> nn.Module:
    """Return a network of the form that was described, with new weights."""
    arguments = {name: value for name, value in settings.items() if name != "kind"}
    if settings["kind"] not in NETWORKS:
        raise ValueError(f"the file holds a network of an unknown kind, {settings['kind']!r}")
    return NETWORKS[settings["kind"]](**arguments)


def _describe_gate(gate: Gate) -> dict[str, Any]:
    if type(gate) is not GATES.get(type(gate).__name__) or not dataclasses.is_dataclass(gate):
        raise TypeError(f"gate must be one of {sorted(GATES)} to be saved, got {gate!r}")
    return {"kind": type(gate).__name__, **dataclasses.asdict(gate)}


def _gate_of(settings: dict[str, Any]) -> Gate:
    arguments = {name: value for name, value in settings.items() if name != "kind"}
    if settings["kind"] not in GATES:
        raise ValueError(f"the file holds a gate of an unknown kind, {settings['kind']!r}")
    return GATES[settings["kind"]](**arguments)
