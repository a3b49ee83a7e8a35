"""From noise to data and back: the probability flow and the reverse SDE.

A process dX = b(X) dt + L dW seen through a clock t(τ), with G = ½LLᵀ and laws ρ_t, is undone in
two ways once the score s = ∇ log ρ_t is known. The *probability flow* is an ordinary differential
equation whose solutions have the same laws, in both directions of τ,

    dx/dτ = t'(τ) (b(x) - G s(x, t(τ))),

and the *reverse SDE*, run from the last τ to the first,

    dX = t'(τ) (b(X) - 2G s(X, t(τ))) dτ + √t'(τ) L dW̄.

Both start from the invariant law; Brownian motion has none, and starts from N(0, σ² I) with the σ
of the last time. Any function s(x, t) will do as a score: a fitted one, a network, an exact one. It
is given the process's own time t as a number.

Ordinary equations are solved by torchdiffeq. Its stochastic counterparts do not exploit noise that
does not depend on the state, for which Heun's method has weak order two with a single normal
increment a step; those two methods are a few lines here. The increment of √t' L dW over a step is
exact: the clock says how much of the process's own time has passed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torchdiffeq
from torch import Tensor

from oism import checks
from oism.clock import Clock, Noising
from oism.process import Isotropic, Linear
from oism.process.measure import Gaussian, Measure, NotAProbabilityError
from oism.progress import Progress, progress_bar
from oism.score import OperatorScore

State = tuple[Tensor, ...]
Field = Callable[[Tensor, State], State]
Drift = Callable[[Tensor, Tensor], Tensor]

CHUNK = 2**16
"""The number of points that are moved at a time."""

TICKS = 1000
"""In how many parts the way of a chunk is shown."""


class Score(Protocol):
    """What a flow needs to know: ∇ log ρ_t at points ``(n, *shape)`` for one time t."""

    def __call__(self, x: Tensor, t: Tensor, /) -> Tensor:
        """Return the score, of the shape of ``x``."""


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
        grid = _grid(ends, self.steps).to(state[0].device)
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


def _grid(ends: tuple[float, float], steps: int) -> Tensor:
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


class Flow:
    """The way between data and noise that a score describes.

    Parameters
    ----------
    score
        ∇ log ρ_t as a function of points ``(n, *shape)`` and the process's own time t, one number
        as a float64 tensor without dimensions. A network that wants one per row in its own dtype is
        ``lambda x, t: net(x, t.to(x).expand(len(x)))``.
    process, clock
        What diffuses and how fast; a fitted `OperatorScore` brings its own. Of a `Linear` process
        whose noise does not reach every direction only Gs is read: the score along velocities.
    span
        The first and last τ; the whole clock by default. Data are taken to be those at the first.

    Examples
    --------
    The exact score of N(0, 4) under the Ornstein-Uhlenbeck process gives N(0, 4) back.

    >>> from oism import Flow, OrnsteinUhlenbeck, VariancePreserving
    >>> process = OrnsteinUhlenbeck()
    >>> def score(x, t):
    ...     return -x / (4 * process.alpha(t) ** 2 + process.variance(t))
    >>> flow = Flow(score, process, VariancePreserving())
    >>> x = flow.sample(10_000, (1,), generator=torch.Generator().manual_seed(0))
    >>> x.std()
    tensor(2.0...)
    """

    def __init__(
        self,
        score: Score,
        process: Isotropic | Linear | None = None,
        clock: Clock | None = None,
        *,
        span: tuple[float, float] | None = None,
    ) -> None:
        if isinstance(score, OperatorScore):
            own = _process_of(score)
            process, clock = process or own, clock or score.clock
            if isinstance(own, Linear) and process != own:  # its scores are in its coordinates
                raise ValueError(f"process must be that of the fitted score, {own!r}, or None")
        if not callable(score):
            raise TypeError(f"score must be a function of x and t, got {type(score).__name__}")
        if process is None or clock is None:
            raise TypeError("process and clock must be given unless a fitted score brings its own")
        if not isinstance(process, Isotropic | Linear):
            raise TypeError(
                f"process must be of type Isotropic or Linear, got {type(process).__name__}"
            )
        checks.instance(clock, Clock, "clock")
        self.score, self.process, self.clock = score, process, clock
        self.span = self._span(span)

    def _span(self, span: tuple[float, float] | None) -> tuple[float, float]:
        horizon = self.clock.horizon
        first, last = (0.0, horizon) if span is None else span
        first, last = checks.number(first, "span[0]"), checks.number(last, "span[1]")
        if not 0 <= first < last <= horizon:
            raise ValueError(f"span must lie in [0, {horizon:g}] and increase, got {span!r}")
        return first, last

    @property
    def noising(self) -> Noising:
        """The process seen through the clock, where it treats every coordinate alike."""
        checks.instance(self.process, Isotropic, "process")
        assert isinstance(self.process, Isotropic)
        return Noising(self.process, self.clock)

    @property
    def base(self) -> Measure:
        """The law at the last time: the invariant one, or N(0, σ² I) for `Brownian` motion."""
        process = self.process
        if process.invariant.is_probability:
            return process.invariant
        if isinstance(process, Linear):
            raise NotAProbabilityError("process must have a stationary law to start from")
        last = self.clock.time(self.span[1])
        return Gaussian(float(process.variance(last)))

    def velocity(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return the right-hand side t'(τ) (b - Gs) of the probability flow."""
        return self._drift(x, tau, 1.0)

    def _drift(self, x: Tensor, tau: Tensor, share: float) -> Tensor:
        """Return t'(τ) (b - share · G s)."""
        return self._motion(x, self.score(x, self.clock._time(tau)), tau, share)

    def _motion(self, x: Tensor, score: object, tau: Tensor, share: float = 1.0) -> Tensor:
        """Return t'(τ) (b - share · G s) where the score is known already."""
        if not isinstance(score, Tensor) or score.shape != x.shape:
            got = tuple(score.shape) if isinstance(score, Tensor) else type(score).__name__
            raise ValueError(
                f"score must return a tensor of the shape {tuple(x.shape)} of its points, got {got}"
            )
        pull = self.process.drift(x).sub(self.process._diffuse(score), alpha=share)
        return pull * self.clock._rate(tau).to(pull.dtype)

    def push(
        self,
        x: Tensor,
        *,
        method: OrdinaryMethod | None = None,
        chunk: int = CHUNK,
        progress: bool | None = None,
    ) -> Tensor:
        """Carry data along the flow to noise."""
        return self._carry(x, self.span, method, chunk, progress)

    def pull(
        self,
        z: Tensor,
        *,
        method: OrdinaryMethod | None = None,
        chunk: int = CHUNK,
        progress: bool | None = None,
    ) -> Tensor:
        """Carry noise along the flow to data."""
        return self._carry(z, self.span[::-1], method, chunk, progress)

    @torch.no_grad()
    def _carry(
        self,
        x: Tensor,
        ends: tuple[float, float],
        method: OrdinaryMethod | None,
        chunk: int,
        progress: bool | None,
    ) -> Tensor:
        method = Adaptive() if method is None else method
        checks.instance(method, OrdinaryMethod, "method")
        x, wrap = checks.points(x), self.process.wrap
        out = torch.empty_like(x)
        with progress_bar(progress) as bar:
            for rows, tell in chunks(len(x), chunk, ends, bar, "following the flow"):

                def field(tau: Tensor, state: State, tell: Callable = tell) -> State:  # type: ignore[type-arg]
                    tell(tau)
                    return (self.velocity(state[0], tau),)

                out[rows] = wrap(method.solve(field, (x[rows],), ends)[0])
        return out

    @torch.no_grad()
    def sample(  # noqa: PLR0913
        self,
        n: int,
        shape: Sequence[int],
        *,
        method: OrdinaryMethod | StochasticMethod | None = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        chunk: int = CHUNK,
        progress: bool | None = None,
    ) -> Tensor:
        """Return n samples ``(n, *shape)``, by the flow or, given its method, by the reverse SDE.

        All randomness comes from ``generator``. Memory is that of the starting points, the result,
        and what the score needs for ``chunk`` points.
        """
        n = checks.integer(n, "n", minimum=0)
        method = Adaptive() if method is None else method
        shape = checks.shape(shape, minimum=1)
        x = self.base.sample((n, *shape), generator=generator, dtype=dtype, device=device)
        if isinstance(method, OrdinaryMethod):
            return self.pull(x, method=method, chunk=chunk, progress=progress)
        checks.instance(method, StochasticMethod, "method")
        self._simulate(x, method, generator, chunk, progress)
        return x

    def _simulate(
        self,
        x: Tensor,
        method: StochasticMethod,
        generator: torch.Generator | None,
        chunk: int,
        progress: bool | None,
    ) -> None:
        """Run the reverse SDE in place."""
        process, ends = self.process, self.span[::-1]
        grid = _grid(ends, method.steps)
        spread = (-self.clock._time(grid).diff()).sqrt()

        def drift(tau: Tensor, x: Tensor) -> Tensor:
            return self._drift(x, tau, 2.0)

        with progress_bar(progress) as bar:
            for rows, tell in chunks(len(x), chunk, ends, bar, "running the reverse SDE"):
                part = x[rows]
                for tau, to, size in zip(grid[:-1], grid[1:], spread.tolist(), strict=True):
                    noise = process._kick(part, generator).mul_(size)
                    part = method.step(drift, part, tau, to, noise)
                    tell(to)
                x[rows] = process.wrap(part)


def chunks(
    n: int, size: int, ends: tuple[float, float], bar: Progress, name: str
) -> Iterator[tuple[slice, Callable[[Tensor], None]]]:
    """Yield slices of n rows, each with a function that shows how far τ has come."""
    size = checks.integer(size, "chunk", minimum=1)
    count = math.ceil(n / size)
    bar.stage(name, TICKS * count)
    furthest = 0
    for number in range(count):

        def tell(tau: Tensor, number: int = number) -> None:
            nonlocal furthest
            if bar.shown:  # reading τ from a device would wait for it
                share = (float(tau) - ends[0]) / (ends[1] - ends[0])
                furthest = max(furthest, round(TICKS * (number + share)))
                bar.reach(furthest)

        yield slice(number * size, min(n, (number + 1) * size)), tell
    bar.reach(TICKS * count)


def _process_of(score: OperatorScore) -> Isotropic | Linear:
    process = score.basis.process
    assert isinstance(process, Isotropic | Linear)
    return process
