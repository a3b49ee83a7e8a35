"""A training run while it goes on: lines about its progress, grids of samples, signals to stop."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from oism.cli.classes import every_class
from oism.cli.exit_codes import Terminated
from oism.images import as_images
from oism.nn import Diffusion
from oism.plot import write_image_grid
from oism.training import Run, latest_checkpoint

if TYPE_CHECKING:
    from types import FrameType

SAMPLES = 64
"""The number of samples of a grid."""

SECONDS = 10.0
"""The least time between two lines about the progress, where there is no bar."""


def draw(path: Path, model: Diffusion) -> None:
    """Write samples of a model as one grid, from the same noise every time."""
    labels = None if model.classes is None else every_class(SAMPLES, model.classes)
    x = model.sample(SAMPLES, torch.Generator().manual_seed(0), labels=labels)
    write_image_grid(path, as_images(model.spec, x).numpy())


class Lines:
    """Prints lines about the progress to standard error, not more often than every few seconds."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds, self.last = seconds, time.monotonic()

    def __call__(self, line: str) -> None:
        """Print a line, unless one was printed just before."""
        now = time.monotonic()
        if now - self.last >= self.seconds:
            self.last = now
            print(f"oism: {line}", file=sys.stderr, flush=True)


@contextmanager
def stopping_gently(run: Run) -> Iterator[None]:
    """Within, a signal stops a run after the present step, with a checkpoint; a second one at once.

    The error then names the checkpoint from which the run can be resumed.
    """
    alone, folder = int(run.accelerator.num_processes) == 1, run.folder
    try:
        with _asking_to_stop(run) if alone else nullcontext():
            yield
    except (KeyboardInterrupt, Terminated) as error:
        last = latest_checkpoint(folder)
        error.add_note(
            "there is no checkpoint yet"
            if last is None
            else f"`oism train --resume {folder}` continues from {last.name}"
        )
        raise


@contextmanager
def _asking_to_stop(run: Run) -> Iterator[None]:
    """Within, the first signal only asks the run to stop."""
    errors = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}

    def ask(number: int, _frame: FrameType | None) -> None:
        restore()
        run.stop(errors[signal.Signals(number)]())

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, ask) for number in errors}
    try:
        yield
    finally:
        restore()
