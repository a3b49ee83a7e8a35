"""The probability flow and the reverse SDE: from noise to data and back.

A process dX = b(X) dt + L dW with a clock t(τ), G = ½LLᵀ and densities ρ_t can be reversed in two
ways once the score s = ∇ log ρ_t is known. The *probability flow* is an ordinary differential
equation whose solutions have the densities ρ_t, in both directions of τ,

    dx/dτ = t'(τ) v(x, t(τ)),    v = b - ∇·G - G s,

and the *reverse SDE*, run from the last τ to the first,

    dX = t'(τ) (2v - b)(X, t(τ)) dτ + √t'(τ) L dW̄.

For constant L, ∇·G = 0. For a reversible process v = -G∇log(ρ_t/π), which a `RelativeModel` gives
itself: at a boundary the score may be infinite and v finite. Points that a solver moves out of the
domain are put back before anything is evaluated there, and after each step of the SDE.

Both start from the invariant distribution; Brownian motion has none and starts from N(0, σ² I) with
the σ of the last time. The score can be any function s(x, t): a fitted model, a network, an exact
score. Its argument t is the process's own time, one number.

The numerical methods are in `oism.flow._methods`. The increment of √t' L dW over a step is drawn
exactly, with the process time t(τ) between the two ends of the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import Progress, progress_bar
from oism.flow._methods import Adaptive, OrdinaryMethod, State, StochasticMethod, even_grid
from oism.process import Clock, Measure, Noising, Process

CHUNK = 2**16
"""The number of points per batch."""

TICKS = 1000
"""The number of progress steps per chunk."""


class Score(Protocol):
    """∇ log ρ_t at points ``(n, *shape)`` for one time t."""

    def __call__(self, x: Tensor, t: Tensor, /) -> Tensor:
        """Return the score, of the shape of ``x``."""


class RelativeModel(Protocol):
    """A model of u = log(ρ_t/π) under a reversible process, as `oism.score.ReversibleScore` is."""

    def field(self, x: Tensor, t: Tensor, /) -> Tensor:
        """Return G∇u, of the shape of ``x``."""

    def field_and_generated(self, x: Tensor, t: Tensor, /) -> tuple[Tensor, Tensor]:
        """Return G∇u and Lu, ``(n,)``."""


@runtime_checkable
class ScoreModel(Protocol):
    """A model that states its process, its clock and its score, as every `FittedModel` does."""

    @property
    def process(self) -> Process:
        """The noising process."""

    @property
    def clock(self) -> Clock:
        """The noise levels."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a point."""

    def score(self, x: Tensor, t: Tensor, /) -> Tensor:
        """Return ∇ log ρ_t, of the shape of ``x``."""


