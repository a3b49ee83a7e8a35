"""Hermite polynomials in one dimension: a higher order does not increase the error.

The distributions are skewed, heavy-tailed or bimodal; their noised scores are computed by
quadrature. The loss of an estimate ŝ is E(ŝ - ∇log ρ_t)² under ρ_t. The order is an upper bound;
the order in use is cross-validated at every noise level.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import matplotlib.pyplot as plt
import numpy as np
import scipy.stats
import torch
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

from oism.basis import Hermite
from oism.estimation import fit
from oism.plot import loss_curves
from oism.process import VariancePreserving
from studies.study import WIDTH, Claim, Findings, Study, table

POINTS = 2000


class Distribution(Protocol):
    """A distribution in one dimension, with the methods of SciPy."""

    def pdf(self, x: np.ndarray) -> np.ndarray:
        """Return the density."""

    def ppf(self, q: np.ndarray) -> np.ndarray:
        """Return the quantiles."""


class TwoModes:
    """½N(-1.5, 0.5²) + ½N(1.5, 0.5²)."""

    def pdf(self, x: np.ndarray) -> np.ndarray:
        """Return the density."""
        left, right = (scipy.stats.norm.pdf(x, side, 0.5) for side in (-1.5, 1.5))
        density: np.ndarray = 0.5 * (left + right)
        return density

    def ppf(self, q: np.ndarray) -> np.ndarray:
        """Return quantiles of the left mode for q < ½, of the right one otherwise."""
        right = q >= 0.5
        inner = np.where(right, 2 * q - 1, 2 * q).clip(1e-12, 1 - 1e-12)
        mode: np.ndarray = np.where(right, 1.5, -1.5) + 0.5 * scipy.stats.norm.ppf(inner)
        return mode


@dataclass(frozen=True)
class Line:
    """A distribution in one dimension and its noised versions."""

    name: str
    distribution: Distribution

    def sample(self, n: int, seed: int) -> Tensor:
        """Return n random points ``(n, 1)``."""
        return torch.from_numpy(self.distribution.ppf(np.random.default_rng(seed).random(n)))[
            :, None
        ]

    def noised(self, alpha: float, sigma: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return points, their weights under the distribution of αX + σZ, and its score there.

        ρ_t(x) = ∫ ρ((x - σz)/α) φ(z) dz/α, and its score is -E[z ρ]/(σE[ρ]) with the same weights.
        """
        z = np.linspace(-8, 8, 801)
        normal = np.exp(-0.5 * z**2)
        low, high = alpha * self.distribution.ppf(np.array([1e-4, 1 - 1e-4]))
        x = np.linspace(low - 4 * sigma, high + 4 * sigma, 4001)
        terms = self.distribution.pdf((x[:, None] - sigma * z) / alpha) * normal
        mass = terms.sum(axis=1)
        score = -(terms * z).sum(axis=1) / (sigma * mass.clip(1e-300))
        parts = (x[:, None], mass / mass.sum(), score[:, None])
        return tuple(torch.from_numpy(part) for part in parts)  # type: ignore[return-value]


LINES = (
    Line("lognormal", scipy.stats.lognorm(1.0)),
    Line("Laplace", scipy.stats.laplace()),
    Line("Student t, 5", scipy.stats.t(5)),
    Line("two modes", TwoModes()),
)
NOISE = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Times of the variance preserving clock: σ from 0.08 to 0.96."""


def line_losses(
    line: Line, repetitions: int, orders: tuple[int, ...], first: int = 0
) -> Iterator[np.ndarray]:
    """Yield the losses for each bound on the order: ``(repetitions, noise levels)``.

    ``first`` is the seed of the first repetition.
    """
    times = VariancePreserving().time(torch.tensor(NOISE, dtype=torch.float64))
    truths = [line.noised(math.exp(-t), math.sqrt(-math.expm1(-2 * t))) for t in map(float, times)]
    for order in orders:
        rows = []
        for seed in tqdm(range(first, first + repetitions), line.name, disable=None, leave=False):
            score = fit(line.sample(POINTS, seed), Hermite(dim=1, order=order), progress=False)
            errors = [
                float((weights * (score.score(x, t) - truth).square()[:, 0]).sum())
                for (x, weights, truth), t in zip(truths, times, strict=True)
            ]
            rows.append(errors)
        yield np.array(rows)


def _noises() -> np.ndarray:
    times = VariancePreserving().time(torch.tensor(NOISE, dtype=torch.float64))
    noises: np.ndarray = torch.sqrt(-torch.expm1(-2 * times)).numpy()
    return noises


@dataclass(frozen=True)
class Polynomials(Study):
    """Losses for several bounds on the order."""

    repetitions: int = 50
    orders: tuple[int, ...] = (2, 3, 6, 9)

    name: ClassVar[str] = "polynomials"
    title: ClassVar[str] = (
        "Polynomials in one dimension: a higher order does not increase the error"
    )

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return fewer repetitions."""
        return cls(seed, repetitions=3, orders=(3, 9))

    def run(self) -> Findings:
        """Fit every distribution with every order."""
        first = 1000 * self.seed
        losses = {
            line.name: [
                many.mean(axis=0)
                for many in line_losses(line, self.repetitions, self.orders, first)
            ]
            for line in LINES
        }
        last, before = len(self.orders) - 1, self.orders.index(3)
        ratios = {name: many[last] / many[before] for name, many in losses.items()}
        claims = [
            Claim(
                f"{name}: order {self.orders[last]} is not worse than 3 at any noise level",
                float(ratio.max()),
                1.05,
            )
            for name, ratio in ratios.items()
        ]
        return Findings(
            numbers={
                "noise": _noises(),
                "orders": self.orders,
                "mean_loss": losses,
                "last_order_over_order_3": ratios,
            },
            figures={"figure": self.draw(losses)},
            claims=claims,
            text=self.report(ratios),
        )

    def draw(self, losses: dict[str, list[np.ndarray]]) -> Figure:
        """Return the figure, with a panel for every distribution."""
        figure = plt.figure(figsize=(WIDTH, 3.0), layout="constrained")
        panels = figure.subplots(1, len(losses), sharey=True)
        shades = plt.get_cmap("viridis")(np.linspace(0.1, 0.85, len(self.orders)))
        for panel, (name, many) in zip(panels, losses.items(), strict=True):
            labels = [f"order {order}" for order in self.orders]
            curves = dict(zip(labels, many, strict=True))
            colours = dict(zip(labels, shades, strict=True))
            loss_curves(_noises(), curves, panel, colours=colours)
            panel.set(title=name, xlabel="noise σ")
        panels[0].set_ylabel("score-matching loss")
        panels[0].legend(frameon=False, fontsize=8)
        return figure

    def report(self, ratios: dict[str, np.ndarray]) -> str:
        """Return the text of the report."""
        head = ["distribution", *(f"τ = {tau:g}" for tau in NOISE)]
        rows = [[name, *(f"{value:.2f}" for value in ratio)] for name, ratio in ratios.items()]
        return self.text(
            points=f"{POINTS:,}",
            repetitions=self.repetitions,
            order=self.orders[-1],
            table=table(head, rows),
        )


STUDY = Polynomials
