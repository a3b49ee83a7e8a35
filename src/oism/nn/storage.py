"""A model as one safetensors file: network, prior, and settings as JSON in its header.

A network or a gate of a user's own is saved by its weights and its name, and has to be given again
when the file is read: no file decides which code is run.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from oism import checks
from oism.basis import TransformFrame
from oism.nn.combined import Combined
from oism.nn.ddpmpp import DDPMpp
from oism.nn.informed import Informed, OperatorInformed
from oism.nn.mlp import MLP
from oism.nn.model import Diffusion
from oism.prior import storage as priors
from oism.prior.base import Prior
from oism.prior.gate import ByError, Gate, Open
from oism.score import storage

FORMAT = "oism.Diffusion"
SHARE = "combined.share"
"""The share of a network in a `Combined`, among the weights that it was settled for."""

NETWORKS: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in (DDPMpp, MLP)}
GATES: dict[str, type[Gate]] = {kind.__name__: kind for kind in (ByError, Open)}


def save(model: Diffusion, path: str | os.PathLike[str]) -> None:
    """Write a model to one file, atomically."""
    settings, tensors = describe(model)
    storage.write(path, settings, tensors, kind=FORMAT)


def load(
    path: str | os.PathLike[str],
    frame: TransformFrame | None = None,
    *,
    net: nn.Module | None = None,
    gate: Gate | None = None,
) -> Diffusion:
    """Return the model in a file, on the CPU; what is not the library's must be given again."""
    settings, tensors = storage.read(Path(path), FORMAT)
    return restore(settings, tensors, frame, net=net, gate=gate)


def is_diffusion(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file holds a model with a network, of whatever version."""
    return storage.format_of(Path(path)) == FORMAT


def describe(model: Diffusion) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return settings and tensors of a model, from which `restore` makes it again."""
    predictor = model.predictor
    informed = predictor if isinstance(predictor, Informed) else None
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
        settings["form"] = describe_form(informed)
        tensors |= {f"prior.{name}": part for name, part in state.items()}
        if isinstance(informed, Combined):
            tensors[SHARE] = informed.share
    return settings, tensors


def restore(
    settings: dict[str, Any],
    tensors: dict[str, Tensor],
    frame: TransformFrame | None = None,
    *,
    net: nn.Module | None = None,
    gate: Gate | None = None,
) -> Diffusion:
    """Return the model that was described; the weights of a given ``net`` are overwritten."""
    checks.optional(net, nn.Module, "net")
    checks.optional(gate, Gate, "gate")
    net = _net_of(settings["net"], net)
    _fill(net, priors.under("net.", tensors))
    predictor = net
    if settings["prior"] is not None:
        prior = priors.restore(settings["prior"], priors.under("prior.", tensors), frame)
        predictor = _form_of(settings["form"], net, prior, gate)
        if isinstance(predictor, Combined):
            predictor.share.copy_(tensors[SHARE])
    setting = priors.setting_of(settings["setting"])
    return Diffusion(
        predictor.eval(), setting, first=settings["first"], precision=settings["precision"]
    )


def describe_net(net: nn.Module) -> dict[str, Any]:
    """Return the kind of a network, with its arguments where it is one of the library's."""
    arguments = getattr(net, "settings", None)
    if type(net) in NETWORKS.values() and isinstance(arguments, dict):
        return {"kind": type(net).__name__, **arguments}
    return {"kind": _name(net)}


def _net_of(settings: dict[str, Any], given: nn.Module | None) -> nn.Module:
    """Return a network of the form that was described, with weights to be filled in."""
    _demand_kind(settings["kind"], given, NETWORKS, "net", "network")
    if given is not None:
        return given.cpu()
    arguments = {name: value for name, value in settings.items() if name != "kind"}
    return NETWORKS[settings["kind"]](**arguments)


def _fill(net: nn.Module, weights: dict[str, Tensor]) -> None:
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"net must take the weights of the file: {error}") from None


def describe_form(informed: Informed) -> dict[str, Any]:
    """Return how a network and a prior are put together."""
    if isinstance(informed, Combined) and type(informed) is Combined:
        return {"kind": "Combined", "first": informed.first, "intervals": len(informed.share)}
    if isinstance(informed, OperatorInformed) and type(informed) is OperatorInformed:
        gate = describe_gate(informed.gate)
        return {"kind": "OperatorInformed", "gate": gate, "condition": informed.condition}
    raise TypeError(
        f"predictor must be of the kind Combined or OperatorInformed to be saved, got "
        f"{_name(informed)!r}"
    )


def _form_of(settings: dict[str, Any], net: nn.Module, prior: Prior, gate: Gate | None) -> Informed:
    """Return the form that was described, around a network and a prior."""
    kind = settings["kind"]
    if kind == "Combined":
        return Combined(net, prior, first=settings["first"], intervals=settings["intervals"])
    if kind == "OperatorInformed":
        gate = _gate_of(settings["gate"], gate)
        return OperatorInformed(net, prior, gate=gate, condition=settings["condition"])
    raise ValueError(f"the file holds a network and a prior in an unknown form, {kind!r}")


def describe_gate(gate: Gate) -> dict[str, Any]:
    """Return the kind of a gate, with its arguments where it is one of the library's."""
    if type(gate) in GATES.values() and dataclasses.is_dataclass(gate):
        return {"kind": type(gate).__name__, **dataclasses.asdict(gate)}
    return {"kind": _name(gate)}


def _gate_of(settings: dict[str, Any], given: Gate | None) -> Gate:
    _demand_kind(settings["kind"], given, GATES, "gate", "gate")
    if given is not None:
        return given
    arguments = {name: value for name, value in settings.items() if name != "kind"}
    return GATES[settings["kind"]](**arguments)


def _name(part: object) -> str:
    return f"{type(part).__module__}.{type(part).__qualname__}"


def _demand_kind(
    kind: str, given: object, known: Mapping[str, type], argument: str, word: str
) -> None:
    """Raise unless a part can be made from its description, or was given and is of its kind.

    A class of one's own is known by its name: its module is another one where a script that
    trained is imported.
    """
    if given is None and kind not in known:
        raise ValueError(
            f"the file holds a {word} of the kind {kind!r}, which is not the library's: give it "
            f"as {argument}, in Python"
        )
    if given is not None and kind.rpartition(".")[2] != type(given).__name__:
        raise ValueError(
            f"{argument} must be of the kind {kind!r} that the file holds, got {_name(given)!r}"
        )
