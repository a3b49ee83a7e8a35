"""The Jacobi diffusion on [0, 1], which is Wright and Fisher's with mutation.

    L f = ½x(1 - x) f'' + ½(a(1 - x) - bx) f',    π = Beta(a, b),
    φ_n ∝ P_n^{(b-1, a-1)}(2x - 1),    λ_n = -½n(n + a + b - 1).

Samples of the transition use the ancestral process (Griffiths, 1979): with M_t the number of
lineages at time t of the coalescent with mutation, started from infinitely many,

    X_t | x ~ Beta(a + B, b + M_t - B),    B | M_t ~ Binomial(M_t, x),

    P(M_t = m) = Σ_{k ≥ m} (-1)^{k-m} (θ + 2k - 1) Γ(θ + m + k - 1)/(m! (k - m)! Γ(θ + m)) e^{λ_k t}

with θ = a + b. The sum alternates: its error is below 1e-6 for t ≥ 0.08. Below, M_t is rounded from
the normal distribution with Griffiths' (1984) asymptotic mean and variance for t → 0, which are of
the order 1/t; the relative error of the mean and variance of X_t - x is then of the order t².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from oism._core import checks
from oism._core.orthogonal import Recurrence, beta_recurrence
from oism._core.transforms import per_row
from oism.process._pearson import Interval, Pearson, PolynomialMeasure, SpectralTransition
from oism.storage import storable

SERIES_TIME = 0.08
"""The time from which the distribution of the number of lineages is summed."""

LINEAGES = 100
"""The largest number of lineages in that sum; at these times the mean is below 26."""

SHORTEST = 1e-4
"""The shortest time of a transition density: it needs √(80/t) polynomials."""

DIGITS = 40.0
"""Terms of the spectral form below e^{-40} are left out."""

BLOCK = 2**22
"""The number of values of polynomials per batch."""


@dataclass(frozen=True)
class Beta(PolynomialMeasure):
    """The distribution Beta(a, b) on [0, 1] of every coordinate.

    >>> Beta(2.0, 1.0).log_density(torch.tensor([[0.5]]).double()).exp()  # 2x
    tensor([1.0000], dtype=torch.float64)
    """

    a: float
    b: float

    def __post_init__(self) -> None:
        checks.assign(self, a=checks.positive(self.a, "a"), b=checks.positive(self.b, "b"))

    def score(self, x: Tensor) -> Tensor:
        """Return (a - 1)/x - (b - 1)/(1 - x): infinite at an end unless the parameter is 1."""
        x = checks.points(x)
        left = (self.a - 1) / x if self.a != 1 else torch.zeros_like(x)
        return left - (self.b - 1) / (1 - x) if self.b != 1 else left

    def log_density(self, x: Tensor) -> Tensor:
        """Return the log-density: ``(n,)``; ±∞ at an end unless the parameter is 1."""
        flat = checks.points(x).flatten(1)
        a, b = self.a, self.b
        norm = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
        terms = torch.xlogy(flat.new_tensor(a - 1), flat) + torch.special.xlog1py(
            flat.new_tensor(b - 1), -flat
        )
        inside = (flat >= 0) & (flat <= 1)
        return torch.where(inside, terms - norm, -math.inf).sum(dim=1)

    def _fill(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        return beta_draws(torch.full_like(x, self.a), torch.full_like(x, self.b), generator)

    def recurrence(self, degree: int) -> Recurrence:
        """Return the recurrence of the Jacobi polynomials."""
        return beta_recurrence(self.a, self.b, degree)

    def weighted(self) -> tuple[Beta, float]:
        """Return Beta(a + 1, b + 1) and ∫ ½x(1 - x) dπ."""
        total = self.a + self.b
        return Beta(self.a + 1, self.b + 1), 0.5 * self.a * self.b / (total * (total + 1))


def beta_draws(a: Tensor, b: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return samples of Beta(a, b), from two gamma variables; computed in float64."""
    first = torch._standard_gamma(a.double(), generator=generator)
    second = torch._standard_gamma(b.double(), generator=generator)
    total = first + second
    # Both underflow for tiny parameters: the mean is then as good as any.
    share = torch.where(total > 0, first / total, a.double() / (a + b).double())
    return share.to(a.dtype)


@storable
@dataclass(frozen=True)
class Jacobi(Pearson):
    """dX = ½(a(1 - X) - bX) dt + √(X(1 - X)) dW on [0, 1], with a, b > 0.

    An end is reached if its parameter is below 1, and left again at once.

    >>> Jacobi(a=0.5, b=2.0).invariant
    Beta(a=0.5, b=2.0)
    """

    a: float = 1.0
    b: float = 1.0

    domain = Interval(1.0)

    def __post_init__(self) -> None:
        checks.assign(self, a=checks.positive(self.a, "a"), b=checks.positive(self.b, "b"))

    @property
    def invariant(self) -> Beta:
        """Beta(a, b)."""
        return Beta(self.a, self.b)

    def drift(self, x: Tensor) -> Tensor:
        """Return ½(a(1 - x) - bx)."""
        return 0.5 * (self.a - (self.a + self.b) * checks.points(x))

    def flow_drift(self, x: Tensor) -> Tensor:
        """Return g∇log π = ½((a - 1)(1 - x) - (b - 1)x), finite at the ends."""
        return 0.5 * (self.a - 1 - (self.a + self.b - 2) * checks.points(x))

    def _flow_drift_divergence(self, x: Tensor) -> float:
        return -0.5 * (self.a + self.b - 2) * x.shape[1:].numel()

    def diffusion_at(self, x: Tensor) -> Tensor:
        """Return ½x(1 - x), of the shape of ``x``."""
        return 0.5 * x * (1 - x)

    def eigenvalues(self, degree: int) -> Tensor:
        """Return -½n(n + a + b - 1) for n = 1, …, degree."""
        n = torch.arange(1, degree + 1, dtype=torch.float64)
        return -0.5 * n * (n + self.a + self.b - 1)

    def _transition(self, t: Tensor) -> JacobiTransition:
        return JacobiTransition(self, t)


