"""Checkpoints: a folder for each, which appears under its name only once it is whole.

    checkpoints/step-00005000/
        net.safetensors  average.safetensors  optimiser.safetensors
        state.json       the step, the run's settings, the sizes of the other files

The folder is written under another name, brought to the disk and renamed; older ones go only then,
and are renamed before they are removed. Whatever stops a run, a full disk or a signal, what has the
name of a checkpoint is whole, and the last one stays. All randomness follows from the number of the
step (`oism.training._draws`), so nothing else needs to be kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save as serialised
from torch import Tensor

VERSION = 1
PARTS = ("net", "average", "optimiser")
DRAFT = ".part"
NAME = re.compile(r"step-(\d{8,})")


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, or could not be written."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Everything that a run goes on from."""

    step: int
    settings: Mapping[str, Any]
    net: dict[str, Tensor]
    average: dict[str, Tensor]
    optimiser: dict[str, Tensor]


def write(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint to a folder of checkpoints, and leave the newest ``keep``."""
    target = folder / f"step-{checkpoint.step:08d}"
    draft = _draft(target)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder)  # drafts of runs that were killed may be what fills the disk
        draft.mkdir()
        sizes = {}
        for part in PARTS:
            tensors = {
                name: value.detach().cpu().contiguous()
                for name, value in getattr(checkpoint, part).items()
            }
            sizes[part] = _write(draft / f"{part}.safetensors", serialised(tensors))
        state = {
            "format": "oism.Checkpoint",
            "version": VERSION,
            "step": checkpoint.step,
            "settings": checkpoint.settings,
            "sizes": sizes,
        }
        _write(draft / "state.json", json.dumps(state, indent=1).encode())
        _to_disk(draft)
        if target.exists():  # of an earlier run of the same steps: the same, or damaged
            target.rename(_draft(target))
        draft.rename(target)
        _to_disk(folder)
    except OSError as error:
        last = latest(folder)
        kept = f"the last one is {last}" if last else "there is no earlier one"
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} could not be written to {folder}: "
            f"{error.strerror or error}; {kept}"
        ) from error
    else:
        for old in all_of(folder)[:-keep]:
            with contextlib.suppress(OSError):
                old.rename(_draft(old))  # in one go: what keeps its name is whole
    finally:
        _clear(folder)
    return target


def read(path: Path) -> Checkpoint:
    """Return a checkpoint, or say what is wrong with it."""
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a checkpoint: state.json cannot be read") from error
    if not isinstance(state, dict) or state.get("format") != "oism.Checkpoint":
        raise CheckpointError(f"{path}: not a checkpoint of oism")
    if state.get("version") != VERSION:
        raise CheckpointError(
            f"{path}: a checkpoint of version {state.get('version')}, and this release reads "
            f"version {VERSION}"
        )
    step, settings, sizes = (state.get(name) for name in ("step", "settings", "sizes"))
    sizes = sizes if isinstance(sizes, dict) else {}
    if not (isinstance(step, int) and isinstance(settings, dict) and set(sizes) >= set(PARTS)):
        raise CheckpointError(f"{path}: damaged: state.json lacks step, settings or sizes")
    return Checkpoint(
        step=step,
        settings=settings,
        **{part: _tensors(path / f"{part}.safetensors", sizes[part]) for part in PARTS},
    )


def read_latest(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint, if there is one.

    Where it is damaged, the error names the newest one that is not: to go on from there, and to
    lose the steps in between, is for a person to decide.
    """
    found = all_of(folder)
    if not found:
        return None
    try:
        return read(found[-1])
    except CheckpointError as error:
        whole = next((path for path in reversed(found[:-1]) if _is_whole(path)), None)
        way = (
            "and no earlier one can be read"
            if whole is None
            else f"{whole} is whole: remove {found[-1].name} to go on from it"
        )
        raise CheckpointError(f"{error}; {way}") from error


def all_of(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, oldest first."""
    named = [(NAME.fullmatch(path.name), path) for path in folder.glob("step-*") if path.is_dir()]
    found = {int(match[1]): path for match, path in named if match}
    return [found[step] for step in sorted(found)]


def latest(folder: Path) -> Path | None:
    """Return the newest checkpoint, if there is one."""
    found = all_of(folder)
    return found[-1] if found else None


def _is_whole(path: Path) -> bool:
    try:
        read(path)
    except CheckpointError:
        return False
    return True


def _draft(target: Path) -> Path:
    """Return a name for what is not a checkpoint yet, or no longer."""
    return target.with_name(f".{target.name}-{uuid.uuid4().hex}{DRAFT}")


def _clear(folder: Path) -> None:
    for draft in folder.glob(f".step-*{DRAFT}"):
        shutil.rmtree(draft, ignore_errors=True)


def _tensors(path: Path, size: int) -> dict[str, Tensor]:
    try:
        found = path.stat().st_size
        if found != size:
            raise CheckpointError(f"{path}: truncated: {found} bytes of {size}")
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path}: damaged: {error}") from error


def _write(path: Path, content: bytes) -> int:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return len(content)


def _to_disk(folder: Path) -> None:
    """Bring the names in a folder to the disk, where a system lets one."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def optimiser_state(optimiser: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """Return the state of an optimiser as tensors, by the names of its parameters."""
    state = optimiser.state_dict()["state"]
    return {
        f"{names[index]}/{key}": value for index, own in state.items() for key, value in own.items()
    }


def restore_optimiser(
    optimiser: torch.optim.Optimizer, state: Mapping[str, Tensor], names: list[str]
) -> None:
    """Take the state of an optimiser over."""
    parameters = [part for group in optimiser.param_groups for part in group["params"]]
    own: dict[int, dict[str, Tensor]] = {}
    for label, value in state.items():
        name, _, key = label.rpartition("/")
        index = names.index(name)
        # In a file all is contiguous. Fused steps demand the layout of the parameter, channels last
        # for some, and in another one plain steps may round otherwise.
        like = parameters[index] if value.ndim else value
        own.setdefault(index, {})[key] = torch.empty_like(like).copy_(value)
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": own, "param_groups": groups})
