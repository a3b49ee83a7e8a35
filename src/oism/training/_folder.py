"""The folder of a run: whether one may begin there or go on, and the model that it holds."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from oism.basis import TransformFrame
from oism.images import Gate
from oism.images._storage import FORMAT
from oism.nn import Diffusion
from oism.nn._storage import SHARE, load, restore
from oism.score import _storage as storage
from oism.training import _checkpoint as checkpoint
from oism.training._checkpoint import CheckpointError

SETTINGS, PRIOR, METRICS = "settings.json", "prior.safetensors", "metrics.jsonl"
MODEL, CHECKPOINTS, SAMPLES = "model.safetensors", "checkpoints", "samples"


def holds_run(folder: Path) -> bool:
    """Tell whether a folder is that of a run, however far it came."""
    return (folder / SETTINGS).is_file()


def latest(folder: Path) -> Path | None:
    """Return the newest checkpoint of a run, if there is one."""
    return checkpoint.latest(folder / CHECKPOINTS)


def demand_place(folder: Path, *, resume: bool) -> None:
    """Raise unless a run can begin in a folder, or with ``resume`` go on."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "is a file, not a folder", str(there))
    last = latest(folder)
    if last is not None and not resume:
        raise FileExistsError(
            f"{folder} holds a run, with {last.name}: go on with it (resume=True, --resume), or "
            "name another folder"
        )
    if folder.is_dir() and not holds_run(folder) and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty, and holds no run: name another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no permission to write in this folder", str(there))


def model_of(
    folder: str | os.PathLike[str],
    frame: TransformFrame | None = None,
    *,
    net: nn.Module | None = None,
    gate: Gate | None = None,
) -> Diffusion:
    """Return the model of a run, with the average weights of its last step or newest checkpoint.

    It is on the CPU. A transform, network or gate of a user's own must be given again.
    """
    folder = Path(folder)
    if not holds_run(folder):
        raise CheckpointError(f"{folder}: holds no run: there is no {SETTINGS}")
    if (folder / MODEL).is_file():
        return load(folder / MODEL, frame, net=net, gate=gate)
    settings = _settings(folder)["model"]
    found = checkpoint.read_latest(folder / CHECKPOINTS)
    if found is None:
        raise CheckpointError(f"{folder}: the run has no checkpoint yet")
    weights = {**found.net, **found.average}
    share = weights.pop(SHARE, None)
    tensors = {f"net.{name}": part for name, part in weights.items()}
    if share is not None:
        tensors[SHARE] = share
    if settings["prior"] is not None:
        _, state = storage.read(folder / PRIOR, FORMAT)
        tensors |= {f"prior.{name}": part for name, part in state.items()}
    return restore(settings, tensors, frame, net=net, gate=gate)


def steps_of(folder: Path) -> tuple[int, int]:
    """Return how many steps the newest checkpoint of a run has, and how many were planned."""
    last = latest(folder)
    return 0 if last is None else int(last.name.split("-")[1]), int(_settings(folder)["steps"])


def _settings(folder: Path) -> Mapping[str, Any]:
    path = folder / SETTINGS
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged: {error}") from error
    if not isinstance(found, dict) or "model" not in found:
        raise CheckpointError(f"{path}: not the settings of a run of this release")
    return found
