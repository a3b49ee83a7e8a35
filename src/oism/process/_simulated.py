"""Transitions by simulation: for every process with a drift and a noise, and no formula for X_t.

A path of dX = b dt + L dW is followed in ``steps`` equal steps of h, and put back into the domain
after each step. If L is constant, by Heun's method,

    y = x + b(x) h + L ΔW,    x ← x + ½(b(x) + b(y)) h + L ΔW,

whose expectations have an error of order h² (weak order 2); otherwise by Euler's method,
x ← x + b(x) h + L(x) ΔW, of weak order 1. At a reflecting boundary both have order ½ to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import per_row
from oism.process._base import Nodes, Process
from oism.process._reversible import ReversibleTransition


@dataclass(frozen=True, eq=False)
class SimulatedTransition(ReversibleTransition):
    """X_t given X_0 = x by ``steps`` steps of a simulation, for times t of shape () or ``(n,)``.

    It has samples only: expectations are those of `MonteCarlo`, and there is no density. For
    samples with the same random numbers at two times, give generators with the same seed.

    >>> from oism.process import OrnsteinUhlenbeck
    >>> law = SimulatedTransition(OrnsteinUhlenbeck(), torch.tensor(0.5), steps=20)
    >>> x = torch.full((20_000, 1), 2.0)
    >>> law.sample(x, generator=torch.Generator().manual_seed(0)).mean() / 2  # e^{-t} = 0.6065
    tensor(0.60...)
    """

    process: Process
    t: Tensor
    steps: int = 64

    def __post_init__(self) -> None:
        checks.assign(self, t=checks.time(self.t))
        checks.assign(self, steps=checks.integer(self.steps, "steps", minimum=1))

    def sample(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the ends of simulated paths."""
        process, x = self.process, checks.points(x)
        step = per_row(self.t, x) / self.steps
        for _ in range(self.steps):
            noise = step.sqrt() * process._sample_noise(x, generator)
            drift = process.drift(x)
            ahead = process.domain._wrap(x + step * drift + noise)
            if process.has_constant_noise:
                drift = 0.5 * (drift + process.drift(ahead))
                ahead = process.domain._wrap(x + step * drift + noise)
            x = ahead
        return x

    def log_density(self, y: Tensor, x: Tensor) -> Tensor:  # noqa: ARG002
        """Raise: a simulation has no density."""
        self._refuse_rule("density")

    def nodes(self, x: Tensor, count: int) -> Nodes:  # noqa: ARG002
        """Raise: a simulation has no quadrature rule."""
        self._refuse_rule("quadrature rule")

    def _refuse_rule(self, what: str) -> NoReturn:
        raise TypeError(
            f"{type(self.process).__name__} is simulated and has no {what} of X_t: use "
            "MonteCarlo(samples, generator) for expectations"
        )
