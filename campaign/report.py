"""The table of a campaign, from its records."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

HEAD = """# Reliability

This page shows how the library handles random and damaged input. Each case is random, and a test
judges its result; failures are listed with their seeds. `make campaign` runs the cases that have no
record yet, for an hour at most, and writes this page; `make campaign SECONDS=600` stops after ten
minutes. `python -m campaign --kinds tables --only 7` repeats one case. `campaign/` defines how
cases are drawn and judged.

| cases | planned | run | passed | failures by cause | CPU seconds, median and largest |
|---|---|---|---|---|---|
"""

ABOUT = {
    "tables": "a random table through every method of `OISM`, in any frame and dtype, with "
    "weights, missing values, bounds and periods. The log-density must be finite and at most 0.5 "
    "nats below that of a Gaussian, its integral one where it can be computed, samples in range, "
    "and marginals and conditionals consistent. A saved or pickled model must return the same "
    "bits. Wrong arguments must raise an error that names them.",
    "files": "a model, checkpoint, folder of a run, table or image that is cut, extended, emptied, "
    "replaced, or has bits or blocks changed. Reading it must raise an error that names the file, "
    "or return the same content. Formats without checksums (CSV, NPY) cannot reveal a changed "
    "digit: the result must then be what another reader finds in the damaged file.",
    "kills": "a training run that is killed (SIGKILL) at a random moment and resumed. Weights, "
    "optimiser and model must equal those of an uninterrupted run, bit by bit.",
    "interruptions": "a command that is interrupted (SIGINT) at a random moment. It must end with "
    "status 130 and one line, and leave the old files or complete new ones.",
    "concurrency": "fits and densities in eight threads, in forked and spawned processes and by "
    "`GridSearchCV(n_jobs=2)`; copies by pickle, clone and deepcopy. The results must equal "
    "those of one thread.",
}
"""What a case is, and when it passes."""

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "finufft")


def file_of(folder: Path, kind: str) -> Path:
    """Return the file of the records of a kind."""
    return folder / f"{kind}.jsonl"


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the records in a folder; a line that was cut off by a crash is left out."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def forget_failures(folder: Path, kinds: Iterable[str]) -> None:
    """Remove the records of failures of some kinds, so that their seeds are run again."""
    records = read(folder)
    for kind in kinds:
        kept = [one for one in records if one["kind"] == kind and not one["failed"]]
        draft = folder / f"{kind}.part"
        draft.write_text("".join(json.dumps(one) + "\n" for one in kept), encoding="utf-8")
        draft.replace(file_of(folder, kind))


def commit() -> str:
    """Return the commit of the checkout, with "+" where files differ from it, or an empty text."""
    words = ["git", "describe", "--always", "--dirty=+"]
    try:
        found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()


def page(records: Sequence[dict[str, Any]], planned: dict[str, int]) -> str:
    """Return the page: a line for each kind, what is judged, and the seeds of failures."""
    lines, failures = [], []
    for kind, number in planned.items():
        own = [one for one in records if one["kind"] == kind]
        bad = [one for one in own if one["failed"]]
        counts = Counter(name for one in bad for name in one["failed"])
        what = ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
        times = sorted(one.get("cpu_seconds", 0.0) for one in own) or [0.0]
        spent = f"{times[len(times) // 2]:.1f}, {times[-1]:.1f}"
        passed = len(own) - len(bad)
        lines.append(f"| {kind} | {number} | {len(own)} | {passed} | {what} | {spent} |")
        for name in sorted(counts):
            seeds = ", ".join(str(one["seed"]) for one in bad if name in one["failed"])
            failures.append(f"- {kind}, {name}: seeds {seeds}")
    about = [f"- **{kind}**: {ABOUT[kind]}" for kind in planned]
    listed = failures or ["None."]
    parts = ("\n".join(lines), "## Cases", "\n".join(about), "## Failures", "\n".join(listed))
    return HEAD + "\n\n".join((*parts, "## Versions", _versions(records))) + "\n"


def _versions(records: Sequence[dict[str, Any]]) -> str:
    kinds: dict[str, set[str]] = {}
    for one in records:
        if one.get("commit"):
            kinds.setdefault(one["commit"], set()).add(one["kind"])
    commits = [f"{name} ({', '.join(sorted(own))})" for name, own in sorted(kinds.items())]
    of_commits = f" Commits: {'; '.join(commits)}." if commits else ""
    if any(name.endswith("+") for name in kinds):
        of_commits += " + marks a commit with local changes."
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"Python {platform.python_version()} on {platform.system()}, {os.cpu_count()} cores; "
        f"{packages}.{of_commits}"
    )
