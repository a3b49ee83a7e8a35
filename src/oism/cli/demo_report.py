"""The report of ``oism demo``: a closed-form fit beside a kernel density estimate (KDE).

Both are fitted to the same rows of a distribution of `oism.data.toys` and compared on held-out
rows. `run` writes ``report.html`` (one page, opens offline), ``picture.png``, ``numbers.json`` and
``model.safetensors``, which the commands of ``oism`` read.
"""

from __future__ import annotations

import json
import math
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

import oism
from oism._core.atomic import check_writable, replacing
from oism._core.plain import plain
from oism.cli import html_page
from oism.data.toys import PLANE
from oism.plot import (
    Limits,
    coefficient_traces,
    grid,
    limits_of,
    noise_of,
    overview,
    score_field,
    validation_loss,
)
from oism.tables import KDE, OISM

Array = NDArray[np.float64]

NOISES = (0.05, 0.2, 0.8)
"""The noise levels whose scores are drawn, in the coordinates of the box, whose half width is π."""

SIDE = 121
"""The number of cells on a side of the grid over which a density is integrated."""

DPI, DIGITS = 130, 6

COMMANDS = """oism sample model.safetensors -n 1000 -o samples.csv
oism density model.safetensors samples.csv -o densities.csv
oism fit mydata.csv -o mymodel.safetensors
oism plot mymodel.safetensors -o picture.png"""


@dataclass(frozen=True)
class Measured:
    """A fitted estimator: held-out negative log-likelihood, seconds, and mass in the box.

    ``excess_standard_error`` is that of the difference to the exact log-density.
    """

    nll: float
    excess_standard_error: float
    fit_seconds: float
    density_seconds: float
    mass: float


@dataclass(frozen=True)
class Report:
    """The results of a demo."""

    name: str
    rows: int
    test_rows: int
    seed: int
    model: OISM
    exact: float
    fit: Measured
    kde: Measured
    sample_seconds: float

    def lines(self) -> list[list[str]]:
        """Return the table: its head, the fit, the KDE, and the exact density."""
        head = ["", "held-out NLL [nats]", "fit [s]", "densities [s]", "mass in the box"]
        lines = [
            [
                name,
                f"{one.nll:.4f}",
                f"{one.fit_seconds:.1f}",
                f"{one.density_seconds:.2f}",
                f"{one.mass:.4f}",
            ]
            for name, one in (("oism", self.fit), ("KDE", self.kde))
        ]
        return [head, *lines, ["exact", f"{self.exact:.4f}", "", "", ""]]

    def table(self) -> str:
        """Return the table as text."""
        lines = self.lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def numbers(self) -> dict[str, Any]:
        """Return the results for JSON."""
        return {
            "settings": {
                "name": self.name,
                "rows": self.rows,
                "test_rows": self.test_rows,
                "seed": self.seed,
            },
            "versions": versions(),
            "exact": self.exact,
            "oism": {**vars(self.fit), "sample_seconds": self.sample_seconds},
            "kde": vars(self.kde),
        }

    def page(self, picture: Figure) -> str:
        """Return the report as one HTML page."""
        score = self.model.model_.operator_score
        lead = (
            f"{self.rows:,} points of “{self.name}”, a diffusion model of {score.basis.size:,} "
            f"functions fitted to them by averages and linear solves in {self.fit.fit_seconds:.1f} "
            f"s, and {self.rows:,} samples in {self.sample_seconds:.1f} s. No network, no gradient "
            "steps."
        )
        words = (
            f"Likelihoods are means over {self.test_rows:,} held-out points. The kernel density "
            "estimate (KDE) has a width chosen among 30 by cross-validation; its sums are exact. "
            "This is one draw of the distribution: the benchmarks have three, and eight "
            "distributions."
        )
        head, *lines = self.lines()
        best = int(np.argmin([self.fit.nll, self.kde.nll]))
        summary = html_page.table(head, lines, best) + f"\n<p>{words}</p>"
        foot = ", ".join(f"{name} {version}" for name, version in versions().items())
        title = "A diffusion model without training"
        return html_page.page(title, lead, summary, self._sections(picture), foot)

    def _sections(self, picture: Figure) -> list[html_page.Section]:
        section = html_page.Section
        return [
            section(
                "Data, density, samples",
                "The density is that of the probability flow, exact along it, and the samples are "
                "those of the same flow run backwards.",
                picture,
            ),
            section(
                "The score at three noise levels",
                "The gradient of the log-density of the noised data, over a shade of that density. "
                "All noise levels come from the same averages: an eigenfunction of the generator "
                "decays at the rate of its eigenvalue.",
                _score_fields(self.model),
            ),
            section(
                "Loss and coefficients over the noise",
                "Left: the mean squared error of the predicted noise per column, on held-out "
                "folds, in closed form; 1 is that of no prediction. Ridge and cutoff are chosen on "
                "it at every noise level. Right: the 60 largest coefficients, times √-λ; dark ones "
                "are those of slow waves.",
                _curves(self.model),
            ),
            section(
                "What was chosen",
                "Automatically: no parameter was given.",
                verbatim=self.model.summary(),
            ),
            section(
                "Next steps",
                "The model is in the folder of this page, and there are commands for your data.",
                verbatim=COMMANDS,
            ),
        ]


