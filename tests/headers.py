"""Files of oism with another header than the one they were written with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from oism.storage._header import digest_of


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of a file, and give it the digest of its new content."""
    with safetensors.safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["oism"])
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    change(about)
    described = {name: about.get(name) for name in ("class", "config")}
    about["sha256"] = digest_of(described, tensors)
    safetensors.torch.save_file(tensors, path, metadata={"oism": json.dumps(about)})


def put(about: dict[str, Any], dotted: str, value: object) -> None:
    """Set an entry of a configuration, ``spec.clock.beta_0`` say, through the objects in it."""
    *parents, last = dotted.split(".")
    config = about["config"]
    for name in parents:
        config = config[name]
        config = config["$object"]["config"] if "$object" in config else config
    config[last] = value


def rename_class(about: dict[str, Any], dotted: str, name: str) -> None:
    """Let an entry of a configuration name another class."""
    *parents, last = dotted.split(".")
    config = about["config"]
    for parent in parents:
        config = config[parent]["$object"]["config"]
    (part,) = config[last].values()
    part["class"] = name
