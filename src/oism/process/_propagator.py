"""Means and covariances of a linear SDE dX = FX dt + L dW over time, for any F and L.

    S_t = e^{Ft},    Σ_t = ∫₀ᵗ S_s Q S_sᵀ ds,    Q = LLᵀ.

Over a short time h both are power series, Σ_h = Σ_k M_k h^{k+1}/(k+1)! with M₀ = Q and
M_{k+1} = FM_k + M_kFᵀ; a longer time is reached by doubling,

    S_{2h} = S_h²,    Σ_{2h} = Σ_h + S_h Σ_h S_hᵀ.

Covariances are only added, so nothing cancels: small entries of Σ_t are accurate at short and long
times, and F may have any spectrum. The textbook formulas are not: Σ∞ - SΣ∞Sᵀ cancels at short times
and needs a stable F; Van Loan's block exponential contains e^{-Ft} and has no correct digits at
long times. (`torch.linalg.matrix_exp` truncates its series relative to the norm of the matrix, so
its small entries have few digits.) `tests/process/test_propagator.py` compares all of them with 60
digits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import scipy.linalg
import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import matmul

TERMS = 26
"""The length of the series: at the radius the first omitted term is 1/26! of the first."""

RADIUS = 0.5
"""The largest ‖F‖h for which the series are summed."""

UNROLLED = 64
"""The number of doublings if times cannot be read: inside vmap and under compile."""


class Series(NamedTuple):
    """Coefficients in powers of ‖F‖h, in balanced coordinates."""

    means: Tensor  # (TERMS, m²), of S_h
    covariances: Tensor  # (TERMS, m²), of Σ_h/h
    rate: float  # ‖F‖
    units: Tensor  # (m,), the scales that balance F: powers of two, so that nothing is rounded


@dataclass(frozen=True, eq=False)
class Propagator:
    """t ↦ (S_t, Σ_t) for F of shape ``(m, m)`` and L of shape ``(m, k)``, float64.

    >>> F, L = torch.tensor([[-1.0]]).double(), torch.tensor([[2.0]]).double()
    >>> Propagator(F, L)(torch.tensor(0.5).double())[1]  # 2(1 - e^{-1})
    tensor([[1.2642]], dtype=torch.float64)
    """

    drift: Tensor
    noise: Tensor
    series: Series = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Not on first use, which may be in a compiled graph, where SciPy cannot run.
        checks.assign(self, series=self._expanded())

    def _expanded(self) -> Series:
        # Units in which rows and columns of F have similar norms: ‖F‖ is then close to the fastest
        # rate of the process, and doublings, each of which doubles the error of S, are few.
        balanced, (units, _) = scipy.linalg.matrix_balance(
            self.drift.numpy(), permute=False, separate=True
        )
        drift, units = torch.from_numpy(balanced), torch.from_numpy(units)
        noise = self.noise / units[:, None]
        rate = float(torch.linalg.matrix_norm(drift, 2))
        unit_drift = drift / rate if rate else drift
        means, covariances = [torch.eye(len(drift), dtype=torch.float64)], [noise @ noise.mT]
        for k in range(1, TERMS):
            means.append(unit_drift @ means[-1] / k)
            half = unit_drift @ covariances[-1] / (k + 1)
            covariances.append(half + half.mT)
        return Series(
            torch.stack(means).flatten(1), torch.stack(covariances).flatten(1), rate, units
        )

    def __call__(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return S_t and Σ_t, ``(*t.shape, m, m)``, for checked times of any shape."""
        series, size = self.series, len(self.drift)
        doublings = (series.rate * t.detach() / RADIUS).log2().ceil().clamp(min=0)
        h = t * torch.exp2(-doublings)
        powers = [torch.ones_like(h)]
        for _ in range(1, TERMS):
            powers.append(powers[-1] * (series.rate * h))
        stacked = torch.stack(powers, dim=-1)
        mean, covariance = (
            matmul(stacked, table.to(t)).reshape(*t.shape, size, size) for table in series[:2]
        )
        mean, covariance = _doubled(mean, h[..., None, None] * covariance, doublings)
        units = series.units.to(t)
        return mean * (units[:, None] / units), covariance * (units[:, None] * units)


def _doubled(mean: Tensor, covariance: Tensor, doublings: Tensor) -> tuple[Tensor, Tensor]:
    """Return S and Σ after a number of doublings for each time."""
    most = _most(doublings)
    for k in range(most):
        more = (doublings > k)[..., None, None]
        moved = matmul(matmul(mean, covariance), mean.mT)
        covariance = torch.where(more, covariance + moved, covariance)
        mean = torch.where(more, matmul(mean, mean), mean)
    # Times that need more doublings than were done give NaN instead of a wrong result.
    done = (doublings <= most)[..., None, None]
    covariance = 0.5 * (covariance + covariance.mT)
    return torch.where(done, mean, torch.nan), torch.where(done, covariance, torch.nan)


def _most(doublings: Tensor) -> int:
    """Return the largest number of doublings, or ``UNROLLED`` if it cannot be read."""
    if not checks.readable(doublings):
        return UNROLLED
    # For an infinite ‖F‖t the result is NaN.
    finite = doublings[doublings.isfinite()]
    return int(finite.max()) if finite.numel() else 0
