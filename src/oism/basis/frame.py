"""Frames: orthonormal directions v₁, …, v_d in which coordinates are taken.

The isotropic Ornstein-Uhlenbeck process is the same in every orthonormal frame, so Heₙ(v·x) with
‖v‖ = 1 is an eigenfunction for every direction v. Analysis takes the coordinates zᵢ = ⟨vᵢ, x⟩,
synthesis returns x = Σ zᵢ vᵢ; they are inverse and adjoint to each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from oism import checks
from oism.transforms import matmul


class Frame(ABC):
    """An orthonormal frame of ℝ^d, given by its two maps."""

    @property
    @abstractmethod
    def dim(self) -> int | None:
        """The dimension d, or None where the frame serves every dimension."""

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

    def directions(self, dim: int) -> Tensor:
        """Return the matrix whose rows are the directions: ``(dim, dim)``, float64."""
        checks.integer(dim, "dim", minimum=1)
        return self.synthesise(torch.eye(dim, dtype=torch.float64))


@dataclass(frozen=True)
class IdentityFrame(Frame):
    """The coordinates as they are, in any dimension."""

    dim: ClassVar[None] = None

    def _analyse(self, x: Tensor) -> Tensor:
        return x

    def _synthesise(self, z: Tensor) -> Tensor:
        return z


@dataclass(frozen=True, eq=False)
class OrthogonalFrame(Frame):
    """The rows of an orthogonal matrix V as directions: z = Vx. The matrix is copied.

    >>> OrthogonalFrame(torch.tensor([[0.0, 1.0], [-1.0, 0.0]])).analyse(torch.tensor([[3.0, 4.0]]))
    tensor([[ 4., -3.]])
    """

    matrix: Tensor

    def __post_init__(self) -> None:
        checks.settle(self, matrix=checks.orthogonal(self.matrix, "matrix").detach().clone())

    @property
    def dim(self) -> int:
        """The size of the matrix."""
        return len(self.matrix)

    def directions(self, dim: int) -> Tensor:
        """Return the matrix in float64."""
        if dim != self.dim:
            raise ValueError(f"dim must be {self.dim}, the size of the matrix, got {dim!r}")
        return self.matrix.double()

    def _analyse(self, x: Tensor) -> Tensor:
        return matmul(x, self.matrix.to(x).mT)

    def _synthesise(self, z: Tensor) -> Tensor:
        return matmul(z, self.matrix.to(z))
