"""The paper's appendix: eight distributions of two columns, densities, samples by ODE and SDE."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

from oism.data.toys import PLANE
from oism.plot import cloud, density_image
from studies.comparison import DEFAULT, FEWER, KERNEL, NETWORK, Comparison, compare
from studies.study import WIDTH, Claim, Findings, Study, table

METHODS = (FEWER, DEFAULT, NETWORK, KERNEL)


@dataclass(frozen=True)
class Gallery(Study):
    """The figure of the paper's appendix."""

    distributions: tuple[str, ...] = tuple(PLANE)
    points: int = 20_000
    tested: int = 5000
    shown: int = 3000
    side: int = 121

    name: ClassVar[str] = "gallery"
    title: ClassVar[str] = "Eight distributions in two dimensions without training"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return three of the distributions, with fewer points and coarser maps."""
        three = ("moons", "pinwheel", "checkerboard")
        return cls(seed, distributions=three, points=1000, tested=500, shown=1000, side=61)

    def run(self) -> Findings:
        """Compare the methods on every distribution, and draw samples of OISM by ODE and SDE."""
        found, samples = [], []
        names = tqdm(self.distributions, "distributions", disable=None, leave=False)
        for place, name in enumerate(names):
            train, test = (
                PLANE[name].sample(n, self.generator(100 * place + stream)).numpy()
                for stream, n in enumerate((self.points, self.tested))
            )
            one = compare(name, (train, test), side=self.side, seed=self.seed, which=METHODS)
            model = one.entries[DEFAULT].model
            draw = partial(model.sample, self.shown, random_state=0)
            samples.append({way: draw(method=way) for way in ("ode", "sde")})
            found.append(one)
        excess = {
            name: float(np.mean([one.entries[name].nll - one.truth for one in found]))
            for name in METHODS
        }
        return Findings(
            numbers={
                "mean_excess": excess,
                "distributions": {one.name: one.numbers() for one in found},
            },
            figures={"figure": self.draw(found, samples)},
            claims=self.claims(found, excess),
            text=self.report(found, excess),
        )

    def claims(self, found: list[Comparison], excess: dict[str, float]) -> list[Claim]:
        """Return the claims."""
        nll = [{name: one.entries[name].nll for name in METHODS} for one in found]
        margin = min(n[NETWORK] - n[DEFAULT] for n in nll)
        return [
            Claim(
                "OISM is better than the network with the same training time on every distribution",
                0.0,
                margin,
            ),
            Claim("OISM is better than KDE on average", excess[DEFAULT], excess[KERNEL]),
            Claim(
                "the default is better than 400 functions on average",
                excess[DEFAULT],
                excess[FEWER],
            ),
            *(claim for one in found for claim in one.mass_claims()),
        ]

    def draw(self, found: list[Comparison], samples: list[dict[str, Any]]) -> Figure:
        """Return the figure, with a row for each distribution."""
        heads = ("data", FEWER, DEFAULT, "samples, ODE", "samples, SDE", NETWORK, KERNEL)
        figure = plt.figure(figsize=(WIDTH, 1.55 * len(found)), layout="constrained")
        panels = figure.subplots(len(found), len(heads), squeeze=False)
        for row, (one, drawn) in enumerate(zip(found, samples, strict=True)):
            look: dict[str, Any] = {"limits": one.limits}
            places = dict(zip(heads, panels[row], strict=True))
            cloud(one.train[: self.shown], places["data"], **look)
            cloud(drawn["ode"], places["samples, ODE"], **look)
            cloud(drawn["sde"], places["samples, SDE"], **look)
            for name in METHODS:
                entry = one.entries[name]
                density_image(entry.image, one.limits, places[name], ceiling=one.ceiling)
                places[name].text(
                    0.03, 0.97, f"{entry.nll - one.truth:+.3f}", transform=places[name].transAxes,
                    va="top", fontsize=8,
                )  # fmt: skip
            for name, panel in places.items():
                panel.set(xlabel="", ylabel="", xticks=[], yticks=[])
                if row == 0:
                    panel.set_title(name, fontsize=9)
            places["data"].set_ylabel(one.name)
        return figure

    def report(self, found: list[Comparison], excess: dict[str, float]) -> str:
        """Return the text of the report."""
        head = ["distribution", "truth"]
        head += [f"{name}{unit}" for name in METHODS for unit in ("", " [s]")]
        rows: list[list[object]] = []
        for one in found:
            cells: list[object] = [one.name, f"{one.truth:.4f}"]
            for name in METHODS:
                entry = one.entries[name]
                cells += [f"{entry.nll:.4f}", f"{entry.fit_seconds:.1f}"]
            rows.append(cells)
        means = ", ".join(f"{name} {value:+.4f}" for name, value in excess.items())
        return self.text(
            points=f"{self.points:,}",
            tested=f"{self.tested:,}",
            table=table(head, rows),
            means=means,
        )


STUDY = Gallery
