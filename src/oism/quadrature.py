"""Quadrature rules: points and weights with Σ wⱼ f(zⱼ) ≈ E[f(Z)], and their products.

``gauss_hermite`` integrates polynomials of degree ≤ 2n - 1 against N(0, 1) exactly.

On the circle the trapezoidal rule with N equally spaced points is exact but for aliasing: a
frequency k is mistaken for those at distance N, which the wrapped normal law of variance σ² damps
by exp(-(N - |k|)²σ²/2). Where σ is small most of the N points carry no mass: ``circle_offsets``
then refines N and keeps the n points within ``REACH`` standard deviations, beyond which the law
holds less than 2e-15.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

REACH = 8.0
MOST_POINTS = 2**24


def gauss_hermite(nodes: int) -> tuple[Tensor, Tensor]:
    """Return the Gauss rule for the standard normal law: points and weights, ``(nodes,)``."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return torch.from_numpy(points), torch.from_numpy(weights / math.sqrt(2 * math.pi))


def equispaced(nodes: int) -> tuple[Tensor, Tensor]:
    """Return the trapezoidal rule for the uniform law: exact for frequencies < nodes."""
    points = torch.arange(nodes, dtype=torch.float64) * (2 * math.pi / nodes) - math.pi
    return points, torch.full_like(points, 1 / nodes)


def circle_offsets(nodes: int, sigma: float) -> tuple[Tensor, float]:
    """Return equally spaced offsets in [-π, π) and their spacing, for a law of width ``sigma``."""
    around = max(nodes, math.ceil(math.pi * nodes / (REACH * sigma)))
    spacing = 2 * math.pi / around
    return (torch.arange(nodes, dtype=torch.float64) - nodes // 2) * spacing, spacing


def product(points: Tensor, weights: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the ``dim``-fold product of a rule: points ``(m**dim, dim)`` and their weights."""
    if len(points) ** dim > MOST_POINTS:
        raise ValueError(
            f"nodes must satisfy nodes**dim <= {MOST_POINTS}, got {len(points)}**{dim}: "
            "use fewer nodes, or MonteCarlo(samples, generator)"
        )
    grid = torch.cartesian_prod(*[points] * dim).reshape(-1, dim)
    mass = torch.cartesian_prod(*[weights] * dim).reshape(-1, dim).prod(dim=1)
    return grid, mass
