"""How the residual of a model changes from level to level: its covariances, measured once.

Along the probability flow of a model, the residual R(λ) = D - D_Gauss of each coordinate is a
random function of λ. Its second moments

    K_b(λ, λ') = E[R(λ) R(λ')],    averaged over samples and over the coordinates of a band b,

determine how well R at one level can be predicted from R at others (`oism.sampling.Prediction`).
Bands join coordinates of similar variance; their numbers of coordinates increase geometrically,
since a few coordinates have most of the variance. The functions are measured at equally spaced
levels along paths of a method of third order, and interpolated by cubic splines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor

from oism._core import checks
from oism._core.progress import progress_bar
from oism.images import GaussianPart
from oism.sampling._plan import Denoiser, Span
from oism.sampling._polynomial import Polynomial
from oism.storage import storable

BANDS = 12
"""The largest number of bands of coordinates."""

LEVELS = 48
"""The number of levels of the measurement."""

PATHS = 64
"""The number of paths on which models measure their residual, by default."""


@storable
@dataclass(frozen=True, eq=False)
class ResidualStatistics:
    """Second moments of a residual over levels, for bands of coordinates.

    ``levels`` ``(L,)`` are equally spaced, from the first to the last level of the model.
    ``edges`` ``(B - 1,)`` are the variances, decreasing, between one band and the next;
    ``covariance`` is ``(B, L, L)``, and ``count`` the number of samples it was measured on.
    """

    levels: Tensor
    edges: Tensor
    covariance: Tensor
    count: int

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

    def bands(self, variances: Tensor) -> Tensor:
        """Return the band of each coordinate, from its variance: ``(K,)``."""
        return _bands(variances, self.edges)

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


@torch.no_grad()
def measure_residual(
    denoiser: Denoiser,
    part: GaussianPart,
    span: Span,
    noise: Tensor,
    *,
    levels: int = LEVELS,
    progress: bool | None = None,
) -> ResidualStatistics:
    """Return the statistics of a denoiser's residual along its probability flow.

    Parameters
    ----------
    denoiser
        D(x, λ), clean tensors to expect at a level.
    part
        The Gaussian whose residual is measured.
    span
        The range of levels.
    noise
        Noise ``(n, *shape)`` of the first level, where the n paths begin.
    levels
        The number of levels: as many evaluations of n tensors each.
    """
    count = checks.integer(levels, "levels", minimum=6)
    grid = torch.linspace(span.first, span.last, count, dtype=torch.float64)
    plan = Polynomial(levels=tuple(grid.tolist())).plan(part, span, count - 1)
    x, history = plan.start(checks.floating(noise, "noise"))
    found: list[Tensor] = []
    with progress_bar(progress) as bar:
        bar.stage("residual of the prior", count)
        for k, level in enumerate(grid):
            denoised = denoiser(x, level)
            if not bool(denoised.isfinite().all()):
                raise FloatingPointError(
                    f"denoiser must return finite tensors, and does not at level {float(level):g}"
                )
            found.append(plan.residual(k, x, denoised, history)[1].float())
            if k + 1 < count:
                x, history = plan.step(k, x, denoised, history)
            bar.advance(1)
    residuals = torch.stack(found)  # (L, n, K)
    edges = band_edges(part.variances)
    covariance = _second_moments(residuals, _bands(part.variances, edges), len(edges) + 1)
    return ResidualStatistics(grid, edges, covariance, len(noise))


def _bands(variances: Tensor, edges: Tensor) -> Tensor:
    """Return the band of each variance, those of the largest first."""
    return torch.bucketize(-variances.double().cpu(), -edges)


def _second_moments(residuals: Tensor, band: Tensor, count: int) -> Tensor:
    """Return the second moments of ``(L, n, K)`` over samples and coordinates of each band."""
    moments = []
    for own in range(count):
        rows = residuals[:, :, (band == own).to(residuals.device)].flatten(1).double()
        moments.append((rows @ rows.mT / max(1, rows.shape[1])).cpu())
    return torch.stack(moments)
