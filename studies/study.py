"""The contract of a study: settings, a run, and a folder with its results.

A study is a frozen dataclass of its settings. Its run returns `Findings`: numbers, figures, claims
and a text. `run_study` writes them to a folder:

    numbers.json    settings, versions, seconds, all numbers, all claims and whether they hold
    *.png           the figures
    report.md       what the paper shows, the results, and why they differ

A *claim* is an inequality between two numbers of the run. The tests run every study in its quick
form and check that its claims hold.
"""

from __future__ import annotations

import errno
import json
import math
import os
import platform
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

import oism

DPI = 150
WIDTH = 10.0
"""The width of all figures in inches, so that their letters have one size beside the text."""
DIGITS = 6
"""The significant digits of numbers in JSON."""


@dataclass(frozen=True)
class Claim:
    """The claim that ``lower`` is less than ``upper``, in words."""

    words: str
    lower: float
    upper: float

    @property
    def holds(self) -> bool:
        """Whether lower < upper; with a NaN it does not hold."""
        return bool(self.lower < self.upper)  # NumPy's bool cannot be written as JSON

    def __str__(self) -> str:
        answer = "yes" if self.holds else "NO"
        return f"{answer}: {self.words} ({' < '.join(apart(self.lower, self.upper))})"


@dataclass(frozen=True)
class Findings:
    """The results of a run: numbers for JSON, figures by name, claims, the text of the report.

    ``summary`` is the first paragraph of the report, before settings and figures.
    """

    numbers: Mapping[str, Any]
    figures: Mapping[str, Figure]
    claims: Sequence[Claim]
    text: str
    summary: str = ""


@dataclass(frozen=True)
class Study(ABC):
    """The settings of a study. ``seed`` determines all its random draws."""

    seed: int = 0

    name: ClassVar[str]
    title: ClassVar[str]

    @classmethod
    @abstractmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return settings that take less than two minutes on two cores."""

    @abstractmethod
    def run(self) -> Findings:
        """Return the findings of a run."""

    def run_in(self, folder: Path) -> Findings:  # noqa: ARG002 (most studies store nothing)
        """Return the findings; a study with stored parts runs what the folder lacks."""
        return self.run()

    def generator(self, stream: int = 0) -> torch.Generator:
        """Return the generator of a stream of random draws."""
        return torch.Generator().manual_seed(1_000_003 * self.seed + stream)

    def text(self, **parts: object) -> str:
        """Return the text of the report: ``text.md`` beside the study, filled with ``parts``."""
        path = Path(str(sys.modules[type(self).__module__].__file__)).with_name("text.md")
        return path.read_text(encoding="utf-8").format_map(parts)


@dataclass(frozen=True)
class Results:
    """The files that `run_study` wrote, and the claims."""

    folder: Path
    files: list[Path] = field(default_factory=list)
    claims: Sequence[Claim] = ()
    seconds: float = math.nan

    @property
    def holds(self) -> bool:
        """Whether all claims hold."""
        return all(claim.holds for claim in self.claims)


def run_study(study: Study, folder: Path) -> Results:
    """Run a study, write numbers, figures and report to a folder, and return what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("numbers.json", "report.md", "figure.png"):
        check_writable(folder / name)  # before the work, not after it
    start = time.perf_counter()
    findings = study.run_in(folder)
    seconds = time.perf_counter() - start
    numbers: dict[str, Any] = {
        "study": study.name,
        "settings": asdict(study),
        "versions": versions(),
        "seconds": round(seconds, 1),
        "claims": [{**asdict(claim), "holds": claim.holds} for claim in findings.claims],
        **({"summary": findings.summary} if findings.summary else {}),
        **findings.numbers,
    }
    paths = [folder / "numbers.json", folder / "report.md"]
    write_json(paths[0], numbers)
    for name, drawn in findings.figures.items():
        paths.append(folder / f"{name}.png")
        write_figure(paths[-1], drawn)
        plt.close(drawn)
    write_text(paths[1], report(study, findings, numbers["seconds"]))
    return Results(folder, paths, findings.claims, seconds)


def report(study: Study, findings: Findings, seconds: float) -> str:
    """Return the report in Markdown."""
    figures = "\n\n".join(f"![{name}]({name}.png)" for name in findings.figures)
    claims = "\n".join(f"- {claim}" for claim in findings.claims)
    settings = ", ".join(f"{name} = {value}" for name, value in asdict(study).items())
    quick = " --quick" if study == type(study).quick(study.seed) else ""
    summary = f"{findings.summary}\n\n" if findings.summary else ""
    command = f"`python -m studies {study.name}{quick}`"
    return (
        f"# {study.title}\n\n{summary}{command}, {seconds:.0f} s; {settings}."
        f"\n\n{figures}\n\n{findings.text.strip()}\n\n## Claims\n\n{claims}\n"
    )


def versions() -> dict[str, str]:
    """Return the versions on which numbers depend."""
    found = {"oism": oism.__version__, "python": platform.python_version()}
    return {**found, "torch": torch.__version__, "numpy": np.__version__}


def standard_error(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of the mean over the first axis."""
    error: NDArray[np.float64] = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    return error


def check_writable(path: Path) -> None:
    """Raise the error that writing this file would raise later."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
    if not os.access(path.parent, os.W_OK | os.X_OK):
        words = "no permission to write in this folder"
        raise PermissionError(errno.EACCES, words, str(path.parent))


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Yield a path beside ``path``; a file written there replaces it if the block succeeds."""
    draft = path.with_name(f".{path.name}.part")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, content: str) -> None:
    """Write a text; an older file stays until the new one is complete."""
    with draft_of(path) as draft:
        draft.write_text(content, encoding="utf-8")


def write_json(path: Path, numbers: Mapping[str, Any]) -> None:
    """Write numbers as JSON with six significant digits."""
    content = json.dumps(plain(numbers, DIGITS), indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, content + "\n")


def write_figure(path: Path, drawn: Figure) -> None:
    """Write a figure as PNG."""
    with draft_of(path) as draft:
        drawn.savefig(draft, dpi=DPI, format="png")


def plain(value: Any, digits: int | None = None) -> Any:  # noqa: ANN401
    """Return a value for JSON: lists for arrays and tuples, None for numbers that are not finite.

    >>> plain({"a": (1, "x", float("inf")), 2: 1.23456}, digits=3)
    {'a': [1, 'x', None], '2': 1.23}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry, digits) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, digits) for entry in value]
    if hasattr(value, "tolist"):  # NumPy arrays and numbers, tensors
        return plain(value.tolist(), digits)
    if isinstance(value, float):
        rounded = value if digits is None else float(f"{value:.{digits}g}")
        return rounded if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else str(value)


def rounded(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits.

    >>> rounded(0.01234), rounded(1234.5), rounded(3.2e47)
    ('0.0123', '1230', '3.2e+47')
    """
    if not math.isfinite(value):
        return "not finite"
    return f"{float(f'{value:.{digits}g}'):.{max(digits, 6)}g}"


def apart(lower: float, upper: float) -> tuple[str, str]:
    """Return two numbers with three significant digits, or as many as tell them apart.

    >>> apart(0.12345, 1.0), apart(0.99961, 1.0)
    (('0.123', '1'), ('0.9996', '1'))
    """
    for digits in range(3, DIGITS + 1):
        found = rounded(lower, digits), rounded(upper, digits)
        if found[0] != found[1]:
            break
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown; floats have three significant digits."""
    lines = [head, ["---"] * len(head), *rows]
    cells = [[rounded(c) if isinstance(c, float) else str(c) for c in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)
