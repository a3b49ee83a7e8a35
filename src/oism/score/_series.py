"""The score of any `Basis`: s = ∇log π + Σ α_k(t) ∇φ_k."""

from __future__ import annotations

from torch import Tensor

from oism.basis import Basis
from oism.score._base import OperatorScore
from oism.storage import storable


@storable
class SeriesScore(OperatorScore):
    """log(ρ_t/π) = Σ α_k φ_k up to a constant: α is ``(size,)``."""

    basis: Basis

    def _score(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:  # noqa: ARG002
        return self.process.invariant.score(x) + self.basis._series(x, alpha, 1)

    def _divergence(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:  # noqa: ARG002
        return self.process.invariant.score_divergence(x) + self.basis._series(x, alpha, 2)

    def _log_ratio(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:  # noqa: ARG002
        return self.basis._series(x, alpha, 0)
