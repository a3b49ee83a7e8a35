"""The table of a campaign, from its records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEAD = """# Reliability

Random inputs, each judged, with the seeds of all failures: `make campaign` continues the campaign,
and `campaign/` has what is drawn and what is judged. A table is fitted with default settings; its
model must be finite, in range, of mass one, not more than 0.5 nats below a Gaussian, the same after
it was saved and loaded, and within bounds of time and memory.

| cases | number | passed | failed, by what | seconds, median and largest |
|---|---|---|---|---|
"""


def read(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file; a line that was cut off by a crash is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def page(records: Sequence[dict[str, Any]]) -> str:
    """Return the page: a line for each kind, and the seeds of failures."""
    lines, failures = [], []
    for kind in sorted({one["kind"] for one in records}):
        own = [one for one in records if one["kind"] == kind]
        bad = [one for one in own if one["failed"]]
        counts = Counter(name for one in bad for name in one["failed"])
        what = ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
        times = sorted(one.get("cpu_seconds", 0.0) for one in own)
        spent = f"{times[len(times) // 2]:.1f}, {times[-1]:.1f}"
        lines.append(f"| {kind} | {len(own)} | {len(own) - len(bad)} | {what} | {spent} |")
        for name in sorted(counts):
            seeds = ", ".join(str(one["seed"]) for one in bad if name in one["failed"])
            failures.append(f"- {kind}, {name}: seeds {seeds}")
    text = HEAD + "\n".join(lines) + "\n"
    return text + ("\nFailures:\n\n" + "\n".join(failures) + "\n" if failures else "")
