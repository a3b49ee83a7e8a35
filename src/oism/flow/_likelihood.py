"""Densities along the probability flow.

Along the path of a point with velocity v(x, τ) the density changes by d/dτ log ρ(x(τ)) = -∇·v. From
data x at the first τ to the noise z at the last,

    log ρ(x) = log π(z) + ∫ ∇·v(x(τ), τ) dτ,        ∇·v = t'(τ) (∇·(b - ∇·G) - ∇·Gs),

and the same integral taken backwards gives the density of a sample while it is generated. The
divergence ∇·Gs is computed in one of three ways: in closed form for a fitted `OperatorScore`;
exactly by automatic differentiation, one backward pass per dimension; or by Hutchinson's (and
Skilling's) unbiased estimate vᵀJv with random signs v and the Jacobian J of Gs. A model of
u = log(ρ_t/π) under a reversible process needs none of them: with v = -t'G∇u, log ρ/π changes along
the path by t'Lu, for every u, so log ρ(x) = log π(x) - ∫ t' Lu dτ, if the flow starts from π.

Its variance is half the sum of squares of the off-diagonal entries of J + Jᵀ. Two things reduce it.
A known score s_0 with a divergence in closed form is subtracted, so that only the Jacobian of
G(s - s_0) is estimated. And signs are drawn anew at every evaluation: the divergence does not act
on the path, so the integral is a sum Σ b_k v_kᵀJ_k v_k over the evaluations, unbiased for
Σ b_k tr J_k, and the errors of independent v_k average out. With one v for the whole path they
would add up. Adaptive methods need an integrand that is smooth in τ, and get one v.

For data with added velocities, the density of a position x is that of (x, v), integrated over v: an
average over draws of v from N(0, γI), each divided by its density.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from oism._core import checks
from oism._core.draws import filled
from oism._core.progress import progress_bar
from oism.flow._flow import CHUNK, Flow, chunks
from oism.flow._methods import Adaptive, OrdinaryMethod, State
from oism.process import PhaseSpace

Joint = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Path:
    """The equations of a point and of its log-density: log ρ(x) = ends(x, z) + ∫ rate dt.

    ``motion`` maps (x, t) to (v, rate); ``ends`` maps the data x and the noise z to ``(n,)``.
    """

    motion: Joint
    ends: Callable[[Tensor, Tensor], Tensor]


LOW_DIMENSION = 16
"""The largest dimension in which the default is `ExactTrace` for scores without a closed form."""


@runtime_checkable
class DivergentScore(Protocol):
    """A model with the divergence of its score in closed form; sufficient if G = gI."""

    def score_and_divergence(self, x: Tensor, t: Tensor, /) -> tuple[Tensor, Tensor]:
        """Return ∇ log ρ_t and its divergence."""


@runtime_checkable
class DiffusedScore(Protocol):
    """A model with ∇·Gs in closed form, for any G."""

    def score_and_diffused_divergence(self, x: Tensor, t: Tensor, /) -> tuple[Tensor, Tensor]:
        """Return ∇ log ρ_t and ∇·G∇ log ρ_t."""


class Divergence(ABC):
    """A method that computes the divergence ∇·Gs of a score s."""

    @abstractmethod
    def bind(self, flow: Flow, x: Tensor, *, smooth: bool = True) -> Joint:
        """Return (x, t) ↦ (s, ∇·Gs) for the path that starts at ``x``.

        ``smooth`` is whether the divergence must be a smooth function of t along the path.
        """

    def path(self, flow: Flow, x: Tensor, *, smooth: bool = True) -> Path:
        """Return the equations of the path that starts at ``x``: with ∇·v, and log π(z)."""
        joint, process, base = self.bind(flow, x, smooth=smooth), flow.process, flow.base

        def motion(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            score, spread = joint(x, t)
            x = process._retract(x)
            return flow._moved(x, score), process._flow_drift_divergence(x) - spread

        return Path(motion, lambda _, noise: base.log_density(process._retract(noise)))


@dataclass(frozen=True)
class ClosedForm(Divergence):
    """The model's ``score_and_diffused_divergence``, or ``score_and_divergence`` if G = gI.

    For a `RelativeModel` its ``field_and_generated``: no divergence is needed.
    """

    @staticmethod
    def of(flow: Flow) -> Joint | None:
        """Return the closed form of a flow's model, or None if it has none."""
        model, diffusivity = flow.source, flow.process.diffusivity
        if isinstance(model, DiffusedScore):
            return model.score_and_diffused_divergence
        if diffusivity is None or not isinstance(model, DivergentScore):
            return None
        own = model.score_and_divergence

        def joint(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            value, trace = own(x, t)
            return value, diffusivity * trace

        return joint

    def path(self, flow: Flow, x: Tensor, *, smooth: bool = True) -> Path:
        """Return the model's own equations."""
        model, process = flow.relative, flow.process
        if model is None:
            return super().path(flow, x, smooth=smooth)

        def motion(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            field, generated = model.field_and_generated(process._retract(x), t)
            return -field, -generated

        # The flow of a reversible process starts from π, so that log ρ/π is zero at the noise.
        return Path(motion, lambda data, _: process.invariant.log_density(process._retract(data)))

    def bind(self, flow: Flow, x: Tensor, *, smooth: bool = True) -> Joint:  # noqa: ARG002
        """Return the model's own method."""
        joint = self.of(flow)
        if joint is None:
            wanted = "diffused_divergence" if flow.process.diffusivity is None else "divergence"
            raise TypeError(
                f"score must have a method score_and_{wanted}(x, t) for ClosedForm(), got "
                f"{type(flow.source).__name__}: use ExactTrace() or Hutchinson(generator) instead"
            )
        return joint


@dataclass(frozen=True)
class ExactTrace(Divergence):
    """Σ_j ∂_j (Gs)_j by reverse-mode differentiation, one pass per dimension."""

    def bind(self, flow: Flow, x: Tensor, *, smooth: bool = True) -> Joint:  # noqa: ARG002
        """Return the score with the trace of the Jacobian of Gs."""
        score, process = flow.score, flow.process

        def joint(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                inside = process._retract(x)
                value = score(inside, t)
                flat = process._diffuse(value, inside).flatten(1)
                trace = torch.zeros_like(flat[:, 0])
                for j in range(flat.shape[1]):
                    again = j + 1 < flat.shape[1]
                    trace += _gradient(flat[:, j].sum(), x, again=again).flatten(1)[:, j]
            return value.detach(), trace

        return joint


@dataclass(frozen=True)
class Hutchinson(Divergence):
    """The mean of vᵀJv over ``probes`` vectors of random signs for each point.

    ``known`` is a score with a divergence in closed form, near that of the flow: J is then the
    Jacobian of the difference only. It needs a process with G = gI. With ``fixed`` signs the same
    v serve all evaluations of a path, as they do for every method that needs a smooth integrand.
    """

    generator: torch.Generator
    probes: int = 1
    known: DivergentScore | None = None
    fixed: bool = False

    def __post_init__(self) -> None:
        checks.instance(self.generator, torch.Generator, "generator")
        checks.assign(self, probes=checks.integer(self.probes, "probes", minimum=1))
        if self.known is not None and not isinstance(self.known, DivergentScore):
            raise TypeError(
                "known must have a method score_and_divergence(x, t), got "
                f"{type(self.known).__name__}"
            )

    def bind(self, flow: Flow, x: Tensor, *, smooth: bool = True) -> Joint:
        """Return the score with the estimate."""
        score, process, residual = flow.score, flow.process, self._residual(flow)
        shape = (self.probes, *x.shape)
        drawn = self._signs(shape, x) if smooth or self.fixed else None

        def joint(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            signs = self._signs(shape, x) if drawn is None else drawn
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                inside = process._retract(x)
                value = score(inside, t)
                rest, trace = residual(value, inside, t)
                moved, total = process._diffuse(rest, inside), torch.zeros_like(trace)
                for k, v in enumerate(signs):
                    product = _gradient((moved * v).sum(), x, again=k + 1 < len(signs)) * v
                    total += product.flatten(1).sum(dim=1)
            return value.detach(), trace.detach() + total / self.probes

        return joint

    def _signs(self, shape: tuple[int, ...], x: Tensor) -> Tensor:
        def fill(signs: Tensor) -> Tensor:
            return signs.bernoulli_(generator=self.generator).mul_(2).sub_(1)

        return filled(fill, shape, self.generator, dtype=x.dtype, device=x.device)

    def _residual(self, flow: Flow) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return (s, x, t) ↦ s - s_0 and ∇·Gs_0; without a known score s and 0."""
        known, diffusivity = self.known, flow.process.diffusivity
        if known is None:
            return lambda value, *_: (value, torch.zeros_like(value.flatten(1)[:, 0]))
        if diffusivity is None:
            raise ValueError(
                f"known must be None for the process {flow.process!r}: its noise matrix is not a "
                "multiple of I"
            )

        def residual(value: Tensor, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            near, trace = known.score_and_divergence(x, t)
            return value - near, diffusivity * trace

        return residual


def _gradient(value: Tensor, x: Tensor, *, again: bool) -> Tensor:
    """Return the gradient; a graph that is not used ``again`` is freed, as compiled layers need."""
    if value.grad_fn is None:
        raise ValueError(
            "score must be differentiable in x for ExactTrace() and Hutchinson(...), but it has no "
            "gradient: it was computed under torch.inference_mode or no_grad, or not from x"
        )
    return torch.autograd.grad(value, x, retain_graph=again, materialize_grads=True)[0]


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

    By default ``divergence`` is the closed form if the score has one, otherwise the exact trace in
    at most 16 dimensions. In more, `Hutchinson` must be given, because it is random.

    >>> from oism import OrnsteinUhlenbeck, VariancePreserving
    >>> process = OrnsteinUhlenbeck()
    >>> def score(x, t):
    ...     return -x / (4 * process.alpha(t) ** 2 + process.variance(t))
    >>> flow = Flow(score, process, VariancePreserving())
    >>> x = torch.zeros(1, 2, dtype=torch.float64)
    >>> log_density(flow, x)  # N(0, 4I) at 0: -log(2π·4) = -3.224
    tensor([-3.224...], dtype=torch.float64)
    """
    checks.instance(flow, Flow, "flow")
    x = checks.points(x)
    result, _ = _along(flow, x, flow.span, method, divergence, chunk, progress)
    return result


def sample_with_log_density(  # noqa: PLR0913
    flow: Flow,
    n: int,
    shape: Sequence[int] | None = None,
    *,
    method: OrdinaryMethod | None = None,
    divergence: Divergence | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    chunk: int = CHUNK,
    progress: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Return n samples and their log-densities ``(n,)``, from one pass from noise to data."""
    z = flow.start(n, shape, generator=generator, dtype=dtype, device=device)
    result, x = _along(flow, z, flow.span[::-1], method, divergence, chunk, progress)
    return x, result


def position_log_density(  # noqa: PLR0913
    flow: Flow,
    space: PhaseSpace,
    x: Tensor,
    *,
    draws: int = 1,
    generator: torch.Generator | None = None,
    method: OrdinaryMethod | None = None,
    divergence: Divergence | None = None,
    chunk: int = CHUNK,
    progress: bool | None = None,
) -> Tensor:
    """Return log ρ(x) at positions ``(n, dim)`` for a flow of positions and velocities: ``(n,)``.

    The logarithm of the mean over ``draws`` velocities v ~ N(0, γI) of ρ(x, v)/N(v; 0, γI). The
    mean is unbiased, its logarithm is too small on average. Both are exact for any number of draws
    if the model's velocities are independent of the positions and N(0, γI), as for a Gaussian.

    >>> from oism import CriticallyDamped, Flow, fit_linear
    >>> from oism.process import PhaseSpace
    >>> space = PhaseSpace(CriticallyDamped(dim=1))
    >>> flow = Flow(fit_linear(torch.tensor([[-2.0], [2.0]]), space, order=2))
    >>> x, generator = torch.zeros(1, 1, dtype=torch.float64), torch.Generator().manual_seed(0)
    >>> position_log_density(flow, space, x, generator=generator)  # N(0, 4) at 0: -1.612
    tensor([-1.61...], dtype=torch.float64)
    """
    checks.instance(flow, Flow, "flow")
    checks.instance(space, PhaseSpace, "space")
    _check_space(flow, space)
    draws = checks.integer(draws, "draws", minimum=1)
    x = checks.points(x, dim=space.dim)
    points = space.lift(x.repeat(draws, 1), generator)
    joint, _ = _along(flow, points, flow.span, method, divergence, chunk, progress)
    ratio = (joint - space.log_density(space.velocities(points))).reshape(draws, len(x))
    return torch.logsumexp(ratio, dim=0) - math.log(draws)


def _check_space(flow: Flow, space: PhaseSpace) -> None:
    """Raise unless process and velocity variance of a space are those of the flow."""
    if flow.process != space.process:
        raise ValueError(
            f"space must have the process {flow.process!r} of the flow, got {space.process!r}"
        )
    fitted = getattr(flow.source, "velocity_variance", None)  # None for a function
    if fitted is not None and not math.isclose(fitted, space.gamma, rel_tol=1e-5):
        raise ValueError(f"space must have the gamma = {fitted:g} of the fit, got {space.gamma:g}")


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
    """Return log-densities at the data, and the points at the second end of the flow."""
    method = Adaptive() if method is None else method
    checks.instance(method, OrdinaryMethod, "method")
    divergence = _default(flow, x) if divergence is None else divergence
    checks.instance(divergence, Divergence, "divergence")
    process, clock = flow.process, flow.clock
    forward = ends[0] < ends[1]
    end, result = torch.empty_like(x), x.new_empty(len(x))
    with progress_bar(progress) as bar:
        for rows, report in chunks(len(x), chunk, ends, bar, "densities along the flow"):
            start = x[rows]
            path = divergence.path(flow, start, smooth=method.needs_smoothness)

            def field(
                tau: Tensor,
                state: State,
                path: Path = path,
                report: Callable[[Tensor], None] = report,
            ) -> State:
                report(tau)
                velocity, change = path.motion(state[0], clock._time(tau))
                rate = clock._rate(tau).to(x.dtype)
                return velocity * rate, change * rate

            gone, change = method.solve(field, (start, torch.zeros_like(result[rows])), ends)
            data, noise = (start, gone) if forward else (gone, start)
            result[rows] = path.ends(data, noise) + (change if forward else -change)
            end[rows] = process.wrap(gone)
    return result, end


def _default(flow: Flow, x: Tensor) -> Divergence:
    if flow.relative is not None or ClosedForm.of(flow) is not None:
        return ClosedForm()
    dim = x.shape[1:].numel()
    if dim <= LOW_DIMENSION:
        return ExactTrace()
    raise ValueError(
        f"divergence must be given in {dim} dimensions: Hutchinson(generator) is random and "
        "unbiased, ExactTrace() needs one pass per dimension"
    )
