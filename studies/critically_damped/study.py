"""Critically damped Langevin dynamics in closed form: noise acts on data through velocities.

Positions are data, velocities start as N(0, γI), and noise acts on velocities alone. The process is
not symmetric and its noise matrix is singular; still polynomials of a total degree of position and
velocity have closed-form moments at every time, and so the scores are fitted without training.
Samples of two moons are compared by their energy distance to held-out ones,

    2E|X - Y| - E|X - X'| - E|Y - Y'|,

with those of the Ornstein-Uhlenbeck process at the same degree and of a network trained by hybrid
score matching.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.datasets import make_moons
from torch import Tensor
from tqdm import tqdm

from oism.basis import TensorHermite
from oism.estimation import fit, fit_linear
from oism.flow import Adaptive, Flow, RungeKutta4, StochasticHeun, log_density, position_log_density
from oism.nn import MLP, VelocityScore
from oism.objectives import HybridScoreMatching
from oism.plot import ACCENT, GREY, INK
from oism.process import CriticallyDamped, Logarithmic, OrnsteinUhlenbeck, PhaseSpace, Process
from studies.loop import cosine, minimise, seeded
from studies.study import WIDTH, Claim, Findings, Study, rounded, table

Array = NDArray[np.float64]

NOISE = 0.1
SPACE = PhaseSpace(CriticallyDamped(dim=2))
CLOCK = Logarithmic(first=0.05, last=12.0)
"""That of the network, uniform in log t. At t = 0.05 the noise is 0.016, of velocities 0.46."""

BATCH, RATE, LONG = 512, 3e-3, 2000
"""The batch and rate of the network, and the least number of steps for a claim about it."""

PATHS, END = 3, 3.0
"""The number of paths in the figure, and their last t."""

QUARTER = 0.25
EXACT = 1e-5
REVERSE = "degree 4, reverse SDE"
PLAIN = "degree 4, no velocities"
NETWORK = "network"


def moons(n: int, seed: int) -> Tensor:
    """Return two moons in units of their standard deviations, float64 ``(n, 2)``."""
    x = torch.from_numpy(make_moons(n, noise=NOISE, random_state=seed)[0])
    return (x - torch.tensor([0.5, 0.25])) / torch.tensor([0.87, 0.5])


def energy_distance(x: Tensor, y: Tensor) -> float:
    """Return 2E|X - Y| - E|X - X'| - E|Y - Y'| from independent draws, without bias.

    >>> energy_distance(torch.zeros(2, 1), torch.ones(2, 1))
    2.0
    """
    cross, left, right = (float(cdist(a, b).sum()) for a, b in ((x, y), (x, x), (y, y)))
    n, m = len(x), len(y)
    return 2 * cross / (n * m) - left / (n * (n - 1)) - right / (m * (m - 1))


def trained(x: Tensor, steps: int, generator: torch.Generator) -> Flow:
    """Return the flow of a network that predicts the noise of velocities."""
    with seeded(generator):
        network = MLP(2, extra=2, width=96, depth=3)
    objective, rows = HybridScoreMatching(SPACE, CLOCK), x.float()

    def loss() -> Tensor:
        batch = rows[torch.randint(len(rows), (BATCH,), generator=generator)]
        return objective(network, batch, generator)

    rates = tqdm(cosine(RATE, steps), "network", total=steps, disable=None, leave=False)
    minimise(network, loss, rates)
    return VelocityScore(network.eval(), SPACE, CLOCK, objective.first).flow


@dataclass(frozen=True)
class Damped(Study):
    """Two moons by total degree of position and velocity."""

    rows: int = 10_000
    drawn: int = 5000
    tested: int = 300
    orders: tuple[int, ...] = (2, 4, 6)
    steps: int = 4000

    name: ClassVar[str] = "critically-damped"
    title: ClassVar[str] = "Critically damped Langevin dynamics in closed form"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return fewer rows, draws and steps."""
        return cls(seed, rows=3000, drawn=1500, tested=60, orders=(2, 4), steps=300)

    def run(self) -> Findings:
        """Fit, draw samples and compare."""
        data, held_out = (moons(self.rows, 2 * self.seed + k) for k in (0, 1))
        flows = {
            f"degree {order}": Flow(fit_linear(data, SPACE, order, progress=False))
            for order in tqdm(self.orders, "degrees", disable=None, leave=False)
        }
        plain = Flow(fit(data, TensorHermite(2, 4), progress=False))
        drawn = {name: self._positions(flow) for name, flow in flows.items()}
        drawn[REVERSE] = self._positions(flows["degree 4"], StochasticHeun(200))
        drawn[PLAIN] = plain.sample(self.drawn, (2,), generator=self.generator(1)).double()
        network = trained(data, self.steps, self.generator(2))
        drawn[NETWORK] = self._positions(network, RungeKutta4(64))
        likely = self._likely(flows, plain, held_out[: self.tested])
        distances = {name: energy_distance(x, held_out[: self.drawn]) for name, x in drawn.items()}
        offset = self._gaussian_error(flows["degree 2"], data)
        return Findings(
            numbers={
                "energy_distance": distances,
                "log_density": likely,
                "gaussian_error": offset,
            },
            figures={"figure": self.draw(data, drawn, distances, likely)},
            claims=self.claims(distances, likely, offset),
            text=self.report(distances, likely, offset),
        )

    def _positions(
        self, flow: Flow, method: Adaptive | RungeKutta4 | StochasticHeun | None = None
    ) -> Tensor:
        method = Adaptive() if method is None else method
        points = flow.sample(self.drawn, (4,), method=method, generator=self.generator(1))
        return SPACE.positions(points).double()

    def _likely(self, flows: dict[str, Flow], plain: Flow, x: Tensor) -> dict[str, float]:
        """Return mean log-densities of positions."""
        method, found = RungeKutta4(64), {}
        for name, flow in flows.items():
            many = position_log_density(
                flow, SPACE, x, draws=16, generator=self.generator(3), method=method
            )
            found[name] = float(many.mean())
        return {**found, PLAIN: float(log_density(plain, x, method=method).mean())}

    @staticmethod
    def _gaussian_error(flow: Flow, data: Tensor) -> float:
        """Return the largest error in mean and covariance of the degree-2 sampler.

        For a Gaussian the flow from noise to data is affine, so five points determine it.
        """
        start = torch.cat((torch.zeros(1, 4), torch.eye(4))).double()
        ends = flow.pull(start, method=Adaptive(1e-10, 1e-10))
        offset, matrix = ends[0], (ends[1:] - ends[0]).mT
        mean = offset[:2] - data.mean(dim=0)
        covariance = (matrix @ matrix.mT)[:2, :2] - torch.cov(data.mT, correction=0)
        return float(torch.cat((mean, covariance.flatten())).abs().max())

    def claims(
        self, distances: dict[str, float], likely: dict[str, float], offset: float
    ) -> list[Claim]:
        """Return the claims."""
        second, fourth = (f"degree {order}" for order in (2, 4))
        bound = QUARTER * distances[second]
        found = [
            Claim("degree 2 samples the Gaussian of the data exactly", offset, EXACT),
            Claim(
                "degree 4 has at most a quarter of the energy distance", distances[fourth], bound
            ),
            Claim("the same with the reverse SDE", distances[REVERSE], bound),
            Claim("degree 4 has a higher log-density", likely[second], likely[fourth]),
            Claim(
                "it differs from that of the Ornstein-Uhlenbeck process by less than 0.1 nats",
                abs(likely[fourth] - likely[PLAIN]),
                0.1,
            ),
        ]
        if self.steps >= LONG:
            words = "a network by hybrid score matching has a lower distance than degree 2"
            found.append(Claim(words, distances[NETWORK], distances[second]))
        return found

    def draw(
        self,
        data: Tensor,
        drawn: dict[str, Tensor],
        distances: dict[str, float],
        likely: dict[str, float],
    ) -> Figure:
        """Return the figure: samples above; paths, distances and log-densities below."""
        shown = {"data": data, **{name: x for name, x in drawn.items() if name != REVERSE}}
        picture = plt.figure(figsize=(WIDTH, 4.8), layout="constrained")
        rows = picture.add_gridspec(2, 1, height_ratios=(1, 1.1))
        above, below = (picture.add_subfigure(rows[k]) for k in (0, 1))
        for ax, (name, x) in zip(above.subplots(1, len(shown)), shown.items(), strict=True):
            colour = GREY if name == "data" else INK
            ax.scatter(*x[:2000].T.numpy(), s=1.2, color=colour, alpha=0.6, linewidths=0)
            ax.set_title(name, fontsize=9)
            ax.set(xlim=(-2.4, 2.4), ylim=(-2.6, 2.6), xticks=[], yticks=[])
            ax.set_aspect("equal")
        paths, far, near = below.subplots(1, 3, width_ratios=(1.5, 1, 1))
        self._draw_paths(paths, data)
        _dots(far, distances, "energy distance to held-out data")
        far.set_xscale("log")
        far.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        far.xaxis.set_major_formatter("{x:g}")
        far.xaxis.set_minor_formatter("")
        _dots(near, likely, "mean log-density, nats")
        return picture

    def _draw_paths(self, ax: Axes, data: Tensor) -> None:
        """Draw paths of one coordinate: rough with noise on positions, else smooth."""
        count = 600
        times = np.linspace(0, END, count + 1)
        starts = data[:PATHS]
        kinds: dict[str, tuple[str, Process, Tensor]] = {
            "noise on positions": (GREY, OrnsteinUhlenbeck(), starts),
            "noise on velocities": (ACCENT, SPACE.process, SPACE.lift(starts, self.generator(5))),
        }
        for name, (colour, process, start) in kinds.items():
            step, generator, path = process.transition(END / count), self.generator(4), [start]
            for _ in range(count):
                path.append(step.sample(path[-1], generator=generator))
            heights = torch.stack(path)[:, :, 0].numpy()
            lines = ax.plot(times, heights, color=colour, lw=1.0)
            lines[0].set_label(name)
        ax.set_title("paths of positions", fontsize=10)
        ax.set(xlabel="t", ylabel="first coordinate")
        ax.legend(frameon=False, fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)

    def report(self, distances: dict[str, float], likely: dict[str, float], offset: float) -> str:
        """Return the text of the report."""
        base = distances["degree 2"]
        rows = [
            [name, value, value / base, (value / base) ** 0.5, _cell(likely.get(name))]
            for name, value in distances.items()
        ]
        head = ["samples", "energy distance", "ratio", "ratio of roots", "log-density, nats"]
        return self.text(
            rows=f"{self.rows:,}",
            drawn=f"{self.drawn:,}",
            tested=self.tested,
            steps=f"{self.steps:,}",
            gamma=SPACE.gamma,
            noise=NOISE,
            offset=rounded(offset),
            table=table(head, rows),
        )


def _cell(value: float | None) -> float | str:
    return "" if value is None else value


def _dots(ax: Axes, values: dict[str, float], title: str) -> None:
    """Draw named numbers as dots, the first on top."""
    names = list(values)
    places = range(len(names), 0, -1)
    ax.scatter(list(values.values()), places, color=INK, s=28, zorder=2)
    for place, value in zip(places, values.values(), strict=True):
        ax.annotate(rounded(value), (value, place), (0, 6), textcoords="offset points",
                    ha="center", fontsize=8)  # fmt: skip
    ax.set_yticks(places, names, fontsize=8)
    ax.set_title(title, fontsize=10)
    ax.set_ylim(0.4, len(names) + 0.8)
    ax.margins(x=0.2)
    ax.grid(axis="y", color="0.9", zorder=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)


STUDY = Damped
