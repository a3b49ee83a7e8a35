"""The Ornstein-Uhlenbeck process dX = -θX dt + σ dW: the variance preserving process."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism.process._domain import Euclidean
from oism.process._isotropic import Isotropic
from oism.process._measure import Gaussian
from oism.storage import storable


@storable
@dataclass(frozen=True)
class OrnsteinUhlenbeck(Isotropic):
    """dX = -θX dt + σ dW: α = e^{-θt}, σ_t² = v(1 - e^{-2θt}), π = N(0, vI), v = σ²/2θ.

    Its eigenfunctions in one dimension are Heₙ(x/√v)/√n! with λₙ = -θn (the paper prints +θn, and
    √(θ/2)σx for the argument). The default is the paper's process, θ = 1 and σ = √2, with v = 1.

    >>> OrnsteinUhlenbeck(theta=0.5, sigma=2.0).invariant
    Gaussian(variance=4.0)
    """

    theta: float = 1.0
    sigma: float = math.sqrt(2)

    domain = Euclidean()

    def __post_init__(self) -> None:
        theta = checks.positive(self.theta, "theta")
        sigma = checks.positive(self.sigma, "sigma")
        checks.positive(sigma * sigma / (2 * theta), "sigma² / (2 theta)")
        checks.assign(self, theta=theta, sigma=sigma)

    @property
    def stationary_variance(self) -> float:
        """The number v = σ²/2θ."""
        return self.sigma**2 / (2 * self.theta)

    @property
    def invariant(self) -> Gaussian:
        """The distribution N(0, vI)."""
        return Gaussian(self.stationary_variance)

    @property
    def diffusivity(self) -> float:
        """The number ½σ²."""
        return 0.5 * self.sigma**2

    def drift(self, x: Tensor) -> Tensor:
        """Return -θx."""
        return -self.theta * checks.points(x)

    def drift_divergence(self, dim: int) -> float:
        """Return -θ dim."""
        return -self.theta * dim

    def _alpha(self, t: Tensor) -> Tensor:
        return torch.exp(-self.theta * t)

    def _variance(self, t: Tensor) -> Tensor:
        # 1 - e^{-2θt} cancels for small t; expm1 does not.
        return -self.stationary_variance * torch.expm1(-2 * self.theta * t)

    def _time_of_log_snr(self, log_snr: Tensor) -> Tensor:
        # e^{-2θt}/(v(1 - e^{-2θt})) = e^ℓ, solved for t without cancellation or overflow.
        shifted = log_snr + math.log(self.stationary_variance)
        return torch.logaddexp(-shifted, torch.zeros_like(shifted)) / (2 * self.theta)
