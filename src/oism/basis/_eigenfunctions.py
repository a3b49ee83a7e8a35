"""Eigenfunctions of a Langevin diffusion, computed numerically once.

φ_k are splines (``oism._core.splines``): values, gradients and Laplacians are those of the spline,
with errors O(h^{p+1}), O(h^p) and O(h^{p-1}), and Lφ = λφ holds to O(h^{p-1}).

A product of two of these functions is no finite sum of others, but the equations of a fit need only
the density ratio r_t = e^{tL}r_0 of the noised data, at t ≥ ½σ² for the first noise level σ:

    r_t = 1 + Σ_n e^{-μ_n t} E[ψ_n(X_0)] ψ_n.

The functions ψ of the sum are those of `Eigenfunctions.doubled`: more eigenfunctions, which is
accurate for t above a few 1/μ for the last μ, or those that ``oism.estimation`` computes from the
data, which are fewer and accurate for all t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Self

from torch import Tensor

from oism._core import checks
from oism.basis._base import Basis
from oism.process import Langevin, VarianceExploding
from oism.storage import storable

FINEST = 0.25
"""The first noise level of the default clock, in widths of a cell.

r_t is integrated against products of gradients of the functions only, which are smooth: it need not
be resolved by the cells itself.
"""

MIXED = 8.0
"""At the last time of the default clock the slowest function has decayed to e^{-8}."""

WIDE = {1: 400, 2: 300}
"""The largest number of eigenfunctions in the sum for r_t, by dimension."""


@storable
@dataclass(frozen=True, eq=False)
class Eigenfunctions(Basis):
    """Eigenfunctions with rates μ ``(size,)`` and spline coefficients ``(splines, size)``.

    ``wide_rates`` and ``wide`` are those of `doubled`, or None. `Eigenfunctions.of` computes them.

    >>> import torch
    >>> process = Langevin.of(lambda x: 0 * x[:, 0], [(0.0, math.pi)])  # reflected Brownian motion
    >>> basis = Eigenfunctions.of(process, count=3)
    >>> basis.eigenvalues  # cosines
    tensor([-1.0000, -4.0000, -9.0000], dtype=torch.float64)
    >>> basis.values(torch.zeros(1, 1).double()).abs()  # √2
    tensor([[1.4142, 1.4142, 1.4142]], dtype=torch.float64)
    """

    process: Langevin
    rates: Tensor
    coefficients: Tensor
    wide_rates: Tensor | None = None
    wide: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        checks.instance(self.process, Langevin, "process")
        size, count = self.process.splines.size, len(self.rates)
        if self.rates.ndim != 1 or self.coefficients.shape != (size, count) or not count:
            raise ValueError(
                f"coefficients must have shape ({size}, {count}): a spline for each of the rates, "
                f"got {tuple(self.coefficients.shape)}"
            )
        if not bool((self.rates > 0).all() & (self.rates.diff() >= 0).all()):
            raise ValueError("rates must be positive and not decrease")

    @classmethod
    def of(cls, process: Langevin, count: int) -> Self:
        """Return the ``count`` slowest eigenfunctions of a process."""
        checks.instance(process, Langevin, "process")
        return cls(process, *process.eigenpairs(count))

    @property
    def dim(self) -> int:  # type: ignore[override]
        """The dimension of the box."""
        return self.process.dim

    @property
    def eigenvalues(self) -> Tensor:
        """-μ."""
        return -self.rates

    def _table(self, x: Tensor) -> Tensor:
        """Return the points: the splines that do not vanish differ from point to point."""
        return x

    def _values(self, table: Tensor) -> Tensor:
        return self.process.splines.evaluate(table, self.coefficients, (0,) * self.dim)

    def _gradients(self, table: Tensor) -> Tensor:
        return self.process.splines.gradient(table, self.coefficients)

    def _laplacians(self, table: Tensor) -> Tensor:
        return self.process.splines.laplacian(table, self.coefficients)

    def _series(self, x: Tensor, alpha: Tensor, derivative: int) -> Tensor:
        if alpha.ndim > 1:
            return super()._series(x, alpha, derivative)
        # One spline for the sum: the cost does not depend on the number of functions.
        total, splines = self.coefficients.to(alpha) @ alpha, self.process.splines
        if derivative == 0:
            return splines.evaluate(x, total, (0,) * self.dim)
        return (splines.gradient if derivative == 1 else splines.laplacian)(x, total)

    def widened(self, rates: Tensor, coefficients: Tensor) -> Self:
        """Return the basis with other functions for `doubled`."""
        return replace(self, wide_rates=rates, wide=coefficients)

    def doubled(self) -> Eigenfunctions:
        """Return the functions of the sum for r_t: see above."""
        if self.wide_rates is not None and self.wide is not None:
            return Eigenfunctions(self.process, self.wide_rates, self.wide)
        most = min(self.process.splines.size // 2, WIDE[self.dim])
        return Eigenfunctions.of(self.process, max(self.size, most))

    def rule(self) -> tuple[Tensor, Tensor]:
        """Return a Gauss rule for π in every cell: p + 1 points on the line, 3 × 3 on the plane."""
        nodes = self.process.degree + 1 if self.dim == 1 else 3
        points, weights = self.process.splines.rule(nodes)
        weights = weights * self.process.invariant.log_density(points).exp()
        return points, weights / weights.sum()

    def default_clock(self) -> VarianceExploding:
        """Return noise levels σ = √(2t) from a quarter of a cell up to equilibrium."""
        first = FINEST * float(self.process.splines.widths.max())
        last = math.sqrt(2 * MIXED / float(self.rates[0]))
        return VarianceExploding(first, max(last, 2 * first))
