"""The score of any functions under a process whose noise depends on the point.

As `ReversibleScore`, but the functions are not eigenfunctions: Lu is computed by differentiation.
"""

from __future__ import annotations

from torch import Tensor

from oism.basis import Functions
from oism.process import SymmetricPart
from oism.score._reversible import ReversibleScore
from oism.storage import storable


@storable
class FeatureScore(ReversibleScore):
    """u = log(ρ_t/π) = Σ α_k φ_k up to a constant: α is ``(size,)``."""

    basis: Functions  # type: ignore[assignment]

    def _generated(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:  # noqa: ARG002
        x = self.process._retract(x)
        return SymmetricPart(self.process)(lambda y: self.basis._series(y, alpha, 0))(x)
