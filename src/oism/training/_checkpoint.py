"""Checkpoints: one file of `oism.storage` for each, with everything that a run continues from.

    checkpoints/step-00005000.safetensors    step, settings of the run; tensors net.*, average.*,
                                             optimiser.*

A file appears under its name only when it is complete on the disk, and older ones are removed only
then. So after a full disk, a signal or a crash, every file with the name of a checkpoint is
complete, and the last one is still there. All random numbers are determined by the number of the
step (`oism.training._draws`), so no state of a generator is stored.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oism import storage
from oism._core.atomic import remove_drafts
from oism.storage import StorageError, storable

PARTS = ("net", "average", "optimiser")
NAME = re.compile(r"step-(\d{8,})\.safetensors")


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, or could not be written."""


@storable
@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run: everything that it continues from."""

    step: int
    settings: dict[str, Any]
    net: dict[str, Tensor]
    average: dict[str, Tensor]
    optimiser: dict[str, Tensor]


def write(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint to a folder of checkpoints, keep the newest ``keep``; return its path."""
    target = folder / f"step-{checkpoint.step:08d}.safetensors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_drafts(folder)  # of killed runs: they may be what fills the disk
        storage.save(checkpoint, target)
    except OSError as error:
        last = latest(folder)
        kept = f"the last one is {last}" if last else "there is no earlier one"
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} could not be written to {folder}: "
            f"{error.strerror or error}; {kept}"
        ) from error
    for old in all_of(folder)[:-keep]:
        with contextlib.suppress(OSError):
            old.unlink()
    return target


def read(path: Path) -> Checkpoint:
    """Return a checkpoint, or raise an error that names the fault."""
    try:
        found: Checkpoint = storage.load(path, expected=Checkpoint)
    except (OSError, StorageError) as error:
        text = f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise CheckpointError(f"checkpoint {text}") from error
    return found


def read_latest(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint, or None if there is none.

    If it is damaged, the error names the newest one that is not. To continue from there loses the
    steps in between, so that is left to the user.
    """
    found = all_of(folder)
    if not found:
        return None
    try:
        return read(found[-1])
    except CheckpointError as error:
        usable = next((path for path in reversed(found[:-1]) if _is_usable(path)), None)
        advice = (
            "and no earlier one can be read"
            if usable is None
            else f"{usable} can be read: remove {found[-1].name} to continue from it"
        )
        raise CheckpointError(f"{error}; {advice}") from error


def all_of(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, oldest first."""
    named = [(NAME.fullmatch(path.name), path) for path in folder.glob("step-*") if path.is_file()]
    found = {int(match[1]): path for match, path in named if match}
    return [found[step] for step in sorted(found)]


def latest(folder: Path) -> Path | None:
    """Return the newest checkpoint, or None if there is none."""
    found = all_of(folder)
    return found[-1] if found else None


def step_of(path: Path) -> int:
    """Return the step of a checkpoint from its name.

    >>> step_of(Path("step-00005000.safetensors"))
    5000
    """
    match = NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def _is_usable(path: Path) -> bool:
    try:
        read(path)
    except CheckpointError:
        return False
    return True


def optimiser_state(optimiser: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """Return the state of an optimiser as tensors, by the names of its parameters."""
    state = optimiser.state_dict()["state"]
    return {
        f"{names[index]}/{key}": value for index, own in state.items() for key, value in own.items()
    }


def restore_optimiser(
    optimiser: torch.optim.Optimizer, state: Mapping[str, Tensor], names: list[str]
) -> None:
    """Set the state of an optimiser."""
    parameters = [part for group in optimiser.param_groups for part in group["params"]]
    own: dict[int, dict[str, Tensor]] = {}
    for label, value in state.items():
        name, _, key = label.rpartition("/")
        index = names.index(name)
        # Tensors of a file are contiguous. Fused steps require the layout of the parameter, for
        # some channels last, and in another layout plain steps may round differently.
        like = parameters[index] if value.ndim else value
        own.setdefault(index, {})[key] = torch.empty_like(like).copy_(value)
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": own, "param_groups": groups})
