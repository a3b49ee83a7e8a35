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

BLOCK = 2**16
"""How many points a function is evaluated at in one go."""


def rowwise(f: Function, name: str = "f") -> Function:
    """Return ``f`` with its contract checked: a batch of n points goes to n rows."""
    if not callable(f):
        raise TypeError(f"{name} must be a function of a batch of points, got {f!r}")

    def evaluate(x: Tensor) -> Tensor:
        values: object = f(x)
        if not isinstance(values, Tensor) or values.ndim < 1 or len(values) != len(x):
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"{name} must map a batch {tuple(x.shape)} to a tensor of shape ({len(x)},) or "
                f"({len(x)}, *out), got {got}"
            )
        return values

    return evaluate


def directional(f: Function, x: Tensor, direction: Tensor) -> Tensor:
    """Return the derivative of ``f`` at each point of ``x`` along a direction, or one per point."""
    derivative: Tensor = jvp(f, (x,), (direction.expand_as(x),))[1]
    return derivative


def _over_noise(process: Process, x: Tensor, along: Callable[[Tensor], Tensor]) -> Tensor:
    """Return ½ Σ_j along(ℓ_j) over the columns ℓ_j of L, as many at once as memory allows."""
    columns = process.noise(x.shape[1:].numel()).to(x).mT.reshape(-1, *x.shape[1:])
    chunk = max(1, BLOCK // max(1, len(x)))
    return 0.5 * vmap(along, randomness="same", chunk_size=chunk)(columns).sum(dim=0)


@dataclass(frozen=True)
class InfinitesimalGenerator:
    """The generator: L f = ⟨b, ∇f⟩ + tr(G∇²f).

    >>> from oism.process import OrnsteinUhlenbeck
    >>> L = InfinitesimalGenerator(OrnsteinUhlenbeck())
    >>> L(lambda x: x.square().sum(dim=1) - 1)(torch.tensor([[3.0]]))  # He₂, λ = -2
    tensor([-16.])
    """

    process: Process

    def __post_init__(self) -> None:
        checks.instance(self.process, Process, "process")

    def __call__(self, f: Function) -> Function:
        """Return the function L f."""
        f = rowwise(f)

        def generated(x: Tensor) -> Tensor:
            x = checks.points(x)

            def twice(column: Tensor) -> Tensor:
                return directional(lambda y: directional(f, y, column), x, column)

            # tr(G∇²f) = ½ Σ_j ∂²f/∂ℓ_j²
            return directional(f, x, self._drift(x)) + _over_noise(self.process, x, twice)

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

    def __post_init__(self) -> None:
        checks.instance(self.process, Process, "process")

    def __call__(self, f: Function, g: Function | None = None) -> Function:
        """Return the function Γ(f, g); f and g must have values of the same shape."""
        f, g = rowwise(f), None if g is None else rowwise(g, "g")

        def squared_field(x: Tensor) -> Tensor:
            x = checks.points(x)

            def product(column: Tensor) -> Tensor:
                slope = directional(f, x, column)
                other = slope if g is None else directional(g, x, column)
                if slope.shape != other.shape:
                    raise ValueError(
                        f"g must have values of the shape {tuple(slope.shape)} of those of f, "
                        f"got {tuple(other.shape)}"
                    )
                return slope * other

            return _over_noise(self.process, x, product)

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
        checks.settle(self, nodes=checks.integer(self.nodes, "nodes", minimum=1))

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
        checks.settle(self, samples=checks.integer(self.samples, "samples", minimum=1))
        if self.generator is not None:
            checks.instance(self.generator, torch.Generator, "generator")

    def offsets(self, law: Transition, x: Tensor) -> tuple[Tensor, Tensor]:
        """Draw from the law started at zero; every call draws anew from the generator."""
        origin = x.new_zeros(self.samples, *x.shape[1:])
        draws = law.sample(origin, generator=self.generator)
        return draws - law.mean(origin), self._weights(x)

    def points(self, measure: Measure, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Draw from the measure, in float64."""
        points = measure.sample(
            (self.samples, *shape), generator=self.generator, dtype=torch.float64
        )
        return points, self._weights(points)

    def _weights(self, x: Tensor) -> Tensor:
        return x.new_full((self.samples,), 1 / self.samples)


def _rule(
    rule: Rule | None, shape: Sequence[int], device: torch.device | str | None = None
) -> Rule:
    """Return the rule, or the default: quadrature in at most three dimensions, Monte Carlo above.

    The default draws come from a generator of their own, so they are the same every time and leave
    torch's global one alone.
    """
    if rule is not None:
        return rule
    if torch.Size(shape).numel() <= QUADRATURE_DIM:
        return Quadrature()
    return MonteCarlo(generator=torch.Generator(device or "cpu").manual_seed(0))


def _weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Return Σ_j w_j v_j over the first axis; integers and flags count as numbers."""
    dtype = torch.promote_types(weights.dtype, values.dtype)
    flat = values.reshape(len(values), -1).to(dtype)
    return (weights.to(flat) @ flat).reshape(values.shape[1:])


def expectation(
    f: Function,
    measure: Measure,
    shape: Sequence[int],
    rule: Rule | None = None,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return ∫ f dπ over points of a given shape.

    ``rule`` is quadrature in at most three dimensions and seeded Monte Carlo above, unless given;
    f is evaluated at points of the given dtype and device.

    >>> from oism.process import Gaussian
    >>> expectation(lambda x: x.square().sum(dim=1), Gaussian(variance=0.5), (2,))
    tensor(1.0000, dtype=torch.float64)
    """
    shape = checks.shape(shape, minimum=1)
    kind = checks.dtype(dtype)
    points, weights = (p.to(device, kind) for p in _rule(rule, shape).points(measure, shape))
    return _weighted_sum(weights, rowwise(f)(points))


@dataclass(frozen=True)
class Semigroup:
    """P_t f(x) = E[f(X_t) | X_0 = x] for one time t ≥ 0; P_0 is the identity.

    ``rule`` is quadrature in at most three dimensions and seeded Monte Carlo above (two digits or
    so), unless given. A rule serves processes whose law at t is one law shifted to the mean, as
    that of every linear process is.

    >>> from oism.process import OrnsteinUhlenbeck
    >>> P = Semigroup(OrnsteinUhlenbeck(), t=0.5)
    >>> P(lambda x: x.sum(dim=1))(torch.tensor([[2.0]])) / 2.0  # e^{-t}
    tensor([0.6065])
    """

    process: Process
    t: Tensor | float
    rule: Rule | None = None

    def __post_init__(self) -> None:
        checks.instance(self.process, Process, "process")
        if self.rule is not None:
            checks.instance(self.rule, Rule, "rule")
        if checks.time(self.t).ndim:
            raise ValueError(f"t must be one number, got shape {tuple(checks.time(self.t).shape)}")

    def __call__(self, f: Function) -> Function:
        """Return the function P_t f; f is evaluated at a bounded number of points at a time."""
        f, law = rowwise(f), self.process.transition(self.t)

        def averaged(x: Tensor) -> Tensor:
            mean = law.mean(checks.points(x))
            offsets, weights = _rule(self.rule, x.shape[1:], x.device).offsets(law, x)
            offsets, weights = offsets.to(x), weights.to(x)
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
    """E(f, g) = ∫ Γ(f, g) dπ on points of a given shape; π must be a probability.

    See `expectation` for ``rule``, ``dtype`` and ``device``.

    >>> from oism.process import OrnsteinUhlenbeck
    >>> DirichletForm(OrnsteinUhlenbeck(), shape=(2,))(lambda x: x.square().sum(dim=1))
    tensor(8.0000, dtype=torch.float64)
    """

    process: Process
    shape: Sequence[int]
    rule: Rule | None = None
    dtype: torch.dtype = torch.float64
    device: torch.device | str | None = None

    def __post_init__(self) -> None:
        checks.instance(self.process, Process, "process")
        checks.settle(self, shape=checks.shape(self.shape, minimum=1))

    def __call__(self, f: Function, g: Function | None = None) -> Tensor:
        """Return the number E(f, g), or one per output of f and g."""
        gamma = CarreDuChamp(self.process)(f, g)
        measure = self.process.invariant
        return expectation(
            gamma, measure, self.shape, self.rule, dtype=self.dtype, device=self.device
        )
