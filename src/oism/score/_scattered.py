"""The score of a basis that sums series fast at many points, under a reversible process."""

from __future__ import annotations

import torch
from torch import Tensor

from oism.score._reversible import ReversibleScore
from oism.storage import storable

POINTS = 2**16
"""The number of points per fast sum."""


@storable
class ScatteredScore(ReversibleScore):
    """u = Σ α_k φ_k with ∇u and Lu from one sum, `Basis._gradient_and_generated`."""

    def _field_and_generated(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:  # noqa: ARG002
        x = self.process._retract(x)
        both = self.basis._gradient_and_generated(x, alpha)
        return torch.cat((self.process._diffuse(both[:, :-1], x), both[:, -1:]), dim=1)

    def _rows(self, x: Tensor, t: Tensor) -> int:
        fast = t.ndim == 0 and self.basis._is_fast(x, self.curve.values[0])
        return POINTS if fast else super()._rows(x, t)
