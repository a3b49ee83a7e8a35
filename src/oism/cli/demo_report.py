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
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

import oism
from oism._core.atomic import check_writable, replacing_together
from oism._core.plain import plain
from oism.cli import html_page
from oism.cli.models import frame
from oism.data.toys import PLANE
from oism.plot import (
    Limits,
    cloud,
    coefficient_traces,
    density_map,
    grid,
    limits_of,
    noise_of,
    overview,
    score_field,
    validation_loss,
)
from oism.tables import KDE, OISM

Array = NDArray[np.float64]

FILES = ("report.html", "picture.png", "numbers.json", "model.safetensors")
"""What is written, all of it or nothing."""

NOISES = (0.05, 0.2, 0.8)
"""The noise levels whose scores are drawn, in the coordinates of the box, whose half width is π."""

SIDE = 121
"""The number of cells on a side of the grid over which a density is integrated."""

DPI, DIGITS = 130, 6

SQUARE, WIDE = (3.4, 3.5), (5.1, 3.6)
"""Width and height in inches of a figure, three or two of which share the width of the page."""

NAMES = ("x", "y")
"""The columns, named as by ``oism data``."""

GREY = "#6b6f76"

COMMANDS = """oism sample model.safetensors -n 1000 -o samples.csv
oism density model.safetensors samples.csv -o densities.csv
oism fit mydata.csv -o mymodel.safetensors
oism plot mymodel.safetensors -o picture.png"""


