"""The paper's Figure 2: a law of the plane, its density and samples, without training.

10,000 points of the pinwheel; the paper's 400 functions and the default, next to a network trained
by denoising score matching for the time the default fit takes, and to kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from oism.data.toys import PLANE
from oism.plot import cloud, density_image, density_map
from oism.studies.contest import DEFAULT, FEWER, KERNELS, NETWORK, PAPER, Contest, Truth, contest
from oism.studies.study import Claim, Findings, Study, table, text

CONTENDERS = (PAPER, FEWER, DEFAULT, NETWORK, KERNELS)


def mass_claims(found: Contest) -> list[Claim]:
    """Return that the densities of the closed form integrate to one."""
    return [
        Claim(f"{found.name}: density integrates to one: {name}", abs(one.mass - 1), 2e-3)
        for name, one in found.entries.items()
        if name in (FEWER, DEFAULT)
    ]


@dataclass(frozen=True)
class Plane(Study):
    """Figure 2 of the paper."""

    law: str = "pinwheel"
    points: int = 10_000
    tested: int = 5000
    side: int = 161

    name: ClassVar[str] = "plane"
    title: ClassVar[str] = "A density of the plane without training"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return fewer points and coarser maps."""
        return cls(seed, points=2000, tested=1000, side=81)

    def run(self) -> Findings:
        """Let the contenders fit the same points."""
        law = PLANE[self.law]
        train = law.sample(self.points, self.generator(0)).numpy()
        test = law.sample(self.tested, self.generator(1)).numpy()
        found = contest(self.law, (train, test), side=self.side, seed=self.seed, which=CONTENDERS)
        nll = {name: one.nll for name, one in found.entries.items()}
        claims = [
            Claim("OISM beats the network of equal time", nll[DEFAULT], nll[NETWORK]),
            Claim("so does OISM with 400 functions", nll[FEWER], nll[NETWORK]),
            Claim("OISM beats the paper's rule", nll[DEFAULT], nll[PAPER]),
            Claim("OISM is at most 0.01 nats behind kernels", nll[DEFAULT] - 0.01, nll[KERNELS]),
            *mass_claims(found),
        ]  # fmt: skip
        return Findings(
            numbers={self.law: found.numbers()},
            figures={"figure": self.draw(found)},
            claims=claims,
            text=self.report(found),
        )

    def draw(self, found: Contest) -> Figure:
        """Return the figure: densities above, samples below."""
        columns = 1 + len(CONTENDERS)
        figure = plt.figure(figsize=(2.6 * columns, 5.8), layout="constrained")
        panels = figure.subplots(2, columns, sharex=True, sharey=True)
        limits, ceiling = found.limits, found.ceiling
        truth = Truth(PLANE[self.law])
        density_map(truth, panels[0, 0], limits=limits, side=self.side, ceiling=ceiling)
        panels[0, 0].set_title(f"truth\n{found.truth:.3f} nats", fontsize=10)
        shown = found.test
        cloud(shown, panels[1, 0], limits=limits).set_title(f"{len(shown):,} points")
        for column, (name, one) in enumerate(found.entries.items(), start=1):
            density_image(one.image, limits, panels[0, column], ceiling=ceiling)
            title = f"{name}\n{one.nll:.3f} nats, {one.fit_seconds:.1f} s"
            panels[0, column].set_title(title, fontsize=10)
            samples = one.model.sample(len(shown), random_state=0)
            cloud(samples, panels[1, column], limits=limits)
            panels[1, column].set_title("samples")
        for panel in panels.flat:
            panel.set(xlabel="", ylabel="", xticks=[], yticks=[])
        return figure

    def report(self, found: Contest) -> str:
        """Return the text of the report."""
        rows = [
            [
                *(name, f"{one.nll:.4f}", f"{one.nll - found.truth:+.4f} ± {one.error:.4f}"),
                *(one.fit_seconds, one.density_seconds, f"{one.mass:.4f}"),
            ]
            for name, one in found.entries.items()
        ]
        head = ["contender", "NLL", "over the truth", "fit [s]", "densities [s]", "mass in the box"]
        return text(
            "plane",
            points=f"{self.points:,}",
            law=self.law,
            tested=f"{self.tested:,}",
            truth=f"{found.truth:.4f}",
            table=table(head, rows),
        )
