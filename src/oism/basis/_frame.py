"""Frames: orthonormal directions v₁, …, v_d as coordinate axes.

The isotropic Ornstein-Uhlenbeck process is the same in every orthonormal frame, so Heₙ(v·x) with
‖v‖ = 1 is an eigenfunction for every direction v. Analysis returns the coordinates zᵢ = ⟨vᵢ, x⟩,
synthesis x = Σ zᵢ vᵢ; they are inverse and adjoint to each other. A frame may have no matrix:
`TransformFrame` takes any orthogonal operator, and `CosineFrame` is a fast one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import scipy.fft
import torch
from torch import Tensor

from oism._core import checks
from oism._core.devices import moved
from oism._core.transforms import matmul
from oism.storage import storable

ENTRIES = 2**24
"""The number of entries of directions per block."""


class Frame(ABC):
    """An orthonormal frame of ℝ^d, defined by analysis and synthesis."""

    is_identity: ClassVar[bool] = False
    """Whether the coordinates are the entries of a point."""

    @property
    def label(self) -> str:
        """The name of the frame in summaries."""
        return type(self).__name__

    @property
    @abstractmethod
    def dim(self) -> int | None:
        """The dimension d, or None for a frame of every dimension."""

    @abstractmethod
    def _analyse(self, x: Tensor) -> Tensor:
        """Return the coordinates of checked vectors."""

    @abstractmethod
    def _synthesise(self, z: Tensor) -> Tensor:
        """Return the vectors of checked coordinates."""

    def analyse(self, x: Tensor) -> Tensor:
        """Return the coordinates zᵢ = ⟨vᵢ, x⟩ along the last axis: ``(..., d)``."""
        return self._analyse(checks.vectors(x, "x", dim=self.dim))

    def synthesise(self, z: Tensor) -> Tensor:
        """Return Σ zᵢ vᵢ along the last axis: ``(..., d)``."""
        return self._synthesise(checks.vectors(z, "z", dim=self.dim))

    def stored_directions(self) -> Tensor | None:
        """Return the matrix of directions if the frame has one, otherwise None."""
        return None

    def to(self, device: torch.device | str) -> Frame:  # noqa: ARG002
        """Return the frame with its matrix on a device; the same object where nothing changes.

        A frame without a matrix works on all devices. A matrix in float64 stays where it is if the
        device has no float64.
        """
        return self

    def directions(self, dim: int) -> Tensor:
        """Return the matrix whose rows are the directions: ``(dim, dim)``, float64."""
        checks.integer(dim, "dim", minimum=1)
        return self.synthesise(torch.eye(dim, dtype=torch.float64))

    def power_sums(self, dim: int, degree: int) -> Tensor:
        """Return Σ_j |v_j|ⁿ of every direction, n ≤ degree: ``(degree + 1, dim)``, float64.

        In blocks of directions, without the whole matrix.
        """
        parts = []
        for places in torch.split(torch.arange(dim), max(1, ENTRIES // dim)):
            unit = torch.zeros(len(places), dim, dtype=torch.float64)
            unit[torch.arange(len(places)), places] = 1
            parts.append(power_sums(self.synthesise(unit), degree))
        return torch.cat(parts, dim=1)


def power_sums(directions: Tensor, degree: int) -> Tensor:
    """Return Σ_j |v_j|ⁿ of directions ``(k, d)``, n ≤ degree: ``(degree + 1, k)``, float64."""
    size, power = directions.double().abs(), torch.ones_like(directions, dtype=torch.float64)
    sums = [power.sum(dim=1)]
    for _ in range(degree):
        power = power * size
        sums.append(power.sum(dim=1))
    return torch.stack(sums)


@storable
@dataclass(frozen=True)
class IdentityFrame(Frame):
    """The standard coordinates, in any dimension."""

    dim: ClassVar[None] = None
    is_identity = True
    label = "pixels"

    def power_sums(self, dim: int, degree: int) -> Tensor:
        """Return ones, and ``dim`` for n = 0."""
        sums = torch.ones(degree + 1, dim, dtype=torch.float64)
        sums[0] = dim
        return sums

    def _analyse(self, x: Tensor) -> Tensor:
        return x

    def _synthesise(self, z: Tensor) -> Tensor:
        return z


@storable
@dataclass(frozen=True, eq=False)
class OrthogonalFrame(Frame):
    """The rows of an orthogonal matrix V as directions: z = Vx. The matrix is copied.

    >>> OrthogonalFrame(torch.tensor([[0.0, 1.0], [-1.0, 0.0]])).analyse(torch.tensor([[3.0, 4.0]]))
    tensor([[ 4., -3.]])
    """

    matrix: Tensor

    def __post_init__(self) -> None:
        checks.assign(self, matrix=checks.orthogonal(self.matrix, "matrix").detach().clone())

    @property
    def dim(self) -> int:
        """The size of the matrix."""
        return len(self.matrix)

    def stored_directions(self) -> Tensor:
        """Return the matrix."""
        return self.matrix

    def to(self, device: torch.device | str) -> Self:
        """Return the frame with its matrix on a device; the same object where nothing changes."""
        return checks.changed(self, matrix=moved(self.matrix, device))

    def directions(self, dim: int) -> Tensor:
        """Return the matrix in float64."""
        if dim != self.dim:
            raise ValueError(f"dim must be {self.dim}, the size of the matrix, got {dim!r}")
        return self.matrix.double()

    def _analyse(self, x: Tensor) -> Tensor:
        return matmul(x, self.matrix.to(x).mT)

    def _synthesise(self, z: Tensor) -> Tensor:
        return matmul(z, self.matrix.to(z))


@dataclass(frozen=True, eq=False)
class TransformFrame(Frame):
    """An orthogonal operator on tensors, given by two functions, for example a wavelet transform.

    ``analysis`` maps ``(n, *shape)`` to coordinates of any shape with as many entries per row,
    ``synthesis`` maps them back. Both are tested with two random vectors: a transform that is not
    orthogonal is an error.

    >>> flip = TransformFrame((2,), lambda x: x.flip(1), lambda z: z.flip(1))
    >>> flip.analyse(torch.tensor([[3.0, 4.0]]))
    tensor([[4., 3.]])
    """

    shape: tuple[int, ...]
    analysis: Callable[[Tensor], Tensor]
    synthesis: Callable[[Tensor], Tensor]
    label: ClassVar[str] = "a transform"

    def __post_init__(self) -> None:
        checks.assign(self, shape=checks.shape(self.shape, minimum=1))
        generator = torch.Generator().manual_seed(0)
        x, y = torch.randn(2, 1, self.dim, dtype=torch.float64, generator=generator)
        z = self._analyse(x)
        back = float((self._synthesise(z) - x).abs().max())
        adjoint = abs(float((z * y).sum() - (x * self._synthesise(y)).sum()))
        if not max(back, adjoint) < 1e-8 * self.dim:
            raise ValueError(
                "analysis and synthesis must be inverse and adjoint to each other: on random "
                f"vectors the errors are {back:.3g} and {adjoint:.3g}"
            )

    @property
    def dim(self) -> int:
        """The number of entries of a tensor."""
        return math.prod(self.shape)

    def _analyse(self, x: Tensor) -> Tensor:
        return self.analysis(x.reshape(-1, *self.shape)).reshape(x.shape)

    def _synthesise(self, z: Tensor) -> Tensor:
        return self.synthesis(z.reshape(-1, *self.shape)).reshape(z.shape)


@storable
@dataclass(frozen=True)
class CosineFrame(Frame):
    """The orthonormal discrete cosine transform (DCT-II) along every axis of a tensor.

    For images it is the usual alternative to principal directions, without fitting and without a
    large matrix: one small product per axis. Along three colour channels it gives grey and two
    opponent colours.

    >>> CosineFrame((2,)).analyse(torch.ones(1, 2))
    tensor([[1.4142, 0.0000]])
    """

    shape: tuple[int, ...]
    label: ClassVar[str] = "cosines"

    def __post_init__(self) -> None:
        checks.assign(self, shape=checks.shape(self.shape, minimum=1))

    @property
    def dim(self) -> int:
        """The number of entries of a tensor."""
        return math.prod(self.shape)

    @cached_property
    def _matrices(self) -> list[Tensor]:
        return [
            torch.from_numpy(scipy.fft.dct(np.eye(side), norm="ortho", axis=0))
            for side in self.shape
        ]

    def power_sums(self, dim: int, degree: int) -> Tensor:
        """Return Σ_j |v_j|ⁿ; directions are products over the axes, and so are these sums."""
        if dim != self.dim:
            raise ValueError(f"dim must be {self.dim}, that of the shape, got {dim!r}")
        total = torch.ones(degree + 1, 1, dtype=torch.float64)
        for matrix in self._matrices:
            own = power_sums(matrix, degree)
            total = (total[:, :, None] * own[:, None]).flatten(1)
        return total

    @cached_property
    def _copies(self) -> dict[tuple[torch.dtype, torch.device], list[Tensor]]:
        return {}

    def _matrices_like(self, x: Tensor) -> list[Tensor]:
        """Return the matrices, copied once for each dtype and device."""
        key = x.dtype, x.device
        if key not in self._copies:
            self._copies[key] = [matrix.to(x) for matrix in self._matrices]
        return self._copies[key]

    def _along_axes(self, x: Tensor, *, inverse: bool) -> Tensor:
        result = x.reshape(-1, *self.shape)
        for axis, matrix in enumerate(self._matrices_like(x), start=1):
            own = matrix if inverse else matrix.mT
            result = matmul(result.movedim(axis, -1), own).movedim(-1, axis)
        return result.reshape(x.shape)

    def _analyse(self, x: Tensor) -> Tensor:
        return self._along_axes(x, inverse=False)

    def _synthesise(self, z: Tensor) -> Tensor:
        return self._along_axes(z, inverse=True)