@dataclass(frozen=True)
class Measured:
    """A fitted estimator: held-out negative log-likelihood, seconds, integral over the box.

    ``excess_standard_error`` is that of the difference to the exact log-density.
    """

    nll: float
    excess_standard_error: float
    fit_seconds: float
    density_seconds: float
    integral: float


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
        head = ["", "held-out NLL [nats]", "fit [s]", "densities [s]", "integral"]
        lines = [
            [
                name,
                f"{one.nll:.4f}",
                f"{one.fit_seconds:.1f}",
                f"{one.density_seconds:.2f}",
                f"{one.integral:.4f}",
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

    def page(self, rows: Array) -> str:
        """Return the report as one HTML page; ``rows`` are those that were fitted."""
        functions = self.model.model_.operator_score.basis.size
        lead = (
            f"A density fitted to {self.rows:,} points of the toy distribution “{self.name}”, with "
            f"{functions:,} functions, in {self.fit.fit_seconds:.1f} s, and {self.rows:,} samples "
            f"drawn in {self.sample_seconds:.1f} s. The fit is averages and linear systems: no "
            "network, no gradient steps."
        )
        words = (
            f"NLL is the negative log-likelihood, the mean over {self.test_rows:,} held-out "
            "points; lower is better, and that of the exact density is the bound. The width of the "
            "kernel density estimate (KDE) is chosen among 30 by cross-validation. Densities were "
            "computed at the held-out points. The integral is that of the density over the "
            "pictures below, and should be 1."
        )
        head, *lines = self.lines()
        best = int(np.argmin([self.fit.nll, self.kde.nll]))
        summary = html_page.table(head, lines, best) + f"\n<p>{words}</p>"
        foot = ", ".join(f"{name} {version}" for name, version in versions().items())
        title = "A diffusion model without training"
        return html_page.page(title, lead, summary, self._sections(rows), foot)

    def _sections(self, rows: Array) -> list[html_page.Section]:
        section = html_page.Section
        return [
            section(
                "Data, density, samples",
                "A diffusion model adds noise to data and computes how to take it away again. Its "
                "probability flow gives the density at a point, and run backwards from noise it "
                "gives samples.",
                _results(self.model, rows, self.seed),
            ),
            section(
                "The score at three noise levels",
                "The score is the gradient of the log-density of the data with noise of standard "
                "deviation σ; arrows show it over a shade of that density. All noise levels "
                "follow from the same averages over the data.",
                _score_fields(self.model),
            ),
            section(
                "Error and coefficients by noise level",
                "First: the mean squared error of the predicted noise, per column, on rows that "
                "were held out; predicting zero has the error 1. The regularisation is chosen by "
                "it at each noise level. Second: the 60 largest coefficients of the "
                "score, each times the size of its function's gradient; dark lines belong to "
                "functions that vary slowly over the plane.",
                _curves(self.model),
            ),
            section(
                "Settings chosen from the data",
                "Only process='torus' was given. The distribution has two columns, x and y.",
                verbatim=self.model.summary(),
            ),
            section(
                "Next steps",
                "The folder of this page has the model. In that folder, or with your own table:",
                verbatim=COMMANDS,
            ),
        ]


def run(name: str, rows: int, test_rows: int, seed: int, folder: Path) -> Report:
    """Fit, compare and write to a folder; return the results."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        check_writable(folder / file)
    generator = torch.Generator().manual_seed(seed)
    distribution = PLANE[name]
    train, test = (distribution.sample(n, generator).numpy() for n in (rows, test_rows))
    exact = distribution.log_density(torch.from_numpy(test)).numpy()
    model, kde = OISM(process="torus"), KDE()  # the page shows functions, which a mixture lacks
    fit = measure(model, (train, test), exact, names=list(NAMES))
    other = measure(kde, (train, test), exact, limits_of(model))
    start = time.perf_counter()
    model.sample(rows, random_state=seed)
    seconds = time.perf_counter() - start
    report = Report(name, rows, test_rows, seed, model, -float(exact.mean()), fit, other, seconds)
    with replacing_together(*(folder / name for name in FILES)) as (page, picture, numbers, stored):
        page.write_text(report.page(train), encoding="utf-8")
        overview(model, train, random_state=seed).savefig(picture, dpi=DPI, format="png")
        content = json.dumps(plain(report.numbers(), DIGITS), indent=1, ensure_ascii=False)
        numbers.write_text(content + "\n", encoding="utf-8")
        model.save(stored)
    return report


def measure(
    model: OISM | KDE,
    rows: tuple[Array, Array],
    exact: Array,
    limits: Limits | None = None,
    names: list[str] | None = None,
) -> Measured:
    """Fit a model to the first rows and return its measures on the second; ``exact`` is log p."""
    train, test = (frame(part, names) for part in rows)
    start = time.perf_counter()
    model.fit(train)
    fitted = time.perf_counter()
    log = np.asarray(model.score_samples(test))
    done = time.perf_counter()
    limits = limits_of(model) if limits is None else limits  # type: ignore[arg-type]
    density = np.exp(model.score_samples(frame(grid(limits, SIDE)[2], names)))
    return Measured(
        nll=-float(log.mean()),
        excess_standard_error=float((exact - log).std(ddof=1)) / math.sqrt(len(test)),
        fit_seconds=fitted - start,
        density_seconds=done - fitted,
        integral=float(density.mean()) * math.prod(high - low for low, high in limits),
    )


def versions() -> dict[str, str]:
    """Return the versions that determine the numbers."""
    found = {"oism": oism.__version__, "python": platform.python_version()}
    return {**found, "torch": torch.__version__, "numpy": np.__version__}


def _panel(width: float, height: float) -> tuple[Figure, Axes]:
    figure, panel = plt.subplots(figsize=(width, height), layout="constrained")
    return figure, panel


def _results(model: OISM, rows: Array, seed: int) -> dict[str, Figure]:
    """Return the data, the fitted density and samples, one figure each."""
    samples = np.asarray(model.sample(len(rows), random_state=seed))
    limits = limits_of(model)
    figures, panels = zip(*(_panel(*SQUARE) for _ in range(3)), strict=True)
    data, density, drawn = panels
    cloud(rows, data, model=model, limits=limits, color=GREY).set_title(f"{len(rows):,} points")
    density_map(model, density).set_title("fitted density")
    cloud(samples, drawn, model=model, limits=limits).set_title(f"{len(samples):,} samples")
    names = ("The points that were fitted", "The fitted density", "Samples of the model")
    return dict(zip(names, figures, strict=True))


def _score_fields(model: OISM) -> dict[str, Figure]:
    """Return the scores at three noise levels, one figure each."""
    figures: dict[str, Figure] = {}
    low, high = model.model_.operator_score.times
    for noise in NOISES:
        t = float(np.clip(noise**2 / 2, low, high))
        deviations = model.model_.noise_deviations(t)
        figure, panel = _panel(*SQUARE)
        score_field(model, t, panel)
        panel.set_title(f"noise σ = {float(deviations.mean()):.2g}")
        figures[f"The score with a noise of {float(deviations.mean()):.2g}"] = figure
    return figures


def _curves(model: OISM) -> dict[str, Figure]:
    """Return the error and the coefficients against the noise level, one figure each."""
    score = model.model_.operator_score
    (left, error), (right, traces) = _panel(*WIDE), _panel(*WIDE)
    validation_loss(score, error)
    coefficient_traces(score, traces)
    error.set_xlim(*noise_of(score, torch.tensor(score.times, dtype=torch.float64)))
    error.set_ylabel("error of the predicted noise")
    traces.set_ylabel("coefficient × gradient")
    for panel in (error, traces):
        panel.set_xlabel("noise σ, in units of the box (side 2π)")
    return {"Held-out error by noise level": left, "Coefficients by noise level": right}
