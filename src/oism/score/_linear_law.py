"""Mean and covariance of X_t under a linear SDE, and the metric in which scores are matched.

X_0 = m + Tz + N(0, V) for standardised data z ``(k,)``; the term N(0, V) are added velocities. Then
X_t has mean and covariance

    m_t = S_t m,    C_t = S_t(TTᵀ + V)S_tᵀ + Σ_t.

The metric R ⪰ 0 weights the directions of a score: R = G for the directions that the flow needs,
R = I for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import matmul
from oism.process import Linear
from oism.process._covariance import spread, whitener
from oism.storage import storable

SINGULAR = 1e-12
"""An eigenvalue of the metric below this share of the largest is treated as zero."""


class Moment(NamedTuple):
    """Mean and covariance of X_t = m_t + S_tTz + noise; leading axes are times."""

    mean: Tensor  # m_t, (..., d)
    covariance: Tensor  # C_t, (..., d, d)
    power: Tensor  # S_t, (..., d, d)
    factor: Tensor  # S_tT, (..., d, k)
    added: Tensor  # the covariance of the noise, S_tVS_tᵀ + Σ_t


@storable
@dataclass(frozen=True, eq=False)
class LinearLaw:
    """Mean and covariance of X_t for X_0 = m + Tz + N(0, V), in float64.

    ``shift`` m is ``(d,)``, ``factor`` T ``(d, k)``, ``noise`` V ``(d, d)``. ``low`` and ``high``,
    ``(k,)``, are the range of the data, the first k entries of a point.
    """

    process: Linear
    shift: Tensor
    factor: Tensor
    noise: Tensor
    low: Tensor
    high: Tensor

    def at(self, t: Tensor) -> Moment:
        """Return mean and covariance at times of any shape."""
        law, copies = self.process._transition(t), self.process.copies
        power = spread(law.means, copies)
        shift, factor, noise = (
            matmul(power, part.to(power)) for part in (self.shift[:, None], self.factor, self.noise)
        )
        added = matmul(noise, power.mT) + spread(law.covariances, copies)
        return Moment(shift[..., 0], matmul(factor, factor.mT) + added, power, factor, added)

    def range(self, moment: Moment, reach: float) -> tuple[Tensor, Tensor]:
        """Return the range of X_t with noise up to ``reach`` deviations: ``(..., d)`` each."""
        data = moment.power[..., : len(self.low)]
        low, high = self.low.to(data), self.high.to(data)
        centre = matmul(data, 0.5 * (low + high)[:, None])[..., 0]
        half = matmul(data.abs(), 0.5 * (high - low)[:, None])[..., 0]
        half = half + reach * moment.added.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
        return centre - half, centre + half


class Metric:
    """R = NNᵀ, and an orthogonal matrix Q whose first rows span the kernel of R."""

    def __init__(self, matrix: Tensor) -> None:
        values, vectors = torch.linalg.eigh(matrix)
        seen = values > SINGULAR * values[-1]
        if not bool(seen.any()):
            raise ValueError("metric must not be zero")
        self.matrix, self.turn = matrix, vectors.mT
        self.hidden = int((~seen).sum())
        """The dimension of the kernel."""
        self._root = torch.diag(torch.where(seen, values, 0.0).sqrt())[:, seen]

    def whiten(self, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Return W, triangular in Qx, for covariances ``(..., d, d)``, and WN ``(..., d, q)``."""
        turn = self.turn.to(covariance)
        lower, _, definite = whitener(turn @ covariance @ turn.mT)
        if not checks.holds(definite):
            raise ValueError(
                "t must be a time at which X_t has a density, but its covariance is singular (at "
                "t = 0 if the data lie in a plane, or if (F, L) is not controllable)"
            )
        return lower @ turn, lower @ self._root.to(covariance)

    @property
    def projection(self) -> Tensor:
        """The orthogonal projection onto the range of R: ``(d, d)``."""
        own: Tensor = self.turn[self.hidden :]
        return own.mT @ own
