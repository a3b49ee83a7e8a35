"""Trainings that are killed at random moments and resumed, to the same bits.

A run is killed once or twice, at moments that are uniform over the time that it takes, and then
runs to its end. Four of five are forked from a process that has imported everything, which takes a
second; the others are the command ``oism train``.

    not ended     the last run, which is not killed, fails
    checkpoint    a file with the name of a checkpoint cannot be read after a kill
    bits          weights, optimiser, losses or model differ from those of a run without kills
    left behind   a draft or a lock is left
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from campaign.small_run import MODELS, pictures, trained
from oism import load, storage
from oism.data.files import write_images
from oism.training import latest_checkpoint, read_metrics

COMMAND = "oism train"
KINDS = (*MODELS, MODELS[0], COMMAND)
"""What is killed, in turn."""

STEPS, SAVE_EVERY = 12, 3
PATIENCE = 300.0
"""How many seconds a run may take."""

WORDS = ("--batch", "8", "--width", "4", "--sample-every", "0", "--order", "2", "--seed", "1")

State = dict[str, Any]
Poll = Callable[..., int | None]
"""Sends a signal to a process if it is given one; returns its exit status, or None."""


def judged(seed: int) -> dict[str, Any]:
    """Return the record of a case: what was killed, when, and what failed."""
    rng, kind = np.random.default_rng([seed, 2]), KINDS[seed % len(KINDS)]
    duration, expected = reference(kind)
    record: dict[str, Any] = {"run": kind, "killed after": [], "failed": []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        kills, moment = int(rng.integers(1, 3)), float(rng.uniform(0, duration))
        while len(record["killed after"]) < kills:
            if _ended(_started(kind, folder), moment) == -signal.SIGKILL:
                record["killed after"].append(round(moment / duration, 3))
                moment = float(rng.uniform(0, duration / 2))  # less is left to do
            else:  # it was faster than the run without kills
                moment /= 2
                shutil.rmtree(folder)
            if not _checkpoints_are_whole(folder):
                record["failed"].append("checkpoint")
        if _ended(_started(kind, folder), PATIENCE) != 0:
            record["failed"].append("not ended")
            log = folder.with_suffix(".log")
            record["error"] = log.read_text(encoding="utf-8")[-600:] if log.exists() else ""
            return record
        found = state_of(folder)
        differing = sorted(name for name in expected if found[name] != expected[name])
        if differing:
            record["failed"].append("bits")
            record["differing"] = differing
        left = [path.name for path in folder.rglob("*") if path.name.startswith(".oism-")]
        if left or (folder / "run.lock").exists():
            record["failed"].append("left behind")
    return record


@cache
def reference(kind: str) -> tuple[float, State]:
    """Return the duration of a run that is not killed, and its state at the end."""
    with tempfile.TemporaryDirectory() as place:
        if kind != COMMAND:
            _warm(kind)
        start = time.monotonic()
        status = _ended(_started(kind, Path(place) / "run"), PATIENCE)
        if status != 0:
            raise RuntimeError(f"the run that is not killed ends with status {status}")
        return time.monotonic() - start, state_of(Path(place) / "run")


def state_of(folder: Path) -> State:
    """Return everything that a run has reached: the bytes of its files, and its losses."""
    last = latest_checkpoint(folder)
    losses = [(line["step"], line["loss"]) for line in read_metrics(folder)]
    return {
        "checkpoint": None if last is None else last.read_bytes(),
        "model": (folder / "model.safetensors").read_bytes(),
        "losses": losses,
    }


def _started(kind: str, folder: Path) -> Poll:
    """Start or resume a run."""
    if kind != COMMAND:
        work = partial(trained, folder, kind, steps=STEPS, save_every=SAVE_EVERY, resume=True)
        return _forked(work, folder.with_suffix(".log"))
    known = (folder / "settings.json").exists() and latest_checkpoint(folder) is not None
    new = ("-o", str(folder), str(_gallery()), "--save-every", str(SAVE_EVERY), *WORDS)
    words = ("--resume", str(folder)) if known else new
    command = [sys.executable, "-m", "oism", "train", *words, "--steps", str(STEPS), "--quiet"]
    with folder.with_suffix(".log").open("wb") as log:
        return as_poll(subprocess.Popen(command, stderr=log))


def as_poll(process: subprocess.Popen[bytes]) -> Poll:
    """Return the function of a process that `_ended` calls."""

    def poll(number: int | None = None) -> int | None:
        if number is not None:
            process.send_signal(number)
        return process.poll()

    return poll


def _forked(work: Callable[[], None], log: Path) -> Poll:
    """Do some work in a child, which writes the traceback of an error to a file."""
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException:
            log.write_text(traceback.format_exc(), encoding="utf-8")
            os._exit(1)
        os._exit(0)
    status: list[int] = []

    def poll(number: int | None = None) -> int | None:
        if number is not None and not status:
            os.kill(pid, number)
        if not status:
            found, code = os.waitpid(pid, os.WNOHANG)
            if found:
                status.append(os.waitstatus_to_exitcode(code))
        return status[0] if status else None

    return poll


def _ended(poll: Poll, seconds: float) -> int:
    """Return the exit status of a run, which is killed after some seconds."""
    last = time.monotonic() + seconds
    while time.monotonic() < last:
        status = poll()
        if status is not None:
            return status
        time.sleep(0.001)
    status = poll(signal.SIGKILL)
    while status is None:
        time.sleep(0.001)
        status = poll()
    return status


def _checkpoints_are_whole(folder: Path) -> bool:
    """Return whether all checkpoints, and the model if there is one, can be read."""
    paths = [*folder.glob("checkpoints/step-*"), *folder.glob("model.safetensors")]
    try:
        for path in paths:
            load(path)
    except storage.StorageError:
        return False
    return True


def _warm(model: str) -> None:
    """Import what a run imports at first use, so that children need not."""
    torch.set_num_threads(1)  # a child must not wait for threads that it does not have
    with tempfile.TemporaryDirectory() as place:
        trained(Path(place) / "run", model, steps=1, save_every=1)


@cache
def _gallery() -> Path:
    folder = Path(tempfile.mkdtemp())
    write_images(str(folder / "images"), pictures())
    return folder / "images"
