"""From predicted noise to the score: ∇ log ρ_t(x) = -ε̂(x, τ(t))/σ_t."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from oism._core.transforms import per_row
from oism.nn._embedding import one_per_row
from oism.process import Noising


class NoisePredictor(Protocol):
    """ε̂: a network alone, one around a prior, or any other function."""

    def __call__(self, x: Tensor, tau: Tensor, /) -> Tensor:
        """Return the noise to expect in tensors ``(n, *shape)`` at clock times ``(n,)``."""


class NoiseScore:
    """The score of a noise predictor, in the form that `oism.flow._flow.Flow` takes."""

    def __init__(self, predictor: NoisePredictor, noising: Noising) -> None:
        self.predictor, self.noising = predictor, noising

    def __call__(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return the score, in the dtype of ``x``; t is one number or one per row."""
        t = torch.as_tensor(t, dtype=torch.float64, device=x.device)
        clock = self.noising.clock
        if t.device.type == "cpu":
            tau = clock.inverse(t)
        else:  # where values are not read; one that was rounded must not leave the clock
            tau = clock._inverse(t).clamp(0.0, clock.horizon)
        sigma = self.noising.process._variance(t).sqrt()
        noise = self.predictor(x, one_per_row(tau, x))
        return noise.to(x.dtype) / per_row(-sigma, x)
