"""Averages of the functions of ``basis.doubled()`` by a fast transform at scattered points."""

from __future__ import annotations

from torch import Tensor

from oism.basis import Basis
from oism.estimation._moments.products import ProductMoments
from oism.estimation._moments.rows import Scratch
from oism.estimation._shrinkage import Shrinkage
from oism.estimation._systems.reversible import ReversibleSystem

ROWS = 2**20
"""The number of rows per block: a transform has a cost of its own."""


class TransformMoments(ProductMoments):
    """Sums of the functions of ``basis.doubled()`` for a basis with `Basis.transforms`."""

    def __init__(self, basis: Basis, folds: int = 5, *, squares: bool = False) -> None:
        if squares:
            raise ValueError(
                f"shrinkage must not need variances for {type(basis).__name__}, whose functions "
                "are too many for them: use SampleMeans()"
            )
        super().__init__(basis, folds)
        self.block = ROWS * basis.dim

    def _add(self, x: Tensor, weights: Tensor, scratch: Scratch) -> None:  # noqa: ARG002
        self._sums[0] += self.wide.averages(self.basis.process.wrap(x.cpu()), weights.cpu())

    def system(self, shrinkage: Shrinkage) -> ReversibleSystem:  # type: ignore[override]
        """Return the matrix-free equations."""
        return ReversibleSystem(self.basis, self.shrunk(shrinkage))
