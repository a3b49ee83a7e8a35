"""Densities along the probability flow.

A point that moves with velocity v(x, τ) carries the density of its law along:
d/dτ log ρ(x(τ)) = -∇·v. From data x at the first τ to the noise z it ends in,

    log ρ(x) = log π(z) + ∫ ∇·v(x(τ), τ) dτ,        ∇·v = t'(τ) (∇·b - ∇·Gs),

and the same integral taken backwards gives the density of a sample while it is made. The divergence
of the score comes in one of three ways: in closed form for a fitted `OperatorScore`, exactly by
automatic differentiation, at the price of one pass per dimension, or without bias by Hutchinson's
(and Skilling's) estimate vᵀJv with random signs v, which are drawn once per point so that the
integrand stays smooth.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from oism import checks
from oism.flow import CHUNK, Adaptive, Flow, OrdinaryMethod, Score, State, chunks
from oism.progress import progress_bar

Joint = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

LOW_DIMENSION = 16
"""Up to this dimension the divergence of a score without closed form is computed exactly."""


@runtime_checkable
class DivergentScore(Protocol):
    """A score that knows its divergence."""

    def score_and_divergence(self, x: Tensor, t: Tensor, /) -> tuple[Tensor, Tensor]:
        """Return ∇ log ρ_t and its divergence."""


class Divergence(ABC):
    """A way to the divergence of a score."""

    @abstractmethod
    def bind(self, score: Score, x: Tensor) -> Joint:
        """Return (x, t) ↦ (score, divergence) for the path that starts at ``x``."""


@dataclass(frozen=True)
class ClosedForm(Divergence):
    """The score's own ``score_and_divergence``."""

    def bind(self, score: Score, x: Tensor) -> Joint:  # noqa: ARG002
        """Return the score's own method."""
        if not isinstance(score, DivergentScore):
            raise TypeError(
                "score must have a method score_and_divergence(x, t) for ClosedForm(), got "
                f"{type(score).__name__}: ExactTrace() and Hutchinson() serve any score"
            )
        return score.score_and_divergence


