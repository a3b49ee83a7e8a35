"""The paper's Figure 1: one dimension, known scores, and several ways to estimate them.

The distribution is the *Bart Simpson* mixture, wrapped onto the circle; 25 frequencies, 2,000
points.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

from oism.estimation import Modulation, SampleMeans, fit
from oism.flow import ExactTrace, Flow, RungeKutta4, log_density
from oism.plot import ACCENT, GREY, INK, loss_curves
from oism.process import Noising, Torus, VarianceExploding
from oism.score import OperatorScore
from studies import circle
from studies.neural import train
from studies.study import WIDTH, Claim, Findings, Study, standard_error, table

TIMES = (5e-5, 0.005, 0.02)
"""The times at which losses are compared; the last is that of the paper's figure."""

CURVE = np.geomspace(5e-5, 2.0, 60)
GRID = torch.linspace(-math.pi, math.pi, 2049, dtype=torch.float64)[:, None]
ANGULAR = 8
UNIFORM = 5.0
"""The last noise level of the network: the slowest function has decayed to e^{-12.5}."""

EXACT, PAPER, DEFAULT = "exact moments", "paper's rule", "cross-validated"
EQUAL, LONG = "network, equal time", "network, long"
MEANS, PROJECTED = "sample means", "rule, projected"
COLOURS = {
    EXACT: GREY,
    MEANS: "#e09f3e",
    PAPER: ACCENT,
    PROJECTED: "#9b5de5",
    DEFAULT: INK,
    EQUAL: "#9ad1b3",
    LONG: "#2a9d8f",
}


@dataclass(frozen=True)
class Estimate:
    """A score, the seconds of its fit, its losses along `CURVE`, and the density of its flow."""

    score: circle.Score
    seconds: float
    losses: circle.Array
    density: circle.Array

    @property
    def mass(self) -> float:
        """The integral of the density."""
        return float(np.trapezoid(self.density, GRID[:, 0].numpy()))

    @property
    def bound(self) -> float:
        """The integral of the loss over t."""
        return circle.divergence_bound(CURVE, self.losses)

    @property
    def divergence(self) -> float:
        """The KL divergence of the density of the flow."""
        truth = circle.TRUTH.density(GRID, 0.0).numpy()
        ratio = np.log(truth / np.maximum(self.density, 1e-300))
        return float(np.trapezoid(truth * ratio, GRID[:, 0].numpy()))


def estimated(flow: Flow, seconds: float, divergence: ExactTrace | None = None) -> Estimate:
    """Return an estimate with its losses and its density; ``divergence`` is for networks."""

    def score(x: Tensor, t: float) -> Tensor:
        return flow.score(x, torch.tensor(t, dtype=torch.float64))

    with np.errstate(over="ignore"):
        log = log_density(flow, GRID, method=RungeKutta4(128), divergence=divergence)
        density = np.exp(log.numpy())
    return Estimate(score, seconds, circle.losses(score, CURVE), density)


