"""The coordinates in which data are standardised, and how they move with time.

For the Ornstein-Uhlenbeck process and data with mean m and deviation s along a direction, in units
of the invariant measure,

    m_t = e^{-θt} m,    s_t² = e^{-2θt} s² + 1 - e^{-2θt}.

u_t = (z_t - m_t)/s_t has mean 0 and variance 1 at every time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oism.process import OrnsteinUhlenbeck

FLOOR = 1e-12
"""The smallest s_t²: where all rows agree, the law at t = 0 has no density and no score."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The standardised coordinates of a law and how they move with t."""

    process: OrnsteinUhlenbeck
    shift: Tensor
    scale: Tensor

    def at(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return m_t and s_t for times ``(T,)``, ``(T, dim)`` each, or ``(dim,)`` for one time."""
        t = t.to(self.scale)
        alpha = torch.exp(-self.process.theta * t)[..., None]
        variance = (alpha * self.scale).square() - torch.expm1(-2 * self.process.theta * t)[
            ..., None
        ]
        return alpha * self.shift, variance.clamp(min=FLOOR).sqrt()

    def decay(self, t: Tensor) -> Tensor:
        """Return a = e^{-θt} s/s_t: ``(T, dim)``."""
        return torch.exp(-self.process.theta * t)[..., None] * self.scale / self.at(t)[1]
