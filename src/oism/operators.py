"""The operators of a Markov diffusion, acting on any callable.

For dX = b dt + L dW with invariant measure π and G = ½LLᵀ:

    generator          L f  = ⟨b, ∇f⟩ + tr(G∇²f)
    adjoint in L²(π)   L* f = ⟨b*, ∇f⟩ + tr(G∇²f),    b* = 2G∇log π - b
    carré du champ     Γ(f, g) = ⟨∇f, G∇g⟩ = ½(L(fg) - fLg - gLf)
    Dirichlet form     E(f, g) = ∫ Γ(f, g) dπ
    semigroup          P_t f(x) = E[f(X_t) | X_0 = x],  P_t = e^{tL}

A function maps a batch of points ``(n, *shape)`` to ``(n,)`` or ``(n, *out)``, row by row: row i
of the result depends on row i of the input only. Operators return such functions again, so they
compose: ``L(L(f))``, ``L(P(f))``. Derivatives are directional and in forward mode
(``torch.func.jvp``): one along the drift, two along each column of L, for all points at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.func import jvp, vmap

from oism import checks
from oism.process import Measure, Process, Transition

Function = Callable[[Tensor], Tensor]

QUADRATURE_DIM = 3
"""The largest dimension in which a product rule is the default."""

BLOCK = 2**18
"""How many points a function is evaluated at in one go by a semigroup."""


def directional(f: Function, x: Tensor, direction: Tensor) -> Tensor:
    """Return the derivative of ``f`` at each point of ``x`` along a direction, or one per point."""
    derivative: Tensor = jvp(f, (x,), (direction.expand_as(x),))[1]
    return derivative


def _columns(process: Process, x: Tensor) -> Tensor:
    """Return the columns of L as directions, ``(k, *shape)``, in the dtype of ``x``."""
    noise = process.noise(x.shape[1:].numel()).to(x)
    return noise.mT.reshape(-1, *x.shape[1:])


def _second_order(process: Process, f: Function, x: Tensor) -> Tensor:
    """Return tr(G∇²f) = ½ Σ_j ∂²f/∂ℓ_j² over the columns ℓ_j of L."""

    def along(column: Tensor) -> Tensor:
        return directional(lambda y: directional(f, y, column), x, column)

    return 0.5 * vmap(along, randomness="same")(_columns(process, x)).sum(dim=0)


@dataclass(frozen=True)
class InfinitesimalGenerator:
    """The generator: L f = ⟨b, ∇f⟩ + tr(G∇²f).

    >>> from oism.process import OrnsteinUhlenbeck
    >>> L = InfinitesimalGenerator(OrnsteinUhlenbeck())
    >>> L(lambda x: x.square().sum(dim=1) - 1)(torch.tensor([[3.0]]))  # He₂, λ = -2
    tensor([-16.])
    """

    process: Process

    def __call__(self, f: Function) -> Function:
        """Return the function L f."""

        def generated(x: Tensor) -> Tensor:
            x = checks.points(x)
            along_drift = directional(f, x, self._drift(x))
            return along_drift + _second_order(self.process, f, x)

        return generated

    def _drift(self, x: Tensor) -> Tensor:
        return self.process.drift(x)


@dataclass(frozen=True)
class AdjointGenerator(InfinitesimalGenerator):
    """The adjoint in L²(π): ∫ f Lg dπ = ∫ g L*f dπ. It equals L when the process is symmetric."""

    def _drift(self, x: Tensor) -> Tensor:
        return self.process.adjoint_drift(x)


@dataclass(frozen=True)
class CarreDuChamp:
    """Γ(f, g) = ⟨∇f, G∇g⟩ = ½ Σ_j ∂_{ℓ_j}f ∂_{ℓ_j}g; Γ(f) stands for Γ(f, f)."""

    process: Process

    def __call__(self, f: Function, g: Function | None = None) -> Function:
        """Return the function Γ(f, g)."""

        def squared_field(x: Tensor) -> Tensor:
            x = checks.points(x)

            def along(column: Tensor) -> Tensor:
                slope = directional(f, x, column)
                return slope * (slope if g is None else directional(g, x, column))

            return 0.5 * vmap(along, randomness="same")(_columns(self.process, x)).sum(dim=0)

        return squared_field


class Rule(ABC):
    """How an expectation is computed: points and weights for a transition law or a measure."""

    @abstractmethod
    def offsets(self, law: Transition, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return offsets ``(m, *shape)`` from the mean of ``law``, and weights ``(m,)``."""

    @abstractmethod
    def points(self, measure: Measure, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return points ``(m, *shape)`` and weights ``(m,)`` for a probability measure."""


@dataclass(frozen=True)
class Quadrature(Rule):
    """A product rule with ``nodes`` points per dimension, in float64.

    Exact for polynomials of degree ≤ 2 nodes - 1 on ℝ^d. On the torus it is exact to rounding for
    frequencies below nodes under the uniform law, and up to nodes - 22 under a transition law, at
    every t (see ``oism.quadrature``).
    """

    nodes: int = 32

    def __post_init__(self) -> None:
        checks.integer(self.nodes, "nodes", minimum=1)

    def offsets(self, law: Transition, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rule of the transition law."""
        offsets, weights = law.quadrature(x.shape[1:].numel(), self.nodes)
        return offsets.reshape(-1, *x.shape[1:]), weights

    def points(self, measure: Measure, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return the rule of the measure."""
        points, weights = measure.quadrature(torch.Size(shape).numel(), self.nodes)
        return points.reshape(-1, *shape), weights


@dataclass(frozen=True)
class MonteCarlo(Rule):
    """Equal weights on random draws; the same draws serve every point (common random numbers)."""

    samples: int = 4096
    generator: torch.Generator | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        checks.integer(self.samples, "samples", minimum=1)

    def offsets(self, law: Transition, x: Tensor) -> tuple[Tensor, Tensor]:
        """Draw from the law started at zero."""
        origin = x.new_zeros(self.samples, *x.shape[1:])
        return law.sample(origin, generator=self.generator), self._weights(x)

    def points(self, measure: Measure, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Draw from the measure, in float64."""
        points = measure.sample(
            (self.samples, *shape), generator=self.generator, dtype=torch.float64
        )
        return points, self._weights(points)

    def _weights(self, x: Tensor) -> Tensor:
        return x.new_full((self.samples,), 1 / self.samples)


def default_rule(shape: Sequence[int]) -> Rule:
    """Return quadrature in at most three dimensions, Monte Carlo above."""
    return Quadrature() if torch.Size(shape).numel() <= QUADRATURE_DIM else MonteCarlo()


def _weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Return Σ_j w_j v_j over the first axis of ``values``."""
    return (weights.to(values) @ values.reshape(len(values), -1)).reshape(values.shape[1:])


def expectation(
    f: Function, measure: Measure, shape: Sequence[int], rule: Rule | None = None
) -> Tensor:
    """Return ∫ f dπ over points of a given shape, in float64.

    >>> from oism.process import Gaussian
    >>> expectation(lambda x: x.square().sum(dim=1), Gaussian(variance=0.5), (2,))
    tensor(1.0000, dtype=torch.float64)
    """
    points, weights = (rule or default_rule(shape)).points(measure, tuple(shape))
    return _weighted_sum(weights, f(points))


@dataclass(frozen=True)
class Semigroup:
    """P_t f(x) = E[f(X_t) | X_0 = x] for one time t ≥ 0; P_0 is the identity.

    ``rule`` is quadrature in at most three dimensions and Monte Carlo above, unless given. Only
    processes whose law is a translate of one law (all the linear ones) can be served by a rule.

    >>> from oism.process import OrnsteinUhlenbeck
    >>> P = Semigroup(OrnsteinUhlenbeck(), t=0.5)
    >>> P(lambda x: x.sum(dim=1))(torch.tensor([[2.0]])) / 2.0  # e^{-t}
    tensor([0.6065])
    """

    process: Process
    t: Tensor | float
    rule: Rule | None = None

    def __post_init__(self) -> None:
        if checks.time(self.t).ndim:
            raise ValueError(f"t must be one number, got shape {tuple(checks.time(self.t).shape)}")

    def __call__(self, f: Function) -> Function:
        """Return the function P_t f, evaluated in blocks so that memory stays bounded."""
        law = self.process.transition(self.t)

        def averaged(x: Tensor) -> Tensor:
            mean = law.mean(checks.points(x))
            rule = self.rule or default_rule(x.shape[1:])
            offsets, weights = (part.to(x) for part in rule.offsets(law, x))
            size = max(1, BLOCK // max(1, len(x)))
            blocks = zip(torch.split(offsets, size), torch.split(weights, size), strict=True)
            return sum((self._block(f, mean, *block) for block in blocks), x.new_zeros(()))

        return averaged

    def _block(self, f: Function, mean: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
        """Return Σ_j w_j f(wrap(mean + offset_j)) for one block of offsets."""
        values = f(self.process.wrap((offsets[:, None] + mean).flatten(0, 1)))
        return _weighted_sum(weights, values.reshape(len(offsets), len(mean), *values.shape[1:]))

    def log_kernel(self, x: Tensor, y: Tensor) -> Tensor:
        """Return log k_t(x, y) with P_t f(x) = ∫ k_t(x, y) f(y) dπ(y), k_t = ρ_t(y|x)/π(y).

        For the Ornstein-Uhlenbeck process this is Mehler's kernel. It is symmetric in x and y
        exactly when the process is.
        """
        law = self.process.transition(self.t)
        return law.log_density(y, x) - self.process.invariant.log_density(y)


@dataclass(frozen=True)
class DirichletForm:
    """E(f, g) = ∫ Γ(f, g) dπ on points of a given shape; π must be a probability."""

    process: Process
    shape: Sequence[int]
    rule: Rule | None = None

    def __post_init__(self) -> None:
        checks.shape(self.shape)

    def __call__(self, f: Function, g: Function | None = None) -> Tensor:
        """Return the number E(f, g), or one per output of f and g."""
        gamma = CarreDuChamp(self.process)(f, g)
        return expectation(gamma, self.process.invariant, self.shape, self.rule)
