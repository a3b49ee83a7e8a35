"""A process in the units of a table.

For a process dU = b(U) dt + L dW and a chart u = A(x - c), the table's rows move by

    dX = A⁻¹ b(A(X - c)) dt + A⁻¹L dW,

wrapped or reflected as the chart does. Noise has one size in all columns only where A⁻¹ = aI.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import matmul
from oism.process import Domain, Measure, Process, Transition
from oism.tables._chart import Chart


@dataclass(frozen=True, eq=False)
class ChartedDomain(Domain):
    """The rows that a chart maps one to one."""

    chart: Chart

    def wrap(self, x: Tensor) -> Tensor:
        """Return each row in the range of the data."""
        return self.chart.to_data(self.chart.to_process(checks.points(x, dim=self.chart.dim)))

    def contains(self, x: Tensor) -> Tensor:
        """Return which rows the chart covers."""
        return self.chart.covers(checks.points(x, dim=self.chart.dim))


@dataclass(frozen=True, eq=False)
class ChartedMeasure(Measure):
    """A measure in the coordinates of a chart, per unit of the data."""

    inner: Measure
    chart: Chart

    @property
    def is_probability(self) -> bool:  # type: ignore[override]  # that of the inner one
        """Whether the mass is 1."""
        return self.inner.is_probability

    def score(self, x: Tensor) -> Tensor:
        """Return the score in the data's units."""
        return self.chart.pull_score(self.inner.score(self.chart.to_process(x)))

    def log_density(self, x: Tensor) -> Tensor:
        """Return the log-density per unit of the data."""
        return self.inner.log_density(self.chart.to_process(x)) + self.chart.log_jacobian

    def _fill(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        return self.chart.to_data(self.inner._fill(x, generator))

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return the rule of the inner measure at rows of the table."""
        points, weights = self.inner.quadrature(dim, nodes)
        return self.chart.to_data(points), weights


@dataclass(frozen=True, eq=False)
class ChartedTransition(Transition):
    """The distribution of a row at a time, given the row at time 0."""

    inner: Transition
    chart: Chart

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean of the path before it is wrapped or reflected."""
        u = self.chart.to_process(checks.points(x))
        return x + matmul(self.inner.mean(u) - u, self.chart.inverse.to(x).mT)

    def covariance(self, dim: int) -> Tensor:
        """Return A⁻¹ΣA⁻ᵀ."""
        inverse = self.chart.inverse
        return matmul(matmul(inverse, self.inner.covariance(dim)), inverse.mT)

    def sample(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return a row for each row of ``x``."""
        u = self.chart.to_process(checks.points(x))
        return self.chart.to_data(self.inner.sample(u, generator=generator))

    def log_density(self, y: Tensor, x: Tensor) -> Tensor:
        """Return the log-density per unit of the data, summed over the images of reflections."""
        v, u = self.chart.to_process(y), self.chart.to_process(x)
        signs = [(1.0, -1.0) if mirrored else (1.0,) for mirrored in self.chart.reflections]
        images = [self.inner.log_density(v * v.new_tensor(s), u) for s in itertools.product(*signs)]
        # A reflected density counts twice in the Jacobian, and once for each image here.
        return torch.logsumexp(torch.stack(images), dim=0) + (
            self.chart.log_jacobian - math.log(len(images))
        )

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        """Return the rule of the inner transition, its offsets in data units."""
        offsets, weights = self.inner.quadrature(dim, nodes)
        return matmul(offsets, self.chart.inverse.mT), weights


@dataclass(frozen=True, eq=False)
class ChartedProcess(Process):
    """A process that acts on the rows of a table through a chart."""

    inner: Process
    chart: Chart

    @property
    def domain(self) -> ChartedDomain:
        """The rows that the chart covers."""
        return ChartedDomain(self.chart)

    @property
    def invariant(self) -> ChartedMeasure:
        """The invariant measure per unit of the data."""
        return ChartedMeasure(self.inner.invariant, self.chart)

    def start(self, t: Tensor) -> ChartedMeasure:
        """Return the distribution that a flow from time t back to data starts from."""
        return ChartedMeasure(self.inner.start(t), self.chart)

    def drift(self, x: Tensor) -> Tensor:
        """Return A⁻¹ b(A(x - c))."""
        inner = self.inner.drift(self.chart.to_process(checks.points(x)))
        return matmul(inner, self.chart.inverse.to(x).mT)

    def _flow_drift_divergence(self, x: Tensor) -> Tensor | float:
        return self.inner._flow_drift_divergence(self.chart.to_process(x))

    def flow_drift(self, x: Tensor) -> Tensor:
        """Return A⁻¹ times that of the inner process."""
        inner = self.inner.flow_drift(self.chart.to_process(checks.points(x)))
        return matmul(inner, self.chart.inverse.to(x).mT)

    @property
    def has_constant_noise(self) -> bool:  # type: ignore[override]  # that of the inner one
        """Whether the noise does not depend on the row."""
        return self.inner.has_constant_noise

    def noise(self, dim: int) -> Tensor:
        """Return A⁻¹L."""
        return matmul(self.chart.inverse, self.inner.noise(dim))

    def noise_at(self, x: Tensor) -> Tensor:
        """Return A⁻¹L at the rows: ``(n, dim, k)``."""
        return matmul(self.chart.inverse.to(x), self.inner.noise_at(self.chart.to_process(x)))

    def _retract(self, x: Tensor) -> Tensor:
        if self.inner.has_constant_noise:
            return x
        return self.chart.to_data(self.inner._retract(self.chart.to_process(x)))

    def _transition(self, t: Tensor) -> ChartedTransition:
        return ChartedTransition(self.inner._transition(t), self.chart)
