"""Numerical methods of the flow and of the reverse SDE, each with its order.

Ordinary differential equations are solved by torchdiffeq, except by Adams' methods: those of
torchdiffeq evaluate the right-hand side twice per step. The stochastic methods are implemented
here: libraries for general SDEs do not use that our noise does not depend on the state, so that
Heun's method has weak order two with a single normal increment per step.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
import torchdiffeq
from torch import Tensor

from oism._core import checks
from oism._core.repetition import Repeated

State = tuple[Tensor, ...]
"""The state of an ordinary differential equation: points, and what is integrated along them."""

Field = Callable[[Tensor, State], State]
Drift = Callable[[Tensor, Tensor], Tensor]


class OrdinaryMethod(ABC):
    """A solver of ordinary differential equations with an error of O(step^order).

    ``needs_smoothness`` is whether the steps depend on the right-hand side.
    """

    order: ClassVar[int]
    is_random: ClassVar[bool] = False
    needs_smoothness: ClassVar[bool] = True

    @abstractmethod
    def solve(self, field: Field, state: State, ends: tuple[float, float]) -> State:
        """Return the state at ``ends[1]``, given that at ``ends[0]``; either may be larger."""

    @abstractmethod
    def finer(self) -> OrdinaryMethod:
        """Return a method with at most a quarter of the error: the change of a result shows it."""


@dataclass(frozen=True)
class Adaptive(OrdinaryMethod):
    """The Dormand-Prince pair of orders 5 and 4; the step size follows from the tolerances.

    All points of a chunk share their steps, so the result for one of them depends on the others,
    within the tolerance.
    """

    rtol: float = 1e-5
    atol: float = 1e-5
    order = 5

    def __post_init__(self) -> None:
        rtol, atol = checks.positive(self.rtol, "rtol"), checks.positive(self.atol, "atol")
        checks.assign(self, rtol=rtol, atol=atol)

    def solve(self, field: Field, state: State, ends: tuple[float, float]) -> State:
        """Return the state at the second end."""
        # The score is undefined outside of the clock's range: the last step must not leave it.
        options = {"step_t": torch.tensor(ends[1:], dtype=torch.float64, device=state[0].device)}
        return _odeint(
            field, state, ends, method="dopri5", rtol=self.rtol, atol=self.atol, options=options
        )

    def finer(self) -> Adaptive:
        """Return a tenth of the tolerances; errors are about proportional to them."""
        return Adaptive(self.rtol / 10, self.atol / 10)


@dataclass(frozen=True)
class FixedStep(OrdinaryMethod):
    """Equal steps in τ: the result for a point does not depend on the other points."""

    steps: int = 64
    needs_smoothness = False

    def __post_init__(self) -> None:
        checks.assign(self, steps=checks.integer(self.steps, "steps", minimum=1))

    def finer(self) -> Self:
        """Return twice the steps; errors fall by 2^order."""
        return replace(self, steps=2 * self.steps)


class RungeKutta(FixedStep):
    """A one-step method of torchdiffeq, by its name there."""

    _name: ClassVar[str]

    def solve(self, field: Field, state: State, ends: tuple[float, float]) -> State:
        """Return the state at the second end."""
        grid = even_grid(ends, self.steps).to(state[0].device)
        options = {"grid_constructor": lambda *_: grid}
        return _odeint(field, state, ends, method=self._name, options=options)


class Heun(RungeKutta):
    """Heun's method, the trapezoidal rule with an Euler predictor: two scores per step."""

    order = 2
    _name = "heun2"


class RungeKutta4(RungeKutta):
    """The Runge-Kutta method of order four (Kutta's 3/8 rule): four scores per step."""

    order = 4
    _name = "rk4"


class RecordedRungeKutta4(FixedStep):
    """`RungeKutta4` with its step recorded as a CUDA graph, for few points on a GPU.

    Launching the operations of a step one by one takes longer than they do. The right-hand side
    must not read numbers from the device. On other devices steps are computed as usual.
    """

    order = 4

    def solve(self, field: Field, state: State, ends: tuple[float, float]) -> State:
        """Return the state at the second end."""
        device, h = state[0].device, (ends[1] - ends[0]) / self.steps
        now = tuple(part.clone() for part in state)
        tau = torch.tensor(ends[0], dtype=torch.float64, device=device)

        def within(tau: Tensor, state: State) -> State:
            return field(tau.clamp(min(ends), max(ends)), state)  # sums of h are rounded

        def step() -> None:
            for part, moved in zip(now, _kutta_step(within, now, tau, h), strict=True):
                part.copy_(moved)
            tau.add_(h)

        Repeated(step, device)(self.steps)
        return now


BASHFORTH = (
    (1.0,),
    (-0.5, 1.5),
    (5 / 12, -16 / 12, 23 / 12),
    (-9 / 24, 37 / 24, -59 / 24, 55 / 24),
)
"""Weights of the last 1 to 4 values that integrate their interpolation over the next step."""

MOULTON = ((0.5, 0.5), (-1 / 12, 8 / 12, 5 / 12), (1 / 24, -5 / 24, 19 / 24, 9 / 24))
"""Weights of the last 2, 3, 4 values that integrate their interpolation over the last step."""


