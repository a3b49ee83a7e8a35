"""Whitened rows: coordinates in which mixtures are fitted, and back to the columns.

Medians, quantiles and the covariance of the rows without outliers determine them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from oism.tables._chart import constant_scale, is_constant
from oism.tables._gaussians import Gaussians
from oism.tables._mixture import MixtureModel

CLIP = 100.0
"""Whitened values are cut off here for the fit, so that outliers do not round others away."""

INSIDE, TAILS = 0.1587, (0.025, 0.005)
"""Quantiles that determine the scale of a column: of one standard deviation, and further out."""

NARROW = 1e-3
"""The share of the range further out below which a standard deviation is no scale of a column."""

INNER = 10.0
"""Rows within so many robust standard deviations determine the whitening."""

BACKGROUND_SCALE = 3.0
"""The standard deviations of the background component, in those of columns that are not warped.

A bound is at infinity in the coordinates of a warped column, where a wider normal distribution
would have all of the density; and a margin has tails of its own, whose ends it would reach. There
the background has the standard deviations of the rows.
"""

ROUNDING = 1e-12
"""The share of their variances that is added to the diagonals of covariances."""


@dataclass(frozen=True, eq=False)
class WhitenedRows:
    """z = (u - mean) forth with u = (y - centre)/scale, and back u = z back + mean."""

    centre: Tensor
    scale: Tensor
    mean: Tensor
    forth: Tensor
    back: Tensor
    linear: Tensor

    @classmethod
    def of(cls, y: Tensor, linear: Tensor) -> WhitenedRows:
        """Return the map after which the inner rows have mean 0 and covariance I.

        A constant column is divided by its scale only, which is the same density at its value
        whether it is warped or not: so it does not decide between systems of coordinates.
        ``linear`` ``(d,)`` says which columns are not warped, for the background.
        """
        centre, scale = y.median(dim=0).values, scale_of(y)
        scale = torch.where(scale == 0, torch.where(centre != 0, centre.abs(), 1.0), scale)
        constant = is_constant(y.amin(dim=0), y.amax(dim=0))
        constant |= ~linear & (y.amax(dim=0) - y.amin(dim=0) < ROUNDING)  # it is 0 up to rounding
        scale = torch.where(constant, torch.where(linear, constant_scale(centre), 1.0), scale)
        u = (y - centre) / scale
        inner = u[(u.abs() < INNER).all(dim=1)]
        inner = inner if len(inner) > 1 else u
        mean = inner.mean(dim=0)
        gap = (inner - mean)[:, ~constant]
        values, directions = torch.linalg.eigh(gap.mT @ gap / len(inner))
        own = values.clamp(min=0).sqrt()
        # So few rows lie in a plane whatever their distribution is.
        least = 1 / len(y) if len(y) <= 2 * y.shape[1] else 1e-6
        largest = max([1e-6, *own.tolist()])
        deviations, vectors = torch.ones_like(mean), torch.eye(len(mean)).to(mean)
        deviations[~constant] = own.clamp(min=least * largest)
        vectors[torch.outer(~constant, ~constant)] = directions.flatten()
        back = (vectors * deviations).mT
        return cls(centre, scale, mean, vectors / deviations, back, linear)

    def to_white(self, y: Tensor) -> Tensor:
        """Return z, cut off far out."""
        return (((y - self.centre) / self.scale - self.mean) @ self.forth).clamp(-CLIP, CLIP)

    @property
    def log_jacobian(self) -> float:
        """The logarithm of the volume of z per volume of y."""
        return float(torch.linalg.slogdet(self.forth)[1] - self.scale.log().sum())

    @property
    def background(self) -> Tensor:
        """The covariance of the background component of z, whose mean is 0: ``(d, d)``."""
        widening = torch.where(self.linear, BACKGROUND_SCALE, 1.0).to(self.back)
        root = self.back * widening @ self.forth
        return root.mT @ root

    def model(
        self, members: Sequence[tuple[float, Gaussians]], n: float
    ) -> tuple[MixtureModel, Tensor]:
        """Return the pool with its background, and the log-probabilities of the levels."""
        wide = self.background
        share = 1 / (n + 1)
        weights = [(1 - share) * weight * one.log_weights.exp() for weight, one in members]
        joined = torch.cat((*weights, wide.new_full((1,), share)))
        means = torch.cat((*(one.means @ self.back for _, one in members), wide[:1] * 0))
        covariances = torch.cat((*(one.covariances for _, one in members), wide[None]))
        levels = torch.cat([one.log_levels for _, one in members])
        usual = torch.logsumexp(joined[:-1].log()[:, None] + levels, dim=0) - math.log1p(-share)
        levels = torch.cat((levels, usual[None]))
        kept = joined > 1e-12
        covariances = self.back.mT @ covariances @ self.back
        # Products of nearly collinear columns round: what keeps a matrix definite is small.
        covariances = covariances + torch.diag_embed(
            ROUNDING * covariances.diagonal(dim1=1, dim2=2)
        )
        mixture = MixtureModel(
            self.centre,
            self.scale,
            joined[kept] / joined[kept].sum(),
            (means + self.mean)[kept],
            0.5 * (covariances + covariances.mT)[kept],
        )
        return mixture, levels[kept]


def scale_of(y: Tensor) -> Tensor:
    """Return the robust scale of each column of rows ``(n, d)``: ``(d,)``, 0 if it is constant.

    Half of the range of the inner two thirds of the rows. More than two thirds may be at one value:
    then half of the range further out, without the outermost row on each side, which may be an
    outlier, unless there is no other.

    >>> y = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0]).repeat(20)[:, None]
    >>> scale_of(y), scale_of(torch.cat((y, y.new_full((1, 1), 1e6))))
    (tensor([1.]), tensor([1.]))
    """
    low, high = torch.quantile(y, torch.tensor([INSIDE, 1 - INSIDE]).to(y), dim=0)
    scale, ordered, last = 0.5 * (high - low), y.sort(dim=0).values, len(y) - 1
    for tail in TAILS:
        inward = min(math.ceil(tail * last), last // 2)
        reach = ordered[last - inward] - ordered[inward]
        scale = torch.where(scale > NARROW * reach, scale, 0.5 * reach)
    return torch.where(scale > 0, scale, 0.5 * (ordered[-1] - ordered[0]))
