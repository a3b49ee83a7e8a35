"""Brownian motion on ℝ^d, dX = √2 dW: the variance exploding process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from oism._core import checks
from oism.process._domain import Domain, Euclidean
from oism.process._isotropic import Isotropic
from oism.process._measure import Lebesgue, Measure
from oism.storage import storable


@storable
@dataclass(frozen=True)
class Brownian(Isotropic):
    """dX = √2 dW: L = Δ, α = 1, σ² = 2t, no invariant distribution.

    Every plane wave e^{iξ·x}, ξ ∈ ℝ^d, is a formal eigenfunction with λ = -‖ξ‖²; none is square
    integrable. The spectrum of ``Torus`` is discrete.

    >>> Brownian().variance(0.5)
    tensor(1., dtype=torch.float64)
    >>> Brownian().invariant.is_probability
    False
    """

    domain: ClassVar[Domain] = Euclidean()
    invariant: ClassVar[Measure] = Lebesgue()
    diffusivity = 1.0

    def drift(self, x: Tensor) -> Tensor:
        """Return zero."""
        return torch.zeros_like(checks.points(x))

    def drift_divergence(self, dim: int) -> float:  # noqa: ARG002
        """Return 0."""
        return 0.0

    def _alpha(self, t: Tensor) -> Tensor:
        return torch.ones_like(t)

    def _variance(self, t: Tensor) -> Tensor:
        return 2 * t

    def _time_of_log_snr(self, log_snr: Tensor) -> Tensor:
        return 0.5 * torch.exp(-log_snr)