@dataclass(frozen=True, eq=False)
class JacobiTransition(SpectralTransition):
    """The distribution of X_t given X_0 = x."""

    process: Jacobi

    @cached_property
    def _lineages(self) -> Tensor:
        """P(M_t = m) for times from `SERIES_TIME` on: ``(*t.shape, m)``, float64."""
        theta, t = self.process.a + self.process.b, self.time.double().clamp(min=SERIES_TIME)
        k = torch.arange(LINEAGES, dtype=torch.float64, device=t.device)
        m = k[:, None]
        gap = (k - m).clamp(min=0)
        log = (
            torch.log((theta + 2 * k - 1).abs().clamp(min=1e-300))
            + torch.lgamma((theta + m + k - 1).clamp(min=1e-8))
            - torch.lgamma(m + 1)
            - torch.lgamma(gap + 1)
            - torch.lgamma(theta + m)
        )
        signs = torch.where(k >= m, 1 - 2 * (gap % 2), 0.0)
        # For m = k = 0 the term is (θ - 1)Γ(θ - 1)/Γ(θ) = 1, whatever the sign of θ - 1.
        first = (k == 0) & (m == 0)
        log, signs = torch.where(first, 0.0, log), torch.where(first, 1.0, signs)
        decay = -0.5 * k * (k + theta - 1) * t[..., None, None]
        return (signs * torch.exp(log + decay)).sum(dim=-1).clamp(min=0)

    def _lineage_draws(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return M_t for each entry, as floating point."""
        theta = self.process.a + self.process.b
        flat = x.flatten(1)
        t = self.time.double().to(x.device).expand(len(x))
        weights = self._lineages.to(x.device).expand(len(x), -1)
        exact = torch.multinomial(weights, flat.shape[1], replacement=True, generator=generator)
        early = t.clamp(1e-12, SERIES_TIME)
        beta = 0.5 * (theta - 1) * early
        safe = torch.where(beta.abs() > 1e-4, beta, 1.0)
        eta = torch.where(beta.abs() > 1e-4, safe / torch.expm1(safe), 1 - 0.5 * beta)
        spread = (eta + beta).square() * (1 + eta / (eta + beta) - 2 * eta) / safe.square()
        spread = torch.where(beta.abs() > 1e-4, spread, 1 / 3)
        centre = 2 * eta / early
        normals = flat.double().new_empty(flat.shape).normal_(generator=generator)
        rough = centre[:, None] + (centre * spread).sqrt()[:, None] * normals
        short = (t < SERIES_TIME)[:, None]
        return torch.where(short, rough.round().clamp(min=0), exact.double()).reshape(x.shape)

    def sample(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return one sample per row, by the ancestral process; at t = 0 the points themselves."""
        x = self.process.domain.admit(x)
        lineages = self._lineage_draws(x, generator)
        kept = torch.binomial(lineages, x.double(), generator=generator)
        drawn = beta_draws(self.process.a + kept, self.process.b + (lineages - kept), generator)
        start = per_row((self.time == 0).double(), x) > 0
        return torch.where(start, x, drawn.to(x.dtype))

    def log_density(self, y: Tensor, x: Tensor) -> Tensor:
        """Return log ρ_t(y|x), summed over entries; t ≥ 1e-4.

        The spectral form has an absolute error of rounding: where the density relative to π is
        below 1e-12 its logarithm is that of 1e-12.
        """
        y, x = checks.like(y, checks.points(x)), self.process.domain.admit(x)
        if not checks.holds(self.time >= SHORTEST):
            raise ValueError(
                f"t must be at least {SHORTEST:g} for the transition density, got "
                f"{float(self.time.min()):g}"
            )
        degree = math.ceil(math.sqrt(2 * DIGITS / float(self.time.detach().min()))) + 1
        polynomials = self.process.invariant.recurrence(degree)
        rates = torch.cat((torch.zeros(1).double(), self.process.eigenvalues(degree)))
        decay = torch.exp(self.time.to(y.device)[..., None, None] * rates.to(y.device))
        ratio = decay * polynomials(x.double().flatten(1)) * polynomials(y.double().flatten(1))
        log = ratio.sum(dim=-1).clamp(min=1e-12).log().sum(dim=1)
        return log.to(y.dtype) + self.process.invariant.log_density(y)
