"""Laguerre polynomials: the eigenfunctions of the Laguerre diffusion on (0, ∞).

φ_n ∝ (-1)^n L_n^{(a-1)}(x), orthonormal under Gamma(a), with λ_n = -n. They oscillate on (0, 4n)
with a resolution of √(x/n), and grow like powers of x beyond; a score evaluates them within the
range of the noised data only, up to ``reach`` at t = 0.

*The degree of a fit is limited to about 12 by float64.* A_t is computed from averages of φ_h, h up
to twice the degree, by φ_k² = Σ_h β_h φ_h. By Parseval |β| = ‖φ_k²‖ in L²(π), which grows by a
factor of nearly 9 per degree: 20 for k = 2, 5e6 for 8, 3e10 for 12, 1e14 for 16. The sums
Σ_h β_h(…)e^{λ_h t} E[φ_h(X_0)] are of the order of k, so digits cancel: the relative error of the
equations is about 1e-21·13^degree, 1e-8 at degree 12 and 7e-4 at 16. The values of the
polynomials and the Gauss rule are accurate to rounding, so that neither a scaled recurrence nor
another rule for β changes this. It is a property of Gamma's tail: Jacobi polynomials have no such
limit. `oism.estimation.fit_simulated` averages over noised points and does not use these sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from oism._core import checks
from oism.basis._pearson import PolynomialEigenfunctions
from oism.process import Clock, Laguerre, Logarithmic
from oism.storage import storable

FINEST = 0.1
"""The first time of the clock in units of 1/|λ|max."""

MIXED = 10.0
"""The last time of the clock, in units of 1/|λ₁|."""


LARGEST = 80
"""The largest degree: the rule of twice as many points must not exceed float64."""

NOISE_REACH = 3.0
"""By how many standard deviations of the noise the range of the data is widened."""

WIDTH = 0.5
"""The width of the soft clamp in units of the square root of its end."""


@storable
@dataclass(frozen=True)
class LaguerrePolynomials(PolynomialEigenfunctions):
    """φ_1, …, φ_degree of a `Laguerre` process.

    >>> import torch
    >>> basis = LaguerrePolynomials(Laguerre(a=1.0), degree=2)
    >>> basis.values(torch.tensor([[0.0]]))
    tensor([[-1.,  1.]])
    """

    process: Laguerre
    degree: int = 10
    reach: float = math.inf

    def __post_init__(self) -> None:
        checks.instance(self.process, Laguerre, "process")
        degree = checks.integer(self.degree, "degree", minimum=1)
        if degree > LARGEST:
            raise ValueError(f"degree must be at most {LARGEST}, got {degree}")
        if not self.reach > 0:
            raise ValueError(f"reach must be positive, got {self.reach!r}")
        checks.assign(self, degree=degree, reach=float(self.reach))

    def _of_degree(self, degree: int) -> LaguerrePolynomials:
        return LaguerrePolynomials(self.process, degree, self.reach)

    def within(self, low: Tensor, high: Tensor) -> LaguerrePolynomials:  # noqa: ARG002
        """Return the basis for data up to ``high``."""
        return replace(self, reach=max(float(high), math.ulp(1.0)))

    def limits(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the range of the noised data: three deviations beyond the largest value."""
        if math.isinf(self.reach):
            return None
        kept, spread = self.reach * torch.exp(-t), -torch.expm1(-t)
        mean = kept + self.process.a * spread
        high = mean + NOISE_REACH * (spread * (2 * kept + self.process.a * spread)).sqrt()
        return torch.zeros_like(high), high, WIDTH * high.sqrt()

    def default_clock(self) -> Clock:
        """Return times from a fraction of 1/|λ|max to a multiple of 1/|λ₁|."""
        return Logarithmic(FINEST / self.degree, MIXED)
