"""How the residual of a model changes from level to level: its covariances, measured once.

Along the probability flow of a model, the residual R(λ) = D - D_Gauss of each coordinate is a
random function of λ. Its second moments

    K_b(λ, λ') = E[R(λ) R(λ')],    averaged over samples and over the coordinates of a band b,

determine how well R at one level can be predicted from R at others (`oism.sampling.Prediction`).
Bands join coordinates of similar variance; their numbers of coordinates increase geometrically,
since a few coordinates have most of the variance. The functions are measured at equally spaced
levels along paths of a method of third order (`oism.sampling.measure_residual`), and interpolated
by cubic splines.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor

from oism.sampling._plan import Span
from oism.storage import storable

BANDS = 12
"""The largest number of bands of coordinates."""


@storable
@dataclass(frozen=True, eq=False)
class ResidualStatistics:
    """Second moments of a residual over levels, for bands of coordinates.

    ``levels`` ``(L,)`` are equally spaced, from the first to the last level of the model.
    ``edges`` ``(B - 1,)`` are the variances, decreasing, between one band and the next;
    ``covariance`` is ``(B, L, L)``, and ``count`` the number of samples it was measured on.
    ``trial`` ``(2,)`` are the errors of `Prediction` and of `Polynomial` with 20 evaluations, or
    zeros if they were not measured.
    """

    levels: Tensor
    edges: Tensor
    covariance: Tensor
    count: int
    trial: Tensor = field(default_factory=lambda: torch.zeros(2, dtype=torch.float64))

    def __post_init__(self) -> None:
        shape = (len(self.edges) + 1, len(self.levels), len(self.levels))
        if tuple(self.covariance.shape) != shape:
            raise ValueError(
                f"covariance must be of shape {shape}, got {tuple(self.covariance.shape)}"
            )

    @property
    def span(self) -> Span:
        """The range of levels."""
        return Span(float(self.levels[0]), float(self.levels[-1]))

    @property
    def is_predictable(self) -> bool:
        """Whether predictions were no worse than polynomials when they were tried.

        Those of networks that are hardly trained are: their residuals are not those of smooth paths
        once the paths have errors.
        """
        return bool(self.trial[0] <= self.trial[1])

    def bands(self, variances: Tensor) -> Tensor:
        """Return the band of each coordinate, from its variance: ``(K,)``."""
        return bands_of(variances, self.edges)

    def roughness(self) -> Tensor:
        """Return the part of the second moments that is noise from level to level: ``(B,)``.

        The output of a network is not smooth in λ, and in half precision it is rounded. Fourth
        differences remove what is smooth; those of white noise of variance one have variance 70.
        The median over levels is returned.
        """
        count = len(self.levels)
        differences = torch.zeros(count - 4, count, dtype=torch.float64)
        for row in range(count - 4):
            differences[row, row : row + 5] = torch.tensor([1.0, -4.0, 6.0, -4.0, 1.0])
        noise = (differences @ self.covariance @ differences.mT).diagonal(dim1=1, dim2=2) / 70
        whole = self.covariance.diagonal(dim1=1, dim2=2)[:, 2:-2]
        return (noise / whole.clamp(min=1e-30)).median(dim=1).values

    def interpolated(self, levels: Tensor) -> Tensor:
        """Return the second moments between other levels: ``(B, n, n)``."""
        basis = CubicSpline(self.levels.numpy(), torch.eye(len(self.levels)).double().numpy())
        matrix = torch.from_numpy(basis(levels.numpy()))
        return matrix @ self.covariance @ matrix.mT


def band_edges(variances: Tensor, most: int = BANDS) -> Tensor:
    """Return the variances between bands whose sizes increase geometrically.

    >>> band_edges(torch.tensor([9.0, 4.0, 1.0, 1.0, 1.0, 1.0]), most=2)
    tensor([2.5000], dtype=torch.float64)
    """
    ordered = np.sort(variances.double().cpu().numpy())[::-1]
    exponents = np.linspace(0, 1, most + 1)[1:-1]
    ranks = np.unique(np.rint((len(ordered) + 1.0) ** exponents - 1).astype(int))
    ranks = ranks[(ranks > 0) & (ranks < len(ordered))]
    between = 0.5 * (ordered[ranks - 1] + ordered[ranks])
    # Coordinates of equal variance are in one band.
    return torch.from_numpy(np.unique(between)[::-1].copy())


def bands_of(variances: Tensor, edges: Tensor) -> Tensor:
    """Return the band of each variance, those of the largest first."""
    return torch.bucketize(-variances.double().cpu(), -edges)


def second_moments(residuals: Tensor, band: Tensor, count: int) -> Tensor:
    """Return the second moments of ``(L, n, K)`` over samples and coordinates of each band."""
    moments = []
    for own in range(count):
        rows = residuals[:, :, (band == own).to(residuals.device)].flatten(1).double()
        moments.append((rows @ rows.mT / max(1, rows.shape[1])).cpu())
    return torch.stack(moments)
