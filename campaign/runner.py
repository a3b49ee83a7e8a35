"""Cases in worker processes, within bounds of time and memory, one record for each."""

from __future__ import annotations

import importlib
import itertools
import json
import multiprocessing as mp
import os
import resource
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from campaign import report

KINDS = {"files": 500, "kills": 50, "interruptions": 100, "concurrency": 28, "tables": 1000}
"""The modules of cases, and how many there are; the shortest cases first."""

CPU_SECONDS, WALL_SECONDS, MEMORY = 60.0, 1800.0, 2.0
"""The bounds of a case: seconds of processors and of the clock, and GiB."""

SEVERAL = ("kills", "interruptions", "concurrency")
"""The kinds whose cases start several programs, and may take five times as long."""

Record = dict[str, Any]


def measured(kind: str, seed: int) -> Record:
    """Return the record of a case with its processor time and its largest memory."""
    with suppress(OSError):  # the largest memory so far is forgotten, where the system can
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    start, before = time.monotonic(), _processor_seconds()
    try:
        name = kind if "." in kind else f"campaign.{kind}"
        record: Record = importlib.import_module(name).judged(seed)
    except Exception:  # whatever a case raises is its result
        record = {"failed": ["error"], "error": traceback.format_exc()[-2000:]}
    record["cpu_seconds"] = round(_processor_seconds() - before, 2)
    record["seconds"] = round(time.monotonic() - start, 2)
    record["memory"] = round(_peak_memory(), 3)
    limits = {"cpu_seconds": CPU_SECONDS * (5 if kind in SEVERAL else 1), "memory": MEMORY}
    record["failed"] += [name for name, limit in limits.items() if record[name] > limit]
    return {"kind": kind, "seed": seed, **record}


def _processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _peak_memory() -> float:
    """Return the largest memory of this process, in GiB."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        line = next(line for line in lines if line.startswith("VmHWM"))
        return float(line.split()[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class Worker:
    """A process that works on one case after another, and that can be ended at any time."""

    def __init__(self) -> None:
        context = mp.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other,))
        self.process.start()
        other.close()
        self.case: tuple[str, int] | None = None
        self.started = 0.0

    def begin(self, case: tuple[str, int]) -> None:
        """Hand a case to the process."""
        self.case, self.started = case, time.monotonic()
        self.pipe.send(case)

    def finished(self) -> Record | None:
        """Return the record of the case, or None if the process still works on it."""
        assert self.case is not None
        fault = None
        if self.pipe.poll():
            try:
                record: Record = self.pipe.recv()
            except EOFError:
                self.process.join()
                fault = f"crash, exit status {self.process.exitcode}"
        elif time.monotonic() - self.started > WALL_SECONDS:
            fault = "no end"
        else:
            return None
        if fault is not None:
            kind, seed = self.case
            record = {"kind": kind, "seed": seed, "failed": [fault]}
        self.case = None
        return record

    def end(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection) -> None:
    with suppress(EOFError, BrokenPipeError):  # the campaign has ended
        while True:
            pipe.send(measured(*pipe.recv()))


def run(kinds: Sequence[str], folder: Path, *, seconds: float, processes: int, count: int) -> None:
    """Append the records of seeds that have none, until the time is over.

    At most ``count`` cases of each kind; none begins after the seconds.
    """
    known = {(one["kind"], one["seed"]) for one in report.read(folder)}
    wanted = itertools.chain.from_iterable(
        ((kind, seed) for seed in range(min(count, KINDS[kind]))) for kind in kinds
    )
    commit, end = report.commit(), time.monotonic() + seconds
    for record in _records((case for case in wanted if case not in known), end, processes):
        with report.file_of(folder, record["kind"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**record, "commit": commit}) + "\n")
        words = ", ".join(record["failed"]) or "passed"
        sys.stdout.write(f"{record['kind']} {record['seed']}: {words}\n")
        sys.stdout.flush()


def _records(cases: Iterable[tuple[str, int]], end: float, processes: int) -> Iterator[Record]:
    """Yield the records of cases, in the order in which they end."""
    left, workers = iter(cases), [Worker() for _ in range(processes)]
    try:
        while True:
            for worker in workers:
                case = None
                if worker.case is None and time.monotonic() < end:
                    case = next(left, None)
                if case is not None:
                    worker.begin(case)
            busy = [worker for worker in workers if worker.case is not None]
            if not busy:
                return
            wait([worker.pipe for worker in busy], timeout=1.0)
            for worker in busy:
                record = worker.finished()
                if record is None:
                    continue
                if "seconds" not in record or "memory" in record["failed"]:
                    worker.end()  # its process is dead, or may never return
                    workers[workers.index(worker)] = Worker()
                yield record
    finally:
        for worker in workers:
            worker.end()
