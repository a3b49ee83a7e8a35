"""The Laguerre diffusion on (0, ∞), which is that of Cox, Ingersoll and Ross.

    L f = x f'' + (a - x) f',    π = Gamma(a, 1),    φ_n ∝ (-1)^n L_n^{(a-1)}(x),    λ_n = -n.

With c = 1 - e^{-t}, X_t/c given x is Gamma(a + N) with N ~ Poisson(xe^{-t}/c): 2X_t/c is noncentral
chi-square. So the density is, with z = 2√(xye^{-t})/c and the Bessel function I,

    ρ_t(y|x) = c⁻¹ e^{-(y + xe^{-t})/c} (y/(xe^{-t}))^{(a-1)/2} I_{a-1}(z)      (Hille and Hardy).

log I_ν(z) is summed from its power series for small z, whose terms are positive, and from Hankel's
asymptotic expansion for large z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism._core.orthogonal import Recurrence, gamma_recurrence
from oism._core.transforms import per_row
from oism.process._pearson import Interval, Pearson, PolynomialMeasure, SpectralTransition
from oism.storage import storable

HANKEL = 24
"""The number of terms of the asymptotic expansion."""


@dataclass(frozen=True)
class Gamma(PolynomialMeasure):
    """The distribution Gamma(a, 1) on (0, ∞) of every coordinate.

    >>> Gamma(1.0).log_density(torch.tensor([[2.0]]).double())  # e^{-x}
    tensor([-2.], dtype=torch.float64)
    """

    a: float

    def __post_init__(self) -> None:
        checks.assign(self, a=checks.positive(self.a, "a"))

    def score(self, x: Tensor) -> Tensor:
        """Return (a - 1)/x - 1: infinite at 0 unless a = 1."""
        x = checks.points(x)
        return (self.a - 1) / x - 1 if self.a != 1 else -torch.ones_like(x)

    def log_density(self, x: Tensor) -> Tensor:
        """Return the log-density: ``(n,)``; ±∞ at 0 unless a = 1."""
        flat = checks.points(x).flatten(1)
        terms = torch.xlogy(flat.new_tensor(self.a - 1), flat) - flat - math.lgamma(self.a)
        return torch.where(flat >= 0, terms, -math.inf).sum(dim=1)

    def _fill(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        shape = torch.full_like(x, self.a, dtype=torch.float64)
        return torch._standard_gamma(shape, generator=generator).to(x.dtype)

    def recurrence(self, degree: int) -> Recurrence:
        """Return the recurrence of the Laguerre polynomials."""
        return gamma_recurrence(self.a, degree)

    def weighted(self) -> tuple[Gamma, float]:
        """Return Gamma(a + 1) and ∫ x dπ = a."""
        return Gamma(self.a + 1), self.a


def log_bessel(order: float, z: Tensor) -> Tensor:
    """Return log(I_ν(z)/(z/2)^ν) for z ≥ 0 and ν > -1, differentiable, relative error 1e-14.

    >>> log_bessel(0.5, torch.tensor([1.0]).double())  # log(√2 · √(2/π) sinh 1)
    tensor([0.2822], dtype=torch.float64)
    """
    nu, crossing = order, max(60.0, 2 * order * order)
    near, far = z.clamp(max=crossing), z.clamp(min=crossing)
    # Σ (z²/4)^k / (k! Γ(ν + k + 1)): the largest term is near k = z/2.
    count = math.ceil(crossing / 2 + 10 * math.sqrt(crossing) + 20)
    k = torch.arange(count, dtype=z.dtype, device=z.device)
    weights = torch.lgamma(k + 1) + torch.lgamma(nu + k + 1)
    tiny = torch.finfo(z.dtype).tiny
    logs = 2 * k * torch.log((0.5 * near).clamp(min=tiny))[..., None] - weights
    small = torch.logsumexp(torch.where((k == 0), -weights, logs), dim=-1)
    # e^z/√(2πz) Σ (-1)^k a_k(ν)/z^k with a_k = a_{k-1}(4ν² - (2k - 1)²)/(8k)
    total, term = torch.ones_like(far), torch.ones_like(far)
    for n in range(1, HANKEL):
        term = -term * (4 * nu * nu - (2 * n - 1) ** 2) / (8 * n * far)
        total = total + term
    large = far - 0.5 * torch.log(2 * math.pi * far) + total.log() - nu * torch.log(0.5 * far)
    return torch.where(z < crossing, small, large)


@storable
@dataclass(frozen=True)
class Laguerre(Pearson):
    """dX = (a - X) dt + √(2X) dW on (0, ∞), with a > 0; 0 is reached if a < 1.

    >>> Laguerre(a=2.0).transition(1.0).mean(torch.tensor([[2.0]]))
    tensor([[2.]])
    """

    a: float = 1.0

    domain = Interval(math.inf)

    def __post_init__(self) -> None:
        checks.assign(self, a=checks.positive(self.a, "a"))

    @property
    def invariant(self) -> Gamma:
        """Gamma(a)."""
        return Gamma(self.a)

    def drift(self, x: Tensor) -> Tensor:
        """Return a - x."""
        return self.a - checks.points(x)

    def flow_drift(self, x: Tensor) -> Tensor:
        """Return g∇log π = a - 1 - x, finite at 0."""
        return self.a - 1 - checks.points(x)

    def _flow_drift_divergence(self, x: Tensor) -> float:
        return -float(x.shape[1:].numel())

    def diffusion_at(self, x: Tensor) -> Tensor:
        """Return x."""
        return x

    def eigenvalues(self, degree: int) -> Tensor:
        """Return -1, …, -degree."""
        return -torch.arange(1, degree + 1, dtype=torch.float64)

    def _transition(self, t: Tensor) -> LaguerreTransition:
        return LaguerreTransition(self, t)


@dataclass(frozen=True, eq=False)
class LaguerreTransition(SpectralTransition):
    """c times a Gamma(a + N) variable, N ~ Poisson(xe^{-t}/c), c = 1 - e^{-t}."""

    process: Laguerre

    def sample(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return one exact sample per row; at t = 0 the points themselves."""
        x = self.process.domain.admit(x)
        time = per_row(self.time, x.double())
        spread = -torch.expm1(-time)
        rate = x.double() * torch.exp(-time) / torch.where(spread > 0, spread, 1.0)
        count = torch.poisson(rate, generator=generator)
        drawn = spread * torch._standard_gamma(self.process.a + count, generator=generator)
        return torch.where(spread > 0, drawn, x.double()).to(x.dtype)

    def log_density(self, y: Tensor, x: Tensor) -> Tensor:
        """Return log ρ_t(y|x), summed over entries; every time must be positive."""
        y, x = checks.like(y, checks.points(x)), self.process.domain.admit(x)
        if not checks.holds(self.time > 0):
            raise ValueError("t must be positive for a transition density, got 0")
        here, there = x.double(), y.double()
        time, nu = per_row(self.time, here), self.process.a - 1
        spread = -torch.expm1(-time)
        kept = here * torch.exp(-time)
        # (y/kept)^{ν/2} I_ν(z) = (y/c)^ν · I_ν(z)/(z/2)^ν with z/2 = √(kept y)/c
        product = (kept * there).clamp(min=1e-300)
        log = (
            -(there + kept) / spread
            + torch.xlogy(torch.full_like(there, nu), there / spread)
            + log_bessel(nu, 2 * product.sqrt() / spread)
            - spread.log()
        )
        return log.flatten(1).sum(dim=1).to(y.dtype)
