"""Kernel density estimates of one column with bounds, whose kernels have the same bounds.

A step of a Markov chain moves a value y by way of a number k of successes or events:

    [0, 1]:    k ~ Binomial(m, y),     x | k ~ Beta(k + a, m - k + b)
    (0, ∞):    k ~ Poisson(y),         x | k ~ Gamma(k + a)

The first is reversible for Beta(a, b), and its eigenfunctions are the Jacobi polynomials with the
eigenvalues Π_{i<n} (m - i)/(m + a + b + i) = e^{λ_n t} (1 + O(t)) for t = 2/m: nearly the step of
Jacobi's diffusion over the time t, with a closed form for every m. The second is the transition of
dX = a dt + √(2X) dW over the time 1, with the scale s of the data as its only parameter. Rows y_i
that have made a step have the density

    p(x) = Σ_k c_k p(x | k),    c_k = (1/n) Σ_i p(k | y_i),

a mixture of fixed components: it is positive, has the mass 1 and exact samples, and no rows are
kept. Near an end it behaves as x^{a-1}. Its width √(2x(1 - x)/m), or √(2sx), is that of the largest
held-out likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from oism._core import checks, draws
from oism.estimation import gathered
from oism.storage import storable
from oism.tables._end_chart import EndChart
from oism.tables._pool import Densities

SIZES = tuple(2.0**power for power in range(3, 12))
"""The numbers m that are compared, then their neighbours by factors √2: 8 to 2,900."""

LARGEST = 4096.0

GROWTH = 0.4
"""The power of the number of rows by which m grows: the width of a KDE falls as n^{-1/5}."""

CHOICE_ROWS = 2000
"""The number of rows by which m is chosen; of more, evenly spaced ones in increasing order."""

TAIL = 10.0
"""The standard deviations of a Poisson variable beyond which numbers are left out."""

ENTRIES = 2**21
"""The number of probabilities held at a time."""


@storable
@dataclass(frozen=True, eq=False)
class EndStep:
    """One step of the chain in the coordinate u of a chart; numbers k = 0, …, ``last``.

    On [0, 1] ``last`` is m. On (0, ∞) values beyond ``most`` count as ``most``.
    """

    chart: EndChart
    a: float
    b: float
    last: int
    most: float = math.inf

    @classmethod
    def of(
        cls,
        bounds: tuple[float, float],
        powers: tuple[float, float],
        size: float,
        reach: float,
    ) -> EndStep:
        """Return the step for bounds, one of which may be infinite.

        ``reach`` is the largest distance of a value from a single bound. It is ``size`` scales.
        """
        low, high = bounds
        if math.isfinite(low) and math.isfinite(high):
            return cls(EndChart.interval(low, high), *powers, round(size))
        bound, side = (low, 1.0) if math.isfinite(low) else (high, -1.0)
        chart = EndChart.half_line(bound, side, reach / size, reach)
        return cls(chart, *powers, math.ceil(size + TAIL * math.sqrt(size) + TAIL), size)

    def _terms(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield k log u + (m - k) log(1 - u), or k log u - u, with u, in pieces of rows."""
        u = self.chart.to_process(x)
        k = torch.arange(self.last + 1, dtype=torch.float64)
        for piece in torch.split(u, max(1, ENTRIES // (self.last + 1))):
            if self.chart.boxed:
                yield (
                    torch.addmm(self.last * torch.log1p(-piece), torch.logit(piece), k[None]),
                    piece,
                )
            else:
                yield piece.log() * k - piece, piece

    def numbers(self, x: Tensor) -> Iterator[Tensor]:
        """Yield P(k | x) for rows ``(n, 1)``, in pieces of rows: ``(r, last + 1)``."""
        k = torch.arange(self.last + 1, dtype=torch.float64)
        factorials = torch.lgamma(k + 1)
        if self.chart.boxed:
            factorials = factorials + factorials.flip(0) - factorials[-1]
        else:
            end = self.chart.to_data(torch.full_like(x, self.most))
            x = torch.minimum(x, end) if float(self.chart.opening) > 0 else torch.maximum(x, end)
        for terms, _ in self._terms(x):
            yield (terms - factorials).exp_()

    def densities(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return log Σ_k c_k p(x | k) at rows ``(n, 1)`` for c = ``weights``: ``(n,)``."""
        k = torch.arange(self.last + 1, dtype=torch.float64)
        log = weights.log() - torch.lgamma(k + self.a)
        if self.chart.boxed:
            log = log - torch.lgamma(self.last - k + self.b)
            log = log + math.lgamma(self.last + self.a + self.b)
        found = []
        for terms, u in self._terms(x):
            end = (self.a - 1) * u.log()
            if self.chart.boxed:
                end = end + (self.b - 1) * torch.log1p(-u)
            found.append(torch.logsumexp(terms + log, dim=1) + end[:, 0])
        total = torch.cat(found) + self.chart.log_jacobian if found else x.new_zeros(0)
        return torch.where(self.chart.allows(x), total, -math.inf)

    def draw(self, k: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return one row for each number k: ``(n, 1)``."""
        u = draws.gamma(k + self.a, generator)
        if self.chart.boxed:
            other = draws.gamma(self.last - k + self.b, generator)
            u = u / (u + other)
        return self.chart.to_data(u[:, None])


@storable
class EndKernels(Densities):
    """The density of rows that have made a step; ``weights`` ``(last + 1,)`` are those of k."""

    count = 1
    weights: Tensor

    def __init__(self, step: EndStep, weights: Tensor) -> None:
        super().__init__()
        checks.instance(step, EndStep, "step")
        if weights.shape != (step.last + 1,):
            raise ValueError(f"weights must be {step.last + 1}, got shape {tuple(weights.shape)}")
        self.step = step
        self.register_buffer("weights", weights.double())

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"step": self.step, "weights": self.weights}

    def facts(self) -> dict[str, Any]:
        """Return name, powers at the ends and number of components as JSON values."""
        kind = "Beta" if self.step.chart.boxed else "Gamma"
        return {"name": f"{kind} kernels", "a": self.step.a, "b": self.step.b,
                "components": self.step.last + 1}  # fmt: skip

    def log_densities(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401, ARG002
        """Return the log-density at rows: ``(n, 1)``; -∞ beyond bounds."""
        return self.step.densities(x.double().cpu(), self.weights.cpu())[:, None].to(x.device)

    def sample(
        self,
        member: Tensor,
        generator: torch.Generator | None,
        **settings: Any,  # noqa: ANN401, ARG002
    ) -> Tensor:
        """Return one row for each entry of ``member``: ``(n, 1)``, exact."""
        k = draws.multinomial(self.weights.cpu(), len(member), generator)
        return self.step.draw(k.double(), generator)


class EndKernelSums:
    """Σ_i w_i p(k | y_i) over rows that come in batches."""

    def __init__(self, step: EndStep) -> None:
        self.step = step
        self.sums = torch.zeros(step.last + 1, dtype=torch.float64)

    def update(self, rows: Tensor, weights: Tensor) -> Self:
        """Add rows ``(n, 1)``, and return the sums."""
        first = 0
        for chance in self.step.numbers(rows):
            self.sums += weights[first : first + len(chance)] @ chance
            first += len(chance)
        return self

    def across_processes(self) -> Self:
        """Return the sums of the rows of all processes."""
        result = type(self)(self.step)
        result.sums = torch.stack(gathered(self.sums)).sum(dim=0)
        return result

    def model(self) -> EndKernels:
        """Return the density."""
        return EndKernels(self.step, self.sums / self.sums.sum())


@dataclass(frozen=True)
class EndKernelChoice:
    """Bounds, powers at the ends, and the size m that suits ``rows`` rows."""

    bounds: tuple[float, float]
    powers: tuple[float, float]
    reach: float
    size: float
    rows: float

    def step(self, n: float) -> EndStep:
        """Return the step for n rows."""
        size = min(self.size * (n / self.rows) ** GROWTH, LARGEST)
        return EndStep.of(self.bounds, self.powers, size, self.reach)

    def fitted(self, rows: Tensor, weights: Tensor) -> EndKernels:
        """Return the density of rows ``(n, 1)``."""
        return EndKernelSums(self.step(len(rows))).update(rows, weights).model()

    def held_out(self, rows: Tensor, weights: Tensor, fold: Tensor) -> float:
        """Return the sum of the log-densities of rows, each without those of its fold."""
        step = EndStep.of(self.bounds, self.powers, self.size, self.reach)
        parts = [fold == one for one in torch.unique(fold)]
        sums = [EndKernelSums(step).update(rows[own], weights[own]).sums for own in parts]
        total = 0.0
        for k, own in enumerate(parts):
            others = torch.stack(sums[:k] + sums[k + 1 :]).sum(dim=0)
            logs = step.densities(rows[own], others / others.sum())
            total += float(weights[own] @ logs.clamp(min=-1e3))
        return total


def choose_end_kernels(
    bounds: tuple[float, float],
    powers: tuple[float, float],
    rows: Tensor,
    weights: Tensor,
    fold: Tensor,
) -> EndKernelChoice:
    """Return the choice of m with the largest likelihood of rows ``(n, 1)`` without their folds."""
    some = rows[:, 0].argsort()[:: math.ceil(len(rows) / CHOICE_ROWS)]
    data = rows[some], weights[some], fold[some]
    folds = len(torch.unique(data[2]))
    low, high = bounds
    reach = float((rows - (low if math.isfinite(low) else high)).abs().max()) or 1.0
    first = EndKernelChoice(bounds, powers, reach, SIZES[0], len(some) * (1 - 1 / folds))
    found = {size: replace(first, size=size).held_out(*data) for size in SIZES}
    for factor in (0.5**0.5, 2**0.5):
        size = factor * max(SIZES, key=found.__getitem__)
        found[size] = replace(first, size=size).held_out(*data)
    return replace(first, size=max(found, key=found.__getitem__))
