"""Averages of functions over data: of all rows, without each fold, and within each fold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from oism.storage import storable


@storable
@dataclass(frozen=True, eq=False)
class Averages:
    """Averages over all rows, without each fold, and within each fold that has rows.

    ``total`` is ``(*shape)``, ``training`` and ``heldout`` are ``(f, *shape)``; ``shares``,
    ``(f,)``, are the fractions of the weight in the folds. ``counts``, ``(1 + f,)``, are the
    effective numbers of rows, (Σw)²/Σw², of ``total`` and each of ``training``.
    """

    total: Tensor
    training: Tensor
    heldout: Tensor
    shares: Tensor
    counts: Tensor

    def to(self, device: torch.device) -> Averages:
        """Return the same averages on a device; shares and counts stay on the CPU."""
        parts = ("total", "training", "heldout")
        return replace(self, **{name: getattr(self, name).to(device) for name in parts})

    def fitting(self) -> Tensor:
        """Return the total and then the training averages: ``(1 + f, *shape)``."""
        return torch.cat((self.total[None], self.training))

    @classmethod
    def of_all(cls, total: Tensor) -> Self:
        """Return averages over all rows only, without folds."""
        none, nothing = total.new_zeros(0, *total.shape), torch.zeros(0, dtype=torch.float64)
        return cls(total, none, none, nothing, nothing)


@storable
@dataclass(frozen=True, eq=False)
class Standardised:
    """Averages of φ₀, φ₁, … in standardised coordinates u = (Vz - m)/s.

    ``shift`` m and ``scale`` s are ``(dim,)``. A coordinate with s = 0 is constant: its averages of
    φ₁, φ₂, … are 0. For products of polynomials the rows of ``rotation`` V are the principal
    directions of the data; otherwise it is None, the identity. ``averages`` has shape
    ``(degrees, dim)``, or ``(functions,)`` for products. ``low`` and ``high`` are the range of z,
    the frame coordinates in units of the invariant distribution.
    """

    shift: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor
    averages: Averages
    rotation: Tensor | None = None

    def without_folds(self) -> Self:
        """Return the same with averages over all rows only, on the CPU in float64."""
        rotation = None if self.rotation is None else self.rotation.cpu().double()
        return replace(
            self,
            shift=self.shift.cpu().double(),
            scale=self.scale.cpu().double(),
            low=self.low.cpu().double(),
            high=self.high.cpu().double(),
            averages=Averages.of_all(self.averages.total.cpu().double()),
            rotation=rotation,
        )