class Flow:
    """The probability flow and the reverse SDE of a score.

    Parameters
    ----------
    score
        A fitted model, or ∇ log ρ_t as a function of points ``(n, *shape)`` and the process's own
        time t, a float64 tensor without dimensions. For a network that takes one time per row in
        its own dtype, pass ``lambda x, t: net(x, t.to(x).expand(len(x)))``.
    process, clock
        The process and its noise levels; a fitted model has its own. If the diffusion matrix G is
        singular, only Gs is used: for velocities, the score along the velocities.
    span
        The first and last τ; the whole clock by default. Data are at the first.

    Examples
    --------
    With the exact score of N(0, 4) under the Ornstein-Uhlenbeck process, samples are N(0, 4).

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
        score: ScoreModel | Score,
        process: Process | None = None,
        clock: Clock | None = None,
        *,
        span: tuple[float, float] | None = None,
    ) -> None:
        self.source, self.shape = score, None
        self.relative: RelativeModel | None = None
        if isinstance(score, ScoreModel):
            own = score.process
            if process is None or process == own:
                process = own
            elif own.diffusivity is None or process.diffusivity != own.diffusivity:
                raise ValueError(f"process must be that of the fitted model, {own!r}, or None")
            self.score: Score = score.score
            self.shape, clock = score.shape, clock or score.clock
            # As `FittedModel.relative`; other models need not have it.
            self.relative = getattr(score, "relative", None)
        elif callable(score):
            self.score = score
        else:
            # Estimators, as of scikit-learn, have what they have fitted in `model_`.
            hint = ": pass its model_" if hasattr(type(score), "model_") else ""
            raise TypeError(
                f"score must be a fitted model or a function of x and t, got "
                f"{type(score).__name__}{hint}"
            )
        if process is None or clock is None:
            raise TypeError("process and clock must be given unless a fitted model has its own")
        checks.instance(process, Process, "process")
        checks.instance(clock, Clock, "clock")
        self.process, self.clock = process, clock
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
        """The process with its clock; only for processes that noise all coordinates alike."""
        return Noising.of(self.process, self.clock)

    @property
    def base(self) -> Measure:
        """The distribution at the last time, from which sampling starts: see `Process.start`."""
        return self.process.start(self.clock._time(torch.tensor(self.span[1], dtype=torch.float64)))

    def velocity(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return the right-hand side t'(τ) v of the probability flow."""
        moved = self._velocity(self.process._retract(x), self.clock._time(tau))
        return moved * self.clock._rate(tau).to(moved.dtype)

    def reverse_drift(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return the drift t'(τ) (2v - b) of the reverse SDE."""
        x = self.process._retract(x)
        moved = 2 * self._velocity(x, self.clock._time(tau)) - self.process.drift(x)
        return moved * self.clock._rate(tau).to(moved.dtype)

    def _velocity(self, x: Tensor, t: Tensor) -> Tensor:
        """Return v at points of the domain."""
        if self.relative is not None:
            return -self.relative.field(x, t)
        return self._moved(x, self.score(x, t))

    def _moved(self, x: Tensor, score: object) -> Tensor:
        """Return v = b - ∇·G - Gs, given the value s of the score."""
        if not isinstance(score, Tensor) or score.shape != x.shape:
            got = tuple(score.shape) if isinstance(score, Tensor) else type(score).__name__
            raise ValueError(
                f"score must return a tensor of the shape {tuple(x.shape)} of its points, got {got}"
            )
        return self.process.flow_drift(x) - self.process._diffuse(score, x)

    def push(
        self,
        x: Tensor,
        *,
        method: OrdinaryMethod | None = None,
        chunk: int = CHUNK,
        progress: bool | None = None,
    ) -> Tensor:
        """Return the noise at the end of the flow from data ``x``: of the shape of ``x``."""
        return self._carry(x, self.span, method, chunk, progress)

    def pull(
        self,
        z: Tensor,
        *,
        method: OrdinaryMethod | None = None,
        chunk: int = CHUNK,
        progress: bool | None = None,
    ) -> Tensor:
        """Return the data at the end of the flow from noise ``z``: of the shape of ``z``."""
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
            for rows, report in chunks(len(x), chunk, ends, bar, "following the flow"):

                def field(tau: Tensor, state: State, report: Callable = report) -> State:  # type: ignore[type-arg]
                    report(tau)
                    return (self.velocity(state[0], tau),)

                out[rows] = wrap(method.solve(field, (x[rows],), ends)[0])
        return out

    @torch.no_grad()
    def sample(  # noqa: PLR0913
        self,
        n: int,
        shape: Sequence[int] | None = None,
        *,
        method: OrdinaryMethod | StochasticMethod | None = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        chunk: int = CHUNK,
        progress: bool | None = None,
    ) -> Tensor:
        """Return n samples ``(n, *shape)``, by the flow or, with its methods, by the reverse SDE.

        A fitted model has its own shape. All randomness comes from ``generator``. Memory is used
        for the starting points, the result, and the score of ``chunk`` points.
        """
        method = Adaptive() if method is None else method
        x = self.start(n, shape, generator=generator, dtype=dtype, device=device)
        if isinstance(method, OrdinaryMethod):
            return self.pull(x, method=method, chunk=chunk, progress=progress)
        checks.instance(method, StochasticMethod, "method")
        self._simulate(x, method, generator, chunk, progress)
        return x

    def start(
        self,
        n: int,
        shape: Sequence[int] | None = None,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """Return n samples of the distribution at the last time: ``(n, *shape)``."""
        n = checks.integer(n, "n", minimum=0)
        shape = self.shape if shape is None else shape
        if shape is None:
            raise TypeError("shape must be given for a score that is a function")
        shape = checks.shape(shape, minimum=1)
        return self.base.sample((n, *shape), generator=generator, dtype=dtype, device=device)

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
        grid = even_grid(ends, method.steps)
        spread = (-self.clock._time(grid).diff()).sqrt()

        def drift(tau: Tensor, x: Tensor) -> Tensor:
            return self.reverse_drift(x, tau)

        with progress_bar(progress) as bar:
            for rows, report in chunks(len(x), chunk, ends, bar, "running the reverse SDE"):
                part = x[rows]
                for tau, to, size in zip(grid[:-1], grid[1:], spread.tolist(), strict=True):
                    noise = process._sample_noise(part, generator).mul_(size)
                    part = process._retract(method.step(drift, part, tau, to, noise))
                    report(to)
                x[rows] = process.wrap(part)


def chunks(
    n: int, size: int, ends: tuple[float, float], bar: Progress, name: str
) -> Iterator[tuple[slice, Callable[[Tensor], None]]]:
    """Yield slices of n rows, each with a function that reports the current τ to the bar."""
    size = checks.integer(size, "chunk", minimum=1)
    count = math.ceil(n / size)
    bar.stage(name, TICKS * count)
    furthest = 0
    for number in range(count):

        def report(tau: Tensor, number: int = number) -> None:
            nonlocal furthest
            # Reading τ from a GPU synchronises with it, and cannot be recorded.
            if bar.shown and not checks.is_recorded(tau):
                share = (float(tau) - ends[0]) / (ends[1] - ends[0])
                furthest = max(furthest, round(TICKS * (number + share)))
                bar.reach(furthest)

        yield slice(number * size, min(n, (number + 1) * size)), report
    bar.reach(TICKS * count)
