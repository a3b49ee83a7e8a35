"""A diffusion model fitted without training, from data to a report, in half a minute.

`Demo` draws one of the laws of `oism.data.toys`, fits `OISM` and kernels, compares them on held-out
rows, and writes a folder: ``report.html`` (one page, opens offline), ``picture.png``,
``numbers.json`` and ``model.safetensors``, which the commands of ``oism`` read.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from oism._core.atomic import demand_writable
from oism.data.toys import PLANE
from oism.plot import coefficient_traces, noise_of, overview, score_field, validation_loss
from oism.studies import page
from oism.studies.contest import DEFAULT, KERNELS, Contest, Entry, contest
from oism.studies.study import versions, write_json, write_picture, write_text
from oism.tables import OISM

NOISES = (0.05, 0.2, 0.8)
"""The noise levels whose scores are drawn, in the coordinates of the box: half a turn is π."""

SIDE = 121


@dataclass(frozen=True)
class Demo:
    """What is fitted: a law of `oism.data.toys`, and how many rows of it."""

    law: str = "2spirals"
    points: int = 10_000
    tested: int = 5000
    seed: int = 0

    def run(self, folder: Path) -> Outcome:
        """Fit, compare and write; return what was found."""
        folder.mkdir(parents=True, exist_ok=True)
        demand_writable(folder / "report.html")
        generator = torch.Generator().manual_seed(self.seed)
        law = PLANE[self.law]
        train, test = (law.sample(n, generator).numpy() for n in (self.points, self.tested))
        found = contest(
            self.law, (train, test), side=SIDE, seed=self.seed, which=(DEFAULT, KERNELS)
        )
        model: OISM = found.entries[DEFAULT].model
        start = time.perf_counter()
        model.sample(self.points, random_state=self.seed)
        outcome = Outcome(self, found, time.perf_counter() - start)
        model.save(folder / "model.safetensors")
        picture = overview(model, train, random_state=self.seed)
        write_picture(folder / "picture.png", picture)
        write_text(folder / "report.html", outcome.page(picture))
        write_json(folder / "numbers.json", outcome.numbers())
        return outcome


@dataclass(frozen=True)
class Outcome:
    """What a demo found: the contest with kernels, and the seconds that samples took."""

    demo: Demo
    contest: Contest
    sample_seconds: float

    @property
    def ours(self) -> Entry:
        """The closed form."""
        return self.contest.entries[DEFAULT]

    @property
    def kernels(self) -> Entry:
        """What it is compared with."""
        return self.contest.entries[KERNELS]

    @property
    def head(self) -> list[str]:
        """The head of the table."""
        return ["", "held-out NLL [nats]", "fit [s]", "densities [s]", "mass in the box"]

    @property
    def rows(self) -> list[list[str]]:
        """The lines of the table: the closed form, kernels, the truth."""
        lines = [
            [
                name,
                f"{one.nll:.4f}",
                f"{one.fit_seconds:.1f}",
                f"{one.density_seconds:.2f}",
                f"{one.mass:.4f}",
            ]
            for name, one in (("oism", self.ours), ("kernels", self.kernels))
        ]
        return [*lines, ["truth", f"{self.contest.truth:.4f}", "", "", ""]]

    def table(self) -> str:
        """Return the table as text."""
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (self.head, *self.rows)
        ]
        return "\n".join(lines)

    def numbers(self) -> dict[str, Any]:
        """Return what is written as JSON."""
        return {
            "settings": asdict(self.demo),
            "versions": versions(),
            "truth": self.contest.truth,
            "oism": {**self.ours.numbers(), "sample_seconds": self.sample_seconds},
            "kernels": self.kernels.numbers(),
        }

    def page(self, picture: Figure) -> str:
        """Return the report as one HTML page."""
        model: OISM = self.ours.model
        demo = self.demo
        score = model.model_.score
        lead = (
            f"{demo.points:,} points of “{demo.law}”, a diffusion model of {score.basis.size:,} "
            f"functions fitted to them by averages and linear solves in "
            f"{self.ours.fit_seconds:.1f} s, and {demo.points:,} samples in "
            f"{self.sample_seconds:.1f} s. No network, no gradient steps."
        )
        best = int(np.argmin([self.ours.nll, self.kernels.nll]))
        words = (
            f"Likelihoods are means over {demo.tested:,} held-out points. Kernels have a width "
            "chosen among 30 by cross-validation; their sums are exact. One draw of the law: the "
            "benchmarks have three, and eight laws."
        )
        summary = page.table(self.head, self.rows, best) + f"\n<p>{words}</p>"
        sections = [
            page.Section(
                "Data, density, samples",
                "The density is that of the probability flow, exact along it, and the samples "
                "are those of the same flow run backwards.",
                picture,
            ),
            page.Section(
                "The score at three noise levels",
                "The gradient of the log-density of the noised data, over a shade of that density. "
                "All noise levels come from the same averages: an eigenfunction of the generator "
                "decays at the rate of its eigenvalue.",
                self._fields(model),
            ),
            page.Section(
                "Loss and coefficients over the noise",
                "Left: the mean square error of the predicted noise per column, on held-out folds, "
                "in closed form; 1 is that of no prediction. Ridge and cutoff are chosen on it at "
                "every noise level. Right: the 60 largest coefficients, times √-λ; dark ones are "
                "those of slow waves.",
                self._curves(model),
            ),
            page.Section(
                "What was chosen",
                "Automatically: no parameter was given.",
                verbatim=model.summary(),
            ),
            page.Section(
                "Go on",
                "The model lies beside this page, and there are commands for your own data.",
                verbatim=COMMANDS,
            ),
        ]
        foot = ", ".join(f"{name} {version}" for name, version in versions().items())
        return page.page("A diffusion model without training", lead, summary, sections, foot)

    def _fields(self, model: OISM) -> Figure:
        figure, panels = plt.subplots(1, len(NOISES), figsize=(13, 4.4), layout="constrained")
        low, high = model.model_.score.times
        for panel, noise in zip(panels, NOISES, strict=True):
            t = float(np.clip(noise**2 / 2, low, high))
            score_field(model, t, panel)
            panel.set_title(f"noise σ = {noise:g}, t = {t:.3g}")
        return figure

    def _curves(self, model: OISM) -> Figure:
        figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4), layout="constrained")
        score = model.model_.score
        validation_loss(score, left)
        coefficient_traces(score, right)
        left.set_xlim(*noise_of(score, torch.tensor(score.times, dtype=torch.float64)))
        return figure


COMMANDS = """oism sample model.safetensors -n 1000 -o samples.csv
oism density model.safetensors samples.csv -o densities.csv
oism fit mydata.csv -o mymodel.safetensors
oism plot mymodel.safetensors -o picture.png"""
