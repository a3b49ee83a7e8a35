"""The score Fokker-Planck equation: how well networks solve it, and whether its residual helps.

A network is trained by denoising score matching, with and without the residual of the equation as a
regulariser; then once more without it, for as long as the regularised one took. It is compared with
the known scores at twelve noise levels, by two numbers without unit:

    residual    (E‖σ³(∂_t s - ∇[…])‖²/2)^½
    error       E‖σ(s - ∇log ρ_t)‖²/2, the excess error of the predicted noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray
from torch import Tensor

from oism.objectives import FokkerPlanckResidual, UniformLogSNR
from oism.plot import ACCENT, GREY, INK, density_image
from studies.loop import one_thread
from studies.ring import FIRST, NOISING, PROCESS, Ring, Trained, scaled_residual, train
from studies.study import WIDTH, Claim, Findings, Study, table

Array = NDArray[np.float64]

PLAIN, LONGER = "denoising alone", "denoising alone, equal time"
LATE = 0.3
"""Above this t the five modes have merged: half of the noise levels."""

SHOWN = 0.1
"""The t of the maps."""

ROWS = 2**13
"""The number of residuals computed at once."""

LIMITS = ((-2.4, 2.4), (-2.4, 2.4))
COLOURS = ("#e9a03b", ACCENT, "#7a2a5e")


@dataclass(frozen=True, eq=False)
class Measured:
    """A trained network with its residuals and errors at the noise levels."""

    trained: Trained
    residual: Array
    error: Array

    def numbers(self) -> dict[str, object]:
        """Return the numbers for JSON."""
        one = self.trained
        return {
            "weight": one.weight,
            "steps": one.steps,
            "seconds": one.seconds,
            "milliseconds_a_step": one.milliseconds,
            "residual": self.residual,
            "error": self.error,
        }


@dataclass(frozen=True)
class FokkerPlanck(Study):
    """Networks with and without the residual in their loss."""

    steps: int = 2500
    weights: tuple[float, ...] = (0.1, 1.0)
    tested: int = 4000
    side: int = 81

    name: ClassVar[str] = "fokker-planck"
    title: ClassVar[str] = "The score Fokker-Planck equation as a regulariser"

    @classmethod
    def quick(cls, seed: int = 0) -> Self:
        """Return fewer steps and one weight."""
        return cls(seed, steps=150, weights=(1.0,), tested=500, side=41)

    @property
    def times(self) -> Tensor:
        """The twelve noise levels, even in the logarithm of the signal-to-noise ratio."""
        share = (torch.arange(12, dtype=torch.float64) + 0.5) / 12
        return NOISING.clock.time(UniformLogSNR(NOISING, FIRST).at(share))

    def run(self) -> Findings:
        """Train and measure."""
        ring = Ring()
        with one_thread():
            nets = {PLAIN: train(ring, 0.0, self.steps, self.generator(0))}
            for weight in self.weights:
                name = _named(weight)
                nets[name] = train(ring, weight, self.steps, self.generator(0))
            ratio = nets[name].milliseconds / nets[PLAIN].milliseconds
            steps = max(1, round(self.steps * ratio))
            nets[LONGER] = train(ring, 0.0, steps, self.generator(0))
            found = {name: self.measure(ring, net) for name, net in nets.items()}
            exact, printed = self.measure_truth(ring)
            maps = {name: self.map(nets[name]) for name in (PLAIN, name)}
        return Findings(
            numbers={
                "times": self.times,
                "cost_ratio": ratio,
                "exact_score": {"residual": exact, "residual_as_printed": printed},
                "networks": {name: one.numbers() for name, one in found.items()},
            },
            figures={"figure": self.draw(ring, found, maps)},
            claims=self.claims(found, exact, printed),
            text=self.report(found, exact, printed),
        )

    def draws(self, ring: Ring) -> tuple[Tensor, Tensor]:
        """Return points of every noise level and their times, the same for all networks."""
        generator, found = self.generator(1), []
        for t in self.times:
            x = ring.sample(self.tested, generator)
            found.append(PROCESS.transition(t).sample(x, generator=generator))
        return torch.cat(found), self.times.repeat_interleave(self.tested)

    def measure(self, ring: Ring, net: Trained) -> Measured:
        """Return residuals and errors of a network."""
        x, t = self.draws(ring)
        residual = _in_pieces(lambda y, s: scaled_residual(net.score, y, s.float()), x, t)
        wrong = PROCESS.variance(t).sqrt()[:, None] * (net.score(x, t) - ring.score(x, t))
        return Measured(net, np.sqrt(self._by_level(residual)), self._by_level(wrong))

    def measure_truth(self, ring: Ring) -> tuple[Array, Array]:
        """Return the residuals of the exact score, in the equation of ∇log ρ_t and as printed."""
        residual, (x, t) = FokkerPlanckResidual(PROCESS), self.draws(ring)
        scale = PROCESS.variance(t)[:, None] ** 1.5
        right = _in_pieces(lambda y, s: residual.score(ring.score, y, s), x.double(), t)
        printed = _in_pieces(lambda y, s: residual.ratio(ring.score, y, s), x.double(), t)
        return np.sqrt(self._by_level(scale * right)), np.sqrt(self._by_level(scale * printed))

    def _by_level(self, values: Tensor) -> Array:
        """Return mean squares over the points of each noise level."""
        squares = values.double().square().reshape(len(self.times), -1)
        mean: Array = squares.mean(dim=1).numpy()
        return mean

    def map(self, net: Trained) -> Array:
        """Return the size of the residual on a grid, at one noise level."""
        x = _grid(self.side)
        residual = scaled_residual(net.score, x.float(), torch.full((len(x),), SHOWN))
        size: Array = residual.double().norm(dim=1).reshape(self.side, self.side).numpy()
        return size

    def claims(self, found: dict[str, Measured], exact: Array, printed: Array) -> list[Claim]:
        """Return the claims."""
        late = self.times.numpy() > LATE
        plain, last, longer = found[PLAIN], found[_named(self.weights[-1])], found[LONGER]
        return [
            Claim("the exact score has no residual", float(exact.max()), 1e-6),
            Claim(
                "in the equation as printed, with ∇log ρ_t, it has one at every noise level",
                0.01,
                float(printed.min()),
            ),
            Claim(
                "with the regulariser the mean residual is less than two thirds of that without",
                float(last.residual.mean()),
                float(plain.residual.mean()) * 2 / 3,
            ),
            Claim(
                f"and after as many steps the error at t > {LATE:g} is lower",
                float(last.error[late].mean()),
                float(plain.error[late].mean()),
            ),
            Claim(
                "in the same time, denoising alone has a lower error on average over noise levels",
                float(longer.error.mean()),
                float(last.error.mean()),
            ),
        ]

    def draw(self, ring: Ring, found: dict[str, Measured], maps: dict[str, Array]) -> Figure:
        """Return the figure: density and maps of residuals; residuals, errors and costs."""
        figure = plt.figure(figsize=(WIDTH, 6.4), layout="constrained")
        panels = figure.subplots(2, 3)
        _density(ring, panels[0, 0])
        ceiling = float(np.quantile(maps[PLAIN], 0.98))
        for panel, (name, sizes) in zip(panels[0, 1:], maps.items(), strict=True):
            image = panel.imshow(
                sizes,
                origin="lower",
                extent=(*LIMITS[0], *LIMITS[1]),
                vmin=0,
                vmax=ceiling,
                cmap="magma_r",
                interpolation="bilinear",
            )
            _contours(ring, panel)
            panel.set_title(f"residual at t = {SHOWN:g}, {name}", fontsize=10)
        figure.colorbar(image, ax=panels[0, 1:].tolist(), shrink=0.85, label="σ³‖residual‖")
        for panel in panels[0]:
            panel.set(xticks=[-2, 0, 2], yticks=[-2, 0, 2], xlim=LIMITS[0], ylim=LIMITS[1])
            panel.set_aspect("equal")
        times = self.times.numpy()
        for (name, one), colour in zip(found.items(), _colours(found), strict=True):
            style = "o--" if name == LONGER else "o-"
            for panel, values in ((panels[1, 0], one.residual), (panels[1, 1], one.error)):
                panel.plot(times, values, style, color=colour, lw=1.6, ms=3, label=name)
        panels[1, 0].set_title("residual by noise level", fontsize=10)
        panels[1, 1].set_title("excess error of the predicted noise", fontsize=10)
        for panel in panels[1, :2]:
            panel.set(xscale="log", yscale="log", xlabel="t")
            panel.yaxis.set_minor_formatter(NullFormatter())
        panels[1, 0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panels[1, 0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panels[1, 0].legend(frameon=False, fontsize=8)
        self._costs(panels[1, 2], found)
        for panel in panels[1]:
            panel.spines[["top", "right"]].set_visible(False)
        return figure

    def _costs(self, panel: Axes, found: dict[str, Measured]) -> None:
        middle = float(np.median([one.error.mean() for one in found.values()]))
        for (name, one), colour in zip(found.items(), _colours(found), strict=True):
            x, y = one.trained.seconds, float(one.error.mean())
            panel.plot(
                x, y, "o", ms=8, color=colour, mfc="w" if name == LONGER else colour, mew=1.6
            )
            panel.annotate(
                f"{name}\n{one.trained.steps:,} steps of {one.trained.milliseconds:.1f} ms",
                (x, y),
                (0, 9 if y > middle else -9),
                textcoords="offset points",
                ha="center",
                va="bottom" if y > middle else "top",
                fontsize=8,
            )
        panel.set(xscale="log", yscale="log", xlabel="seconds of training, one core")
        panel.xaxis.set_minor_formatter(NullFormatter())  # after the scale, which sets its own
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.margins(0.45, 0.3)
        panel.set_title("excess error, mean over noise levels", fontsize=10)

    def report(self, found: dict[str, Measured], exact: Array, printed: Array) -> str:
        """Return the text of the report."""
        late = self.times.numpy() > LATE
        rows = [
            [
                *(name, f"{one.trained.steps:,}", f"{one.trained.milliseconds:.1f}"),
                *(f"{one.residual[~late].mean():.3f}", f"{one.residual[late].mean():.3f}"),
                *(f"{one.error[~late].mean():.2e}", f"{one.error[late].mean():.2e}"),
            ]
            for name, one in found.items()
        ]
        head = ["network", "steps", "ms a step", f"residual, t < {LATE:g}", f"t > {LATE:g}"]
        head += [f"error, t < {LATE:g}", f"t > {LATE:g}"]
        plain, last = found[PLAIN], found[_named(self.weights[-1])]
        return self.text(
            steps=f"{self.steps:,}",
            exact=f"{exact.max():.1e}",
            least=f"{printed.min():.2g}",
            most=f"{printed.max():.2g}",
            factor=f"{last.trained.milliseconds / plain.trained.milliseconds:.0f}",
            before=f"{plain.residual.mean():.3f}",
            after=f"{last.residual.mean():.3f}",
            table=table(head, rows),
        )


def _in_pieces(f: Callable[[Tensor, Tensor], Tensor], x: Tensor, t: Tensor) -> Tensor:
    """Return f of points and times, `ROWS` at once to bound the memory."""
    pieces = zip(torch.split(x, ROWS), torch.split(t, ROWS), strict=True)
    return torch.cat([f(*piece) for piece in pieces])


def _named(weight: float) -> str:
    return f"with the residual × {weight:g}"


def _grid(side: int) -> Tensor:
    """Return the points of the maps, ``(side², 2)``, row by row."""
    x, y = (torch.linspace(*ends, side, dtype=torch.float64) for ends in LIMITS)
    return torch.cartesian_prod(y, x).flip(1)


def _contours(ring: Ring, panel: Axes) -> None:
    """Draw contours of the density."""
    side = 81
    x = _grid(side)
    density = ring.log_density(x, torch.full((len(x),), SHOWN)).exp().reshape(side, side)
    ends = [np.linspace(*limits, side) for limits in LIMITS]
    panel.contour(*ends, density, levels=4, colors="w", linewidths=0.7, alpha=0.8)


def _density(ring: Ring, panel: Axes) -> None:
    """Draw the density and the scores at the noise level of the maps."""
    side = 161
    x = _grid(side)
    log_density = ring.log_density(x, torch.full((len(x),), SHOWN)).reshape(side, side)
    density_image(log_density.numpy(), LIMITS, panel)
    few = _grid(15)
    arrows = ring.score(few, torch.full((len(few),), SHOWN))
    panel.quiver(*few.T, *arrows.T, color=INK, width=0.004, alpha=0.8, scale=110)
    panel.set_title(f"density and score at t = {SHOWN:g}", fontsize=10)
    panel.set(xlabel="", ylabel="")


def _colours(found: dict[str, Measured]) -> list[str]:
    return [INK, *COLOURS[: len(found) - 2], GREY]


STUDY = FokkerPlanck
