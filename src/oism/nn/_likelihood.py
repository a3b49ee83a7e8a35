"""Densities beside a prior: only the residual of the prior is integrated.

A prior has a Gaussian part N(m, C), with variances c along directions v. At the level λ = log(α/σ)
the noised Gaussian has mean αm and variances s² = α²c + σ². In the standardised coordinates

    u = (⟨v, x⟩ - αm)/s

its probability flow is the identity, and that of a model with score ∇log ρ is

    du/dλ = (σ²/s) ⟨v, ∇log ρ(x)⟩ + (σ²/s²) u,        ∇_u·(du/dλ) = σ² (∇·∇log ρ + Σ 1/s²),

both zero where the model is that Gaussian. With u_1 at the smallest noise level, where the flow
starts, and u_0 at the largest,

    log ρ(x) = log N(u_0; 0, I) - ∫_{λ_0}^{λ_1} ∇_u·(du/dλ) dλ - Σ log s(λ_1).

Sums over coordinates count each with the number of dimensions that it stands for: one, or less than
one where directions beyond a frame are kept as a whole vector.

For a Gaussian model this is exact with any number of steps. Otherwise the expectation of the
integrand is the difference of two errors of the predicted noise, that of the model and that of the
Gaussian, e(λ) = mean of α²c/s². It is small where e is near 0, at high noise, and where e is near
1, because the noise is too small to be predicted. Steps are therefore even in the integral of
0.05 + √(e(1 - e)) over λ.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import progress_bar
from oism.flow import Divergence, OrdinaryMethod, State, TensorModel
from oism.images import GaussianPart
from oism.score import Curve

FLOOR = 0.05
"""The density of steps where the Gaussian's error is 0 or 1; elsewhere at most ½ is added."""

KNOTS = 513
"""The number of levels at which the density of steps is tabulated."""

ENTRIES = 2**22
"""The number of variances that are computed at a time."""


class StandardisedFlow:
    """The probability flow of a model in the standardised coordinates of a Gaussian.

    Levels λ(s) are a function of s in [0, 1], from the smallest noise level to the largest; methods
    with equal steps take them in s.
    """

    def __init__(self, model: TensorModel, part: GaussianPart) -> None:
        checks.instance(model, TensorModel, "model")
        checks.instance(part, GaussianPart, "part")
        self.model, self.part, self._count = model, part, part.dimensions
        ends = torch.tensor([model.first, model.clock.horizon], dtype=torch.float64)
        self._first, self._last = model.clock._time(ends).tolist()
        high, low = (0.5 * end for end in model.noising.log_snr_range(model.first))
        level = torch.linspace(high, low, KNOTS, dtype=torch.float64)
        pieces = torch.split(level.to(part.mean), max(1, ENTRIES // len(part.mean)))
        density = torch.cat([self._density(piece) for piece in pieces]).to(level)
        area = torch.cumulative_trapezoid(density, dx=(high - low) / (KNOTS - 1))
        area = torch.cat((area.new_zeros(1), area))
        self._length = float(area[-1])
        slopes = -self._length / density
        self._level = Curve(area / self._length, level, order=4, slopes=slopes).to(part.mean)

    def _density(self, level: Tensor) -> Tensor:
        """Return the number of steps per unit of λ, up to a factor."""
        _, spread, variance = self._moments(self._time(level[..., None]))
        error = 1 - (variance / spread.square()) @ self._count / self.part.dim
        return FLOOR + (error * (1 - error)).clamp(min=0).sqrt()

    def _time(self, level: Tensor) -> Tensor:
        t = self.model.process._time_of_log_snr(2 * level)
        return t.clamp(self._first, self._last)  # rounding must not leave the range of the clock

    def _moments(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return αm and s in coordinates, and σ²."""
        alpha, variance = self.model.process._alpha(t), self.model.process._variance(t)
        spread = (alpha.square() * self.part.variances + variance).sqrt()
        return alpha * self.part.mean, spread, variance

    @torch.no_grad()
    def log_density(
        self,
        x: Tensor,
        *,
        method: OrdinaryMethod,
        divergence: Divergence,
        chunk: int,
        progress: bool | None = None,
    ) -> Tensor:
        """Return log ρ(x) at tensors ``(n, *shape)``: ``(n,)``."""
        checks.instance(method, OrdinaryMethod, "method")
        checks.instance(divergence, Divergence, "divergence")
        x = checks.points(x)
        result = x.new_empty(len(x))
        with progress_bar(progress) as bar:
            bar.stage("densities along the flow", len(x))
            for first in range(0, len(x), checks.integer(chunk, "chunk", minimum=1)):
                rows = slice(first, first + chunk)
                result[rows] = self._along(x[rows], method, divergence)
                bar.advance(len(x[rows]))
        return result

    def _along(self, x: Tensor, method: OrdinaryMethod, divergence: Divergence) -> Tensor:
        joint = divergence.bind(self.model.flow, x, smooth=method.needs_smoothness)
        part, count = self.part, self._count

        def field(s: Tensor, state: State) -> State:
            u, level = state[0], self._level(s)
            rate, t = -self._length / self._density(level), self._time(level)
            mean, spread, variance = self._moments(t)
            z = mean.to(u) + spread.to(u) * u
            score, trace = joint(part.synthesise(z).reshape(x.shape), t)
            pull = (rate * variance / spread).to(u) * part.analyse(score.flatten(1))
            pull = pull + (rate * variance / spread.square()).to(u) * u
            # Two numbers of the size of the dimension, which nearly cancel.
            change = rate * variance * (trace.double() + count @ spread.pow(-2))
            return pull, change.to(trace.dtype)

        mean, spread, _ = self._moments(self._time(self._level.values[0]))
        u = (part.analyse(x.flatten(1)) - mean.to(x)) / spread.to(x)
        last, change = method.solve(field, (u, torch.zeros_like(u[:, 0])), (0.0, 1.0))
        volume = 0.5 * part.dim * math.log(2 * math.pi) + count @ spread.log()
        return change - 0.5 * last.square().sum(dim=1) - volume.to(x)
