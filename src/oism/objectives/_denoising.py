"""Denoising score matching: predict the noise that was added.

With x_τ = α x + σ ε the minimiser over functions ε̂ of

    E_{τ ~ p} [ w(τ)/p(τ) · E‖ε̂(x_τ, τ) - ε‖²/d ] / ∫ w dτ

is ε̂ = -σ∇log ρ_t, whatever the weight w > 0 and the density p of the times; they decide which
noise levels count when a model cannot reach it. In terms of the noise,

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
from typing import Any, Protocol

import torch
from torch import Tensor

from oism._core import checks
from oism._core.draws import normal_like
from oism._core.quadrature import gauss_legendre
from oism.flow import NoisePredictor, noise_errors, noised
from oism.flow._noise import noise_residual
from oism.objectives._levels import NoiseLevels, likelihood_rate
from oism.process import Noising

NODES = 512
"""The number of nodes at which weights are integrated, in log τ."""


class Weighting(ABC):
    """The weight of an error of the predicted noise at each noise level."""

    def __repr__(self) -> str:
        """Return name and attributes: a run is resumed with weights of the same text only."""
        parts = ", ".join(f"{name}={value!r}" for name, value in sorted(vars(self).items()))
        return f"{type(self).__name__}({parts})"

    @abstractmethod
    def __call__(self, noising: Noising, tau: Tensor) -> Tensor:
        """Return w(τ), not normalised."""

    def is_sampled_by(self, levels: NoiseLevels) -> bool:  # noqa: ARG002
        """Return whether times drawn from ``levels`` have a density proportional to w."""
        return False


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

    def is_sampled_by(self, levels: NoiseLevels) -> bool:
        """Return whether times are uniform in the log-SNR ℓ: their density is that of w."""
        own = type(self).__call__ is LikelihoodWeighting.__call__  # a subclass may have another w
        return own and levels.is_uniform_in_log_snr


class DenoisingScoreMatching:
    """The loss of a noise predictor.

    Parameters
    ----------
    levels
        The distribution of the times, with their noising, for example `UniformLogSNR`.
    weighting
        The weight of errors: `LikelihoodWeighting` by default.

    Examples
    --------
    >>> from oism import OrnsteinUhlenbeck, VariancePreserving
    >>> from oism.process import Noising
    >>> from oism.nn import MLP
    >>> from oism.objectives import UniformLogSNR
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
        self._is_even = weighting.is_sampled_by(levels)

    @property
    def noising(self) -> Noising:
        """The process seen through the clock."""
        return self.levels.noising

    def settings(self) -> dict[str, Any]:
        """Return the names of the loss and of its weights, as plain values for JSON."""
        return {"loss": type(self).__name__, "weighting": repr(self.weighting)}

    def __call__(
        self, predictor: NoisePredictor, x: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the loss on clean tensors ``(n, *shape)`` for one draw of times and noise."""
        x = checks.vectors(x)
        tau = self.levels.draw(len(x), generator, x.device)
        noise = normal_like(x, generator)
        return self.loss(predictor, x, tau, noise)

    def loss(self, predictor: NoisePredictor, x: Tensor, tau: Tensor, noise: Tensor) -> Tensor:
        """Return the loss for given times ``(n,)`` and noise of the shape of ``x``."""
        errors = self.errors(predictor, x, tau, noise)
        return errors.mean() if self._is_even else (self.weights(tau).to(errors) * errors).mean()

    def errors(self, predictor: NoisePredictor, x: Tensor, tau: Tensor, noise: Tensor) -> Tensor:
        """Return ‖ε̂(x_τ, τ) - ε‖²/d: ``(n,)``."""
        return noise_errors(predictor, self.noising, x, tau, noise)

    def noised(self, x: Tensor, tau: Tensor, noise: Tensor) -> Tensor:
        """Return x_τ = α x + σ ε, inside the domain of the process."""
        return noised(self.noising, x, tau, noise)

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
        total = float((weights * tau * self.weighting(self.noising, tau)).sum() * (high - low))
        if not 0 < total < math.inf:
            raise ValueError(
                f"weighting must have a positive, finite integral over the times, got {total:g} "
                f"for {self.weighting!r}"
            )
        return total


class Outputs(Protocol):
    """A predictor that knows what its network predicts: `oism.nn.Parametrised`."""

    def output(self, residual: Tensor, tau: Tensor) -> Tensor:
        """Return by how much the output is wrong if the noise is by ``residual``."""


class OutputMatching(DenoisingScoreMatching):
    """The loss E‖F - F*‖²/d of what a network predicts, instead of that of the noise.

    The times count as often as they are drawn: with `NormalLogSNR` and `oism.nn.EDM` it is the loss
    of Karras et al. (2022).

    Parameters
    ----------
    levels
        The distribution of the times.
    outputs
        The predictor that is trained, or one with the same parametrisation.

    Examples
    --------
    >>> from oism import OrnsteinUhlenbeck, VariancePreserving
    >>> from oism.process import Noising
    >>> from oism.nn import EDM, MLP, Parametrised
    >>> from oism.objectives import NormalLogSNR
    >>> noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    >>> predictor = Parametrised(MLP(2), EDM(), noising.clock)
    >>> loss = OutputMatching(NormalLogSNR(noising), predictor)
    >>> loss(predictor, torch.randn(64, 2), torch.Generator().manual_seed(0)).item() > 0
    True
    """

    def __init__(self, levels: NoiseLevels, outputs: Outputs) -> None:
        super().__init__(levels, NoiseWeighting())
        if not callable(getattr(outputs, "output", None)):
            raise TypeError(
                "outputs must be a predictor with a parametrisation, as Parametrised, got a "
                f"{type(outputs).__name__}"
            )
        self.outputs = outputs

    def loss(self, predictor: NoisePredictor, x: Tensor, tau: Tensor, noise: Tensor) -> Tensor:
        """Return the loss for given times ``(n,)`` and noise of the shape of ``x``."""
        residual = noise_residual(predictor, self.noised(x, tau, noise), tau, noise)
        return self.outputs.output(residual, tau).square().mean()
