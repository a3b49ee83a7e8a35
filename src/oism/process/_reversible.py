"""Reversible diffusions dX = b(X) dt + L(X) dW with noise that depends on the point.

The generator is symmetric in L²(π), so with G = ½LLᵀ and a test function f

    L f = (1/π) ∇·(πG∇f) = ⟨b, ∇f⟩ + tr(G∇²f),    b = G∇log π + ∇·G,    b* = b.

For u = log(ρ_t/π) the probability flow is ẋ = -G∇u, and along it du/dt = Lu: neither needs the
score, which may be infinite at a boundary where G vanishes. The reverse SDE has, in reversed time,
the drift b + 2G∇u.

Points are stored in the coordinates of the domain: numbers on an interval, unit vectors on a
sphere. There L(x) maps into the tangent space, b includes the curvature term that keeps paths on
the sphere, and solvers move in the space around it: after each step `Domain.wrap` returns to the
domain. Densities and scores are with respect to the volume of the domain.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import NoReturn

import torch
from torch import Tensor

from oism._core import checks
from oism.process._base import Nodes, Process, Transition


class ReversibleTransition(Transition):
    """The distribution of X_t given X_0 = x, with nodes that depend on x.

    A subclass defines `sample`, `log_density` and `nodes`; mean and covariance where they exist.
    """

    def mean(self, x: Tensor) -> Tensor:  # noqa: ARG002
        """Raise unless a subclass defines a mean."""
        self._refuse("mean")

    def covariance(self, dim: int) -> Tensor:  # noqa: ARG002
        """Raise: the covariance depends on the start."""
        self._refuse("covariance of all starts")

    def quadrature(self, dim: int, nodes: int) -> NoReturn:  # noqa: ARG002
        """Raise: there are no common offsets; `nodes` returns points for each start."""
        self._refuse("rule of common offsets: use nodes(x, count)")

    @abstractmethod
    def nodes(self, x: Tensor, count: int) -> Nodes:
        """Return points ``(m, n, *shape)`` and weights ``(m, n)`` or ``(m,)`` for each start."""

    def _node_blocks(self, x: Tensor, count: int, size: int) -> Iterator[Nodes]:
        points, weights = self.nodes(x, count)
        step = max(1, size // max(1, len(x)))
        pieces = (torch.split(part.to(x), step) for part in (points, weights))
        yield from zip(*pieces, strict=True)

    def _sample_blocks(
        self, x: Tensor, samples: int, size: int, generator: torch.Generator | None
    ) -> Iterator[Nodes]:
        """Yield samples, independent for all points."""
        step = max(1, size // max(1, len(x)))
        for first in range(0, samples, step):
            count = min(step, samples - first)
            starts = x.expand(count, *x.shape).flatten(0, 1)
            draws = self.sample(starts, generator=generator)
            yield draws.reshape(count, *x.shape), x.new_full((count,), 1 / samples)

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"{type(self).__name__} has no {what}: noise depends on the point")


class Reversible(Process):
    """A reversible diffusion with state-dependent noise.

    A subclass defines ``domain``, ``invariant``, `drift`, `noise_at` and ``_transition``, and
    `flow_drift` and ``_diffuse`` where they are simpler than the defaults or finite at a boundary.
    """

    has_constant_noise = False

    def noise(self, dim: int) -> NoReturn:  # noqa: ARG002
        """Raise: the noise depends on the point; see `noise_at`."""
        raise TypeError(
            f"{type(self).__name__} has no constant noise matrix: use noise_at(x), or diffuse(v, x)"
        )

    @abstractmethod
    def noise_at(self, x: Tensor) -> Tensor:
        """Return L(x) at points ``(n, *shape)`` of d entries: ``(n, d, k)``."""

    def flow_drift(self, x: Tensor) -> Tensor:
        """Return b - ∇·G = G∇log π, of the shape of ``x``."""
        return self.diffuse(self.invariant.score(checks.points(x)), x)

    def symmetric_drift(self, x: Tensor) -> Tensor:
        """Return b."""
        return self.drift(x)

    def adjoint_drift(self, x: Tensor) -> Tensor:
        """Return b: the reversed stationary process is the process itself."""
        return self.drift(x)

    def _retract(self, x: Tensor) -> Tensor:
        return self.domain._wrap(x)
