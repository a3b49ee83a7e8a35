"""Records of ratios of times, and their comparison: what has become slower.

A record is one run on one machine: its commit, date and versions, and the ratio of the time of the
library to that of a baseline for each task, both measured in that run. So records of different
machines can be compared, roughly. The file has one JSON object per line, the newest last.
"""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

WORSE = 4 / 3
"""By which factor a ratio may be larger than in the last record."""

BLOCK = 0.1
"""The seconds after which a block of calls ends."""

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "finufft")


@dataclass(frozen=True)
class Task:
    """Something to be timed, and what it is compared with."""

    name: str
    against: str
    own: Callable[[], object]
    other: Callable[[], object]
    rounds: int = 3


@dataclass(frozen=True)
class Timing:
    """The smallest seconds of a call of a task and of its baseline, of all rounds."""

    own: float
    other: float

    @property
    def ratio(self) -> float:
        """The time of the task divided by that of its baseline."""
        return self.own / self.other


@dataclass(frozen=True)
class Record:
    """The ratios of a run."""

    commit: str
    date: str
    versions: dict[str, str]
    ratios: dict[str, float]

    @classmethod
    def of(cls, ratios: Mapping[str, float]) -> Record:
        """Return a record of this moment."""
        words = ["git", "describe", "--always", "--dirty=+"]
        commit = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
        versions = {"python": platform.python_version()}
        versions |= {name: version(name) for name in PACKAGES}
        date = datetime.now(UTC).strftime("%Y-%m-%d")
        return cls(commit, date, versions, {name: round(x, 4) for name, x in ratios.items()})


def timed(task: Task, clock: Callable[[], float] = time.perf_counter) -> Timing:
    """Return the times of a task and its baseline, in alternate rounds.

    In a round each is called until ``BLOCK`` seconds have passed, and the mean counts: threads that
    wait for the next work of the other library slow down a single short call. Each is called once
    before, to warm up. That call is a round if it took ``BLOCK`` seconds. The smallest time counts,
    because other programs can only make it longer.
    """
    works = (task.own, task.other)
    first = [_seconds(work, clock, until=0.0) for work in works]
    times = [[one] if one >= BLOCK else [] for one in first]
    for _ in range(task.rounds):
        for work, found in zip(works, times, strict=True):
            if len(found) < task.rounds:
                found.append(_seconds(work, clock, until=BLOCK))
    return Timing(*map(min, times))


def _seconds(work: Callable[[], object], clock: Callable[[], float], until: float) -> float:
    """Return the mean time of a call; there are calls until so many seconds have passed."""
    start, calls, passed = clock(), 0, 0.0
    while calls == 0 or passed < until:
        work()
        calls, passed = calls + 1, clock() - start
    return passed / calls


def is_worse(ratio: float, last: float | None) -> bool:
    """Return whether a ratio is worse than in the last record by more than a third."""
    return last is not None and ratio > WORSE * last


def line(task: Task, timing: Timing, last: float | None) -> str:
    """Return the line of a task in the table."""
    change = "" if last is None else f"{timing.ratio / last:>8.2f}×"
    mark = "  slower" if is_worse(timing.ratio, last) else ""
    before = "" if last is None else f"{last:.3g}"
    return (
        f"{task.name:<30}{task.against:<26}{timing.own:>9.4f}{timing.other:>10.4f}"
        f"{timing.ratio:>9.3g}{before:>9}{change}{mark}"
    )


HEAD = (
    f"{'task':<30}{'compared with':<26}{'seconds':>9}{'baseline':>10}{'ratio':>9}{'last':>9}"
    f"{'change':>9}"
)


def run(tasks: Sequence[Task], last: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """Print the table; return the ratios, and the names of tasks that have become slower.

    A task that seems slower is timed twice more, and the smallest time of each counts: another
    program may have been running.
    """
    print(HEAD, flush=True)
    ratios, slower = {}, []
    for task in tasks:
        before = last.get(task.name)
        timing = timed(task)
        for _ in range(2):
            if is_worse(timing.ratio, before):
                again = timed(task)
                timing = Timing(min(timing.own, again.own), min(timing.other, again.other))
        ratios[task.name] = timing.ratio
        print(line(task, timing, before), flush=True)
        if is_worse(timing.ratio, before):
            slower.append(task.name)
    return ratios, slower


def read(path: Path) -> list[Record]:
    """Return the records in a file, the newest last."""
    if not path.exists():
        return []
    return [Record(**json.loads(text)) for text in path.read_text(encoding="utf-8").splitlines()]


def append(path: Path, record: Record) -> None:
    """Add a record to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record)) + "\n")
