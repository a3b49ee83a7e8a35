"""What a stage needs: a case, its images and networks, sizes, a folder, and a deadline.

A stage writes its numbers to a `Table`, a JSON file that is found again when a run continues.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from studies import classifier
from studies.images import device
from studies.labelled import Labelled, labelled_sets
from studies.sampling import networks
from studies.sampling.networks import BARE, COMBINED, Case, Networks
from studies.study import write_json

EVALUATIONS = (5, 8, 10, 15, 20)
REFERENCE = 100
"""The steps of the reference, each of four evaluations."""

ROUNDS = 15
"""How often every time is measured."""


@dataclass(frozen=True)
class Settings:
    """Sizes: samples of a reference, samples of a Fréchet distance, rows of a batch.

    ``classifier`` is the number of passes over the images in its training.
    """

    samples: int = 500
    drawn: int = 5000
    batch: int = 500
    evaluations: tuple[int, ...] = EVALUATIONS
    reference: int = REFERENCE
    width: int = 64
    rounds: int = ROUNDS
    classifier: int = classifier.EPOCHS
    forms: tuple[str, ...] = (COMBINED, BARE)


@dataclass(frozen=True)
class Context:
    """A case, its images, the folder of its results, and the deadline, a `time.perf_counter`."""

    case: Case
    data: str
    folder: Path
    deadline: float
    settings: Settings = Settings()

    @property
    def place(self) -> Path:
        """The folder of the case."""
        path = self.folder / self.case.name
        path.mkdir(parents=True, exist_ok=True)
        return path

    @cached_property
    def images(self) -> Labelled:
        """The images and their classes."""
        return labelled_sets(self.data, self.folder / f"{self.case.images}.npz")

    @cached_property
    def networks(self) -> Networks:
        """The networks, ready to sample."""
        made = Networks(self.case, self.images.sets, self.place, batch=self.settings.batch)
        made.load(self.last)
        return made

    @property
    def last(self) -> int:
        """The number of steps of the last weights."""
        steps = networks.stored_steps(self.place)
        if not steps:
            raise FileNotFoundError(f"no weights in {self.place}: run the stage train before")
        return steps[-1]

    @property
    def left(self) -> float:
        """The seconds before the deadline."""
        return self.deadline - time.perf_counter()

    def is_late(self, seconds: float) -> bool:
        """Return whether too little time is left for ``seconds`` of work, infinite if unknown."""
        return self.left < (1.5 * seconds if math.isfinite(seconds) else 0) + 3

    @property
    def classifier_path(self) -> Path:
        """The file of the classifier, one for all networks of the same images."""
        return self.folder / f"classifier-{self.case.images}.pt"

    def say(self, words: str) -> None:
        """Print a line of progress."""
        print(f"[{self.left:6.0f} s left] {words}", file=sys.stderr, flush=True)


class Table:
    """Rows of numbers in a JSON file, found by the columns that identify them."""

    def __init__(self, path: Path, identity: tuple[str, ...], **head: Any) -> None:  # noqa: ANN401
        self.path, self.identity, self.head = path, identity, head
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            self.rows, kept = stored.pop("rows"), stored
            self.head = {**kept, **head}

    def __contains__(self, row: Mapping[str, Any]) -> bool:
        return any(all(old[name] == row[name] for name in self.identity) for old in self.rows)

    def add(self, **row: object) -> None:
        """Add a row, and write the file."""
        self.rows.append(row)
        self.write()

    def write(self, **head: object) -> None:
        """Write the file, with further entries beside the rows."""
        self.head |= head
        write_json(self.path, {**self.head, "rows": self.rows})


def now() -> float:
    """Return the time after all work of the device, in seconds."""
    if device() == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
