"""The contract of a fast transform between coefficients and values at the points of a rule.

For coefficients c and a rule with points x_i and weights w_i for π,

    synthesise(c)_i = Σ_k c_k φ_k(x_i),    analyse(f)_k = Σ_i w_i f_i φ_k(x_i) ≈ ∫ f φ_k dπ.

With a transform, the equations of a symmetric process need no matrix: L acts on coefficients as a
diagonal, products are taken at the points (see ``oism.estimation._systems.reversible``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor


class Transform(ABC):
    """Synthesis and analysis on the points of one quadrature rule, in float64 on the CPU."""

    size: int
    """The number of functions."""

    points: int
    """The number of points of the rule."""

    @abstractmethod
    def synthesise(self, coefficients: Tensor) -> Tensor:
        """Return the values ``(..., points)`` of series with coefficients ``(..., size)``."""

    @abstractmethod
    def analyse(self, values: Tensor) -> Tensor:
        """Return ∫ f φ_k dπ by the rule, ``(..., size)``, for values ``(..., points)``."""