class Adams(FixedStep):
    """Adams' predictor-corrector of order three: one score per step, and one at the end.

    y* = y_k + h Σ b_j f_{k-j} predicts the next state, f_{k+1} = f(y*) is the only evaluation, and
    y_{k+1} = y_k + h Σ m_j f_{k+1-j} corrects it. The first steps use the values that there are.
    """

    order = 3

    def solve(self, field: Field, state: State, ends: tuple[float, float]) -> State:
        """Return the state at the second end."""
        grid = even_grid(ends, self.steps).to(state[0].device)
        h, recent = (ends[1] - ends[0]) / self.steps, [field(grid[0], state)]
        for tau in grid[1:]:
            ahead = _advanced(state, h, BASHFORTH[len(recent) - 1], recent)
            recent = [*recent[-2:], field(tau, ahead)]
            state = _advanced(state, h, MOULTON[len(recent) - 2], recent)
        return state


class Adams4(FixedStep):
    """Adams' predictor-corrector of order four: one score per step, and ten more at the start.

    As `Adams`, with one value more. The first three steps are Runge and Kutta's, so that the start
    has the same order. It has about the error of `RungeKutta4` with half the steps, from noise to
    data; from data to noise, where the field changes fast at the start, use that.
    """

    order = 4

    def solve(self, field: Field, state: State, ends: tuple[float, float]) -> State:
        """Return the state at the second end."""
        grid = even_grid(ends, self.steps).to(state[0].device)
        h, recent = (ends[1] - ends[0]) / self.steps, [field(grid[0], state)]
        for tau, to in itertools.pairwise(grid):
            if len(recent) < self.order:
                state = _runge_kutta_step(field, state, tau, h, recent[-1])
                recent.append(field(to, state))
            else:
                ahead = _advanced(state, h, BASHFORTH[-1], recent)
                recent = [*recent[1:], field(to, ahead)]
                state = _advanced(state, h, MOULTON[-1], recent)
        return state


def _advanced(state: State, h: float, weights: Sequence[float], slopes: Sequence[State]) -> State:
    """Return y + h Σ w_j f_j, part by part."""
    moved = []
    for part, *own in zip(state, *slopes, strict=True):
        for weight, slope in zip(weights, own, strict=True):
            part = torch.add(part, slope, alpha=h * weight)  # noqa: PLW2901
        moved.append(part)
    return tuple(moved)


def _runge_kutta_step(field: Field, state: State, tau: Tensor, h: float, first: State) -> State:
    """Return the state after a step of order four, whose first slope is known."""
    second = field(tau + h / 2, _advanced(state, h, (0.5,), [first]))
    third = field(tau + h / 2, _advanced(state, h, (0.5,), [second]))
    last = field(tau + h, _advanced(state, h, (1.0,), [third]))
    return _advanced(state, h, (1 / 6, 1 / 3, 1 / 3, 1 / 6), [first, second, third, last])


def _kutta_step(field: Field, state: State, tau: Tensor, h: float) -> State:
    """Return the state after a step of Kutta's 3/8 rule, that of `RungeKutta4`."""
    first = field(tau, state)
    second = field(tau + h / 3, _advanced(state, h, (1 / 3,), [first]))
    third = field(tau + 2 * h / 3, _advanced(state, h, (-1 / 3, 1.0), [first, second]))
    last = field(tau + h, _advanced(state, h, (1.0, -1.0, 1.0), [first, second, third]))
    return _advanced(state, h, (1 / 8, 3 / 8, 3 / 8, 1 / 8), [first, second, third, last])


def even_grid(ends: tuple[float, float], steps: int) -> Tensor:
    return torch.linspace(*ends, steps + 1, dtype=torch.float64)


def _odeint(field: Field, state: State, ends: tuple[float, float], **settings: object) -> State:
    times = torch.tensor(ends, dtype=torch.float64, device=state[0].device)

    def within(tau: Tensor, state: State) -> State:
        # torchdiffeq rounds τ to the dtype of the state: t(τ) could exceed the clock's range.
        return field(tau.to(times).clamp(min(ends), max(ends)), state)

    return tuple(part[-1] for part in torchdiffeq.odeint(within, state, times, **settings))


@dataclass(frozen=True)
class StochasticMethod(ABC):
    """A method for the reverse SDE; expectations have an error of O(step^order)."""

    steps: int = 256
    order: ClassVar[int]
    is_random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.assign(self, steps=checks.integer(self.steps, "steps", minimum=1))

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

    The weak order is two because the noise is additive: the powers of ΔM in the average of the two
    drifts have the same expectations as the iterated integrals that they approximate. If the noise
    depends on the point, it is that of the start of the step, and the order is one.
    """

    order = 2

    def step(self, drift: Drift, x: Tensor, tau: Tensor, to: Tensor, noise: Tensor) -> Tensor:
        """Return X at τ = ``to``."""
        h, here = float(to - tau), drift(tau, x)
        there = drift(to, x + h * here + noise)
        return x + 0.5 * h * (here + there) + noise
