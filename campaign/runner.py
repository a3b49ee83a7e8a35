"""Cases in worker processes, within bounds of time and memory, one record for each."""

from __future__ import annotations

import json
import multiprocessing as mp
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaign import report, tables

CASES: dict[str, Callable[[int], dict[str, Any]]] = {"tables": tables.judged}
CPU_SECONDS, WALL_SECONDS = 120.0, 600.0
MEMORY = 2.0
"""The bounds of a case: seconds of processors and of the clock, and GiB."""


def measured(kind: str, seed: int) -> dict[str, Any]:
    """Return the record of a case with its time and the memory of its process."""
    start = time.process_time()
    record = CASES[kind](seed)
    record["cpu_seconds"] = round(time.process_time() - start, 2)
    record["memory"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)
    if record["cpu_seconds"] > CPU_SECONDS:
        record["failed"].append("time")
    if record["memory"] > MEMORY:
        record["failed"].append("memory")
    return {"kind": kind, "seed": seed, **record}


def run(kind: str, count: int, seconds: float, path: Path) -> None:
    """Append the records of the first ``count`` seeds that have none, until the time is over."""
    known = {one["seed"] for one in report.read(path) if one["kind"] == kind}
    end = time.monotonic() + seconds
    context, pool = mp.get_context("spawn"), None
    with path.open("a", encoding="utf-8") as file:
        for seed in (one for one in range(count) if one not in known):
            if time.monotonic() > end:
                break
            pool = pool or context.Pool(1)
            try:
                record = pool.apply_async(measured, (kind, seed)).get(WALL_SECONDS)
            except mp.TimeoutError:
                record = {"kind": kind, "seed": seed, "failed": ["time"]}
            if "time" in record["failed"] or "memory" in record["failed"]:
                pool.terminate()
                pool = None
            file.write(json.dumps(record) + "\n")
            file.flush()
            words = ", ".join(record["failed"]) or "passed"
            sys.stdout.write(f"{kind} {seed}: {words}\n")
            sys.stdout.flush()
    if pool is not None:
        pool.terminate()
