"""Time-dependent coordinates in which the noised data have mean 0 and variance 1.

For the Ornstein-Uhlenbeck process and data with mean m and deviation s along a direction, in units
of the invariant distribution,

    m_t = e^{-θt} m,    s_t² = e^{-2θt} s² + 1 - e^{-2θt}.

u_t = (z_t - m_t)/s_t has mean 0 and variance 1 at every time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oism.process import OrnsteinUhlenbeck

FLOOR = 1e-12
"""The smallest s_t²: if all rows are equal, the data at t = 0 have no density and no score."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The standardised coordinates u_t of a distribution with mean m and deviation s at t = 0."""

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
