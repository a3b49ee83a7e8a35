"""The contract of a fitted model: a distribution and all its noised versions.

A model states its process dX = b(X) dt + L dW, the clock t(τ) of its noise levels, the shape of a
point and the score ∇ log ρ_t. Everything else follows from these: for processes with
X_t | x ~ N(α_t x, σ_t² I) the expected noise and the denoised point

    ε̂(x, τ) = -σ ∇log ρ_t(x),    E[x_0 | x_τ = x] = (x + σ² ∇log ρ_t(x))/α,    t = t(τ),

and for every process samples and log-densities along the probability flow. A model that has one of
these in closed form, or computes it without the flow, overrides the method.

Times t are the process's own, times τ those of the clock; both are one number or one per row.
"""

from __future__ import annotations

import itertools
import math
import os
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from oism import storage
from oism._core.transforms import per_row
from oism.flow._flow import Flow, RelativeModel
from oism.flow._likelihood import Divergence, log_density
from oism.flow._methods import OrdinaryMethod, StochasticMethod
from oism.process import Clock, Noising, Process


class FittedModel(nn.Module, ABC):
    """A model of points ``(n, *shape)`` and of their noised versions; a torch module.

    ``forward`` is `noise`, the signature of networks that predict noise.
    """

    @property
    @abstractmethod
    def process(self) -> Process:
        """The noising process."""

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """The noise levels."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of a point."""

    @abstractmethod
    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t(x), of the shape of ``x``; t is the process's own time."""

    @property
    def relative(self) -> RelativeModel | None:
        """The model as one of log(ρ_t/π) under a reversible process; by default it is none."""
        return None

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return a description of the model as JSON values."""

    @property
    def dim(self) -> int:
        """The number of entries of a point."""
        return math.prod(self.shape)

    @property
    def device(self) -> torch.device:
        """The device of the model's parameters and buffers."""
        parts = itertools.chain(self.parameters(), self.buffers())
        return next((part.device for part in parts), torch.device("cpu"))

    @property
    def noising(self) -> Noising:
        """The process with its clock: α, σ and log-SNR as functions of τ."""
        return Noising.of(self.process, self.clock)

    def noise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return the expected noise ε̂(x, τ) = -σ ∇log ρ_t(x), of the shape of ``x``."""
        law = self.noising.transition(tau)
        return per_row(-law.sigma, x, "tau") * self.score(x, self.clock.time(tau))

    def denoise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return E[x_0 | x_τ = x] = (x + σ² ∇log ρ_t(x))/α."""
        law = self.noising.transition(tau)
        step = per_row(law.variance, x, "tau") * self.score(x, self.clock.time(tau))
        return (x + step) / per_row(law.alpha, x, "tau")

    def forward(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return the expected noise."""
        return self.noise(x, tau)

    @property
    def flow(self) -> Flow:
        """The probability flow and the reverse SDE of the model."""
        return Flow(self)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        method: OrdinaryMethod | StochasticMethod | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return n samples ``(n, *shape)``, by the flow or, with its methods, the reverse SDE."""
        return self.flow.sample(
            n, method=method, generator=generator, device=self.device, progress=progress
        )

    @torch.no_grad()
    def log_density(
        self,
        x: Tensor,
        *,
        method: OrdinaryMethod | None = None,
        divergence: Divergence | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return log ρ(x) along the flow: ``(n,)``."""
        return log_density(self.flow, x, method=method, divergence=divergence, progress=progress)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model atomically to one safetensors file; `oism.load` reads it."""
        storage.save(self, path)
