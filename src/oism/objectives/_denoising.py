"""Denoising score matching: predict the noise that was added.

With x_τ = α x + σ ε the minimiser over functions ε̂ of

    E_{τ ~ p} [ w(τ)/p(τ) · E‖ε̂(x_τ, τ) - ε‖²/d ] / ∫ w dτ

is ε̂ = -σ∇log ρ_t, whatever the weight w > 0 and the law p of the times; what differs is which
noise levels count when it cannot be reached. In terms of the noise,

    uniform      w = 1/σ²     the L² distance of scores, alike at every τ
    noise        w = 1        that of predicted noises: the usual loss of DDPM
    likelihood   w = g²/σ²    half of its integral, with d, bounds the negative log-likelihood from
                              above, up to a constant; β/σ² for variance preserving noise

The weights are divided by their integral, so that losses are mean errors of the predicted noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from oism._core import checks
from oism._core.quadrature import gauss_legendre
from oism._core.transforms import per_row
from oism.nn import NoisePredictor
from oism.objectives._levels import NoiseLevels, UniformLogSNR, likelihood_rate
from oism.process import Euclidean, Noising

NODES = 512
"""The number of nodes at which weights are integrated, in log τ."""


class Weighting(ABC):
    """What an error of the predicted noise counts at each noise level."""

    @abstractmethod
    def __call__(self, noising: Noising, tau: Tensor) -> Tensor:
        """Return w(τ), not normalised."""


@dataclass(frozen=True)
class UniformWeighting(Weighting):
    """w = 1/σ²: errors of the score count alike."""

    def __call__(self, noising: Noising, tau: Tensor) -> Tensor:
        """Return 1/σ²."""
        return 1 / noising.process._variance(noising.clock._time(tau))


@dataclass(frozen=True)
class NoiseWeighting(Weighting):
    """w = 1: errors of the noise count alike."""

    def __call__(self, noising: Noising, tau: Tensor) -> Tensor:  # noqa: ARG002
        """Return 1."""
        return torch.ones_like(tau)


@dataclass(frozen=True)
class LikelihoodWeighting(Weighting):
    """w = g²/σ²: that of the bound of the log-likelihood."""

    def __call__(self, noising: Noising, tau: Tensor) -> Tensor:
        """Return g²/σ² = -dℓ/dτ."""
        return likelihood_rate(noising, tau)


class DenoisingScoreMatching:
    """The loss of a noise predictor.

    Parameters
    ----------
    levels
        The law of the times: `UniformLogSNR` or `UniformTime`, with the noising they belong to.
    weighting
        What errors count: by default in likelihood weighting.

    Examples
    --------
    >>> from oism import OrnsteinUhlenbeck, VariancePreserving
    >>> from oism.process import Noising
    >>> from oism.nn import MLP
    >>> noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    >>> loss = DenoisingScoreMatching(UniformLogSNR(noising))
    >>> loss(MLP(2), torch.zeros(64, 2), torch.Generator().manual_seed(0)).item() < 1.5
    True
    """

    def __init__(self, levels: NoiseLevels, weighting: Weighting | None = None) -> None:
        weighting = LikelihoodWeighting() if weighting is None else weighting
        checks.instance(levels, NoiseLevels, "levels")
        checks.instance(weighting, Weighting, "weighting")
        self.levels, self.weighting = levels, weighting
        # In the logarithm of the signal-to-noise ratio likelihood weighting is sampled exactly.
        self._is_even = isinstance(levels, UniformLogSNR) and isinstance(
            weighting, LikelihoodWeighting
        )

    @property
    def noising(self) -> Noising:
        """The process seen through the clock."""
        return self.levels.noising

    def __call__(
        self, predictor: NoisePredictor, x: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the loss on clean tensors ``(n, *shape)`` for one draw of times and noise."""
        x = checks.vectors(x)
        tau = self.levels.draw(len(x), generator, x.device)
        noise = torch.empty_like(x).normal_(generator=generator)
        return self.loss(predictor, x, tau, noise)

    def loss(self, predictor: NoisePredictor, x: Tensor, tau: Tensor, noise: Tensor) -> Tensor:
        """Return the loss for given times ``(n,)`` and noise of the shape of ``x``."""
        errors = self.errors(predictor, x, tau, noise)
        return errors.mean() if self._is_even else (self.weights(tau).to(errors) * errors).mean()

    def errors(self, predictor: NoisePredictor, x: Tensor, tau: Tensor, noise: Tensor) -> Tensor:
        """Return ‖ε̂(x_τ, τ) - ε‖²/d: ``(n,)``."""
        predicted = predictor(self.noised(x, tau, noise), tau)
        if predicted.shape != noise.shape:  # or the difference would be that of other rows
            raise ValueError(
                f"predictor must return noise of shape {tuple(noise.shape)}, got "
                f"{tuple(predicted.shape)}"
            )
        return (predicted - noise).flatten(1).square().mean(dim=1)

    def noised(self, x: Tensor, tau: Tensor, noise: Tensor) -> Tensor:
        """Return x_τ = α x + σ ε, wrapped where the process lives on a torus."""
        if noise.shape != x.shape:
            raise ValueError(
                f"noise must have the shape {tuple(x.shape)} of x, got {tuple(noise.shape)}"
            )
        process, t = self.noising.process, self.noising.clock._time(tau.double())
        alpha, sigma = process._alpha(t), process._variance(t).sqrt()
        noised = per_row(alpha, x, "tau") * x + per_row(sigma, x, "tau") * noise
        # Wrapping reads values, and would wait for a device.
        return noised if isinstance(process.domain, Euclidean) else process.wrap(noised)

    def weights(self, tau: Tensor) -> Tensor:
        """Return w/(p ∫w), by which errors at times drawn from p are multiplied."""
        tau = tau.double()
        return self.weighting(self.noising, tau) / (self.levels.density(tau) * self._total)

    @cached_property
    def _total(self) -> float:
        """∫ w dτ, by Gauss's rule in log τ, where all weights are smooth."""
        low, high = math.log(self.levels.first), math.log(self.levels.last)
        points, weights = gauss_legendre(NODES)
        tau = (low + (high - low) * points).exp()
        return float((weights * tau * self.weighting(self.noising, tau)).sum() * (high - low))
