"""The folder of a run: the names of its files, and whether a run can start or continue there.

settings.json       configuration, form of the model, versions
prior.safetensors   the prior, if there is one
metrics.jsonl       loss, norm of the gradient, learning rate, seconds, error of the model
samples/            samples of the average weights
checkpoints/        what a run continues from
model.safetensors   the model with average weights, of the newest checkpoint
run.lock            while a run writes to the folder: which process does
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oism._core.atomic import DRAFTS, replacing_together
from oism._core.locking import FileLock, LockedError, check_unlocked
from oism.images import Prior
from oism.storage import to_bytes
from oism.training import _checkpoint as checkpoint
from oism.training._checkpoint import CheckpointError
from oism.training._metrics import NAME

SETTINGS, PRIOR, METRICS = "settings.json", "prior.safetensors", NAME
MODEL, CHECKPOINTS, SAMPLES = "model.safetensors", "checkpoints", "samples"
LOCK = "run.lock"


def holds_run(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder is that of a run, which need not have a checkpoint yet."""
    return (Path(folder) / SETTINGS).is_file()


def latest_checkpoint(folder: str | os.PathLike[str]) -> Path | None:
    """Return the newest checkpoint of a run, or None if there is none."""
    return checkpoint.latest(Path(folder) / CHECKPOINTS)


def check_folder(folder: Path, *, resume: bool) -> None:
    """Raise unless a run can start in a folder or, with ``resume``, continue."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "is a file, not a folder", str(there))
    last = latest_checkpoint(folder)
    if last is not None and not resume:
        raise FileExistsError(
            f"{folder} holds a run, with {last.name}: resume it, or name another folder"
        )
    if not holds_run(folder) and _has_others(folder):
        raise FileExistsError(f"{folder} is not empty, and holds no run: name another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no permission to write in this folder", str(there))


def _has_others(folder: Path) -> bool:
    """Return whether a folder has anything but a lock and drafts.

    A run that is killed before it has settings leaves these.
    """
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return bool(names - {LOCK, *fnmatch.filter(names, DRAFTS)})


def check_not_running(folder: Path) -> None:
    """Raise where a process writes to the folder of a run; this one does not keep it from others.

    Before a long preparation; `locked` is for the run itself.
    """
    with _naming(folder):
        check_unlocked(folder / LOCK)


def locked(folder: Path) -> FileLock:
    """Return the lock of the folder of a run, which is created if necessary.

    The lock of a process that has ended, by a crash too, is no longer held.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _naming(folder):
        return FileLock(folder / LOCK)


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    try:
        yield
    except LockedError as error:
        raise LockedError(
            f"{folder} is in use by a run, {error}: wait until it ends, or name another folder"
        ) from None


def run_progress(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the step of the newest checkpoint of a run, and the number of steps planned."""
    last = latest_checkpoint(folder)
    planned = read_settings(folder)["config"]["steps"]
    return 0 if last is None else checkpoint.step_of(last), int(planned)


def read_settings(folder: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the settings of the run in a folder."""
    path = Path(folder) / SETTINGS
    if not path.is_file():
        raise CheckpointError(f"{folder}: holds no run: there is no {SETTINGS}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path}: damaged: {error}") from error
    config = found.get("config") if isinstance(found, dict) else None
    if not isinstance(config, dict) or not isinstance(config.get("steps"), int):
        raise CheckpointError(f"{path}: not the settings of a run of this release")
    if found.pop("sha256", None) != _digest(found):
        raise CheckpointError(
            f"{path}: damaged: its content does not have the SHA-256 that it states"
        )
    settings: Mapping[str, Any] = found
    return settings


def write_settings(
    folder: Path, settings: Mapping[str, Any], prior: Prior | None = None, *, begins: bool = False
) -> None:
    """Write the settings of a run, plain data, with the SHA-256 of their JSON text, and its prior.

    The settings are renamed first. A run that is killed between the two renames leaves settings,
    but neither prior nor checkpoint, and begins again at step 0.

    A run that ``begins`` may find files of one without a checkpoint. They are removed when the new
    ones are complete. A prior that is the same stays.
    """
    own = folder / PRIOR
    stays = prior is not None and _holds(own, prior)
    paths = [folder / SETTINGS] if prior is None or stays else [folder / SETTINGS, own]
    before = [folder / MODEL, folder / METRICS, *([] if stays else [own])] if begins else []
    with replacing_together(*paths, removing=before) as drafts:
        content = json.dumps({**settings, "sha256": _digest(settings)}, indent=1)
        drafts[0].write_text(content, encoding="utf-8")
        if prior is not None and not stays:
            prior.save(drafts[1])


def _holds(path: Path, prior: Prior) -> bool:
    """Return whether a file is that of a prior, to the last bit."""
    return path.is_file() and path.read_bytes() == to_bytes(prior)


def _digest(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
