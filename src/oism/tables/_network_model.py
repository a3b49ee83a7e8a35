"""Models that blend the scores of a mixture of Gaussians with those of networks.

A mixture is exact at all noise levels of the Ornstein-Uhlenbeck process, in any linear coordinates;
here in whitened ones. With λ = log α²/σ², s = -ε̂/σ and η = ε̂_net - ε̂_ref, the
flow of the blend and the logarithm of its density ρ relative to the reference's change by

    dz/dλ = ½(σ²z - σ(ε̂_ref + cη)),      d log(ρ/ρ_ref)/dλ = -½c(⟨η, ε̂_ref⟩ - σ∇·η)

along its paths. Both densities agree where the noise is largest: there the flow starts from the
reference. So only the correction is integrated, and where c = 0 nothing is. From no noise to the
first level the flow is that of the reference, whose densities at both ends are known.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from oism._core import checks, draws
from oism._core.progress import progress_bar
from oism._core.transforms import in_parallel, threads_apart
from oism.flow import Divergence, FittedModel, OrdinaryMethod, StochasticMethod
from oism.process import Clock, OrnsteinUhlenbeck, VariancePreserving
from oism.storage import storable
from oism.tables._chart import WhiteChart
from oism.tables._mixture import MixtureModel
from oism.tables._network_blend import Blend
from oism.tables._process import ChartedProcess

ROWS = 512
"""The number of rows that follow the flow at a time: their Jacobians stay in the cache."""

FIRST_STEPS = 6
"""The number of steps of the reference's flow from no noise to the first level."""


