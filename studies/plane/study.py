"""The paper's Figure 2: a density in two dimensions and its samples, without training.

10,000 points of the pinwheel. The paper's 400 functions and the default are compared with KDE and
with a network that is trained by denoising score matching for the time of the default fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from oism.data.toys import PLANE
from oism.plot import cloud, density_image, density_map
from studies.comparison import (
    DEFAULT,
    FEWER,
    KERNEL,
    NETWORK,
    PAPER,
    Comparison,
    Exact,
    compare,
)
from studies.study import WIDTH, Claim, Findings, Study, table

METHODS = (PAPER, FEWER, DEFAULT, NETWORK, KERNEL)


@dataclass(frozen=True)
class Plane(Study):
    """Figure 2 of the paper."""

    distribution: str = "pinwheel"
    points: int = 10_000
    tested: int = 5000
    side: int = 161

    name: ClassVar[str] = "plane"
    title: ClassVar[str] = "A density in two dimensions without training"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return fewer points and coarser maps."""
        return cls(seed, points=2000, tested=1000, side=81)

    def run(self) -> Findings:
        """Fit all methods to the same points."""
        distribution = PLANE[self.distribution]
        rows = (
            distribution.sample(self.points, self.generator(0)).numpy(),
            distribution.sample(self.tested, self.generator(1)).numpy(),
        )
        found = compare(self.distribution, rows, side=self.side, seed=self.seed, which=METHODS)
        nll = {name: one.nll for name, one in found.entries.items()}
        claims = [
            Claim(
                "OISM is better than the network with the same training time",
                nll[DEFAULT],
                nll[NETWORK],
            ),
            Claim(
                "OISM with 400 functions is also better than this network", nll[FEWER], nll[NETWORK]
            ),
            Claim("OISM is better than the paper's rule", nll[DEFAULT], nll[PAPER]),
            Claim("OISM is at most 0.01 nats worse than KDE", nll[DEFAULT] - 0.01, nll[KERNEL]),
            *found.mass_claims(),
        ]
        return Findings(
            numbers={self.distribution: found.numbers()},
            figures={"figure": self.draw(found)},
            claims=claims,
            text=self.report(found),
        )

    def draw(self, found: Comparison) -> Figure:
        """Return the figure: densities above, samples below."""
        columns = 1 + len(METHODS)
        figure = plt.figure(figsize=(WIDTH, 4.2), layout="constrained")
        panels = figure.subplots(2, columns, sharex=True, sharey=True)
        limits, ceiling = found.limits, found.ceiling
        exact = Exact(PLANE[self.distribution])
        density_map(exact, panels[0, 0], limits=limits, side=self.side, ceiling=ceiling)
        panels[0, 0].set_title(f"truth\n{found.truth:.3f} nats", fontsize=9)
        shown = found.test
        cloud(shown, panels[1, 0], limits=limits).set_title(f"{len(shown):,} points", fontsize=9)
        for column, (name, one) in enumerate(found.entries.items(), start=1):
            density_image(one.image, limits, panels[0, column], ceiling=ceiling)
            title = f"{name}\n{one.nll:.3f} nats, {one.fit_seconds:.1f} s"
            panels[0, column].set_title(title, fontsize=9)
            samples = one.model.sample(len(shown), random_state=0)
            cloud(samples, panels[1, column], limits=limits)
            panels[1, column].set_title("samples", fontsize=9)
        for panel in panels.flat:
            panel.set(xlabel="", ylabel="", xticks=[], yticks=[])
        return figure

    def report(self, found: Comparison) -> str:
        """Return the text of the report."""
        rows = [
            [
                *(name, f"{one.nll:.4f}", f"{one.nll - found.truth:+.4f} ± {one.error:.4f}"),
                *(one.fit_seconds, one.density_seconds, f"{one.mass:.4f}"),
            ]
            for name, one in found.entries.items()
        ]
        head = ["method", "NLL", "above the truth", "fit [s]", "densities [s]", "mass in the box"]
        return self.text(
            points=f"{self.points:,}",
            distribution=self.distribution,
            tested=f"{self.tested:,}",
            truth=f"{found.truth:.4f}",
            table=table(head, rows),
        )


STUDY = Plane
