"""Trained models: what is said of them, and where they work."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oism.cli.priors import shape_text

if TYPE_CHECKING:
    from oism.nn import Diffusion


def placed(model: Diffusion, device: str | None) -> Diffusion:
    """Return a model on a device: a GPU where there is one, unless another is asked for."""
    import torch

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device)


def facts(model: Diffusion, path: Path) -> dict[str, Any]:
    """Return what a model is, as JSON can hold it; of a run also how far it came."""
    from oism.nn import Informed
    from oism.nn._storage import describe_form, describe_net
    from oism.training._folder import steps_of

    predictor, pixels = model.predictor, model.pixels
    informed = predictor if isinstance(predictor, Informed) else None
    net = predictor if informed is None else informed.net
    assert dataclasses.is_dataclass(model.clock)
    found: dict[str, Any] = {
        "kind": "trained model",
        "shape": list(model.shape),
        "pixels": None if pixels is None else [pixels.low, pixels.high],
        "dequantised": model.setting.dequantised,
        "network": describe_net(net),
        "parameters": sum(part.numel() for part in net.parameters()),
        "prior": None,
        "clock": {"kind": type(model.clock).__name__, **dataclasses.asdict(model.clock)},
        "first": model.first,
        "precision": model.precision,
    }
    if informed is not None:
        found["prior"] = informed.prior.facts
        found["form"] = describe_form(informed)
    if path.is_dir():
        taken, planned = steps_of(path)
        found["run"] = {"steps": taken, "planned": planned}
    return found


def summary(found: Mapping[str, Any]) -> str:
    """Return a page about the facts of a trained model."""
    pixels, net = found["pixels"], found["network"]
    units = "no pixels" if pixels is None else f"pixels from {pixels[0]} to {pixels[1]}"
    units += ", dequantised" if found["dequantised"] else ""
    sizes = {name: value for name, value in net.items() if name not in ("kind", "shape")}
    words = ", ".join(f"{name} {_words(value)}" for name, value in sizes.items())
    clock = {name: value for name, value in found["clock"].items() if name != "kind"}
    noise = ", ".join(f"{name} = {value:g}" for name, value in clock.items())
    precision = {"no": "full", "bf16": "bfloat16"}[found["precision"]]
    run = found.get("run")
    return "\n".join(
        [
            f"model       {net['kind']}, {found['parameters']:,} parameters",
            f"            {words}",
            f"shape       {shape_text(found['shape'])}, {units}",
            *_head_start(found),
            f"clock       {found['clock']['kind']}, {noise}, from τ = {found['first']:g}",
            f"precision   {precision}",
            *([] if run is None else [f"run         {run['steps']} of {run['planned']} steps"]),
        ]
    )


def _head_start(found: Mapping[str, Any]) -> list[str]:
    prior = found["prior"]
    if prior is None:
        return ["prior       none"]
    size = f"order {prior['order']}" if "order" in prior else f"{prior['components']} components"
    local = prior.get("local terms")
    return [
        f"prior       {prior['kind']}, {size}, {prior['frame']}",
        *([] if local is None else [f"local       {local}"]),
        f"form        {_form(found['form'])}",
    ]


def _form(form: Mapping[str, Any]) -> str:
    """Return how a prior and a network are put together, in words."""
    if form["kind"] == "Combined":
        return "network and prior, each as much as it is worth at a noise level"
    gate = form["gate"]
    words = {
        "Open": "at every noise level",
        "ByError": f"where its error is less than {gate.get('half')}",
    }
    how = words.get(gate["kind"], f"as {gate['kind']} says")
    shown = ", and is shown" if form["condition"] else ""
    return f"the network learns what the prior leaves, {how}{shown}"


def _words(value: object) -> str:
    return " ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