@dataclass(frozen=True, eq=False)
class WhiteMixture:
    """The noise that a mixture of Gaussians predicts, by products of matrices.

    log(w_k N_k), s_k and ‖s_k‖² are quadratic in z. With the precisions P_k of the components at a
    level, s_k = P_k(αm_k - z): all components at all rows need no array of rows, components and
    columns.
    """

    log_weights: Tensor  # (k,)
    means: Tensor  # (k, d)
    values: Tensor  # (k, d), of the covariances
    vectors: Tensor  # (k, d, d)

    @classmethod
    def of(cls, model: MixtureModel, chart: WhiteChart) -> WhiteMixture:
        """Return a mixture in the coordinates of a chart."""
        # u = (x - centre)/scale and z = A(x - c), so z = A scale u + A(centre - c).
        matrix = chart.matrix * model.scale
        means = model.means.cpu() @ matrix.mT + chart.to_process(model.centre[None])
        values, vectors = torch.linalg.eigh(matrix @ model.covariances.cpu() @ matrix.mT)
        return cls(model.weights.cpu().log(), means, values, vectors)

    def noise(self, z: Tensor, level: Tensor) -> Tensor:
        """Return ε̂ at rows and one level: ``(n, d)``."""
        return self._noise_and_share(z, level)[0]

    def noise_and_divergence(self, z: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        """Return ε̂ and its divergence ``(n,)``.

        With responsibilities r_k, ∇·s = Σ_k r_k(‖s_k‖² - tr P_k) - ‖s‖².
        """
        noise, share, precision, linear, products = self._noise_and_share(z, level)
        twice = (precision @ linear[..., None])[..., 0]
        squares = _quadratic(
            products, z, linear.square().sum(dim=1), -2 * twice, precision @ precision
        )
        traces = precision.diagonal(dim1=1, dim2=2).sum(dim=1)
        sigma = torch.sigmoid(-level).sqrt()
        curvature = (share * (squares - traces)).sum(dim=1)
        return noise, -sigma * curvature + noise.square().sum(dim=1) / sigma

    def score(self, z: Tensor, level: Tensor) -> Tensor:
        """Return the score, also without noise, at an infinite level: ``(n, d)``."""
        return self._score_and_share(z, level)[0]

    def _noise_and_share(
        self, z: Tensor, level: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        score, share, precision, linear, products = self._score_and_share(z, level)
        return -torch.sigmoid(-level).sqrt() * score, share, precision, linear, products

    def _score_and_share(
        self, z: Tensor, level: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return s, r_k, P_k, P_kαm_k, and the products of the entries of z."""
        alpha = torch.sigmoid(level).sqrt()
        variance = alpha.square() * self.values + torch.sigmoid(-level)
        precision = (self.vectors / variance[:, None]) @ self.vectors.mT
        means = alpha * self.means
        linear = (precision @ means[..., None])[..., 0]
        constant = self.log_weights - 0.5 * (variance.log().sum(dim=1) + (linear * means).sum(1))
        products = (z[:, :, None] * z[:, None]).flatten(1)
        terms = _quadratic(products, z, constant, linear, -0.5 * precision)
        share = torch.softmax(terms, dim=1)
        mean_precision = (share @ precision.flatten(1)).reshape(-1, *precision.shape[1:])
        score = share @ linear - (mean_precision @ z[..., None])[..., 0]
        return score, share, precision, linear, products


def _quadratic(
    products: Tensor, z: Tensor, constant: Tensor, linear: Tensor, square: Tensor
) -> Tensor:
    """Return a_k + ⟨b_k, z⟩ + ⟨z, C_kz⟩ at all rows: ``(n, k)``."""
    return constant + z @ linear.mT + products @ square.flatten(1).mT


class BlendedModel(FittedModel):
    """A reference and networks, blended at each noise level."""

    blend: Blend
    steps: int

    @abstractmethod
    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""


@storable
class BlendedMixture(BlendedModel):
    """A mixture of Gaussians and networks, blended at each noise level.

    Parameters
    ----------
    reference
        The mixture.
    chart
        The map to whitened columns, in which the noise has one size.
    blend
        The networks and their share, in these columns.
    steps
        The number of steps of the flow, even.
    background
        The probability of the reference itself, in (0, 1): a network is not reliable far from its
        rows, and this bounds log-densities from below.
    """

    reference: MixtureModel

    def __init__(
        self,
        reference: MixtureModel,
        chart: WhiteChart,
        blend: Blend,
        steps: int,
        background: float,
    ) -> None:
        super().__init__()
        checks.instance(reference, MixtureModel, "reference")
        checks.instance(chart, WhiteChart, "chart")
        self.reference, self.chart, self.blend = reference, chart, blend
        self.steps = checks.integer(steps, "steps", minimum=2)
        if self.steps % 2:
            raise ValueError(f"steps must be even, got {steps}")
        if not 0 < background < 1:
            raise ValueError(f"background must be in (0, 1), got {background!r}")
        self.background = background

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        names = ("reference", "chart", "blend", "steps", "background")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def white(self) -> WhiteMixture:
        """The reference in whitened columns."""
        return WhiteMixture.of(self.reference, self.chart)

    @cached_property
    def process(self) -> ChartedProcess:
        """The Ornstein-Uhlenbeck process of the whitened columns, in the data's units."""
        return ChartedProcess(OrnsteinUhlenbeck(), self.chart)

    @property
    def clock(self) -> Clock:
        """The variance preserving clock."""
        return VariancePreserving()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row, one axis."""
        return (self.chart.dim,)

    def facts(self, names: Sequence[str] | None = None) -> dict[str, Any]:  # noqa: ARG002
        """Return the numbers of columns, components, networks and steps, and the largest share."""
        return {
            "kind": type(self).__name__,
            "columns": self.dim,
            "components": self.reference.components,
            "networks": len(self.blend.networks),
            "share": float(self.blend.share.max()),
            "steps": self.steps,
        }

    def extra_repr(self) -> str:
        """Return what torch prints of the module."""
        return f"{self.dim} columns, flow of {self.steps} steps"

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return the blended ∇ log ρ_t(x) in the data's units, without the background."""
        x = checks.points(x, dim=self.dim)
        time = checks.instants(t, "t", low=0.0, high=math.inf).double()
        z, level = self.chart.to_process(x).double(), level_of_time(time)
        if level.ndim == 0:
            return self.chart.pull_score(self._score(z, level)).to(x)
        if len(level) != len(z):
            raise ValueError(f"t must be one number or one per row: {len(z)} rows, {len(level)}")
        result = torch.empty_like(z)
        for one in torch.unique(level):
            same = level == one
            result[same] = self._score(z[same], one)
        return self.chart.pull_score(result).to(x)

    def _score(self, z: Tensor, level: Tensor) -> Tensor:
        known, share = self.white.score(z, level), self.blend.share_at(level)
        if float(share) == 0:
            return known
        sigma = torch.sigmoid(-level).sqrt()
        return torch.lerp(known, -self.blend.network_noise(z, level) / sigma, share)

    def _velocity(self, z: Tensor, level: Tensor) -> Tensor:
        """Return dz/dλ."""
        variance = torch.sigmoid(-level)
        return 0.5 * variance * (z + self._score(z, level))

    def _velocity_and_change(self, z: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        """Return dz/dλ and the derivative of log(ρ/ρ_ref) along the path: ``(n,)``."""
        share, variance = self.blend.share_at(level), torch.sigmoid(-level)
        if float(share) == 0:
            return self._velocity(z, level), torch.zeros_like(z[:, 0])
        sigma = variance.sqrt()
        known, trace = self.white.noise_and_divergence(z, level)
        found, found_trace = self.blend.network_noise_and_divergence(z, level)
        gap = found - known
        change = (gap * known).sum(dim=1) - sigma * (found_trace - trace)
        return 0.5 * (variance * z - sigma * (known + share * gap)), -0.5 * share * change

    def _first_flow(self, z: Tensor, *, back: bool) -> Tensor:
        """Return where the reference's flow from no noise to the first level ends; or back."""
        last = float(time_of_level(torch.tensor(self.blend.ends[0], dtype=torch.float64)))
        times = torch.linspace(0.0, last, FIRST_STEPS + 1, dtype=torch.float64)

        def velocity(z: Tensor, t: Tensor) -> Tensor:
            return -z - self.white.score(z, level_of_time(t))

        for here, step in _steps(times.flip(0) if back else times):
            z = _stepped(velocity, z, here, step, velocity(z, here))
        return z

    def _corrections(self, z: Tensor) -> Tensor:
        """Return log(ρ/ρ_ref) at whitened rows: ``(n,)``.

        The path by Runge and Kutta's method of order four, the integral along it by Simpson's
        rule on the same grid, so that divergences are computed once for each step.
        """
        z = self._first_flow(z, back=False)
        levels = torch.linspace(*self.blend.ends, self.steps + 1, dtype=torch.float64)
        weights = torch.ones(self.steps + 1, dtype=torch.float64)
        weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
        total = torch.zeros_like(z[:, 0])
        for (here, step), weight in zip(_steps(levels), weights[:-1], strict=True):
            velocity, change = self._velocity_and_change(z, here)
            total -= weight * step / 3 * change
            z = _stepped(self._velocity, z, here, step, velocity)
        change = self._velocity_and_change(z, levels[-1])[1]
        return total - step / 3 * change

    @torch.no_grad()
    def log_density(
        self,
        x: Tensor,
        *,
        method: OrdinaryMethod | None = None,  # noqa: ARG002 (the steps are the model's own)
        divergence: Divergence | None = None,  # noqa: ARG002
        progress: bool | None = None,
    ) -> Tensor:
        """Return log p at rows ``(n, d)``: ``(n,)``; other arguments are not used."""
        x = checks.points(x, dim=self.dim)
        known = self.reference.log_density(x).double().cpu()
        pieces = torch.split(self.chart.to_process(x).double().cpu(), ROWS)
        with threads_apart(), progress_bar(progress) as bar:
            advance = bar.shares("densities along the flow")

            def corrected(piece: Tensor) -> Tensor:
                found = self._corrections(piece)
                advance(1 / len(pieces))
                return found

            change = torch.cat(in_parallel(corrected, pieces))
        # Far from all rows a network may overflow; the background remains.
        flow = torch.where(change.isfinite(), known + change, -math.inf)
        wide = known + math.log(self.background)
        return torch.logaddexp(flow + math.log1p(-self.background), wide).to(x)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        method: OrdinaryMethod | StochasticMethod | None = None,  # noqa: ARG002
        progress: bool | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Return n rows drawn from the model, float64; other arguments are not used."""
        rows = self.reference.sample(n, generator).cpu()
        chance = draws.uniform((len(rows),), generator, dtype=torch.float64)
        noise = draws.normal_like(rows, generator)
        moving = chance >= self.background
        levels = torch.linspace(*self.blend.ends, self.steps + 1, dtype=torch.float64)
        alpha, sigma = torch.sigmoid(levels[-1]).sqrt(), torch.sigmoid(-levels[-1]).sqrt()
        start = alpha * self.chart.to_process(rows[moving]) + sigma * noise[moving]

        def drawn(z: Tensor) -> Tensor:
            for here, step in _steps(levels.flip(0)):
                z = _stepped(self._velocity, z, here, step, self._velocity(z, here))
            return self._first_flow(z, back=True)

        with threads_apart():
            z = torch.cat(in_parallel(drawn, torch.split(start, ROWS)))
        rows[moving] = torch.where(z.isfinite(), self.chart.to_data(z), rows[moving])
        return rows.to(self.device)


def _steps(grid: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each place of a grid but the last, with the step to the next."""
    yield from zip(grid[:-1], grid.diff(), strict=True)


def _stepped(
    velocity: Callable[[Tensor, Tensor], Tensor],
    z: Tensor,
    here: Tensor,
    step: Tensor,
    first: Tensor,
) -> Tensor:
    """Return z after a step of Runge and Kutta's method, given the velocity at its beginning."""
    middle = here + 0.5 * step
    second = velocity(z + 0.5 * step * first, middle)
    third = velocity(z + 0.5 * step * second, middle)
    last = velocity(z + step * third, here + step)
    return z + step / 6 * (first + 2 * second + 2 * third + last)


def level_of_time(t: Tensor) -> Tensor:
    """Return log α²/σ² of the Ornstein-Uhlenbeck process, ∞ at t = 0."""
    return -torch.expm1(2 * t).log()


def time_of_level(level: Tensor) -> Tensor:
    """Return the time of a log signal-to-noise ratio of the Ornstein-Uhlenbeck process."""
    return 0.5 * torch.nn.functional.softplus(-level)
