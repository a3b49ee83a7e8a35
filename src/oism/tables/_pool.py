"""Pools of densities, p = Σ v_i p_i, with weights by the likelihood of held-out rows.

The likelihood of rows that the p_i were fitted without is concave in the weights v, and expectation
maximisation finds its maximum. The error of a pool, as a Kullback-Leibler divergence, is at most
the mean of those of its densities, and lower if these err in different places. A sample chooses a
density first, so samples are exact for the pool.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from oism._core import draws
from oism.flow import FittedModel, RungeKutta4, log_density
from oism.process import Process

GROUPS = 5

SUPPORT = 2.0
"""The standard errors by which densities that are not plain must improve a pool."""

PATH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""The numbers of steps for the weights of the pool that are tried."""


class Densities(nn.Module, ABC):
    """Densities p_1, …, p_m of points ``(n, d)``, computed together.

    ``settings`` are those of `FittedModel.log_density` and `FittedModel.sample`, for densities that
    follow a flow; others ignore them.
    """

    @property
    @abstractmethod
    def count(self) -> int:
        """The number m of densities."""

    @abstractmethod
    def log_densities(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401
        """Return the log-densities at points: ``(n, m)``."""

    @abstractmethod
    def sample(
        self,
        member: Tensor,
        generator: torch.Generator | None,
        **settings: Any,  # noqa: ANN401
    ) -> Tensor:
        """Return one point for each entry of ``member`` ``(n,)``, drawn from that density."""


class Single(Densities):
    """The density of one model."""

    count = 1

    def __init__(self, model: FittedModel) -> None:
        super().__init__()
        self.model = model

    def log_densities(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401
        """Return the log-densities of the model: ``(n, 1)``."""
        return self.model.log_density(x, **settings).double()[:, None]

    def sample(
        self,
        member: Tensor,
        generator: torch.Generator | None,
        **settings: Any,  # noqa: ANN401
    ) -> Tensor:
        """Return points of the model, float64."""
        return self.model.sample(len(member), generator, **settings).double()


class FlowDensity(Densities):
    """The density along the probability flow of a score, by default of a number of steps."""

    count = 1

    def __init__(self, score: FittedModel, steps: int) -> None:
        super().__init__()
        self.score, self.method = score, RungeKutta4(steps)

    def log_densities(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401
        """Return the log-densities: ``(n, 1)``."""
        method = settings.pop("method", None) or self.method
        return log_density(self.score.flow, x, method=method, **settings).double()[:, None]

    def sample(
        self,
        member: Tensor,
        generator: torch.Generator | None,
        **settings: Any,  # noqa: ANN401
    ) -> Tensor:
        """Return points, float64, by the flow or by the reverse SDE."""
        method = settings.pop("method", None) or self.method
        exact = {"dtype": torch.float64, **settings}
        return self.score.flow.sample(len(member), method=method, generator=generator, **exact)


class Invariant(Densities):
    """The invariant distribution of a process, for points of shape ``(dim,)``."""

    count = 1

    def __init__(self, process: Process, dim: int) -> None:
        super().__init__()
        self._measure, self._dim = process.invariant, dim

    def log_densities(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401, ARG002
        """Return the log-densities: ``(n, 1)``."""
        return self._measure.log_density(x.double())[:, None]

    def sample(
        self,
        member: Tensor,
        generator: torch.Generator | None,
        **settings: Any,  # noqa: ANN401, ARG002
    ) -> Tensor:
        """Return points, float64."""
        shape = (len(member), self._dim)
        return self._measure.sample(shape, generator=generator, dtype=torch.float64)


class Pool(nn.Module):
    """p = Σ v_i p_i for the densities of all ``parts``, with ``weights`` v of the sum 1."""

    weights: Tensor

    def __init__(self, parts: Sequence[Densities], weights: Tensor) -> None:
        super().__init__()
        count = sum(part.count for part in parts)
        if weights.shape != (count,):
            raise ValueError(f"weights must be {count}, got shape {tuple(weights.shape)}")
        if not (bool((weights >= 0).all()) and abs(float(weights.double().sum()) - 1) < 1e-6):
            raise ValueError(f"weights must be >= 0 with the sum 1, got {weights.tolist()}")
        self._parts = nn.ModuleList(parts)
        self.register_buffer("weights", weights.double())

    @property
    def parts(self) -> tuple[Densities, ...]:
        """The densities, several in some parts."""
        return tuple(cast("Densities", part) for part in self._parts)

    @property
    def shares(self) -> list[Tensor]:
        """The weights of each part."""
        return list(torch.split(self.weights, [part.count for part in self.parts]))

    def log_densities(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401
        """Return log(v_i p_i) at points ``(n, d)``: ``(n, m)``."""
        return log_densities(self.parts, x, **settings) + self.weights.log()

    @torch.no_grad()
    def log_density(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401
        """Return log p at points ``(n, d)``: ``(n,)``."""
        return torch.logsumexp(self.log_densities(x, **settings), dim=1)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> Tensor:
        """Return n points: each from a density drawn by its weight."""
        chosen = draws.multinomial(self.weights.cpu(), n, generator)
        first, places, points = 0, [], []
        for part in self.parts:
            own = ((chosen >= first) & (chosen < first + part.count)).nonzero()[:, 0]
            points.append(part.sample(chosen[own] - first, generator, **settings))
            places.append(own)
            first += part.count
        drawn = torch.cat(points)
        return drawn[torch.cat(places).argsort().to(drawn.device)]


def log_densities(parts: Sequence[Densities], x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401
    """Return the log-densities of all parts at points ``(n, d)``: ``(n, m)``."""
    return torch.cat([part.log_densities(x, **settings) for part in parts], dim=1)


def held_out_weights(
    fit: Callable[[Tensor], Sequence[Densities]],
    rows: Tensor,
    weights: Tensor,
    folds: Sequence[Tensor],
    most: int,
) -> tuple[Tensor, Sequence[Densities]]:
    """Return the weights of densities by the likelihood of rows that they were fitted without.

    Arguments are those of `held_out_logs`. The second result are the densities of the last fold,
    from which a fit to all rows may start.
    """
    logs, mass, parts = held_out_logs(fit, rows, weights, folds, most)
    return pool_weights(logs, mass)[0], parts


def held_out_logs(
    fit: Callable[[Tensor], Sequence[Densities]],
    rows: Tensor,
    weights: Tensor,
    folds: Sequence[Tensor],
    most: int,
) -> tuple[Tensor, Tensor, Sequence[Densities]]:
    """Return log-densities ``(k, m)`` of held-out rows, their weights, the densities of a fold.

    ``fit`` maps a mask ``(n,)`` of rows to the densities fitted to these. ``folds`` are masks of
    rows to hold out, of which at most ``most`` are used, evenly spaced: rows may be sorted.
    """
    logs, mass = [], []
    parts: Sequence[Densities] = ()
    for own in folds:
        index = own.nonzero()[:, 0]
        used = min(most, len(index))
        shown = index[torch.arange(used) * len(index) // max(used, 1)]
        parts = fit(~own)
        logs.append(log_densities(parts, rows[shown]))
        mass.append(weights[shown])
    return torch.cat(logs), torch.cat(mass), parts


def mean_gain(gains: Tensor, weights: Tensor) -> tuple[float, float]:
    """Return the weighted mean D of differences d ``(n,)`` and its standard error e.

        D = Σ_i w_i d_i / Σ_i w_i,    e² = m/(m - 1) Σ_i w_i² (d_i - D)² / (Σ_i w_i)²,

    with the effective number of rows m = (Σ_i w_i)²/Σ_i w_i².

    >>> mean_gain(torch.tensor([1.0, 2.0, 3.0]), torch.ones(3))
    (2.0, 0.577...)
    """
    share = weights / weights.sum()
    rows = 1 / float(share.square().sum())
    mean = float(share @ gains)
    square = float((share * (gains - mean)).square().sum())
    return mean, math.sqrt(rows / (rows - 1) * square) if rows > 1 else math.inf


def supported_weights(logs: Tensor, weights: Tensor, plain: Tensor) -> Tensor:
    """Return the weights of a pool whose less plain densities need support by held-out rows.

    From log-densities ``(n, m)`` of these rows. Densities that are not ``plain`` ``(m,)`` have the
    weight 0 unless the pool with them is better than that without by `SUPPORT` standard errors.
    """
    chance, own = pool_weights(logs, weights)
    if bool(plain.all()):
        return chance
    fewer, base = pool_weights(logs[:, plain], weights)
    gain, error = mean_gain(own - base, weights)
    if gain >= SUPPORT * error:
        return chance
    return torch.zeros_like(chance).masked_scatter(plain, fewer)


def notable(weights: Tensor, least: float, floor: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the numbers of densities of at least a weight, and their weights with the sum 1.

    ``floor`` ``(m,)`` is positive for densities that are always kept: their least weights.

    >>> notable(torch.tensor([0.5, 0.498, 0.002, 0.0]), 0.01, torch.tensor([0.0, 0.0, 0.0, 0.002]))
    (tensor([0, 1, 3]), tensor([0.5000, 0.4980, 0.0020]))
    """
    floor = torch.zeros_like(weights) if floor is None else floor.to(weights)
    raised = torch.maximum(weights, floor)
    kept = ((raised >= least) | (floor > 0)).nonzero()[:, 0]
    return kept, raised[kept] / raised[kept].sum()


def pool_weights(log_densities: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the weights of the models of a pool from log-densities ``(n, m)`` of held-out rows.

    Steps of expectation maximisation from equal weights lead to the largest likelihood of these
    rows, and with many models and few rows beyond what new rows support. So the number of steps is
    chosen by cross-validation over five groups of the rows. The second result, ``(n,)``, are the
    log-densities of the pool with weights from the other groups.

    >>> logs = torch.tensor([[0.0, -1.0], [0.0, -1.0], [-1.0, 0.0]]).repeat(50, 1)
    >>> pool_weights(logs)[0]
    tensor([0.8..., 0.1...])
    """
    n = len(log_densities)
    weights = torch.ones_like(log_densities[:, 0]) if weights is None else weights
    group = torch.arange(n) % min(GROUPS, n)
    found = log_densities.new_zeros(len(PATH), n)
    for one in range(int(group.max()) + 1):
        own = group == one
        others = ~own if n > 1 else own
        for k, chance in enumerate(weight_path(log_densities[others], weights[others], PATH)):
            logs = log_densities[own] + chance.clamp(min=1e-300).log()
            found[k, own] = torch.logsumexp(logs, dim=1)
    best = int((found @ weights).argmax())
    *_, chance = weight_path(log_densities, weights, PATH[: best + 1])
    return chance, found[best]


def weight_path(logs: Tensor, weights: Tensor, path: Sequence[int]) -> Iterator[Tensor]:
    """Yield the weights after numbers of steps of expectation maximisation."""
    chance = torch.full_like(logs[0], 1 / logs.shape[1])
    ratio = (logs - logs.amax(dim=1, keepdim=True)).exp()
    share, done = weights / weights.sum(), 0
    for steps in path:
        for _ in range(steps - done):
            chance = chance * (share / (ratio @ chance) @ ratio)
        done = steps
        yield chance
