"""Metrics of a run: a line of JSON for every report, and TensorBoard."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from oism._core.atomic import replacing
from oism._core.plain import plain
from oism._core.user_warnings import warn

NAME = "metrics.jsonl"


class Metrics:
    """Numbers by step, appended to ``metrics.jsonl`` of a folder.

    If a run continues from a step, later lines are removed. With ``tensorboard`` the same numbers
    go to event files, if the package is installed.
    """

    def __init__(self, folder: Path, *, after: int = 0, tensorboard: bool = True) -> None:
        self.folder, self.path = folder, folder / NAME
        self._remove_later(after)
        self._file = self.path.open("a", encoding="utf-8")
        self._board = _board(folder / "tensorboard", after) if tensorboard else None

    @property
    def has_board(self) -> bool:
        """Whether TensorBoard gets the numbers too."""
        return self._board is not None

    def add(self, step: int, numbers: Mapping[str, float | Sequence[float]]) -> None:
        """Write the numbers of a step; TensorBoard gets single numbers only."""
        line = json.dumps(plain({"step": step, **numbers}), allow_nan=False)
        self._file.write(line + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in numbers.items():
                if not isinstance(value, Sequence):
                    self._board.add_scalar(name, value, step)

    def flush_to_disk(self) -> None:
        """Bring the lines to the disk: those of a checkpoint must be there before it is."""
        self._file.flush()
        os.fsync(self._file.fileno())
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        """Bring everything to the disk."""
        try:
            self.flush_to_disk()
        finally:
            self._file.close()
            if self._board is not None:
                self._board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _remove_later(self, after: int) -> None:
        if not self.path.exists():
            return
        kept = [line for line in read_metrics(self.folder) if line["step"] <= after]
        # The line of a checkpoint's step was on the disk before the checkpoint.
        if after and all(line["step"] != after for line in kept):
            warn(f"{self.path}: step {after} is missing")
        with replacing(self.path) as draft:
            draft.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")


def read_metrics(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the metrics of a run, a dictionary for each line.

    A last line without an end was cut short when the run was killed, and is left out. Any other
    line that cannot be read is left out with a warning.
    """
    path, found, lines = Path(folder) / NAME, list[dict[str, Any]](), list[str]()
    *whole, cut = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(whole, start=1):
        entry = _entry(line)
        if entry is None:
            lines.append(str(number))
        else:
            found.append(entry)
    if lines:
        warn(f"{path}: damaged, and left out: line {', '.join(lines)}")
    last = _entry(cut)
    return found if last is None else [*found, last]


def _entry(line: str) -> dict[str, Any] | None:
    """Return the numbers of a line, or None if it cannot be read."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("step"), int) else None


def _board(folder: Path, after: int) -> Any:  # noqa: ANN401 (no type without the package)
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (optional)
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=after + 1 if after else None)
