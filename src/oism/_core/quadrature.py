"""Quadrature rules: points and weights with Σ wⱼ f(zⱼ) ≈ E[f(Z)], and their products.

``gauss_hermite`` integrates polynomials of degree ≤ 2n - 1 under N(0, 1) exactly, and
``gauss_legendre`` under the uniform distribution on [0, 1]. Equally spaced points are better for
waves. On the circle, n of them alias a frequency k only with frequencies at distance n or more; for
a wrapped normal of variance σ² the error is about exp(-(n - |k|)²σ²/2), so the rule is exact for
large σ. For small σ the same rule is used on the line, over ``REACH`` standard deviations, outside
of which N(0, 1) has a mass below 2e-15: ``normal_trapezoid``.
"""

from __future__ import annotations

import math

import scipy.special
import torch
from torch import Tensor

from oism._core import checks

REACH = 8.0
MOST_POINTS = 2**24


def gauss_hermite(nodes: int) -> tuple[Tensor, Tensor]:
    """Return the Gauss rule for N(0, 1): points and weights, ``(nodes,)``."""
    points, weights = scipy.special.roots_hermitenorm(checks.integer(nodes, "nodes", minimum=1))
    return torch.from_numpy(points), torch.from_numpy(weights / math.sqrt(2 * math.pi))


def gauss_legendre(nodes: int) -> tuple[Tensor, Tensor]:
    """Return the Gauss rule for the uniform distribution on [0, 1]: points and weights."""
    points, weights = scipy.special.roots_legendre(checks.integer(nodes, "nodes", minimum=1))
    return torch.from_numpy((points + 1) / 2), torch.from_numpy(weights / 2)


def equispaced(nodes: int) -> tuple[Tensor, Tensor]:
    """Return the trapezoidal rule on [-π, π), exact for frequencies < nodes."""
    checks.integer(nodes, "nodes", minimum=1)
    points = (torch.arange(nodes, dtype=torch.float64) + 0.5) * (2 * math.pi / nodes) - math.pi
    return points, torch.full_like(points, 1 / nodes)


def normal_trapezoid(nodes: int) -> tuple[Tensor, Tensor]:
    """Return equally spaced points for N(0, 1): error about exp(-(πn/8 - ω)²/2) for cos(ωz)."""
    checks.integer(nodes, "nodes", minimum=1)
    centred = torch.arange(nodes, dtype=torch.float64) - 0.5 * (nodes - 1)
    points = centred * (2 * REACH / nodes)
    return points, torch.softmax(-0.5 * points.square(), dim=0)


def product(points: Tensor, weights: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the ``dim``-fold product of a rule: points ``(m**dim, dim)`` and their weights."""
    checks.integer(dim, "dim", minimum=1)
    if len(points) ** dim > MOST_POINTS:
        raise ValueError(
            f"nodes must satisfy nodes**dim <= {MOST_POINTS}, got {len(points)}**{dim}: "
            "use fewer nodes, or MonteCarlo(samples, generator)"
        )
    grid = torch.cartesian_prod(*[points] * dim).reshape(-1, dim)
    mass = torch.cartesian_prod(*[weights] * dim).reshape(-1, dim).prod(dim=1)
    return grid, mass
