"""Five normal laws on a circle of the plane, whose scores are known at every noise level.

Under the Ornstein-Uhlenbeck process N(μ, s²I) becomes N(e^{-t}μ, (e^{-2t}s² + 1 - e^{-2t})I), so
the mixture stays one. Networks are trained on fresh draws of it: what they miss is not for want of
data.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from oism._core.progress import Progress
from oism._core.transforms import per_row
from oism.nn import MLP, NoiseScore
from oism.objectives import DenoisingScoreMatching, FokkerPlanckResidual, UniformLogSNR
from oism.objectives._models import gradient
from oism.process import Noising, OrnsteinUhlenbeck, VariancePreserving

PROCESS = OrnsteinUhlenbeck()
NOISING = Noising(PROCESS, VariancePreserving())
FIRST = 0.02
"""The first clock time, a noise of 0.08."""

BATCH, POINTS = 256, 64
"""How many points a step denoises, and at how many of them the residual is taken."""

RATE, WARM_UP = 5e-3, 100
"""The highest learning rate, and the steps in which it is reached; then a cosine."""

WIDTH = 64


@dataclass(frozen=True)
class Ring:
    """An even mixture of normal laws with means on a circle."""

    modes: int = 5
    radius: float = 1.2
    deviation: float = 0.25

    @cached_property
    def means(self) -> Tensor:
        """The means, ``(modes, 2)``, float64."""
        angle = torch.arange(self.modes, dtype=torch.float64) * (2 * math.pi / self.modes)
        return self.radius * torch.stack((angle.cos(), angle.sin()), dim=1)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw clean points ``(n, 2)``, float32."""
        own = self.means[torch.randint(self.modes, (n,), generator=generator)].float()
        return own + self.deviation * torch.randn(n, 2, generator=generator)

    def log_density(self, x: Tensor, t: Tensor) -> Tensor:
        """Return log ρ_t for points ``(n, 2)`` and times ``(n,)``, in float64."""
        alpha, noise = PROCESS._alpha(t.double()), PROCESS._variance(t.double())
        variance = alpha.square() * self.deviation**2 + noise
        step = x.double()[:, None] - alpha[:, None, None] * self.means
        exponent = -step.square().sum(dim=2) / (2 * variance[:, None])
        scale = torch.log(2 * math.pi * self.modes * variance)
        return torch.logsumexp(exponent, dim=1) - scale

    def score(self, x: Tensor, t: Tensor) -> Tensor:
        """Return ∇log ρ_t."""
        return gradient(lambda y: self.log_density(y, t))(x)


@dataclass(frozen=True, eq=False)
class Trained:
    """A network's score, the weight of the residual in its loss, and what a step took."""

    score: NoiseScore
    weight: float
    steps: int
    seconds: float

    @property
    def milliseconds(self) -> float:
        """The time of a step."""
        return 1000 * self.seconds / self.steps


def scaled_residual(score: NoiseScore, x: Tensor, t: Tensor) -> Tensor:
    """Return σ³ times the residual of a score, ``(n, 2)``: it has no unit.

    In the units of noise, ε̂ = -σs, and of the time σ² in which noise forgets.
    """
    residual = FokkerPlanckResidual(PROCESS).score(score, x, t)
    return per_row(PROCESS._variance(t.double()) ** 1.5, x) * residual


def train(
    law: Ring, weight: float, steps: int, generator: torch.Generator, bar: Progress
) -> Trained:
    """Return a network trained by denoising score matching plus ``weight`` times the residual.

    The loss is that of likelihood weighting; the residual is the mean square of `scaled_residual`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        net = MLP(2, width=WIDTH)
    objective = DenoisingScoreMatching(UniformLogSNR(NOISING, FIRST))
    optimiser, score = torch.optim.Adam(net.parameters()), NoiseScore(net, NOISING)
    bar.stage(f"training, residual × {weight:g}", steps)
    start = time.perf_counter()
    for step in range(steps):
        decay = (1 + math.cos(math.pi * step / steps)) / 2
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / WARM_UP) * decay
        x = law.sample(BATCH, generator)
        tau = objective.levels.draw(BATCH, generator)
        noise = torch.randn(x.shape, generator=generator)
        loss = objective.loss(net, x, tau, noise)
        if weight:
            few = torch.randperm(BATCH, generator=generator)[:POINTS]  # any noise level
            y, t = objective.noised(x, tau, noise)[few], NOISING.clock.time(tau[few])
            loss = loss + weight * scaled_residual(score, y, t.float()).square().mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        bar.advance(1)
    seconds = time.perf_counter() - start
    return Trained(NoiseScore(net.requires_grad_(False), NOISING), weight, steps, seconds)