def run(name: str, rows: int, test_rows: int, seed: int, folder: Path) -> Report:
    """Fit, compare and write to a folder; return the results."""
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / "report.html")
    generator = torch.Generator().manual_seed(seed)
    distribution = PLANE[name]
    train, test = (distribution.sample(n, generator).numpy() for n in (rows, test_rows))
    exact = distribution.log_density(torch.from_numpy(test)).numpy()
    model, kde = OISM(), KDE()
    fit = measure(model, (train, test), exact)
    other = measure(kde, (train, test), exact, limits_of(model))
    start = time.perf_counter()
    model.sample(rows, random_state=seed)
    seconds = time.perf_counter() - start
    report = Report(name, rows, test_rows, seed, model, -float(exact.mean()), fit, other, seconds)
    model.save(folder / "model.safetensors")
    picture = overview(model, train, random_state=seed)
    with replacing(folder / "picture.png") as draft:
        picture.savefig(draft, dpi=DPI, format="png")
    _write(folder / "report.html", report.page(picture))
    numbers = plain(report.numbers(), DIGITS)
    _write(folder / "numbers.json", json.dumps(numbers, indent=1, ensure_ascii=False) + "\n")
    return report


def measure(
    model: OISM | KDE, rows: tuple[Array, Array], exact: Array, limits: Limits | None = None
) -> Measured:
    """Fit a model to the first rows and return its measures on the second; ``exact`` is log p."""
    train, test = rows
    start = time.perf_counter()
    model.fit(train)
    fitted = time.perf_counter()
    log = np.asarray(model.score_samples(test))
    done = time.perf_counter()
    limits = limits_of(model) if limits is None else limits  # type: ignore[arg-type]
    density = np.exp(model.score_samples(grid(limits, SIDE)[2]))
    return Measured(
        nll=-float(log.mean()),
        excess_standard_error=float((exact - log).std(ddof=1)) / math.sqrt(len(test)),
        fit_seconds=fitted - start,
        density_seconds=done - fitted,
        mass=float(density.mean()) * math.prod(high - low for low, high in limits),
    )


def versions() -> dict[str, str]:
    """Return the versions that determine the numbers."""
    found = {"oism": oism.__version__, "python": platform.python_version()}
    return {**found, "torch": torch.__version__, "numpy": np.__version__}


def _score_fields(model: OISM) -> Figure:
    figure, panels = plt.subplots(1, len(NOISES), figsize=(13, 4.4), layout="constrained")
    low, high = model.model_.operator_score.times
    for panel, noise in zip(panels, NOISES, strict=True):
        t = float(np.clip(noise**2 / 2, low, high))
        score_field(model, t, panel)
        panel.set_title(f"noise σ = {noise:g}, t = {t:.3g}")
    return figure


def _curves(model: OISM) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4), layout="constrained")
    score = model.model_.operator_score
    validation_loss(score, left)
    coefficient_traces(score, right)
    left.set_xlim(*noise_of(score, torch.tensor(score.times, dtype=torch.float64)))
    return figure


def _write(path: Path, content: str) -> None:
    with replacing(path) as draft:
        draft.write_text(content, encoding="utf-8")
