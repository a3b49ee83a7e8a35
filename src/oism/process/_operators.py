"""The operators of a Markov diffusion, acting on any callable.

For dX = b dt + L dW with invariant measure π and G = ½LLᵀ, which may depend on the point:

    generator          L f  = ⟨b, ∇f⟩ + tr(G∇²f)
    adjoint in L²(π)   L* f = ⟨b*, ∇f⟩ + tr(G∇²f),    b* = 2(G∇log π + ∇·G) - b
    symmetric part     ½(L + L*) f = ⟨G∇log π + ∇·G, ∇f⟩ + tr(G∇²f)
    carré du champ     Γ(f, g) = ⟨∇f, G∇g⟩ = ½(L(fg) - fLg - gLf)
    Dirichlet form     E(f, g) = ∫ Γ(f, g) dπ
    semigroup          P_t f(x) = E[f(X_t) | X_0 = x],  P_t = e^{tL}

They map functions of a batch of points (see ``oism.process._expectation``) to such functions, so
they compose: ``L(L(f))``, ``L(P(f))``. Derivatives are directional and in forward mode
(``torch.func.jvp``): one along the drift, two along each column of L, for all points at once. On a
manifold in embedding coordinates a function may be any extension to the space around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp, vmap

from oism._core import checks
from oism.process._base import Process
from oism.process._expectation import (
    Function,
    Rule,
    choose_rule,
    expectation,
    rowwise,
    weighted_sum,
)

BLOCK = 2**16
"""The number of points per evaluation of a function."""


def directional(f: Function, x: Tensor, direction: Tensor) -> Tensor:
    """Return the derivative of ``f`` at each point of ``x`` along a direction, or one per point."""
    derivative: Tensor = jvp(f, (x,), (direction.expand_as(x),))[1]
    return derivative


def over_noise(process: Process, x: Tensor, along: Callable[[Tensor], Tensor]) -> Tensor:
    """Return ½ Σ_j along(ℓ_j) over the columns ℓ_j of L(x), in batches of bounded memory."""
    noise = process.noise_at(x).movedim(2, 0)
    columns = noise.reshape(len(noise), *x.shape)
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
            return directional(f, x, self._drift(x)) + over_noise(self.process, x, twice)

        return generated

    def _drift(self, x: Tensor) -> Tensor:
        return self.process.drift(x)


@dataclass(frozen=True)
class AdjointGenerator(InfinitesimalGenerator):
    """The adjoint in L²(π): ∫ f Lg dπ = ∫ g L*f dπ. It equals L when the process is symmetric."""

    def _drift(self, x: Tensor) -> Tensor:
        return self.process.adjoint_drift(x)


@dataclass(frozen=True)
class SymmetricPart(InfinitesimalGenerator):
    """½(L + L*), the part that integrates by parts: ∫ Γ(f, g) dπ = -∫ g ½(L + L*)f dπ.

    It is L if the process is symmetric. For an asymmetric process it lacks the rotation, which does
    not change the Dirichlet form.

    >>> from oism.process import CriticallyDamped
    >>> x = torch.tensor([[1.0, 3.0]])  # position, velocity
    >>> process = CriticallyDamped(dim=1)
    >>> [kind(process)(lambda y: y[:, 0])(x) for kind in (InfinitesimalGenerator, SymmetricPart)]
    [tensor([3.]), tensor([0.])]
    """

    def _drift(self, x: Tensor) -> Tensor:
        return self.process.symmetric_drift(x)


@dataclass(frozen=True)
class CarreDuChamp:
    """Γ(f, g) = ⟨∇f, G∇g⟩ = ½ Σ_j ∂_{ℓ_j}f ∂_{ℓ_j}g; Γ(f) is Γ(f, f)."""

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

            return over_noise(self.process, x, product)

        return squared_field


@dataclass(frozen=True)
class Semigroup:
    """P_t f(x) = E[f(X_t) | X_0 = x] for one time t ≥ 0; P_0 is the identity.

    The default ``rule`` is quadrature in at most three dimensions and seeded Monte Carlo above,
    with an accuracy of about two digits.

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
        checks.optional(self.rule, Rule, "rule")
        if checks.time(self.t).ndim:
            raise ValueError(f"t must be one number, got shape {tuple(checks.time(self.t).shape)}")

    def __call__(self, f: Function) -> Function:
        """Return the function P_t f; f is evaluated in batches of bounded size."""
        f, law = rowwise(f), self.process.transition(self.t)

        def averaged(x: Tensor) -> Tensor:
            rule = choose_rule(self.rule, checks.points(x).shape[1:], x.device)
            blocks = rule.nodes_given(law, x, BLOCK)
            return sum((self._block(f, *block) for block in blocks), x.new_zeros(()))

        return averaged

    def _block(self, f: Function, points: Tensor, weights: Tensor) -> Tensor:
        """Return Σ_j w_j f(wrap(y_j)) for one block of nodes ``(m, n, *shape)``."""
        values = f(self.process.wrap(points.flatten(0, 1)))
        return weighted_sum(weights, values.reshape(*points.shape[:2], *values.shape[1:]))

    def log_kernel(self, x: Tensor, y: Tensor) -> Tensor:
        """Return log k_t(x, y) with P_t f(x) = ∫ k_t(x, y) f(y) dπ(y), k_t = ρ_t(y|x)/π(y).

        For the Ornstein-Uhlenbeck process this is Mehler's kernel. It is symmetric in x and y if
        and only if the process is.
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
        checks.optional(self.rule, Rule, "rule")
        checks.assign(self, shape=checks.shape(self.shape, minimum=1))

    def __call__(self, f: Function, g: Function | None = None) -> Tensor:
        """Return the number E(f, g), or one per output of f and g."""
        gamma = CarreDuChamp(self.process)(f, g)
        measure = self.process.invariant
        return expectation(
            gamma, measure, self.shape, self.rule, dtype=self.dtype, device=self.device
        )
