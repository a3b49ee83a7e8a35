"""Jacobi polynomials: the eigenfunctions of the Jacobi diffusion on [0, 1].

φ_n ∝ P_n^{(b-1, a-1)}(2x - 1), orthonormal under Beta(a, b), with λ_n = -½n(n + a + b - 1). In the
angle arccos(1 - 2x) they oscillate evenly, about n/2 times from end to end: the resolution in x is
√(x(1 - x))/n, finer at the ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from oism._core import checks
from oism.basis._pearson import PolynomialEigenfunctions
from oism.process import Clock, Jacobi, Logarithmic
from oism.storage import storable

FINEST = 0.1
"""The first time of the clock in units of 1/|λ|max."""

MIXED = 10.0
"""The last time of the clock in units of 1/|λ₁|."""


@storable
@dataclass(frozen=True)
class JacobiPolynomials(PolynomialEigenfunctions):
    """φ_1, …, φ_degree of a `Jacobi` process.

    >>> import torch
    >>> basis = JacobiPolynomials(Jacobi(), degree=2)  # Legendre polynomials on [0, 1]
    >>> basis.values(torch.tensor([[1.0]]))
    tensor([[1.7321, 2.2361]])
    """

    process: Jacobi
    degree: int = 32

    def __post_init__(self) -> None:
        checks.instance(self.process, Jacobi, "process")
        checks.assign(self, degree=checks.integer(self.degree, "degree", minimum=1))

    def _of_degree(self, degree: int) -> JacobiPolynomials:
        return JacobiPolynomials(self.process, degree)

    def default_clock(self) -> Clock:
        """Return times from a fraction of 1/|λ|max to a multiple of 1/|λ₁|."""
        rates = -self.eigenvalues
        return Logarithmic(FINEST / float(rates[-1]), MIXED / float(rates[0]))