@dataclass(frozen=True)
class BartSimpson(Study):
    """Figure 1 of the paper."""

    points: int = 2000
    frequencies: int = 25
    counts: tuple[int, ...] = (5, 10, 15, 20, 25, 30, 40, 50, 75, 100)
    simulations: int = 50
    network_seconds: float = 60.0

    name: ClassVar[str] = "bart-simpson"
    title: ClassVar[str] = "The Bart Simpson density: scores in closed form"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return fewer simulations and a shorter training."""
        return cls(seed, counts=(5, 25, 50), simulations=8, network_seconds=10.0)

    def run(self) -> Findings:
        """Estimate once for the figure, then many times for the error bars."""
        estimates = self.estimates()
        many = self.many()
        claims = self.claims(estimates, many)
        return Findings(
            numbers={
                "estimates": {name: _numbers(one) for name, one in estimates.items()},
                "curve_times": CURVE,
                "by_count": {
                    name: {"times": TIMES, "counts": self.counts, **_moments(values)}
                    for name, values in many.items()
                },
            },
            figures={"figure": draw(self, estimates, many)},
            claims=claims,
            text=report(self, estimates, many),
        )

    def data(self, simulation: int) -> Tensor:
        """Return the points of a simulation."""
        return circle.TRUTH.sample(self.points, self.generator(simulation))

    def estimates(self) -> dict[str, Estimate]:
        """Return the estimates of the figure, all from the same points."""
        x, basis = self.data(0), circle.frequencies(self.frequencies)
        ways: dict[str, Callable[[], OperatorScore]] = {
            EXACT: lambda: circle.exact_fit(self.frequencies),
            PAPER: lambda: fit(
                x, basis, shrinkage=Modulation(project=False), ridge=0.0, progress=False
            ),
            DEFAULT: lambda: fit(x, basis, progress=False),
        }
        found = {}
        for name, way in ways.items():
            way()  # the first call includes compilation
            start = time.perf_counter()
            score = way()
            found[name] = estimated(Flow(score), time.perf_counter() - start)
        noising = Noising(Torus(), VarianceExploding(sigma_max=UNIFORM))
        train(x, noising, seconds=0.01, generator=self.generator(), angular=ANGULAR)  # warm up
        lengths = {EQUAL: found[DEFAULT].seconds, LONG: self.network_seconds}
        for stream, (name, seconds) in enumerate(lengths.items()):
            start = time.perf_counter()
            net, _ = train(
                x,
                noising,
                seconds=seconds,
                generator=self.generator(10_000 + stream),
                angular=ANGULAR,
            )
            took = time.perf_counter() - start
            flow = Flow(net, noising.process, noising.clock)
            found[name] = estimated(flow, took, ExactTrace())
        return found

    def many(self) -> dict[str, circle.Array]:
        """Return the losses of every estimate, ``(simulations, counts, times)``."""
        rows: dict[str, list[list[circle.Array]]] = {}
        times = np.array(TIMES)
        for simulation in tqdm(range(self.simulations), "simulations", disable=None, leave=False):
            x = self.data(simulation)
            for count in self.counts:
                plain = {
                    MEANS: SampleMeans(),
                    PAPER: Modulation(project=False),
                    PROJECTED: Modulation(),
                }
                scores = {
                    name: circle.plain_solution(circle.unregularised(x, count, shrinkage))
                    for name, shrinkage in plain.items()
                }
                scores[DEFAULT] = fit(x, circle.frequencies(count), progress=False).score
                for name, score in scores.items():
                    row = rows.setdefault(name, [[] for _ in range(self.simulations)])
                    row[simulation].append(circle.losses(score, times))
        return {name: np.array(values) for name, values in rows.items()}

    def claims(
        self, estimates: Mapping[str, Estimate], many: Mapping[str, circle.Array]
    ) -> list[Claim]:
        """Return the claims."""
        typical = {name: np.median(values, axis=0) for name, values in many.items()}
        most, middle = self.counts[-1], self.counts.index(self.frequencies)
        claims = [
            Claim(
                f"with {most} frequencies, shrunk and projected means have a lower loss than "
                f"sample means (t = {t:g})",
                typical[PROJECTED][-1, k],
                typical[MEANS][-1, k],
            )
            for k, t in enumerate(TIMES)
        ]
        claims += [
            Claim(
                f"cross-validation has the lowest loss, {self.frequencies} frequencies, t = {t:g}",
                typical[DEFAULT][middle, k],
                min(typical[name][middle, k] for name in (MEANS, PAPER, PROJECTED)),
            )
            for k, t in enumerate(TIMES)
        ]
        claims += [
            Claim(
                f"with {most} frequencies the loss is less than 25% above that with "
                f"{self.frequencies}, t = {t:g}",
                typical[DEFAULT][-1, k],
                1.25 * typical[DEFAULT][middle, k],
            )
            for k, t in enumerate(TIMES)
        ]
        claims += [
            Claim(
                f"cross-validation has a lower loss integrated over t than the {name}",
                estimates[DEFAULT].bound,
                estimates[name].bound,
            )
            for name in (EQUAL, LONG)
        ]
        claims += [
            Claim(f"density integrates to one: {name}", abs(estimates[name].mass - 1), 1e-3)
            for name in (EXACT, DEFAULT, EQUAL, LONG)
        ]
        return claims


def _numbers(one: Estimate) -> dict[str, Any]:
    return {
        "seconds": one.seconds,
        "loss": {f"{t:g}": circle.loss(one.score, t) for t in TIMES},
        "integrated_loss": one.bound,
        "mass": one.mass,
        "kl": one.divergence,
        "curve": one.losses,
    }


def _moments(values: circle.Array) -> dict[str, circle.Array]:
    return {
        "mean": values.mean(axis=0),
        "standard_error": standard_error(values),
        "median": np.median(values, axis=0),
        "largest": values.max(axis=0),
    }


def draw(
    study: BartSimpson, estimates: Mapping[str, Estimate], many: Mapping[str, circle.Array]
) -> Figure:
    """Return the figure: density and scores of every estimate, and losses."""
    shown = (EXACT, PAPER, DEFAULT, EQUAL, LONG)
    figure = plt.figure(figsize=(WIDTH, 8), layout="constrained")
    rows = figure.add_gridspec(2, 1, height_ratios=(1.7, 1))
    above, below = (figure.add_subfigure(rows[k]) for k in (0, 1))
    panels = above.subplots(3, len(shown) + 1)
    x, truth = GRID[:, 0].numpy(), circle.TRUTH.density(GRID, 0.0).numpy()
    panels[0, 0].fill_between(x, truth, color=GREY, alpha=0.4, lw=0)
    panels[0, 0].set(title="truth", ylabel="density")
    for row, t in ((1, TIMES[0]), (2, TIMES[2])):
        panels[row, 0].plot(x, circle.TRUTH.score(GRID, t)[:, 0], color="black", lw=1)
        panels[row, 0].set_ylabel(f"score at t = {'0' if row == 1 else f'{t:g}'}")
    for column, name in enumerate(shown, start=1):
        one, colour = estimates[name], COLOURS[name]
        panels[0, column].fill_between(x, truth, color=GREY, alpha=0.4, lw=0)
        panels[0, column].plot(x, one.density, color=colour, lw=1.2)
        panels[0, column].set_title(f"{name}\n{one.seconds:.2g} s, {_mass(one.mass)}", fontsize=9)
        for row, t in ((1, TIMES[0]), (2, TIMES[2])):
            _score_panel(panels[row, column], one, t, colour)
    for row, ylim in ((0, (0, 0.75)), (1, (-25, 25)), (2, (-6, 6))):
        for panel in panels[row]:
            panel.set(xlim=(-math.pi, math.pi), ylim=ylim)
            panel.set_xticks((-math.pi, 0, math.pi), ("-π", "0", "π"))
            panel.tick_params(labelleft=panel is panels[row, 0])
    _loss_panels(study, below.subplots(1, 3), estimates, many)
    return figure


def _mass(mass: float) -> str:
    return f"∫ = {mass:.4f}" if mass < 10 else "∫ = ∞" if math.isinf(mass) else f"∫ = {mass:.0e}"


def _score_panel(panel: Axes, one: Estimate, t: float, colour: str) -> None:
    x = GRID[:, 0].numpy()
    panel.plot(x, circle.TRUTH.score(GRID, t)[:, 0], color="black", lw=0.7, alpha=0.6)
    panel.plot(x, one.score(GRID, t)[:, 0], color=colour, lw=1.2)
    panel.set_title(f"loss {circle.loss(one.score, t):.2g}", fontsize=9)


def _loss_panels(
    study: BartSimpson,
    panels: Any,  # noqa: ANN401 (an array of axes)
    estimates: Mapping[str, Estimate],
    many: Mapping[str, circle.Array],
) -> None:
    curves = {name: one.losses for name, one in estimates.items()}
    ax = loss_curves(CURVE, curves, panels[0], colours=COLOURS)
    ax.set(ylim=(1e-8, 1e3), xlabel="t")
    ax.set_title("square error of the score", fontsize=10)
    ax.legend(frameon=False, fontsize=7, loc="lower left")
    for panel, k in ((panels[1], 0), (panels[2], 2)):
        means = {name: values[..., k].mean(axis=0) for name, values in many.items()}
        errors = {name: standard_error(values[..., k]) for name, values in many.items()}
        ax = loss_curves(study.counts, means, panel, errors=errors, colours=COLOURS)
        middle = means[DEFAULT][study.counts.index(study.frequencies)]
        ax.set(xlabel="frequencies", ylim=(middle / 4, middle * (2e3 if k == 0 else 300)))
        ax.set_title(f"at t = {TIMES[k]:g}, {study.simulations} simulations", fontsize=10)
        ax.set_xticks(study.counts[:: max(1, len(study.counts) // 5)])
        ax.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
        ax.minorticks_off()
    panels[2].legend(frameon=False, fontsize=8, loc="upper left")


def report(
    study: BartSimpson, estimates: Mapping[str, Estimate], many: Mapping[str, circle.Array]
) -> str:
    """Return the text of the report."""
    rows = [
        [
            *(name, one.seconds),
            *(circle.loss(one.score, t) for t in TIMES),
            *(one.bound, one.mass, one.divergence),
        ]
        for name, one in estimates.items()
    ]
    head = ["estimate", "seconds", *(f"loss at {t:g}" for t in TIMES)]
    first = table([*head, "∫ loss dt", "mass", "KL"], rows)
    middle = study.counts.index(study.frequencies)
    shown = [(middle, study.frequencies)]
    if study.counts[-1] != study.frequencies:
        shown.append((len(study.counts) - 1, study.counts[-1]))
    lines = []
    for place, count in shown:
        for name, values in many.items():
            found = {key: value[place] for key, value in _moments(values).items()}
            cells = [
                f"{found['mean'][k]:.3g} ± {found['standard_error'][k]:.2g} "
                f"({found['median'][k]:.3g})"
                for k in range(len(TIMES))
            ]
            lines.append([name, str(count), *cells])
    second = table(["estimate", "frequencies", *(f"t = {t:g}" for t in TIMES)], lines)
    return study.text(
        points=f"{study.points:,}",
        frequencies=study.frequencies,
        first=first,
        simulations=study.simulations,
        second=second,
        seconds=f"{study.network_seconds:g}",
    )


STUDY = BartSimpson
