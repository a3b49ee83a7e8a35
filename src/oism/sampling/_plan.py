"""Plans: every number of a multistep method, before the first evaluation.

A method evaluates the residual R_k at levels λ_0 < … < λ_{N-1} and ends at λ_N. In standardised
coordinates (`oism.sampling._coordinates`) every linear multistep method, with or without a
corrector, has the form

    u_{k+1} = a_k u_k + Σ_j W_{kj} R_{k-j} + n_k ξ_k,    ξ_k ~ N(0, 1),

with numbers for each coordinate that do not depend on the data. They are computed in float64 when
the plan is made. A plan is all that a sampler needs, in a loop of its own or step by step in
somebody else's.

Tensors at the last level λ_N still have noise of that level. Without it they are D(x_N, λ_N), and
where a method can predict the residual there, no further evaluation is needed:

    D_N = m + (αc/s) u_N + Σ_j V_j R_{N-1-j}.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from oism._core import checks
from oism._core.devices import moved
from oism._core.draws import normal_like
from oism._core.progress import progress_bar
from oism.images import GaussianPart
from oism.sampling._coordinates import Level

Denoiser = Callable[[Tensor, Tensor], Tensor]
"""D(x, λ): clean tensors to expect from noised ones ``(n, *shape)`` at a level λ, one number."""


@dataclass(frozen=True)
class Span:
    """The levels of a model: ``first`` that of pure noise, ``last`` that of the least noise."""

    first: float
    last: float

    def __post_init__(self) -> None:
        first, last = checks.number(self.first, "first"), checks.number(self.last, "last")
        if not first < last:
            raise ValueError(f"first must be below last = {last:g}, got {first:g}")
        checks.assign(self, first=first, last=last)


@dataclass(frozen=True, eq=False)
class Step:
    """a ``(K,)`` or None for 1, W ``(q, K)`` with the newest residual first, n ``(K,)`` or None."""

    weights: Tensor
    decay: Tensor | None = None
    noise: Tensor | None = None

    def to(self, device: torch.device | str) -> Self:
        """Return the step on a device; the same object where nothing changes."""
        weights, decay = moved(self.weights, device), moved(self.decay, device)
        return checks.changed(self, weights=weights, decay=decay, noise=moved(self.noise, device))


@dataclass
class History:
    """The residuals of past steps, the newest first, and the last result with its coordinates.

    ``version`` counts changes of a tensor in place: a result that was edited has other coordinates.
    """

    residuals: deque[Tensor] = field(default_factory=deque)
    x: Tensor | None = None
    u: Tensor | None = None
    version: int = -1


class Plan:
    """A multistep method for one Gaussian part and one set of levels.

    Parameters
    ----------
    part
        The Gaussian whose flow is exact.
    span
        The range of levels. Noise is that of its first level.
    levels
        λ_0 < … < λ_N: the N levels of the evaluations, then that of the result.
    steps
        The numbers of each step.
    end
        V ``(q, K)`` of the denoised result, the newest residual first. None if the result is at
        the last level, with its noise.
    expected_error
        An estimate of the root mean squared error of the result, per dimension, or None.
    """

    def __init__(
        self,
        part: GaussianPart,
        span: Span,
        levels: Tensor,
        steps: list[Step],
        end: Tensor | None = None,
        expected_error: float | None = None,
    ) -> None:
        self.part, self.span, self.steps, self.end = part, span, steps, end
        self.levels, self.expected_error = levels.double().cpu(), expected_error
        self._tables: dict[tuple[int, torch.dtype, torch.device], Level] = {}

    def to(self, device: torch.device | str, part: GaussianPart | None = None) -> Plan:
        """Return the plan on a device; the same object where nothing changes.

        ``part`` is its Gaussian part on that device, if there is one already: so plans for several
        numbers of evaluations have one copy of the directions.
        """
        part = self.part.to(device) if part is None else part
        steps, end = [step.to(device) for step in self.steps], moved(self.end, device)
        if part is self.part and end is self.end and all(map(operator.is_, steps, self.steps)):
            return self
        return Plan(part, self.span, self.levels, steps, end, self.expected_error)

    @property
    def evaluations(self) -> int:
        """The number of evaluations of the denoiser."""
        return len(self.steps)

    def start(self, noise: Tensor) -> tuple[Tensor, History]:
        """Return tensors at the first evaluation's level from noise of the first level.

        The Gaussian's flow is exact, so no evaluation is needed in between.
        """
        self._check(noise, "noise")
        first = Level.of(self.part, torch.tensor(self.span.first, dtype=torch.float64), noise)
        u = first.standardised(self.part, noise.flatten(1))
        return self._result(0, u, noise, History())

    def step(
        self,
        k: int,
        x: Tensor,
        denoised: Tensor,
        history: History,
        noise: Tensor | None = None,
    ) -> tuple[Tensor, History]:
        """Return tensors at level k + 1 from those at level k, and the history for the next step.

        ``denoised`` is D(x, λ_k). ``noise``, of the shape of ``x``, is needed where the step adds
        noise.
        """
        own = self.steps[k]
        u, residual = self.residual(k, x, denoised, history)
        following = self.steps[k + 1] if k + 1 < len(self.steps) else None
        last = 0 if self.end is None else len(self.end)
        kept = last if following is None else len(following.weights) - 1
        past = [residual, *history.residuals]
        u = u if own.decay is None else own.decay.to(u) * u
        weights = own.weights.to(u)
        for number, old in zip(weights, past, strict=False):
            u = torch.addcmul(u, number, old)
        if own.noise is not None:
            if noise is None:
                raise ValueError("noise must be given: the plan adds noise in every step")
            u = torch.addcmul(u, own.noise.to(u), self.part.analyse(noise.flatten(1)))
        return self._result(k + 1, u, x, History(deque(past[:kept])))

    def finish(self, x: Tensor, history: History) -> Tensor:
        """Return the result from tensors at the last level, after the last step."""
        if self.end is None:
            return x
        last = self._level(self.evaluations, x)
        clean = last.gain * self._coordinates(last, x, history)
        for number, old in zip(self.end.to(clean), history.residuals, strict=False):
            clean = torch.addcmul(clean, number, old)
        return self.part.synthesise(self.part.mean.to(clean) + clean).reshape(x.shape)

    def residual(
        self, k: int, x: Tensor, denoised: Tensor, history: History
    ) -> tuple[Tensor, Tensor]:
        """Return u and R = D - D_Gauss at level k in coordinates: ``(n, K)`` each."""
        self._check(denoised, "denoised", x)
        here = self._level(k, x)
        u = self._coordinates(here, x, history)
        return u, here.residual(self.part, u, denoised.to(x.dtype).flatten(1))

    def _coordinates(self, level: Level, x: Tensor, history: History) -> Tensor:
        """Return u; that of what the last step returned need not be computed again."""
        is_known = history.x is x and history.version == x._version  # not changed in place since
        if is_known and history.u is not None:
            return history.u
        return level.standardised(self.part, x.flatten(1))

    @torch.no_grad()
    def sample(
        self,
        denoiser: Denoiser,
        noise: Tensor,
        generator: torch.Generator | None = None,
        *,
        denoise: bool = True,
        progress: bool | None = None,
    ) -> Tensor:
        """Return the result, from noise ``(n, *shape)`` of the first level.

        Without ``denoise`` it is that at the last level, with its noise. The generator draws the
        noise of a random plan, on its own device.
        """
        if not callable(denoiser):
            raise TypeError(
                f"denoiser must be a function of tensors and a level λ, got "
                f"{type(denoiser).__name__}"
            )
        checks.optional(generator, torch.Generator, "generator")
        x, history = self.start(checks.floating(noise, "noise"))
        with progress_bar(progress) as bar:
            bar.stage("sampling", self.evaluations)
            for k, level in enumerate(self.levels[:-1]):
                fresh = None
                if self.steps[k].noise is not None:
                    fresh = normal_like(x, generator)
                x, history = self.step(k, x, denoiser(x, level), history, fresh)
                bar.advance(1)
        return self.finish(x, history) if denoise else x

    def _check(self, x: object, name: str, like: Tensor | None = None) -> None:
        """Raise unless tensors have the size of the Gaussian part, or the shape of others."""
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
        if like is not None and x.shape != like.shape:
            raise ValueError(
                f"{name} must have the shape {tuple(like.shape)} of the tensors, got "
                f"{tuple(x.shape)}"
            )
        if x.ndim < 2 or x.shape[1:].numel() != self.part.dim:
            raise ValueError(
                f"{name} must be tensors (n, *shape) of {self.part.dim} entries each, got shape "
                f"{tuple(x.shape)}"
            )

    def _level(self, k: int, like: Tensor) -> Level:
        """Return the table of a level; one is made for each dtype and device."""
        key = (k, like.dtype, like.device)
        if key not in self._tables:
            self._tables[key] = Level.of(self.part, self.levels[k], like)
        return self._tables[key]

    def _result(self, k: int, u: Tensor, like: Tensor, history: History) -> tuple[Tensor, History]:
        x = self._level(k, like).tensors(self.part, u).reshape(like.shape)
        history.x, history.u, history.version = x, u, x._version
        return x, history
