"""The coordinates in which a reference predicts noise, and networks beside it are trained.

In the coordinates z of a space, noised rows are αz + σε with the same noise in all directions, and
the level of the noise is the log signal-to-noise ratio λ = log α²/σ². The reference predicts ε at
every level.

The noise that is added to a mixture of Gaussians may be isotropic in any linear coordinates,
because a mixture stays a mixture. They are whitened ones: where columns nearly determine each
other, noise that is isotropic in the columns themselves hides this at the smallest levels already.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property, singledispatch

import torch
from torch import Tensor

from oism.flow import FittedModel
from oism.process import wrapped
from oism.tables._blended_table import BlendedTable
from oism.tables._chart import Chart, WhiteChart
from oism.tables._mixture import MixtureModel
from oism.tables._model import TableModel
from oism.tables._network_blend import Blend
from oism.tables._network_model import BlendedMixture, BlendedModel, WhiteMixture

LEAST_NOISE = 0.01
"""The least noise at which networks are used, in standard deviations of whitened columns."""

LOWEST_LEVEL = -4.0
"""The level of the largest noise: the signal has a seventh of the noise's standard deviation."""

LARGEST_TORUS_NOISE = 2.0
"""The largest noise on the torus: waves are down to e^{-2}."""

TORUS_WAVES = 8
"""The number of waves that encode a column on the torus."""

QUANTILES = [0.1587, 0.5, 0.8413]
INNER = 10.0
"""Rows within so many robust standard deviations, from these quantiles, determine the whitening."""

PART_VARIANCES = 0.25, 4.0
"""The range of variances of a part's rows, whitened by all rows, that its whitening corrects."""

FAR = 12.0
"""Rows further away than this, in standard deviations of whitened columns, are not trained on."""


