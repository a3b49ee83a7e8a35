"""The paper's Figure 5: coefficients over time, exact and interpolated.

A prior beside a network is evaluated at random times, and exact coefficients need a solve for every
coordinate. So a table is solved in advance, and coefficients are interpolated between its knots.
This study measures the error of the interpolated score in L²(ρ_t), relative to its size, for the
paper's 1,000 evenly spaced knots with linear interpolation, and for knots placed by the error of a
cubic.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar, Self

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from oism.basis import Hermite, IdentityFrame
from oism.estimation import EvenKnots, PlacedKnots, fit_standardised
from oism.images import CHOICES, PCA, ImageStatistics, image_statistics, prior_from_statistics
from oism.process import Clock, VariancePreserving
from oism.score import HermiteScore
from studies.images import DIGITS, image_sets
from studies.study import WIDTH, Claim, Findings, Study, table

SHOWN = 1e-4
"""The first τ of the figure."""

PAPER, PLACED = "1,000 even knots, linear", "placed knots, cubic"
KNOTS: dict[str, EvenKnots | PlacedKnots] = {PAPER: EvenKnots(1000), PLACED: PlacedKnots(1e-2, 200)}
FRAMES: dict[str, IdentityFrame | PCA] = {"pixels": IdentityFrame(), "principal directions": PCA()}


@dataclass(frozen=True)
class Table:
    """A score whose coefficients were solved in advance, and the seconds that took."""

    score: HermiteScore
    seconds: float

    @property
    def knots(self) -> int:
        """The number of knots."""
        return len(self.score.curve.knots)

    def at(self, t: Tensor, *, exact: bool = False) -> Tensor:
        """Return coefficients at times ``(T,)``: ``(T, dim, order)``."""
        return self.score.coefficients(t, exact=exact).double()

    def errors(self, t: Tensor) -> Tensor:
        """Return the relative error of the interpolated score at times ``(T,)``."""
        exact, system = self.at(t, exact=True), self.score.system
        size = system.norm(t, exact).clamp(min=1e-3)
        return system.norm(t, self.at(t) - exact) / size


@dataclass(frozen=True)
class Coefficients(Study):
    """Figure 5 of the paper."""

    data: str = "cifar10"
    order: int = 6
    times: int = 401

    name: ClassVar[str] = "coefficients"
    title: ClassVar[str] = "Coefficients over time, exact and interpolated"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return settings for scikit-learn's digits, which need no files."""
        return cls(seed, data=DIGITS, times=101)

    def run(self) -> Findings:
        """Solve, interpolate, compare."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        sets, clock = image_sets(self.data, self.seed).to(device), VariancePreserving()
        tables: dict[str, Table] = {}
        for name, frame in FRAMES.items():
            found = image_statistics(sets.train, order=self.order, frame=frame, pixels=sets.pixels)
            clocks = {PAPER: clock, PLACED: prior_from_statistics(found, order=2).table_clock}
            for kind, knots in KNOTS.items():
                tables[f"{name}: {kind}"] = self._solved(found, clocks[kind], knots)
        tau = torch.logspace(np.log10(SHOWN), 0, self.times, dtype=torch.float64)[:-1]
        t = clock.time(tau)
        errors = {name: one.errors(t) for name, one in tables.items()}
        worst = {name: float(one.max()) for name, one in errors.items()}
        start = time.perf_counter()
        tables[f"pixels: {PLACED}"].at(t[:20], exact=True)
        solve = (time.perf_counter() - start) / 20
        claims = [
            *(
                Claim(
                    f"{name}: with placed knots the error is below 1.5% at all times",
                    worst[f"{name}: {PLACED}"],
                    0.015,
                )
                for name in FRAMES
            ),
            Claim(
                "principal directions: and below that with the paper's 1,000 even knots",
                worst[f"principal directions: {PLACED}"],
                worst[f"principal directions: {PAPER}"],
            ),
        ]
        return Findings(
            numbers={
                "device": device,
                "tau": tau,
                "errors": errors,
                "knots": {name: one.knots for name, one in tables.items()},
                "seconds_of_tables": {name: one.seconds for name, one in tables.items()},
                "seconds_of_a_solve": solve,
            },
            figures={"figure": self._draw(tables, errors, tau, t)},
            claims=claims,
            text=self._report(tables, worst, solve),
        )

    def _solved(
        self, found: ImageStatistics, clock: Clock, knots: EvenKnots | PlacedKnots
    ) -> Table:
        start = time.perf_counter()
        basis = Hermite(len(found.standard.scale), self.order)
        score = fit_standardised(basis, found.standard, clock=clock, ridge=CHOICES, knots=knots)
        return Table(score, time.perf_counter() - start)

    def _draw(
        self, tables: dict[str, Table], errors: dict[str, Tensor], tau: Tensor, t: Tensor
    ) -> Figure:
        figure = plt.figure(figsize=(WIDTH, 3.6), layout="constrained")
        panels = figure.subplots(1, 3)
        one = tables[f"pixels: {PLACED}"]
        spread = one.score.scale
        # One coordinate, as in the paper: that of median variance.
        place = int(spread.argsort()[len(spread) // 2])
        knots = one.score.clock.time(one.score.curve.knots)
        inside = (knots >= t[0]) & (knots <= t[-1])
        at_knots = VariancePreserving().inverse(knots[inside])
        self._traces(panels[0], tau, one.at(t, exact=True)[:, place], "exact, at every time")
        self._traces(panels[1], tau, one.at(t)[:, place], f"{one.knots} knots, joined by cubics")
        values = one.score.curve.values[inside][:, place].double()
        for n in range(self.order):
            panels[1].plot(at_knots, values[:, n], ".", color=self._colour(n), ms=4)
        for number, (name, error) in enumerate(errors.items()):
            shade = ("#999999", "#4a6fa5")[number % 2]
            style = ("-", "--")[number // 2]
            panels[2].plot(tau, error.clamp(min=1e-8), color=shade, ls=style, lw=1.2, label=name)
        panels[2].set(xscale="log", yscale="log", xlabel="clock time τ", ylim=(1e-8, 1e4))
        panels[2].set_title("relative error of the interpolated score", fontsize=10)
        panels[2].legend(frameon=False, fontsize=7, loc="upper right")
        for panel in panels:
            panel.spines[["top", "right"]].set_visible(False)
            panel.set_xlim(SHOWN, 1)
        return figure

    def _colour(self, n: int) -> tuple[float, float, float, float]:
        return plt.get_cmap("viridis")(0.92 * n / max(1, self.order - 1))

    def _traces(self, panel: Axes, tau: Tensor, alpha: Tensor, title: str) -> None:
        for n in range(self.order):
            panel.plot(tau, alpha[:, n], color=self._colour(n), lw=1.2, label=f"degree {n + 1}")
        panel.axhline(0, color="#cccccc", lw=0.6, zorder=0)
        panel.set(xscale="log", xlabel="clock time τ")
        panel.set_title(f"coefficients of one pixel:\n{title}", fontsize=10)
        panel.legend(frameon=False, fontsize=8, ncols=2)

    def _report(self, tables: dict[str, Table], worst: dict[str, float], solve: float) -> str:
        rows = [
            [name, one.knots, f"{worst[name]:.2g}", f"{one.seconds:.1f}"]
            for name, one in tables.items()
        ]
        head = ["table", "knots", "largest relative error", "seconds, with cross-validation"]
        dim = len(next(iter(tables.values())).score.scale)
        return self.text(
            data=self.data,
            order=self.order,
            dim=f"{dim:,}",
            first=f"{SHOWN:g}",
            milliseconds=f"{1000 * solve:.0f}",
            table=table(head, rows),
        )


STUDY = Coefficients
