"""Numerical methods of the flow and of the reverse SDE, each with its order.

Ordinary equations are solved by torchdiffeq. Its stochastic counterparts do not exploit noise that
does not depend on the state, for which Heun's method has weak order two with a single normal
increment a step; those two methods are a few lines here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torchdiffeq
from torch import Tensor

from oism._core import checks

State = tuple[Tensor, ...]
Field = Callable[[Tensor, State], State]
Drift = Callable[[Tensor, Tensor], Tensor]


class OrdinaryMethod(ABC):
    """How an ordinary differential equation is solved. The error falls like step^order."""

    order: ClassVar[int]

    @abstractmethod
    def solve(self, field: Field, state: State, ends: tuple[float, float]) -> State:
        """Return the state at the second end, given that at the first; either may be larger."""


@dataclass(frozen=True)
class Adaptive(OrdinaryMethod):
    """Dormand and Prince's pair of orders 5 and 4; steps follow the tolerances.

    Steps are shared by the points of a chunk, so what is computed for one of them depends a little,
    within the tolerance, on the others.
    """

    rtol: float = 1e-5
    atol: float = 1e-5
    order = 5

    def __post_init__(self) -> None:
        rtol, atol = checks.positive(self.rtol, "rtol"), checks.positive(self.atol, "atol")
        checks.settle(self, rtol=rtol, atol=atol)

    def solve(self, field: Field, state: State, ends: tuple[float, float]) -> State:
        """Return the state at the second end."""
        # Beyond the ends of a clock there is no score: the last step must not pass them.
        options = {"step_t": torch.tensor(ends[1:], dtype=torch.float64, device=state[0].device)}
        return _odeint(
            field, state, ends, method="dopri5", rtol=self.rtol, atol=self.atol, options=options
        )


@dataclass(frozen=True)
class FixedStep(OrdinaryMethod):
    """Equal steps in τ: what is computed for a point does not depend on the others."""

    steps: int = 64
    _name: ClassVar[str]

    def __post_init__(self) -> None:
        checks.settle(self, steps=checks.integer(self.steps, "steps", minimum=1))

    def solve(self, field: Field, state: State, ends: tuple[float, float]) -> State:
        """Return the state at the second end."""
        grid = even_grid(ends, self.steps).to(state[0].device)
        options = {"grid_constructor": lambda *_: grid}
        return _odeint(field, state, ends, method=self._name, options=options)


class Heun(FixedStep):
    """Heun's method, the trapezoidal rule with an Euler predictor: two scores a step."""

    order = 2
    _name = "heun2"


class RungeKutta4(FixedStep):
    """The Runge-Kutta method of order four (Kutta's 3/8 rule): four scores a step."""

    order = 4
    _name = "rk4"


def even_grid(ends: tuple[float, float], steps: int) -> Tensor:
    return torch.linspace(*ends, steps + 1, dtype=torch.float64)


def _odeint(field: Field, state: State, ends: tuple[float, float], **settings: object) -> State:
    times = torch.tensor(ends, dtype=torch.float64, device=state[0].device)

    def within(tau: Tensor, state: State) -> State:
        # torchdiffeq rounds τ to the dtype of the state, and then t(τ) may pass the clock's end.
        return field(tau.to(times).clamp(min(ends), max(ends)), state)

    return tuple(part[-1] for part in torchdiffeq.odeint(within, state, times, **settings))


@dataclass(frozen=True)
class StochasticMethod(ABC):
    """How the reverse SDE is simulated. The error of expectations falls like step^order."""

    steps: int = 256
    order: ClassVar[int]

    def __post_init__(self) -> None:
        checks.settle(self, steps=checks.integer(self.steps, "steps", minimum=1))

    @abstractmethod
    def step(self, drift: Drift, x: Tensor, tau: Tensor, to: Tensor, noise: Tensor) -> Tensor:
        """Return X at τ = ``to``, given the increment ``noise`` of the martingale part."""


class EulerMaruyama(StochasticMethod):
    """X' = X + h a(X, τ) + ΔM."""

    order = 1

    def step(self, drift: Drift, x: Tensor, tau: Tensor, to: Tensor, noise: Tensor) -> Tensor:
        """Return X at τ = ``to``."""
        return x + float(to - tau) * drift(tau, x) + noise


class StochasticHeun(StochasticMethod):
    """X* = X + h a(X, τ) + ΔM, X' = X + ½h (a(X, τ) + a(X*, τ')) + ΔM.

    Of weak order two because the noise is additive: the products of ΔM with itself that the average
    of the two drifts contains have the expectations of the iterated integrals they stand for.
    """

    order = 2

    def step(self, drift: Drift, x: Tensor, tau: Tensor, to: Tensor, noise: Tensor) -> Tensor:
        """Return X at τ = ``to``."""
        h, here = float(to - tau), drift(tau, x)
        there = drift(to, x + h * here + noise)
        return x + 0.5 * h * (here + there) + noise
