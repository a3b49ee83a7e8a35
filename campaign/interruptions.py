"""Commands that are interrupted (SIGINT) at random moments.

The moment is uniform over the time that a command takes. Half of the commands replace an old file.

    status       a shell does not get the exit status 130, which it also gets if Python ends itself
                 by the signal
    message      standard error does not end with the line of an interruption, or has a traceback
    ignored      the command went on to its end
    file         the output is neither the old file, nor none, nor complete
    left behind  a draft or a lock is left

A command may also end with success and a complete output if it ends shortly after the signal. A
signal that comes before or after the function ``main`` of the command gets Python's own answer.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from campaign.small_run import pictures
from oism import load
from oism.cli import main
from oism.data.files import read, write_images

SMALL = "--max-eigenvalue 25 --flow-steps 16"
TINY = "--batch 8 --width 4 --sample-every 0 --order 2"
COMMANDS = {
    "fit": f"fit moons.csv -o OUT.safetensors {SMALL}",
    "fit, default": "fit moons.csv -o OUT.safetensors",
    "fit-images": "fit-images images -o OUT.safetensors",
    "train": f"train images -o OUT --steps 8 --save-every 2 {TINY}",
    "sample": "sample moons.safetensors -n 20000 --density -o OUT.csv",
    "sample, images": "sample run -n 8 -o OUT",
    "density": "density moons.safetensors moons.csv -o OUT.parquet",
    "outliers": "outliers moons.safetensors moons.csv --train moons.csv -o OUT.csv",
    "evaluate": "evaluate moons.safetensors moons.csv --train moons.csv --baselines kde mixture",
    "plot": "plot moons.safetensors --data moons.csv -o OUT.png",
    "info": "info moons.safetensors",
    "data": "data moons -n 200000 -o OUT.csv",
    "demo": "demo --rows 300 --test-rows 100 -o OUT",
    "export": "export run -o OUT --diffusers",
}
"""The commands; OUT is what they write."""

SHORTLY = 2.0
"""How many seconds after the signal a command may still end with success."""

PATIENCE = 120.0
"""After how many seconds a command that does not end is killed."""

OLD = b"the old file"


BEGIN, END = "<begin>", "<end>"
PROGRAM = f"""
import sys
from oism.__main__ import main
print("{BEGIN}", file=sys.stderr, flush=True)
code = main()
print("{END}", file=sys.stderr, flush=True)
sys.exit(code)
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its status, what it printed, and the seconds since the signal."""

    status: int
    error: str
    later: float

    @property
    def faults(self) -> list[str]:
        """What is wrong with the status and the message of an interruption."""
        if BEGIN not in self.error:
            return []
        text = self.error.replace("\r", "\n").replace(END, "").strip()
        clear = "oism: error: interrupted" in text.splitlines()[-1] and "Traceback" not in text
        known = self.status in (130, -signal.SIGINT) and END in self.error
        return [] if clear and known else ["status"] * (not known) + ["message"] * (not clear)

    @property
    def is_success(self) -> bool:
        """Whether the command returned without an error."""
        return END in self.error and "oism: error" not in self.error


def judged(seed: int) -> dict[str, Any]:
    """Return the record of a case: the command, the moment, and what failed."""
    rng = np.random.default_rng([seed, 3])
    name = list(COMMANDS)[seed % len(COMMANDS)]
    duration, expected = reference(name)
    record: dict[str, Any] = {"command": name, "failed": []}
    moment = float(rng.uniform(0, duration))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        replaces = bool(rng.random() < 0.5) and expected.suffix != ""
        target = out.with_name(out.name + expected.suffix)
        while True:
            if replaces:
                target.write_bytes(OLD)
            ended = interrupted(_words(name, out), moment)
            if ended.later >= 0:
                break
            moment /= 2  # it ended before the signal: it was faster this time
            _removed(target)
        record |= {"moment": round(moment / duration, 3), "status": ended.status}
        record["failed"] = faults(ended, target, expected, replaces=replaces)
        if record["failed"] or ended.status != 130:
            record["error"] = ended.error[-600:]
            record["left"] = sorted(str(path.name) for path in Path(folder).rglob("*"))[:20]
    return record


@dataclass(frozen=True)
class Output:
    """What a command writes where it is not interrupted: files by name, with their lines."""

    suffix: str
    files: dict[str, int]

    @classmethod
    def of(cls, target: Path) -> Output:
        """Return what is at a path: the names of files and, for tables, their number of lines."""
        paths = [path for path in target.rglob("*") if path.is_file()]
        paths = [target] if target.is_file() else paths
        known = {
            str(path.relative_to(target)): path.read_bytes().count(b"\n")
            if path.suffix == ".csv"
            else 0
            for path in paths
            if "tensorboard" not in path.parts  # its names have the time
        }
        return cls(target.suffix, known)

    def is_complete(self, target: Path) -> bool:
        """Return whether a path has all of the output, readable."""
        return Output.of(target) == self and are_whole(target)


def are_whole(target: Path) -> bool:
    """Return whether a file, or all files of a folder, can be read to their ends."""
    readers: dict[str, Callable[[Path], object]] = {
        ".safetensors": load,
        ".png": lambda path: Image.open(path).load(),
        ".parquet": lambda path: read(str(path)),
        ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    }
    try:
        for path in (target, *target.rglob("*")):
            if path.is_file() and path.suffix in readers:
                readers[path.suffix](path)
    except (OSError, ValueError):  # those of storage and of tables are ValueErrors
        return False
    return True


def faults(ended: Ended, target: Path, expected: Output, *, replaces: bool) -> list[str]:
    """Return what is wrong with how an interrupted command ended."""
    complete = target.exists() and expected.is_complete(target)
    found = ended.faults
    if ended.is_success:
        late = ended.later > SHORTLY or not (complete or not expected.files)
        found = ["ignored"] if late else []
    old = replaces and target.is_file() and target.read_bytes() == OLD
    run = (target / "settings.json").exists() and are_whole(target)  # it keeps what it has reached
    empty = target.is_dir() and not any(target.iterdir())
    none = not replaces and (empty or not target.exists())
    if not (complete or old or run or none):
        found.append("file")
    names = [path.name for path in target.parent.rglob("*")]
    if any(name.startswith(".oism-") or name == "run.lock" for name in names):
        found.append("left behind")
    return found


def interrupted(words: list[str], seconds: float) -> Ended:
    """Return how a command ended that was interrupted after some seconds.

    ``later`` is negative if it ended before.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            cwd=workshop(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # A shell's background jobs ignore SIGINT, and hand that down.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        later = -1.0
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            later = time.monotonic() - start
        errors.seek(0)
        return Ended(process.returncode, errors.read().decode(errors="replace"), later)


@cache
def reference(name: str) -> tuple[float, Output]:
    """Return the duration of a command that is not interrupted, and what it writes."""
    with tempfile.TemporaryDirectory() as folder:
        words, start = _words(name, Path(folder) / "out"), time.monotonic()
        ended = interrupted(words, 10 * PATIENCE)
        if ended.status != 0:
            raise RuntimeError(f"{name} fails without an interruption: {ended.error}")
        duration = time.monotonic() - start
        paths = list(Path(folder).iterdir())
        return duration, Output.of(paths[0]) if paths else Output("", {})


def _words(name: str, out: Path) -> list[str]:
    return COMMANDS[name].replace("OUT", str(out)).split()


def _removed(target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)


@cache
def workshop() -> Path:
    """Return a folder with a table, images, a model and a run, made once for each process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_images(str(folder / "images"), pictures())
    before = Path.cwd()
    os.chdir(folder)
    try:
        for words in (
            "data moons -n 150 -o moons.csv",
            f"fit moons.csv -o moons.safetensors {SMALL} --quiet",
            f"train images -o run --steps 2 --quiet {TINY}",
        ):
            if main(words.split()) != 0:
                raise RuntimeError(f"oism {words} fails")
    finally:
        os.chdir(before)
    return folder
