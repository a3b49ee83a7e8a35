"""Averages by a fast transform at scattered points, and the degree up to which data have structure.

Σ_k φ_k(x)² over the functions of one degree is their number N, at every x. So with averages m_k
over n rows, n Σ_k m_k² is N on average if the m_k are noise alone, and larger by n Σ_k (E φ_k)² in
general. The finest degree with structure is the last at which it exceeds 1.5 N, and N by more than
four standard deviations √(2N) of noise. The basis of the fit has 1.5 times that degree, because
log ρ_t has more detail than ρ_t; the penalty would suppress most of the others, at a cost.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from oism.basis import Averages, Basis
from oism.estimation._moments.products import ProductMoments
from oism.estimation._moments.rows import Scratch
from oism.estimation._shrinkage import Shrinkage
from oism.estimation._systems.reversible import ReversibleSystem

ROWS = 2**20
"""The number of rows per block: a transform has a cost of its own."""

STRUCTURE = 1.5
"""The least ratio of a sum of squares to that of noise alone."""

DEVIATIONS = 4.0
"""The least excess over noise in its standard deviations."""

MARGIN = 1.5
"""The degree of a basis divided by the finest degree with structure."""

LEAST_DEGREE = 4


def finest_degree(means: Tensor, rates: Tensor, count: float) -> int:
    """Return the number of the last eigenvalue with structure, 0 if there is none."""
    _, degree, sizes = torch.unique_consecutive(rates, return_inverse=True, return_counts=True)
    power = torch.zeros(len(sizes), dtype=means.dtype).index_add_(0, degree, means.square())
    noise = sizes + DEVIATIONS * (2.0 * sizes).sqrt()
    found = (count * power > torch.maximum(STRUCTURE * sizes, noise)).nonzero()[:, 0]
    return 1 + int(found[-1]) if len(found) else 0


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
        """Return the matrix-free equations, of the degrees that the data need."""
        averages = self.shrunk(shrinkage)
        count = float(averages.counts[0])
        rates = self.basis.doubled().eigenvalues
        degree = max(LEAST_DEGREE, math.ceil(MARGIN * finest_degree(averages.total, rates, count)))
        present = torch.unique_consecutive(self.basis.eigenvalues)
        basis = self.basis.truncated(-float(present[min(degree, len(present)) - 1]))
        return ReversibleSystem(basis, _prefix(averages, basis.doubled().size))


def _prefix(averages: Averages, size: int) -> Averages:
    """Return the averages of the first functions."""
    parts = {name: getattr(averages, name)[..., :size] for name in ("total", "training", "heldout")}
    return replace(averages, **parts)
