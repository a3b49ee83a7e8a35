"""Where shrinkage lowers the error, where it loses positivity, and which estimates memorise data.

1. *Stein's effect.* The risk Σ(γθ̂ - θ)² of estimated means of eigenfunctions, divided by that of
   sample means, for increasing numbers of functions.
2. *Positivity.* The smallest eigenvalue of Λ^{-½}A_tΛ^{-½} over t: shrinking each mean by itself
   gives moments that no density has.
3. *Memorisation.* The orthogonal series Σ θ̂_k φ_k with sample means tends to a sum of Dirac masses
   on the data as functions are added; the flow of the cross-validated score does not.

All use the Bart Simpson mixture, whose moments are known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

from oism.basis import TorusGrid
from oism.estimation import (
    FourierMoments,
    JamesStein,
    Modulation,
    Monotone,
    SampleMeans,
    Shrinkage,
    fit,
)
from oism.flow import Flow, RungeKutta4, log_density
from oism.plot import ACCENT, GREY, INK, loss_curves
from oism.tables import nearest_neighbour_check
from studies import circle
from studies.circle import Array
from studies.study import WIDTH, Claim, Findings, Study, standard_error, table

MEANS, JAMES_STEIN, RULE, PROJECTED, MONOTONE = (
    "sample means",
    "James-Stein",
    "each by itself (the paper)",
    "each by itself, projected",
    "monotone, projected",
)
ESTIMATES: dict[str, Shrinkage] = {
    MEANS: SampleMeans(),
    JAMES_STEIN: JamesStein(),
    RULE: Modulation(project=False),
    PROJECTED: Modulation(),
    MONOTONE: Monotone(),
}
COLOURS = {
    MEANS: "#e09f3e",
    JAMES_STEIN: GREY,
    RULE: ACCENT,
    PROJECTED: "#9b5de5",
    MONOTONE: "#2a9d8f",
}
SERIES, SCORE = "orthogonal series, sample means", "flow of the cross-validated score"
TIMES = np.geomspace(5e-5, 0.5, 40)
FINE = torch.linspace(-math.pi, math.pi, 16_385, dtype=torch.float64)[:-1, None]
COARSE = FINE[::8]


def clipped(density: Array) -> Array:
    """Return a density on the circle: negative values set to 0, normalised."""
    positive = np.maximum(density, 0)
    result: Array = positive / (positive.mean() * 2 * math.pi)
    return result


def series_density(x: Tensor, count: int) -> Array:
    """Return Σ θ̂_k φ_k with sample means and frequencies up to ``count``, on the fine grid."""
    k = torch.arange(1, count + 1, dtype=torch.float64)
    means = torch.exp(-1j * x * k).mean(dim=0)
    grid = TorusGrid(dim=1, points=len(FINE), reach=count)
    density = grid.density(means, grid.place(k[:, None])) / (2 * math.pi)
    rolled: Array = density.roll(len(FINE) // 2).numpy()  # the grid of the torus starts at 0
    return rolled


def score_density(x: Tensor, count: int) -> Array:
    """Return the density along the flow of the default fit, on the coarse grid."""
    score = fit(x, circle.frequencies(count), progress=False)
    density: Array = log_density(Flow(score), COARSE, method=RungeKutta4(128)).exp().numpy()
    return density


def draws(density: Array, n: int, generator: torch.Generator) -> Array:
    """Return n draws from a density on an even grid of the circle, by its distribution function."""
    steps = np.concatenate(([0.0], np.cumsum(clipped(density))))
    places = np.linspace(-math.pi, math.pi, len(density) + 1)
    uniform = torch.rand(n, generator=generator, dtype=torch.float64).numpy()
    drawn: Array = np.interp(uniform * steps[-1], steps, places)[:, None]
    return drawn


def _with_errors(values: Array) -> list[str]:
    """Return means over the first axis with their standard errors."""
    pairs = zip(values.mean(axis=0), standard_error(values), strict=True)
    return [f"{mean:.3g} ± {error:.1g}" for mean, error in pairs]


@dataclass(frozen=True)
class Stein(Study):
    """Shrinkage, positivity, memorisation."""

    points: int = 2000
    counts: tuple[int, ...] = (2, 4, 10, 20, 50, 100)
    simulations: int = 100
    frequencies: int = 25
    few: int = 100
    bounds: tuple[int, ...] = (5, 10, 25, 50, 100, 250, 500, 1000)
    draws: int = 2000

    name: ClassVar[str] = "stein"
    title: ClassVar[str] = "Shrinkage, positivity and memorisation"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return fewer simulations and functions."""
        return cls(seed, simulations=20, bounds=(5, 25, 100, 500))

    def run(self) -> Findings:
        """Measure all three."""
        risks, eigenvalues = self.simulated()
        memory = self.memorised()
        numbers = {
            "risk_over_sample_means": {
                "frequencies": self.counts,
                **{name: values.mean(axis=0) for name, values in risks.items()},
            },
            "share_indefinite": {
                "t": TIMES,
                **{name: (values < 0).mean(axis=0) for name, values in eigenvalues.items()},
            },
            "memorisation": {"frequencies": self.bounds, **memory},
        }
        return Findings(
            numbers=numbers,
            figures={"figure": self.draw(risks, eigenvalues, memory)},
            claims=self.claims(risks, eigenvalues, memory),
            text=self.report(risks, eigenvalues, memory),
        )

    def simulated(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return risks over that of sample means, and the smallest eigenvalues over t.

        Arrays ``(simulations, counts)`` and ``(simulations, times)``.
        """
        risks: dict[str, list[list[float]]] = {name: [] for name in ESTIMATES}
        lowest: dict[str, list[Array]] = {name: [] for name in ESTIMATES}
        for simulation in tqdm(range(self.simulations), "simulations", disable=None, leave=False):
            x = circle.TRUTH.sample(self.points, self.generator(simulation))
            for name, shrinkage in ESTIMATES.items():
                risks[name].append([self.risk(x, count, shrinkage) for count in self.counts])
                system = circle.unregularised(x, self.frequencies, shrinkage)
                lowest[name].append(circle.smallest_eigenvalues(system, TIMES))
        base = np.array(risks[MEANS])
        relative = {name: np.array(values) / base.mean(axis=0) for name, values in risks.items()}
        return relative, {name: np.array(values) for name, values in lowest.items()}

    def risk(self, x: Tensor, count: int, shrinkage: Shrinkage) -> float:
        """Return Σ|γθ̂ - θ|² over all functions up to a frequency."""
        basis = circle.frequencies(count // 2)  # moments have twice its frequencies
        moments = FourierMoments(basis, folds=1, squares=True).update(x)
        estimated = moments.shrunk(shrinkage).total
        exact = circle.TRUTH.characteristic(moments.frequencies)
        return float((estimated - exact).abs().square().sum())

    def memorised(self) -> dict[str, Any]:
        """Return errors of both densities, and distances of samples, by number of functions."""
        x = circle.TRUTH.sample(self.few, self.generator(10_000))
        truth = circle.TRUTH.density(FINE, 0.0).numpy()
        result: dict[str, Any] = {"points": x[:, 0].numpy()}
        for name, make in ((SERIES, series_density), (SCORE, score_density)):
            errors, ratios, curves = [], [], []
            for stream, count in enumerate(tqdm(self.bounds, name, disable=None, leave=False)):
                density = make(x, count)
                exact = truth[:: len(truth) // len(density)]
                errors.append(float(np.square(density - exact).mean() * 2 * math.pi))
                samples = draws(density, self.draws, self.generator(20_000 + stream))
                check = nearest_neighbour_check(samples, x.numpy(), periods=np.array([2 * math.pi]))
                ratios.append(check.median_ratio)
                curves.append(density)
            result[name] = {
                "integrated_square_error": errors,
                "distance_to_data_over_expected": ratios,
                "negative_share": float(np.maximum(-curves[-1], 0).mean() * 2 * math.pi),
                "curve": curves[-1][:: max(1, len(curves[-1]) // 2048)],
            }
        return result

    def claims(
        self, risks: Mapping[str, Array], lowest: Mapping[str, Array], memory: Mapping[str, Any]
    ) -> list[Claim]:
        """Return the claims."""
        mean = {name: values.mean(axis=0) for name, values in risks.items()}
        indefinite = {name: (values < 0).mean(axis=0) for name, values in lowest.items()}
        series, score = (memory[name] for name in (SERIES, SCORE))
        errors = score["integrated_square_error"]
        return [
            *(
                Claim(
                    f"{name}: lower risk than sample means with {self.counts[-1]} frequencies (the "
                    "mean paired difference plus two standard errors, relative)",
                    self._above(risks[name][:, -1] - risks[MEANS][:, -1]), 0.0,
                )
                for name in (JAMES_STEIN, RULE, PROJECTED, MONOTONE)
            ),
            Claim(
                f"monotone: with {self.counts[0]} frequencies the risk is less than 5% lower",
                0.95, mean[MONOTONE][0],
            ),
            Claim(
                "each by itself: A_t is indefinite for most data sets at the first t",
                0.5, indefinite[RULE][0],
            ),
            *(
                Claim(f"{name}: A_t is never indefinite", float(indefinite[name].max()), 1e-9)
                for name in (MEANS, JAMES_STEIN, PROJECTED, MONOTONE)
            ),
            Claim(
                "samples of the series are close to the data: distance over the expected one",
                series["distance_to_data_over_expected"][-1], 0.5,
            ),
            Claim(
                "samples of the regularised score are not",
                0.5, score["distance_to_data_over_expected"][-1],
            ),
            Claim(
                "the error of the series grows at least fivefold with the number of functions",
                5 * series["integrated_square_error"][0], series["integrated_square_error"][-1],
            ),
            Claim(
                "the error of the regularised score does not: the last is less than twice the best",
                errors[-1], 2 * min(errors),
            ),
        ]  # fmt: skip

    @staticmethod
    def _above(differences: Array) -> float:
        """Return the mean of differences plus two of its standard errors."""
        return float(differences.mean() + 2 * standard_error(differences))

    def draw(
        self, risks: Mapping[str, Array], lowest: Mapping[str, Array], memory: Mapping[str, Any]
    ) -> Figure:
        """Return the figure: risk, eigenvalues, indefinite systems; then memorisation."""
        figure = plt.figure(figsize=(WIDTH, 6.4), layout="constrained")
        panels = figure.subplots(2, 3)
        self._draw_risks(panels[0, 0], risks)
        for name, values in lowest.items():
            panels[0, 1].plot(TIMES, np.median(values, axis=0), color=COLOURS[name], label=name)
            panels[0, 2].plot(TIMES, (values < 0).mean(axis=0), color=COLOURS[name], label=name)
        panels[0, 1].axhline(0, color="black", lw=0.6)
        panels[0, 1].set(
            xscale="log", xlabel="t", title="smallest eigenvalue of $Λ^{-1/2}A_tΛ^{-1/2}$"
        )
        panels[0, 1].set_yscale("symlog", linthresh=1e-2)
        panels[0, 2].set(xscale="log", xlabel="t", title="share of runs, $A_t$ indefinite")
        self._draw_memory(panels[1], memory)
        for panel in panels.flat:
            panel.set_title(panel.get_title(), fontsize=10)
        return figure

    def _draw_risks(self, ax: Axes, risks: Mapping[str, Array]) -> None:
        for name, values in risks.items():
            error = standard_error(values)
            ax.errorbar(
                self.counts, values.mean(axis=0), error, color=COLOURS[name], marker="o", ms=3,
                capsize=2, label=name,
            )  # fmt: skip
        ax.set(xscale="log", xlabel="frequencies", ylim=(0, 1.15))
        ax.set_title("square error, that of sample means = 1", fontsize=10)
        ax.set_ylabel("mean ± standard error")
        ax.legend(frameon=False, fontsize=8, loc="lower left")
        ax.set_xticks(self.counts, [str(c) for c in self.counts])
        ax.minorticks_off()

    def _draw_memory(self, panels: Any, memory: Mapping[str, Any]) -> None:  # noqa: ANN401
        colours = {SERIES: ACCENT, SCORE: INK}
        left = panels[0]
        x = FINE[:: len(FINE) // 2048, 0].numpy()
        for name, colour in colours.items():
            left.plot(x, memory[name]["curve"], color=colour, lw=0.7 if name == SERIES else 1.6)
        truth = circle.TRUTH.density(torch.from_numpy(x)[:, None], 0.0)
        left.plot(x, truth, color="black", lw=1, ls="--", label="truth")
        left.legend(frameon=False, fontsize=8)
        left.plot(memory["points"], np.full(self.few, -0.12), "|", color="black", ms=6, mew=0.5)
        left.set(xlim=(-math.pi, math.pi), ylim=(-0.25, 2.2), xlabel="x")
        left.set_title(f"{self.few} points, {self.bounds[-1]} frequencies", fontsize=11)
        for panel, key, title in (
            (panels[1], "integrated_square_error", "square error of the density"),
            (panels[2], "distance_to_data_over_expected", "distance of samples to data"),
        ):
            curves = {name: memory[name][key] for name in colours}
            loss_curves(self.bounds, curves, panel, colours=colours)
            panel.set(xlabel="frequencies", title=title)
        panels[2].axhline(1, color=GREY, lw=0.6)
        panels[2].set(yscale="linear", ylim=(0, None))
        panels[1].legend(frameon=False, fontsize=8)

    def report(
        self, risks: Mapping[str, Array], lowest: Mapping[str, Array], memory: Mapping[str, Any]
    ) -> str:
        """Return the text of the report."""
        first = table(
            ["estimate", *(f"{c} frequencies" for c in self.counts)],
            [[name, *_with_errors(values)] for name, values in risks.items()],
        )
        picks = [int(np.argmin(np.abs(np.log(TIMES / t)))) for t in (5e-5, 0.005, 0.02)]
        second = table(
            ["estimate", *(f"t = {TIMES[k]:.2g}" for k in picks)],
            [[n, *(float((v < 0).mean(axis=0)[k]) for k in picks)] for n, v in lowest.items()],
        )
        third = table(
            ["", *(str(b) for b in self.bounds)],
            [
                [f"{name}: {words}", *memory[name][key]]
                for words, key in (
                    ("square error", "integrated_square_error"),
                    ("distance", "distance_to_data_over_expected"),
                )
                for name in (SERIES, SCORE)
            ],
        )
        return self.text(
            points=f"{self.points:,}",
            simulations=self.simulations,
            first=first,
            frequencies=self.frequencies,
            second=second,
            few=self.few,
            draws=f"{self.draws:,}",
            third=third,
            negative=f"{memory[SERIES]['negative_share']:.2f}",
        )


STUDY = Stein