class NoiseSpace(ABC):
    """A reference in coordinates in which noise is isotropic."""

    waves: int = 0
    """The number of waves by which a network encodes a column, see `RowNetwork`."""

    chart: Chart
    ends: tuple[float, float]
    """The levels of the least and of the largest noise at which networks are used."""

    @property
    def reflections(self) -> Tensor:
        """Which columns are reflected: ``(d,)``."""
        return self.chart.reflections

    @abstractmethod
    def of_part(self, reference: FittedModel, train: Tensor) -> NoiseSpace:
        """Return another reference, fitted to a part of the rows, in nearly the same coordinates.

        The networks of all parts are averaged in the coordinates of all rows.
        """

    @abstractmethod
    def coordinates(self, x: Tensor) -> Tensor:
        """Return z for the rows that can be trained on: ``(m, d)``."""

    @abstractmethod
    def scales(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """Return α and σ."""

    @abstractmethod
    def noise(self, z: Tensor, level: Tensor) -> Tensor:
        """Return what the reference predicts at noised rows, at one level: ``(n, d)``."""

    @abstractmethod
    def blended(self, blend: Blend, steps: int, background: float) -> BlendedModel:
        """Return the reference with networks beside it."""

    @abstractmethod
    def steps(self) -> tuple[int, ...]:
        """Return the numbers of steps of the flow that are tried in turn."""


@singledispatch
def noise_space(reference: FittedModel, rows: Tensor) -> NoiseSpace:  # noqa: ARG001
    """Return the space of a reference for rows ``(n, d)`` of the data."""
    raise TypeError(
        "reference must be a MixtureModel or a TableModel on the torus, got "
        f"{type(reference).__name__}"
    )


class MixtureSpace(NoiseSpace):
    """A mixture of Gaussians in whitened columns."""

    ends = (-2 * math.log(LEAST_NOISE), LOWEST_LEVEL)

    chart: WhiteChart

    def __init__(self, reference: MixtureModel, chart: WhiteChart) -> None:
        self.reference, self.chart = reference, chart

    def of_part(self, reference: FittedModel, train: Tensor) -> NoiseSpace:
        """Return another mixture, in the columns whitened by the rows of its part.

        A network predicts a standard normal distribution before it is trained. Whitened by all
        rows, this would be a Gaussian that has seen the rows held out. The two whitenings differ by
        a symmetric matrix, so directions keep their meaning.
        """
        other = noise_space(reference, torch.zeros(1, self.chart.dim, dtype=torch.float64))
        other.chart = self.chart
        z = self.coordinates(train)
        if len(z) > 1:
            mean = z.mean(dim=0)
            values, vectors = torch.linalg.eigh((z - mean).mT @ (z - mean) / len(z))
            root = values.clamp(*PART_VARIANCES).sqrt()
            own = self.chart
            other.chart = WhiteChart(
                own.to_data(mean[None])[0],
                ((vectors / root) @ vectors.mT @ own.matrix).contiguous(),
                (own.inverse @ (vectors * root) @ vectors.mT).contiguous(),
                own.deviations,
            )
        return other

    @cached_property
    def _white(self) -> WhiteMixture:
        return WhiteMixture.of(self.reference, self.chart)

    def coordinates(self, x: Tensor) -> Tensor:
        """Return whitened rows without outliers."""
        z = self.chart.to_process(x)
        return z[(z.abs() <= FAR).all(dim=1)]

    def scales(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """Return α and σ with α² + σ² = 1."""
        return torch.sigmoid(level).sqrt(), torch.sigmoid(-level).sqrt()

    def noise(self, z: Tensor, level: Tensor) -> Tensor:
        """Return what the mixture predicts."""
        return self._white.noise(z, level)

    def blended(self, blend: Blend, steps: int, background: float) -> BlendedMixture:
        """Return the mixture with networks beside it."""
        return BlendedMixture(self.reference, self.chart, blend, steps, background)

    def steps(self) -> tuple[int, ...]:
        """Return multiples of the intervals between levels, or half of them."""
        return 12, 24, 48, 96


@noise_space.register
def _(reference: MixtureModel, rows: Tensor) -> NoiseSpace:
    return MixtureSpace(reference, white_chart(rows))


def white_chart(rows: Tensor) -> WhiteChart:
    """Return the chart that gives rows mean 0 and covariance I, those near the median at least."""
    x = rows.double()
    low, middle, high = torch.quantile(x, torch.tensor(QUANTILES).to(x), dim=0)
    near = ((x - middle).abs() <= INNER * 0.5 * (high - low)).all(dim=1)
    x = x[near] if int(near.sum()) > len(x) // 2 else x
    mean = x.mean(dim=0)
    return WhiteChart.of(mean, (x - mean).mT @ (x - mean) / len(x), rotate=True)


class TorusSpace(NoiseSpace):
    """A model on the torus, in the coordinates of a box."""

    waves = TORUS_WAVES

    def __init__(self, reference: TableModel, chart: Chart) -> None:
        self.reference, self.chart = reference, chart
        first = reference.clock.time(reference.span[0])
        self.ends = -math.log(2 * float(first)), -2 * math.log(LARGEST_TORUS_NOISE)

    def of_part(self, reference: FittedModel, train: Tensor) -> NoiseSpace:  # noqa: ARG002
        """Return another model; noise has the size that it has in these coordinates."""
        other = noise_space(reference, torch.zeros(0, self.chart.dim, dtype=torch.float64))
        other.chart, other.ends = self.chart, self.ends
        return other

    def coordinates(self, x: Tensor) -> Tensor:
        """Return points of the torus; rows outside of the box are left out."""
        return self.chart.to_process(x[self.chart.uses(x)])

    def scales(self, level: Tensor) -> tuple[Tensor, Tensor]:
        """Return 1 and σ."""
        return torch.ones_like(level), torch.exp(-0.5 * level)

    def noise(self, z: Tensor, level: Tensor) -> Tensor:
        """Return what the model predicts; its own box may differ a little from this one."""
        low, high = self.reference.times
        t = (0.5 * torch.exp(-level)).clamp(low, high)
        score = self.reference.score(self.chart.to_data(wrapped(z)), t) * self.chart.units.to(z)
        if bool(self.reflections.any()):
            # Rows are within their bounds: the sign belongs to the coordinate.
            score = torch.where(self.reflections & (wrapped(z) < 0), -score, score)
        return -torch.exp(-0.5 * level).to(z) * score

    def blended(self, blend: Blend, steps: int, background: float) -> BlendedTable:  # noqa: ARG002
        """Return the model with networks beside it; it has a background of its own."""
        own = self.reference
        return BlendedTable(own.operator_score, own.chart, own.background, own.span, steps, blend)

    def steps(self) -> tuple[int, ...]:
        """Return the reference's number of steps, and multiples."""
        own = self.reference.steps
        return own, 2 * own, 4 * own, 8 * own


@noise_space.register
def _(reference: TableModel, rows: Tensor) -> NoiseSpace:  # noqa: ARG001
    if not reference.chart.can_condition:
        raise TypeError(
            "reference must be a model on the torus, got one under "
            f"{type(reference.process.inner).__name__}"
        )
    return TorusSpace(reference, reference.chart)
