"""What a study is: settings, a run, and a folder that explains itself.

A study is a frozen dataclass of its settings. Its run returns `Findings`: numbers, pictures, claims
and a text. `reproduce` writes them to a folder:

    numbers.json    settings, versions, seconds, every number, every claim and whether it holds
    *.png           the figures
    report.md       what the paper shows, what came out here, and why they differ

A *claim* is an inequality between two numbers of the run. Tests run every study in its quick form
and demand that its claims hold.
"""

from __future__ import annotations

import json
import math
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Self

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from oism._core.atomic import demand_writable, replacing
from oism._core.plain import plain

DPI = 130
DIGITS = 6
"""The significant digits of a number that is written."""


@dataclass(frozen=True)
class Claim:
    """``lower`` is less than ``upper``, in words."""

    words: str
    lower: float
    upper: float

    @property
    def holds(self) -> bool:
        """Whether it is; a NaN claims nothing."""
        return bool(self.lower < self.upper)  # NumPy's own is no JSON

    def __str__(self) -> str:
        verdict = "yes" if self.holds else "NO"
        return f"{verdict}: {self.words} ({figure(self.lower)} < {figure(self.upper)})"


@dataclass(frozen=True)
class Findings:
    """What a run found: plain numbers for JSON, figures by name, claims, and the report's text."""

    numbers: Mapping[str, Any]
    figures: Mapping[str, Figure]
    claims: Sequence[Claim]
    text: str


@dataclass(frozen=True)
class Study(ABC):
    """The settings of a study. ``seed`` is that of all its draws."""

    seed: int = 0

    name: ClassVar[str]
    title: ClassVar[str]

    @classmethod
    @abstractmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return the settings that take less than two minutes on two cores."""

    @abstractmethod
    def run(self) -> Findings:
        """Do the work."""

    def run_in(self, folder: Path) -> Findings:  # noqa: ARG002 (most studies keep nothing)
        """Do the work that a folder does not hold yet, where a study keeps its parts."""
        return self.run()

    def generator(self, stream: int = 0) -> torch.Generator:
        """Return a generator of its own for every stream of draws."""
        return torch.Generator().manual_seed(1_000_003 * self.seed + stream)


@dataclass(frozen=True)
class Written:
    """What `reproduce` wrote, and what was claimed."""

    folder: Path
    files: list[Path] = field(default_factory=list)
    claims: Sequence[Claim] = ()
    seconds: float = math.nan

    @property
    def holds(self) -> bool:
        """Whether all claims hold."""
        return all(claim.holds for claim in self.claims)


def reproduce(study: Study, folder: Path) -> Written:
    """Run a study and write its numbers, pictures and report."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("numbers.json", "report.md", "figure.png"):
        demand_writable(folder / name)  # better now than after half an hour
    start = time.perf_counter()
    findings = study.run_in(folder)
    seconds = time.perf_counter() - start
    numbers: dict[str, Any] = {
        "study": study.name,
        "settings": asdict(study),
        "versions": versions(),
        "seconds": round(seconds, 1),
        "claims": [{**asdict(claim), "holds": claim.holds} for claim in findings.claims],
        **findings.numbers,
    }
    paths = [folder / "numbers.json", folder / "report.md"]
    write_json(paths[0], numbers)
    for name, picture in findings.figures.items():
        paths.append(folder / f"{name}.png")
        write_picture(paths[-1], picture)
        plt.close(picture)
    write_text(paths[1], _page(study, findings, numbers["seconds"]))
    return Written(folder, paths, findings.claims, seconds)


def _page(study: Study, findings: Findings, seconds: float) -> str:
    pictures = "\n\n".join(f"![{name}]({name}.png)" for name in findings.figures)
    claims = "\n".join(f"- {claim}" for claim in findings.claims)
    settings = ", ".join(f"{name} = {value}" for name, value in asdict(study).items())
    quick = " --quick" if study == type(study).quick(study.seed) else ""
    return (
        f"# {study.title}\n\n`oism reproduce {study.name}{quick}`, {seconds:.0f} s; {settings}.\n\n"
        f"{pictures}\n\n{findings.text.strip()}\n\n## Claims\n\n{claims}\n"
    )


def versions() -> dict[str, str]:
    """Return the versions that decide about numbers."""
    import oism  # noqa: PLC0415 (the package's name only)

    found = {"oism": oism.__version__, "python": platform.python_version()}
    return {**found, "torch": torch.__version__, "numpy": np.__version__}


def standard_error(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of the mean over the first axis."""
    error: NDArray[np.float64] = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    return error


def write_text(path: Path, content: str) -> None:
    """Write a text, atomically."""
    with replacing(path) as draft:
        draft.write_text(content, encoding="utf-8")


def write_json(path: Path, numbers: Mapping[str, Any]) -> None:
    """Write numbers as JSON with six significant digits, atomically."""
    content = json.dumps(plain(numbers, DIGITS), indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, content + "\n")


def write_picture(path: Path, picture: Figure) -> None:
    """Write a figure as PNG, atomically."""
    with replacing(path) as draft:
        picture.savefig(draft, dpi=DPI, format="png")


def text(name: str, **parts: object) -> str:
    """Return the words of a report, from its file in ``texts``, with numbers and tables in it."""
    words = files("oism.studies").joinpath("texts", f"{name}.md").read_text(encoding="utf-8")
    return words.format_map(parts)


def figure(value: float) -> str:
    """Return a number as a person writes it: three digits.

    >>> figure(0.01234), figure(1234.5), figure(3.2e47)
    ('0.0123', '1230', '3.2e+47')
    """
    if not math.isfinite(value):
        return "not finite"
    return f"{float(f'{value:.3g}'):g}"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown; numbers get three digits."""
    lines = [head, ["---"] * len(head), *rows]
    cells = [[figure(c) if isinstance(c, float) else str(c) for c in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)
