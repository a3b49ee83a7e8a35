"""Standardised coordinates: there the probability flow of a Gaussian does not move.

Noise levels are λ = log(α/σ), half of the log-SNR, with x = αx₀ + σε, α² + σ² = 1. Let a Gaussian
have the mean m and the variance c along a direction, and let D(x, λ) = E[x₀ | x] be any denoiser
with the residual R = D - D_Gauss. In coordinates

    u = (z - αm)/s,    s² = α²c + σ²,    D_Gauss = m + (αc/s) u,

the probability flow of D is

    du/dλ = w R,    w(λ) = α/s = 1/√(c + e^{-2λ}),

so the flow of the Gaussian is the identity from any level to any other. With noise of strength η,
the reverse equation that has the same distributions is, with h = σ²/s² = d(log w)/dλ,

    du = -η²h u dλ + (1 + η²) w R dλ + √(2η²h) dB,

which for R = 0 leaves N(0, 1) invariant; η = 1 is the reverse SDE.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oism.images import GaussianPart


def alpha_sigma(level: Tensor) -> tuple[Tensor, Tensor]:
    """Return α and σ at levels λ, in float64.

    >>> alpha_sigma(torch.tensor(0.0))
    (tensor(0.7071, dtype=torch.float64), tensor(0.7071, dtype=torch.float64))
    """
    level = level.double()
    return torch.sigmoid(2 * level).sqrt(), torch.sigmoid(-2 * level).sqrt()


def weight(variances: Tensor, levels: Tensor) -> Tensor:
    """Return w = 1/√(c + e^{-2λ}) at levels ``(...)`` for variances ``(K,)``: ``(..., K)``."""
    return (variances + torch.exp(-2 * levels.to(variances))[..., None]).rsqrt()


@dataclass(frozen=True, eq=False)
class Level:
    """What the coordinates need at one level, for each of them: s, αm and αc/s."""

    scale: Tensor
    shift: Tensor
    gain: Tensor

    @classmethod
    def of(cls, part: GaussianPart, level: Tensor, like: Tensor) -> Level:
        """Return the numbers at one level λ, in the dtype and on the device of a tensor."""
        alpha, sigma = alpha_sigma(level.to(part.mean.device))
        scale = (alpha.square() * part.variances + sigma.square()).sqrt()
        gain = alpha * part.variances / scale
        numbers = (scale, alpha * part.mean, gain)
        return cls(*(number.to(like) for number in numbers))

    def standardised(self, part: GaussianPart, x: Tensor) -> Tensor:
        """Return u for noised flat tensors ``(n, dim)``: ``(n, K)``."""
        return (part.analyse(x) - self.shift) / self.scale

    def tensors(self, part: GaussianPart, u: Tensor) -> Tensor:
        """Return noised flat tensors from their coordinates."""
        return part.synthesise(torch.addcmul(self.shift, self.scale, u))

    def residual(self, part: GaussianPart, u: Tensor, denoised: Tensor) -> Tensor:
        """Return R = D - D_Gauss in coordinates, from denoised flat tensors: ``(n, K)``."""
        clean = part.analyse(denoised) - part.mean.to(u)
        return torch.addcmul(clean, self.gain, u, value=-1)
