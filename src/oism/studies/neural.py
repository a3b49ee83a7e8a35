"""A neural network trained by denoising score matching: what the closed form is compared with.

The network predicts noise: with X_τ = α_τ X_0 + σ_τ ε (wrapped, on the torus) it minimises

    E‖ε̂(X_τ, τ) - ε‖²    over τ uniform on the clock,

and ŝ = -ε̂/σ_τ is its score. On the torus this is the score of the wrapped law: given the wrapped
X_τ, the mean of -ε/σ_τ over the images it may come from is ∇ log ρ_t there.

It is a fair baseline, tuned a little: residual layers, waves of the clock time (and of the point,
where that is an angle) as inputs, Adam with a short warm-up and a cosine decay over the time it is
given, on one batch of the whole clock after the other. It runs on one thread: its layers are so
small that threads inside of them mostly wait for each other.
"""

from __future__ import annotations

import math
import time
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism._core.progress import progress_bar
from oism._core.transforms import threads_apart
from oism.flow import ExactTrace, Flow, OrdinaryMethod, RungeKutta4, log_density
from oism.nn import MLP, NoiseScore
from oism.objectives import DenoisingScoreMatching, NoiseWeighting, UniformTime
from oism.process import Noising, OrnsteinUhlenbeck, VariancePreserving

Array = NDArray[np.float64]

TICKS = 1000

FIRST = 1e-3
"""The clock time at which the flow of `DDPM` starts: a noise of 0.01."""

METHOD: OrdinaryMethod = RungeKutta4(32)

WARM_UP = 0.02
"""The share of the time in which the rate rises."""


def train(  # noqa: PLR0913
    data: Tensor,
    noising: Noising,
    *,
    seconds: float,
    generator: torch.Generator,
    width: int = 128,
    angular: int = 0,
    batch: int = 256,
    rate: float = 1e-2,
) -> tuple[NoiseScore, int]:
    """Return the score of a network trained on rows ``(n, d)`` for a time, and the steps it took.

    ``generator`` makes the weights and the noise. The number of steps depends on the machine.
    """
    start, rows = time.perf_counter(), data.float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        horizon = noising.clock.horizon
        net = MLP(data.shape[1], width=width, angular=angular, horizon=horizon)
    objective = DenoisingScoreMatching(UniformTime(noising), NoiseWeighting())
    optimiser = torch.optim.Adam(net.parameters(), lr=rate)
    steps, passed = 0, 0.0
    with threads_apart(), progress_bar(None) as bar:
        bar.stage("training a network", TICKS)
        while passed < 1:
            x = rows[torch.randint(len(rows), (batch,), generator=generator)]
            # Stratified, from no noise on: every batch has seen the whole clock.
            share = (torch.arange(batch) + torch.rand(batch, generator=generator)) / batch
            noise = torch.randn(x.shape, generator=generator)
            for group in optimiser.param_groups:
                group["lr"] = rate * min(passed / WARM_UP, (1 + math.cos(math.pi * passed)) / 2)
            optimiser.zero_grad()
            loss = objective.errors(net, x, share * horizon, noise).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            steps += 1
            passed = min(1.0, (time.perf_counter() - start) / seconds)
            bar.reach(int(TICKS * passed))
    return NoiseScore(net.requires_grad_(False), noising), steps


class DDPM:
    """A diffusion model of the plane with a trained network, and the face of a density estimator.

    Columns are standardised; noise is variance preserving. The flow starts at a noise of 0.01, as
    that of `OISM` on the same process does.
    """

    steps_: int

    def __init__(self, *, seconds: float, random_state: int = 0) -> None:
        self.seconds, self.random_state = seconds, random_state

    def fit(self, X: Array) -> Self:  # noqa: N803
        """Train for the time."""
        self._shift, self._scale = X.mean(axis=0), X.std(axis=0)
        noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
        score, self.steps_ = train(
            self._standardised(X),
            noising,
            seconds=self.seconds,
            generator=torch.Generator().manual_seed(self.random_state),
        )
        self.flow_ = Flow(score, noising.process, noising.clock, span=(FIRST, 1.0))
        return self

    def _standardised(self, x: Array) -> Tensor:
        return torch.from_numpy((x - self._shift) / self._scale)

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return log-densities along the flow, with the exact divergence."""
        with threads_apart():
            log = log_density(
                self.flow_, self._standardised(X).float(), method=METHOD, divergence=ExactTrace()
            )
        result: Array = log.double().numpy() - np.log(self._scale).sum()
        return result

    def sample(self, n: int = 1, random_state: int = 0) -> Array:
        """Draw points by the flow."""
        with threads_apart():
            z = self.flow_.sample(
                n,
                (len(self._scale),),
                method=METHOD,
                generator=torch.Generator().manual_seed(random_state),
            )
        x: Array = z.double().numpy() * self._scale + self._shift
        return x
