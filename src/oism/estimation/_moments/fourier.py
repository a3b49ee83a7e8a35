"""Averages of waves: E[e^{-iζ·x}] for every ζ = ξ ± η in products of gradients.

For frequencies in a ball of radius r these are the integer ζ with ‖ζ‖ ≤ 2r, one of each ±ζ. Their
sums over scattered points are a non-uniform Fourier transform of type 1: in at most three
dimensions by FINUFFT on the CPU and by `ScatteredSeries.sums` on other devices, by direct summation
above. Sums are kept on the CPU; the equations are solved on the device of the last rows.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import in_parallel, on_host
from oism._core.user_warnings import warn
from oism.basis import NUFFT_DIM, Averages, Fourier, ScatteredSeries, TorusGrid, product_lattice
from oism.basis._fourier import leading
from oism.estimation._moments.base import Moments
from oism.estimation._moments.rows import Scratch
from oism.estimation._shrinkage import Shrinkage
from oism.estimation._systems.torus import TorusSystem
from oism.process import Torus, wrapped

TOLERANCE = 1e-13
"""The relative tolerance of FINUFFT: merging must agree with one pass to 1e-12."""

FEW = 2**20
"""The number of points times modes per axis below which FINUFFT uses one thread."""

DENSITY_FLOOR = 1e-3
"""The smallest value of a projected density, relative to the uniform one."""

EXPONENTIALS = 2**19
"""The number of exponentials per block in direct summation."""


class FourierMoments(Moments):
    """Sums of e^{-iζ·x} over the rows of each fold; points are taken modulo 2π.

    ``squares`` adds the sums of e^{-2iζ·x} for the variances of cos and sin: cos² is
    ½(1 + cos 2ζ·x). ``low`` and ``high`` are the range of each column before wrapping.

    >>> moments = FourierMoments(Fourier.lattice(1, 1)).update(torch.zeros(7, 1))
    >>> moments.averages().total.real  # all points at zero: every wave is 1
    tensor([1.0000, 1.0000], dtype=torch.float64)
    """

    basis: Fourier
    block = 2**20

    def __init__(self, basis: Fourier, folds: int = 5, *, squares: bool = False) -> None:
        checks.instance(basis, Fourier, "basis")
        checks.instance(basis.process, Torus, "basis.process")
        super().__init__(basis, folds, squares=squares)
        self.frequencies = product_lattice(basis)
        self._reach = int(self.frequencies.abs().max())
        shape = (1 + self.squares, self.folds, len(self.frequencies))
        self._sums = torch.zeros(shape, dtype=torch.complex128)
        self.low = torch.full((basis.dim,), math.inf, dtype=torch.float64)
        self.high = -self.low
        self.device = torch.device("cpu")

    def _key(self) -> object:
        return (
            self.squares,
            *self.basis.frequencies.shape,
            *self.basis.frequencies.flatten().tolist(),
        )

    def _absorb(self, other: Self) -> None:
        self._sums += other._sums
        self.low = torch.minimum(self.low, other.low)
        self.high = torch.maximum(self.high, other.high)

    def _add(self, x: Tensor, weights: Tensor, scratch: Scratch) -> None:  # noqa: ARG002
        self.device = x.device
        self.low = torch.minimum(self.low, x.amin(dim=0).cpu())
        self.high = torch.maximum(self.high, x.amax(dim=0).cpu())
        transform = self._exponentials
        if self.basis.dim <= NUFFT_DIM:
            transform = self._nufft if on_host(x) else self._products
        for multiple, sums in enumerate(self._sums, start=1):
            own = transform(wrapped(multiple * wrapped(x)), weights)
            sums.add_(self._rounded(own.cpu()))

    def _nufft(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return the sums over each fold by FINUFFT, from a grid of all |ζ_j| ≤ reach."""
        import finufft  # noqa: PLC0415 (fitted scores can be used without it)

        dim, side = self.basis.dim, 2 * self._reach + 1
        transform = getattr(finufft, f"nufft{dim}d1")
        grids = torch.zeros(self.folds, side**dim, dtype=torch.complex128)

        def fill(fold: int) -> None:
            own = weights[fold]
            inside = own > 0
            if bool(inside.any()):
                columns = [column.contiguous().numpy() for column in x[inside].mT]
                strengths = own[inside].to(torch.complex128).numpy()
                modes = side if dim == 1 else (side,) * dim
                few = len(strengths) * side < FEW  # more threads cost more here
                # Several threads add in any order, and rounded sums must not depend on it.
                waves = transform(
                    *columns, strengths, modes, eps=TOLERANCE, isign=-1,
                    nthreads=1 if few or self.quantum else 0,
                )  # fmt: skip
                grids[fold].copy_(torch.from_numpy(waves).flatten())

        in_parallel(fill, range(self.folds))
        strides = side ** torch.arange(dim - 1, -1, -1)
        return grids[:, ((self.frequencies.long() + self._reach) * strides).sum(dim=1)]

    def _products(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return the sums over each fold by products of waves of single coordinates."""
        return ScatteredSeries(self.frequencies, x.device).sums(x, weights)

    def _exponentials(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return the sums over each fold by direct summation, in blocks of rows."""
        total = torch.zeros_like(self._sums[0], device=x.device)
        step = max(1, EXPONENTIALS // len(self.frequencies))
        frequencies = self.frequencies.to(x.device)
        for start in range(0, len(x), step):
            phase = x[start : start + step] @ frequencies.mT
            own = weights[:, start : start + step]
            total += torch.complex(own @ phase.cos(), -(own @ phase.sin()))
        return total

    def reflected(self, columns: Tensor) -> Self:
        """Return the moments of the data together with their mirror images in some columns.

        ``columns`` ``(dim,)`` is boolean. Every row is replaced by its images under u_j ↦ -u_j,
        which share its weight and its fold: c(ζ) becomes the mean of c over the signs of the ζ_j.
        """
        result = copy.deepcopy(self)
        side = 2 * self._reach + 1
        strides = side ** torch.arange(self.basis.dim)
        keys = ((self.frequencies.long() + self._reach) * strides).sum(dim=1)
        place = torch.full((side**self.basis.dim,), -1).scatter(0, keys, torch.arange(len(keys)))
        for column in columns.nonzero()[:, 0].tolist():
            mirrored = self.frequencies.long().clone()
            mirrored[:, column] *= -1
            sign = leading(mirrored).sign()
            index = place[((sign[:, None] * mirrored + self._reach) * strides).sum(dim=1)]
            images = result._sums[..., index]
            result._sums = 0.5 * (result._sums + torch.where(sign > 0, images, images.conj()))
        return result

    def averages(self) -> Averages:
        """Return the averages of e^{-iζ·x}, complex128."""
        return self._averages(self._sums[0])

    def doubled(self) -> Averages:
        """Return the averages of e^{-2iζ·x}."""
        if not self.squares:
            raise ValueError("squares must be True for the variances of the means")
        return self._averages(self._sums[1])

    def shrunk(self, shrinkage: Shrinkage) -> Averages:
        """Return averages; those used in fits are shrunk, held-out ones are not."""
        averages = self.averages()
        if not shrinkage.needs_variances:
            return averages
        fits, doubled = averages.fitting(), self.doubled().fitting()
        waves = math.sqrt(2) * torch.view_as_real(fits)
        # The squares of √2 cos ζ·x and √2 sin ζ·x are 1 ± cos 2ζ·x; sin is minus the imaginary
        # part.
        squares = 1 + torch.stack((doubled.real, -doubled.real), dim=-1)
        variances = (squares - waves.square()).clamp(min=0) / averages.counts[:, None, None]
        rates = -self.frequencies.square().sum(dim=1)
        gamma = shrinkage.factors(
            waves.flatten(-2), variances.flatten(-2), rates.repeat_interleave(2)
        ).reshape(waves.shape)
        shrunk = torch.view_as_complex(gamma * torch.view_as_real(fits))
        if shrinkage.project and not shrinkage.keeps_positivity:
            shrunk = project_fourier(self.frequencies, shrunk)
        return replace(averages, total=shrunk[0], training=shrunk[1:])

    def system(self, shrinkage: Shrinkage) -> TorusSystem:
        """Return the equations on the torus."""
        self._warn_of_span()
        averages = self.shrunk(shrinkage).to(self.device)
        return TorusSystem(self.basis, self.frequencies, averages)

    def _warn_of_span(self) -> None:
        span = self.high - self.low
        if float(span.max()) > 4 * math.pi:
            column = int(span.argmax())
            warn(
                f"data are taken modulo 2π on the torus, but column {column} spans "
                f"{float(span[column]):.3g}: scale it into [-π, π) unless it holds unwrapped "
                "angles"
            )


def project_fourier(lattice: Tensor, means: Tensor, floor: float = DENSITY_FLOOR) -> Tensor:
    """Return the moments of the density with means ``(*batch, m)`` after clipping from below.

    These are moments of a positive measure on the points of a grid, so every Gram matrix of them is
    positive semidefinite.
    """
    reach = int(lattice.abs().max())
    grid = TorusGrid(lattice.shape[1], 4 * reach + 1, reach)
    placed = grid.place(lattice)
    density = grid.density(means, placed).clamp(min=floor)
    waves = grid.analyse(density)
    projected = waves[..., placed[0]] / waves[..., :1]
    if not bool((means.imag != 0).any()):  # an even density, which rounding must not change
        projected = torch.complex(projected.real, torch.zeros_like(projected.real))
    return projected
