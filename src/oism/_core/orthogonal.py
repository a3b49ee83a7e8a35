"""Orthonormal polynomials of a probability on the line, by their three-term recurrence.

With positive leading coefficients, φ₀ = 1 and

    x φ_n = β_{n+1} φ_{n+1} + α_n φ_n + β_n φ_{n-1},

the numbers α and β are the diagonal and off-diagonal of the Jacobi matrix, whose eigenvalues are
the points of the Gauss rule with weights w_j = 1/Σ_n φ_n(x_j)² (Christoffel).

    Beta(a, b) on [0, 1]:    φ_n ∝ P_n^{(b-1, a-1)}(2x - 1)
    Gamma(a) on (0, ∞):      φ_n ∝ (-1)^n L_n^{(a-1)}(x),    α_n = 2n + a,  β_n² = n(n + a - 1)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism._core import checks
from oism._core.transforms import is_differentiated

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Recurrence:
    """α_0, …, α_{N-1} and β_1, …, β_N: the polynomials φ_0, …, φ_N.

    The coefficients are NumPy arrays: tensors made inside of ``torch.func`` cannot be read.
    """

    diagonal: Array
    off: Array

    def _values(self, x: Any) -> Iterator[Any]:  # noqa: ANN401 (a tensor or an array)
        """Yield φ_0, …, φ_N."""
        before, value, last = 0 * x, 0 * x + 1, 0.0
        yield value
        for centre, off in zip(self.diagonal.tolist(), self.off.tolist(), strict=True):
            before, value, last = value, ((x - centre) * value - last * before) / off, off
            yield value

    def __call__(self, x: Tensor) -> Tensor:
        """Return φ_0, …, φ_N at numbers of any shape: ``(*shape, N + 1)``."""
        if x.device.type != "cpu" or x.dtype != torch.float64 or is_differentiated(x):
            return torch.stack(list(self._values(x)), dim=-1)
        # Short operations are several times as fast in NumPy, and flows consist of them.
        place, table = x.detach().numpy(), np.empty((len(self.off) + 1, *x.shape))
        table[0] = 1
        before = last = 0.0
        pairs = zip(self.diagonal.tolist(), self.off.tolist(), strict=True)
        for n, (centre, off) in enumerate(pairs):
            np.multiply(place - centre, table[n], out=table[n + 1])
            table[n + 1] -= last * before
            table[n + 1] /= off
            before, last = table[n], off
        return torch.from_numpy(table).movedim(0, -1)

    def gauss(self) -> tuple[Tensor, Tensor]:
        """Return the Gauss rule of N points: exact for degree ≤ 2N - 1."""
        points = scipy.linalg.eigh_tridiagonal(self.diagonal, self.off[:-1], eigvals_only=True)
        # Not from the eigenvectors: their small entries have no relative accuracy.
        squares = sum(value**2 for value in list(self._values(points))[:-1])
        if not np.isfinite(squares).all():
            raise ValueError(f"the rule of {len(points)} points exceeds float64: use fewer")
        weights = 1 / squares
        return torch.from_numpy(points), torch.from_numpy(weights / weights.sum())


def beta_recurrence(a: float, b: float, degree: int) -> Recurrence:
    """Return the recurrence of Beta(a, b) on [0, 1] up to a degree ≥ 1.

    >>> beta_recurrence(1.0, 1.0, 2)(torch.tensor([1.0]).double())  # √(2n + 1) P_n(1)
    tensor([[1.0000, 1.7321, 2.2361]], dtype=torch.float64)
    """
    n = np.arange(checks.integer(degree, "degree", minimum=1), dtype=np.float64)
    s, p, q, k = a + b - 2, b - 1, a - 1, n + 1
    with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 in the first, for s = 0 or s = -1
        centre = (q * q - p * p) / ((2 * n + s) * (2 * n + s + 2))
        squares = 4 * k * (k + p) * (k + q) * (k + s)
        squares /= (2 * k + s) ** 2 * (2 * k + s + 1) * (2 * k + s - 1)
    centre[0] = (q - p) / (s + 2)
    squares[0] = 4 * (1 + p) * (1 + q) / ((2 + s) ** 2 * (3 + s))
    return Recurrence(0.5 * (1 + centre), 0.5 * np.sqrt(squares))


def gamma_recurrence(a: float, degree: int) -> Recurrence:
    """Return the recurrence of Gamma(a) on (0, ∞) up to a degree ≥ 1.

    >>> gamma_recurrence(1.0, 2)(torch.tensor([0.0]).double())  # (-1)^n L_n(0)
    tensor([[ 1., -1.,  1.]], dtype=torch.float64)
    """
    n = np.arange(checks.integer(degree, "degree", minimum=1), dtype=np.float64)
    return Recurrence(2 * n + a, np.sqrt((n + 1) * (n + a)))
