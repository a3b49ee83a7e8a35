"""A neural network trained by denoising score matching: the baseline of the closed form.

The network predicts noise. With X_τ = α_τ X_0 + σ_τ ε (wrapped, on the torus) it minimises

    E‖ε̂(X_τ, τ) - ε‖²    over τ uniform on the clock,

and ŝ = -ε̂/σ_τ is its score. On the torus this is the score of the wrapped distribution: given the
wrapped X_τ, the mean of -ε/σ_τ over its possible preimages is ∇ log ρ_t there.

The baseline is tuned a little: residual layers; Fourier features of the clock time, and of the
point where it is an angle; Adam with a short warm-up and a cosine decay over the training time;
stratified clock times in every batch. It runs on one thread, because its layers are too small for
several.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from oism.flow import ExactTrace, Flow, NoiseScore, OrdinaryMethod, RungeKutta4, log_density
from oism.nn import MLP
from oism.objectives import DenoisingScoreMatching, NoiseWeighting, UniformTime
from oism.process import Noising, OrnsteinUhlenbeck, VariancePreserving
from studies.loop import minimise, one_thread, seeded

Array = NDArray[np.float64]

FIRST = 1e-3
"""The clock time at which the flow of `DDPM` starts: a noise of 0.01."""

METHOD: OrdinaryMethod = RungeKutta4(32)

WARM_UP = 0.02
"""The share of the training time in which the rate rises."""


def timed_rates(rate: float, seconds: float, start: float) -> Iterator[float]:
    """Yield learning rates until ``seconds`` have passed since ``start``, with a cosine decay."""
    passed = 0.0
    with tqdm(total=1000, desc="training a network", disable=None, leave=False) as bar:
        while passed < 1:
            yield rate * min(passed / WARM_UP, (1 + math.cos(math.pi * passed)) / 2)
            passed = min(1.0, (time.perf_counter() - start) / seconds)
            bar.update(int(1000 * passed) - bar.n)


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
    """Return the score of a network trained on rows ``(n, d)`` for a time, and its steps.

    ``generator`` determines weights and noise. The number of steps depends on the machine.
    """
    start, rows = time.perf_counter(), data.float()
    horizon = noising.clock.horizon
    with seeded(generator):
        net = MLP(data.shape[1], width=width, angular=angular, horizon=horizon)
    objective = DenoisingScoreMatching(UniformTime(noising), NoiseWeighting())

    def loss() -> Tensor:
        x = rows[torch.randint(len(rows), (batch,), generator=generator)]
        # Stratified: every batch covers the whole clock, from τ = 0 on.
        share = (torch.arange(batch) + torch.rand(batch, generator=generator)) / batch
        noise = torch.randn(x.shape, generator=generator)
        return objective.errors(net, x, share * horizon, noise).mean()

    with one_thread():
        steps = minimise(net, loss, timed_rates(rate, seconds, start))
    return NoiseScore(net.requires_grad_(False), noising), steps


class DDPM:
    """A diffusion model of two columns with a trained network, as a scikit-learn-like estimator.

    Columns are standardised; noise is variance preserving. The flow starts at a noise of 0.01, as
    that of `OISM` with the same process.
    """

    steps_: int

    def __init__(self, *, seconds: float, random_state: int = 0) -> None:
        self.seconds, self.random_state = seconds, random_state

    def fit(self, X: Array) -> Self:  # noqa: N803
        """Train for the given time, and return the estimator."""
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
        """Return log-densities by the flow, with the exact divergence."""
        with one_thread():
            log = log_density(
                self.flow_, self._standardised(X).float(), method=METHOD, divergence=ExactTrace()
            )
        result: Array = log.double().numpy() - np.log(self._scale).sum()
        return result

    def sample(self, n: int = 1, random_state: int = 0) -> Array:
        """Return rows ``(n, d)``, drawn by the flow."""
        with one_thread():
            z = self.flow_.sample(
                n,
                (len(self._scale),),
                method=METHOD,
                generator=torch.Generator().manual_seed(random_state),
            )
        x: Array = z.double().numpy() * self._scale + self._shift
        return x
