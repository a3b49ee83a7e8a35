"""Expectations E[f(X)] under a transition or an invariant measure, by quadrature or Monte Carlo.

A function maps a batch of points ``(n, *shape)`` to ``(n,)`` or ``(n, *out)``, row by row: row i of
the result depends on row i of the input only. A rule gives points and weights for a distribution,
so that every expectation is Σⱼ wⱼ f(xⱼ).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import matmul
from oism.process._base import Nodes, Transition
from oism.process._measure import Measure

Function = Callable[[Tensor], Tensor]
"""A map from points ``(n, *shape)`` to values ``(n,)`` or ``(n, *out)``, row by row."""

QUADRATURE_DIM = 3
"""The largest dimension in which a product rule is the default."""


def rowwise(f: Function, name: str = "f") -> Function:
    """Return ``f`` with a check that it maps a batch of n points to n rows."""
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


class Rule(ABC):
    """Points and weights for expectations under a transition or a measure.

    ``samples`` is the number of random draws and ``generator`` their source; None for a quadrature
    rule.
    """

    samples: int | None = None
    generator: torch.Generator | None = None

    @abstractmethod
    def nodes_given(self, law: Transition, x: Tensor, size: int) -> Iterator[Nodes]:
        """Yield points ``(m, n, *shape)`` and weights ``(m,)`` or ``(m, n)`` for X_t given x.

        In blocks of about ``size`` points.
        """

    @abstractmethod
    def points(self, measure: Measure, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return points ``(m, *shape)`` and weights ``(m,)`` for a probability measure."""


@dataclass(frozen=True)
class Quadrature(Rule):
    """A product rule with ``nodes`` points per dimension, in float64.

    Exact for polynomials of degree ≤ 2 nodes - 1 on ℝ^d. On the torus it is exact to rounding for
    frequencies below nodes under the uniform distribution, and up to nodes - 22 under a transition,
    at every t (see ``oism._core.quadrature``). Other processes state the accuracy of their
    `Transition.nodes`.
    """

    nodes: int = 32

    def __post_init__(self) -> None:
        checks.assign(self, nodes=checks.integer(self.nodes, "nodes", minimum=1))

    def nodes_given(self, law: Transition, x: Tensor, size: int) -> Iterator[Nodes]:
        """Yield the nodes of the transition."""
        return law._node_blocks(x, self.nodes, size)

    def points(self, measure: Measure, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return the rule of the measure."""
        points, weights = measure.quadrature(torch.Size(shape).numel(), self.nodes)
        return points.reshape(-1, *shape), weights


@dataclass(frozen=True)
class MonteCarlo(Rule):
    """Equal weights on random samples; for linear processes the same noise for every point."""

    samples: int = 4096
    generator: torch.Generator | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        checks.assign(self, samples=checks.integer(self.samples, "samples", minimum=1))
        checks.optional(self.generator, torch.Generator, "generator")

    def nodes_given(self, law: Transition, x: Tensor, size: int) -> Iterator[Nodes]:
        """Yield samples of the transition; every call uses the generator again."""
        return law._sample_blocks(x, self.samples, size, self.generator)

    def points(self, measure: Measure, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return samples of the measure, in float64, on the device of the generator."""
        device = None if self.generator is None else self.generator.device
        size, kind = (self.samples, *shape), torch.float64
        points = measure.sample(size, generator=self.generator, dtype=kind, device=device)
        return points, points.new_full((self.samples,), 1 / self.samples)


def choose_rule(
    rule: Rule | None, shape: Sequence[int], device: torch.device | str | None = None
) -> Rule:
    """Return the rule, or the default: quadrature in at most three dimensions, Monte Carlo above.

    The default samples come from a separate generator with a fixed seed: they are the same in every
    call, and torch's global generator is not used.
    """
    if rule is not None:
        return rule
    if torch.Size(shape).numel() <= QUADRATURE_DIM:
        return Quadrature()
    return MonteCarlo(generator=torch.Generator(device or "cpu").manual_seed(0))


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Return Σ_j w_j v_j over the first axis; integers and booleans are converted.

    Weights are ``(m,)``, or ``(m, n)`` for values ``(m, n, *out)``.
    """
    dtype = torch.promote_types(weights.dtype, values.dtype)
    if weights.ndim > 1:
        mass = weights.to(dtype).reshape(*weights.shape, *[1] * (values.ndim - weights.ndim))
        return (mass * values.to(dtype)).sum(dim=0)
    flat = values.reshape(len(values), -1).to(dtype)
    return matmul(weights.to(flat), flat).reshape(values.shape[1:])


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

    The default ``rule`` is quadrature in at most three dimensions and seeded Monte Carlo above; f
    is evaluated at points of the given dtype and device.

    >>> from oism.process import Gaussian
    >>> expectation(lambda x: x.square().sum(dim=1), Gaussian(variance=0.5), (2,))
    tensor(1.0000, dtype=torch.float64)
    """
    shape = checks.shape(shape, minimum=1)
    checks.optional(rule, Rule, "rule")
    kind = checks.dtype(dtype)
    points, weights = (p.to(device, kind) for p in choose_rule(rule, shape).points(measure, shape))
    return weighted_sum(weights, rowwise(f)(points))
