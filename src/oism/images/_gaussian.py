"""The Gaussian part of a prior: a mean, and variances along directions.

With directions V and coordinates z = Vx, the Gaussian N(m, C) has the means m_i and the variances
c_i along them. If the directions span a part of the space only, what lies beyond is kept as a
vector of its own,

    (z, r) = (Vx, x - VᵀVx),    x = Vᵀz + r,

with one variance along all of r. So every function of the covariance is a product with numbers, one
for each coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from oism._core import checks
from oism._core.devices import moved
from oism.basis import Frame, IdentityFrame


@dataclass(frozen=True, eq=False)
class GaussianPart:
    """A Gaussian of flat tensors ``(n, dim)``, stated in coordinates ``(n, K)``.

    ``mean`` and ``variances`` ``(K,)`` are those of the coordinates, in float64. K is the dimension
    for a complete frame; otherwise the vectors beyond the frame follow its coordinates.
    """

    frame: Frame
    dim: int
    mean: Tensor
    variances: Tensor

    @classmethod
    def of(cls, frame: Frame, dim: int, inner: tuple[Tensor, Tensor], rest: Rest | None) -> Self:
        """Return the part with moments along a frame, and the mean and variance of the rest."""
        mean, variances = (part.detach().double() for part in inner)
        if rest is not None:
            mean = torch.cat((mean, rest.mean.to(mean)))
            variances = torch.cat((variances, torch.full_like(rest.mean.to(mean), rest.variance)))
        return cls(frame, dim, mean, variances)

    @classmethod
    def isotropic(cls, dim: int, variance: float, device: torch.device | None = None) -> Self:
        """Return N(0, variance·I); with variance 0 it contains nothing about the data."""
        zeros = torch.zeros(dim, dtype=torch.float64, device=device)
        return cls(IdentityFrame(), dim, zeros, zeros + variance)

    def to(self, device: torch.device | str) -> Self:
        """Return the part on a device; the same object where nothing changes.

        Products with a matrix on another device would copy it each time. On a device without
        float64 mean and variances stay where they are.
        """
        mean, variances = moved(self.mean, device), moved(self.variances, device)
        return checks.changed(self, frame=self.frame.to(device), mean=mean, variances=variances)

    @property
    def is_complete(self) -> bool:
        """Whether the frame spans the whole space."""
        return len(self.mean) == self.dim

    @property
    def dimensions(self) -> Tensor:
        """The number of dimensions that a coordinate stands for: ``(K,)``, with the sum ``dim``."""
        inner = len(self.mean) - self.dim
        ones = torch.ones_like(self.mean)
        if not self.is_complete:
            ones[inner:] = (self.dim - inner) / self.dim
        return ones

    def analyse(self, x: Tensor) -> Tensor:
        """Return the coordinates of flat tensors: ``(n, K)``."""
        z = self.frame._analyse(x)
        return z if self.is_complete else torch.cat((z, x - self.frame._synthesise(z)), dim=1)

    def synthesise(self, z: Tensor) -> Tensor:
        """Return flat tensors from their coordinates: ``(n, dim)``."""
        if self.is_complete:
            return self.frame._synthesise(z)
        inner = z.shape[1] - self.dim
        return self.frame._synthesise(z[:, :inner]) + z[:, inner:]


@dataclass(frozen=True, eq=False)
class Rest:
    """Mean ``(dim,)`` and variance along the directions that are not in a frame."""

    mean: Tensor
    variance: float
