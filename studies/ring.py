"""Five normal distributions on a circle of the plane, with known scores at every noise level.

Under the Ornstein-Uhlenbeck process N(μ, s²I) becomes N(e^{-t}μ, (e^{-2t}s² + 1 - e^{-2t})I), so a
mixture of such distributions stays one. Networks are trained on fresh draws: their errors are not
due to a lack of data.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from tqdm import tqdm

from oism.flow import NoiseScore
from oism.nn import MLP
from oism.objectives import DenoisingScoreMatching, FokkerPlanckResidual, UniformLogSNR
from oism.process import Noising, OrnsteinUhlenbeck, VariancePreserving
from studies.loop import cosine, minimise, seeded

PROCESS = OrnsteinUhlenbeck()
NOISING = Noising(PROCESS, VariancePreserving())
FIRST = 0.02
"""The first clock time, a noise of 0.08."""

BATCH, POINTS = 256, 64
"""The points denoised in a step, and the number of them at which the residual is computed."""

RATE, WARM_UP = 5e-3, 100
"""The highest learning rate, and the steps of its warm-up."""

WIDTH = 64


@dataclass(frozen=True)
class Ring:
    """A mixture of equally weighted normal distributions with means on a circle."""

    modes: int = 5
    radius: float = 1.2
    deviation: float = 0.25

    @cached_property
    def means(self) -> Tensor:
        """The means, ``(modes, 2)``, float64."""
        angle = torch.arange(self.modes, dtype=torch.float64) * (2 * math.pi / self.modes)
        return self.radius * torch.stack((angle.cos(), angle.sin()), dim=1)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Return random clean points ``(n, 2)``, float32."""
        own = self.means[torch.randint(self.modes, (n,), generator=generator)].float()
        return own + self.deviation * torch.randn(n, 2, generator=generator)

    def log_density(self, x: Tensor, t: Tensor) -> Tensor:
        """Return log ρ_t for points ``(n, 2)`` and times ``(n,)``, in float64."""
        alpha, noise = PROCESS.alpha(t.double()), PROCESS.variance(t.double())
        variance = alpha.square() * self.deviation**2 + noise
        step = x.double()[:, None] - alpha[:, None, None] * self.means
        exponent = -step.square().sum(dim=2) / (2 * variance[:, None])
        scale = torch.log(2 * math.pi * self.modes * variance)
        return torch.logsumexp(exponent, dim=1) - scale

    def score(self, x: Tensor, t: Tensor) -> Tensor:
        """Return ∇log ρ_t, by automatic differentiation."""
        found: Tensor = torch.func.grad(lambda y: self.log_density(y, t).sum())(x)
        return found


@dataclass(frozen=True, eq=False)
class Trained:
    """The score of a network, the weight of the residual in its loss, steps and seconds."""

    score: NoiseScore
    weight: float
    steps: int
    seconds: float

    @property
    def milliseconds(self) -> float:
        """The time of a step."""
        return 1000 * self.seconds / self.steps


def scaled_residual(score: NoiseScore, x: Tensor, t: Tensor) -> Tensor:
    """Return σ³ times the residual of a score, ``(n, 2)``, which has no unit.

    One factor σ makes noise of the score, ε̂ = -σs; σ² is the time in which noise decorrelates.
    """
    residual = FokkerPlanckResidual(PROCESS).score(score, x, t)
    return (PROCESS.variance(t.double()) ** 1.5).to(x.dtype)[:, None] * residual


def train(ring: Ring, weight: float, steps: int, generator: torch.Generator) -> Trained:
    """Return a network trained by denoising score matching plus ``weight`` times the residual.

    Denoising has likelihood weighting; the residual is the mean square of `scaled_residual`.
    """
    with seeded(generator):
        net = MLP(2, width=WIDTH)
    objective = DenoisingScoreMatching(UniformLogSNR(NOISING, FIRST))
    score = NoiseScore(net, NOISING)

    def loss() -> Tensor:
        x = ring.sample(BATCH, generator)
        tau = objective.levels.draw(BATCH, generator)
        noise = torch.randn(x.shape, generator=generator)
        denoising = objective.loss(net, x, tau, noise)
        if not weight:
            return denoising
        few = torch.randperm(BATCH, generator=generator)[:POINTS]  # of any noise level
        y, t = objective.noised(x, tau, noise)[few], NOISING.clock.time(tau[few])
        return denoising + weight * scaled_residual(score, y, t.float()).square().mean()

    start = time.perf_counter()
    rates = cosine(RATE, steps, WARM_UP)
    name = f"training, residual × {weight:g}"
    minimise(net, loss, tqdm(rates, name, total=steps, disable=None, leave=False), clip=1.0)
    seconds = time.perf_counter() - start
    return Trained(NoiseScore(net.requires_grad_(False), NOISING), weight, steps, seconds)