@dataclass(frozen=True)
class ExactTrace(Divergence):
    """Σ_j ∂_j s_j by reverse-mode differentiation, one pass per dimension."""

    def bind(self, score: Score, x: Tensor) -> Joint:  # noqa: ARG002
        """Return the score with the trace of its Jacobian."""

        def joint(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                value = score(x, t)
                flat = value.flatten(1)
                trace = torch.zeros_like(flat[:, 0])
                for j in range(flat.shape[1]):
                    trace += _gradient(flat[:, j].sum(), x).flatten(1)[:, j]
            return value.detach(), trace

        return joint


@dataclass(frozen=True)
class Hutchinson(Divergence):
    """The mean of vᵀJv over ``probes`` vectors of random signs for each point."""

    generator: torch.Generator
    probes: int = 1

    def __post_init__(self) -> None:
        checks.instance(self.generator, torch.Generator, "generator")
        checks.settle(self, probes=checks.integer(self.probes, "probes", minimum=1))

    def bind(self, score: Score, x: Tensor) -> Joint:
        """Return the score with the estimate for signs that are drawn now."""
        shape = (self.probes, *x.shape)
        signs = torch.empty(shape, dtype=x.dtype, device=x.device)
        signs.bernoulli_(generator=self.generator).mul_(2).sub_(1)

        def joint(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                value = score(x, t)
                total = torch.zeros_like(value.flatten(1)[:, 0])
                for v in signs:
                    product = _gradient((value * v).sum(), x) * v
                    total += product.flatten(1).sum(dim=1)
            return value.detach(), total / self.probes

        return joint


def _gradient(value: Tensor, x: Tensor) -> Tensor:
    if value.grad_fn is None:
        raise ValueError(
            "score must be differentiable in x for ExactTrace() and Hutchinson(...), but it was "
            "computed without gradients: under torch.inference_mode or no_grad, or not from x"
        )
    return torch.autograd.grad(value, x, retain_graph=True, materialize_grads=True)[0]


def log_density(
    flow: Flow,
    x: Tensor,
    *,
    method: OrdinaryMethod | None = None,
    divergence: Divergence | None = None,
    chunk: int = CHUNK,
    progress: bool | None = None,
) -> Tensor:
    """Return log ρ(x) at points ``(n, *shape)``: ``(n,)``.

    ``divergence`` is by default the closed form where the score has one, and the exact trace in at
    most 16 dimensions; above, `Hutchinson` must be asked for, because it is random.

    >>> from oism import OrnsteinUhlenbeck, VariancePreserving
    >>> process = OrnsteinUhlenbeck()
    >>> def score(x, t):
    ...     return -x / (4 * process.alpha(t) ** 2 + process.variance(t))
    >>> flow = Flow(score, process, VariancePreserving())
    >>> x = torch.zeros(1, 2, dtype=torch.float64)
    >>> log_density(flow, x)  # N(0, 4I) at 0: -log(2π·4) = -3.224
    tensor([-3.224...], dtype=torch.float64)
    """
    x = checks.points(x)
    result, _ = _along(flow, x, flow.span, method, divergence, chunk, progress)
    return result


def sample_with_log_density(  # noqa: PLR0913
    flow: Flow,
    n: int,
    shape: Sequence[int],
    *,
    method: OrdinaryMethod | None = None,
    divergence: Divergence | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    chunk: int = CHUNK,
    progress: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Return n samples and the logarithm of their density, from one pass from noise to data."""
    size = (checks.integer(n, "n", minimum=0), *checks.shape(shape, minimum=1))
    z = flow.base.sample(size, generator=generator, dtype=dtype, device=device)
    result, x = _along(flow, z, flow.span[::-1], method, divergence, chunk, progress)
    return x, result


@torch.no_grad()
def _along(  # noqa: PLR0913, PLR0917
    flow: Flow,
    x: Tensor,
    ends: tuple[float, float],
    method: OrdinaryMethod | None,
    divergence: Divergence | None,
    chunk: int,
    progress: bool | None,
) -> tuple[Tensor, Tensor]:
    """Return log-densities at the data's end of the flow, and where the points ended."""
    method = Adaptive() if method is None else method
    checks.instance(method, OrdinaryMethod, "method")
    divergence = _default(flow.score, x) if divergence is None else divergence
    checks.instance(divergence, Divergence, "divergence")
    process, clock = flow.noising.process, flow.noising.clock
    forward = ends[0] < ends[1]
    drift = process.drift_divergence(x[0].numel() if len(x) else 1)
    end, result = torch.empty_like(x), x.new_empty(len(x))
    with progress_bar(progress) as bar:
        for rows, tell in chunks(len(x), chunk, ends, bar, "densities along the flow"):
            start = x[rows]
            joint = divergence.bind(flow.score, start)

            def field(
                tau: Tensor,
                state: State,
                joint: Joint = joint,
                tell: Callable[[Tensor], None] = tell,
            ) -> State:
                tell(tau)
                score, spread = joint(state[0], clock._time(tau))
                rate = clock._rate(tau).to(x.dtype)
                velocity = flow._motion(state[0], score, tau)
                return velocity, (drift - process.diffusivity * spread) * rate

            gone, change = method.solve(field, (start, torch.zeros_like(result[rows])), ends)
            noise = gone if forward else start
            result[rows] = flow.base.log_density(noise) + (change if forward else -change)
            end[rows] = process.wrap(gone)
    return result, end


def _default(score: Score, x: Tensor) -> Divergence:
    if isinstance(score, DivergentScore):
        return ClosedForm()
    dim = x.shape[1:].numel()
    if dim <= LOW_DIMENSION:
        return ExactTrace()
    raise ValueError(
        f"divergence must be given in {dim} dimensions: Hutchinson(generator) is unbiased, "
        "ExactTrace() takes one pass per dimension"
    )
