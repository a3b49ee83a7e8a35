"""The identities behind the closed form, each with its measured residual.

Run it with ``python -m studies.eigenrelations``. A residual is the largest absolute difference of
both sides over some points, divided by the larger of 1 and the largest right-hand side; for
simulations it is in standard errors. The exit status is 1 if a residual is above its bound.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from oism.basis import (
    Basis,
    Fourier,
    Hermite,
    OrthogonalFrame,
    TensorHermite,
    product_coefficients,
    recurrence,
)
from oism.process import (
    Brownian,
    CarreDuChamp,
    Clock,
    DirichletForm,
    Function,
    IdentityClock,
    InfinitesimalGenerator,
    Measure,
    OrnsteinUhlenbeck,
    Process,
    Quadrature,
    Semigroup,
    Torus,
    VarianceExploding,
    VariancePreserving,
)

OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)
TORUS = Torus()


@dataclass(frozen=True)
class Relation:
    """One line of the table: a residual and its bound, which it must exceed if ``must_fail``."""

    statement: str
    where: str
    residual: float
    allowed: float
    must_fail: bool = False

    @property
    def holds(self) -> bool:
        """Whether the residual is within its bound, or above it if it must fail."""
        return (self.residual > self.allowed) if self.must_fail else (self.residual <= self.allowed)


def discrepancy(left: Tensor, right: Tensor) -> float:
    """Return max|left - right| relative to the larger of 1 and max|right|."""
    return float((left - right).abs().max() / right.abs().max().clamp(min=1))


def expectation(f: Function, measure: Measure, dim: int, rule: Quadrature) -> Tensor:
    """Return ∫ f dπ by quadrature."""
    x, weights = rule.points(measure, (dim,))
    total: Tensor = torch.tensordot(weights, f(x), dims=1)
    return total


def points(n: int, dim: int) -> Tensor:
    """Return n normal points of ℝ^dim, the same in every run."""
    generator = torch.Generator().manual_seed(dim)
    return torch.randn(n, dim, generator=generator, dtype=torch.float64)


def rotation(dim: int) -> OrthogonalFrame:
    """Return a random orthogonal frame, the same in every run."""
    return OrthogonalFrame(torch.linalg.qr(points(dim, dim))[0])


def bases() -> list[tuple[str, Basis]]:
    """Return the bases of the table with their descriptions."""
    real = points(6, 2).mul(3)
    real = real[real.norm(dim=1).argsort()]
    return [
        ("ℝ³, Heₙ to order 12, rotated frame", Hermite(3, 12, OU, rotation(3))),
        ("ℝ³, tensor Hermite to degree 6, rotated", TensorHermite(3, 6, OU, rotation(3))),
        ("ℝ², Fourier, real ξ", Fourier(real, Brownian())),
        ("T¹, Fourier, ξ² ≤ 100", Fourier.lattice(1, 100)),
        ("T², Fourier, ‖ξ‖² ≤ 50", Fourier.lattice(2, 50)),
        ("T³, Fourier, ‖ξ‖² ≤ 9", Fourier.lattice(3, 9)),
    ]


def eigenfunctions() -> Iterator[Relation]:
    """Measure Lφ = λφ, P_tφ = e^{λt}φ and orthonormality for every basis."""
    t = 0.2
    for where, basis in bases():
        x, rule = points(40, basis.dim), Quadrature({1: 64, 2: 48, 3: 26}[basis.dim])
        values, eigenvalues = basis(x), basis.eigenvalues
        generated = InfinitesimalGenerator(basis.process)(basis)(x)
        yield Relation(
            "Lφ = λφ (autodiff)", where, discrepancy(generated, eigenvalues * values), 1e-13
        )
        averaged = Semigroup(basis.process, t, rule)(basis)(x)
        decayed = torch.exp(eigenvalues * t) * values
        yield Relation("P_tφ = e^{λt}φ (quadrature)", where, discrepancy(averaged, decayed), 1e-12)
        yield Relation("P_tφ = e^{λt}φ (simulation, std. errors)", where, simulated(basis, t), 5.0)
        if basis.process.invariant.is_probability:
            gram = expectation(_outer(basis), basis.process.invariant, basis.dim, rule)
            residual = discrepancy(gram, torch.eye(basis.size).double())
            yield Relation("∫ φ_k φ_ℓ dπ = δ_kℓ", where, residual, 1e-12)
    wave = _wave(0.5)
    failed = Semigroup(TORUS, t, Quadrature(64))(wave)(points(40, 1))
    decayed = math.exp(-0.25 * t) * wave(points(40, 1))
    yield Relation(
        "P_tφ = e^{λt}φ fails for ξ = ½", "T¹", discrepancy(failed, decayed), 1e-2, must_fail=True
    )


def simulated(basis: Basis, t: float, draws: int = 20_000) -> float:
    """Return the largest |mean of φ(X_t) - e^{λt}φ(x)| in standard errors, from one start x."""
    x, generator = 0.3 * points(1, basis.dim), torch.Generator().manual_seed(0)
    transition = basis.process.transition(t)
    sample = basis(transition.sample(x.expand(draws, -1), generator=generator))
    error = sample.mean(dim=0) - torch.exp(basis.eigenvalues * t) * basis(x)[0]
    return float((error.abs() / (sample.std(dim=0) / math.sqrt(draws))).max())


def _outer(basis: Basis) -> Function:
    def gram(x: Tensor) -> Tensor:
        values = basis(x)
        return values[:, :, None] * values[:, None]

    return gram


def _wave(xi: float) -> Function:
    return lambda x: torch.cos(xi * x).sum(dim=1)


def _pair(process: Process) -> tuple[Function, Function]:
    """Return two smooth functions on ℝ² or T² that are not eigenfunctions."""
    if isinstance(process, Torus):
        return (
            lambda x: torch.exp(torch.sin(x).sum(dim=1)),
            lambda x: torch.cos(x[:, 0] - 2 * x[:, 1]) + torch.sin(x[:, 1]) ** 2,
        )
    return lambda x: x[:, 0] ** 3 * x[:, 1] + x[:, 1] ** 2, lambda x: x[:, 0] - x[:, 1] ** 4


def calculus(where: str, process: Process) -> Iterator[Relation]:
    """Measure the identities of Γ and of the Dirichlet form, and the chain rule of a diffusion."""
    (f, g), x = _pair(process), points(40, 2)
    generator, gamma = InfinitesimalGenerator(process), CarreDuChamp(process)
    product = generator(lambda y: f(y) * g(y))(x)
    defined = 0.5 * (product - f(x) * generator(g)(x) - g(x) * generator(f)(x))
    residual = discrepancy(defined, gamma(f, g)(x))
    yield Relation("½(L(fg) - fLg - gLf) = Γ(f,g)", where, residual, 1e-13)
    form = DirichletForm(process, (2,))(f, g)
    product = expectation(lambda y: f(y) * generator(g)(y), process.invariant, 2, Quadrature())
    yield Relation("∫ Γ(f,g) dπ = -∫ f Lg dπ", where, discrepancy(form, -product), 1e-12)
    composed = generator(lambda y: torch.sin(g(y)))(x)
    chain = torch.cos(g(x)) * generator(g)(x) - torch.sin(g(x)) * gamma(g)(x)
    yield Relation("Lψ(f) = ψ'(f)Lf + ψ''(f)Γ(f,f)", where, discrepancy(composed, chain), 1e-13)


def semigroup(where: str, process: Process) -> Iterator[Relation]:
    """Measure the semigroup property and the symmetry of the kernel with respect to π."""
    f, x = _pair(process)[0], points(5, 2)
    twice = Semigroup(process, 0.3)(Semigroup(process, 0.5)(f))(x)
    once = Semigroup(process, 0.8)(f)(x)
    yield Relation("P_s P_t = P_{s+t}", where, discrepancy(twice, once), 1e-12)
    kernel, y = Semigroup(process, 0.3).log_kernel, x.flip(0)
    yield Relation("k_t(x,y) = k_t(y,x)", where, discrepancy(kernel(x, y), kernel(y, x)), 1e-13)


def transition_densities() -> Iterator[Relation]:
    """Measure that transition densities integrate to one and satisfy Chapman-Kolmogorov."""
    for where, process in (("ℝ, θ=0.7, σ=1.3", OU), ("T¹", TORUS)):
        masses = torch.stack([mass(process, 10.0**k) for k in range(-6, 2)])
        residual = discrepancy(masses, torch.ones(8).double())
        yield Relation("∫ ρ_t(y|x) dy = 1, t from 1e-6 to 10", where, residual, 1e-12)
    times = itertools.product((1e-3, 0.1, 3.0), repeat=2)
    residual = max(chapman_kolmogorov(s, t) for s, t in times)
    yield Relation("∫ ρ_s(y|x) ρ_t(z|y) dy = ρ_{s+t}(z|x)", "T¹", residual, 1e-12)


def mass(process: Process, t: float) -> Tensor:
    """Return ∫ ρ_t(y|x) dy for one x on the line or circle, by the trapezoidal rule."""
    transition, x = process.transition(t), torch.tensor([[0.4]], dtype=torch.float64)
    reach = 12 * float(transition.covariance(1).sqrt())
    reach = min(reach, math.pi) if isinstance(process, Torus) else reach
    offset = torch.linspace(-reach, reach, 2001, dtype=torch.float64)[:-1, None]
    step = reach / 1000
    return (
        step * transition.log_density(transition.mean(x) + offset, x.expand_as(offset)).exp().sum()
    )


def chapman_kolmogorov(s: float, t: float, cells: int = 2000) -> float:
    """Return the discrepancy of ∫ ρ_s(y|x) ρ_t(z|y) dy and ρ_{s+t}(z|x) on the circle."""
    y, z = torch.cartesian_prod(
        torch.arange(cells, dtype=torch.float64) * (2 * math.pi / cells) - math.pi,
        torch.linspace(-3, 3, 7, dtype=torch.float64),
    ).split(1, dim=1)  # type: ignore[no-untyped-call]
    x = torch.full_like(y, 0.4)
    steps = TORUS.transition(s).log_density(y, x) + TORUS.transition(t).log_density(z, y)
    whole = TORUS.transition(s + t).log_density(z[:7], x[:7])
    return discrepancy(steps.exp().reshape(cells, 7).mean(dim=0) * 2 * math.pi, whole.exp())


def algebra() -> Iterator[Relation]:
    """Measure the product formula of Hermite polynomials and the clocks."""
    order, u = 12, points(40, 1)[:, 0]
    table = torch.stack(list(recurrence(u, 2 * order)), dim=1)
    terms = product_coefficients(order) * table[:, None, None]
    multiplied = table[:, : order + 1, None] * table[:, None, : order + 1]
    # The terms alternate in sign, so rounding is relative to their absolute sum.
    residual = float(((terms.sum(dim=3) - multiplied).abs() / terms.abs().sum(dim=3)).max())
    yield Relation("Σ_h β_h φ_h = φ_k φ_ℓ", "k, ℓ ≤ 12", residual, 1e-14)
    clocks: list[Clock] = [VariancePreserving(), VarianceExploding(), IdentityClock()]
    tau = torch.linspace(0, 1, 101, dtype=torch.float64)
    for clock in clocks:
        residual = discrepancy(clock.inverse(clock.time(tau)), tau)
        yield Relation("τ(t(τ)) = τ", type(clock).__name__, residual, 1e-13)


def relations() -> Iterator[Relation]:
    """Measure every line of the table."""
    yield from eigenfunctions()
    for where, process in (("ℝ², θ=0.7, σ=1.3", OU), ("T²", TORUS)):
        yield from calculus(where, process)
        yield from semigroup(where, process)
    yield from transition_densities()
    yield from algebra()


def main() -> int:
    """Print the table; return the exit status, 1 if any line does not hold."""
    start, failed = time.perf_counter(), 0
    print(f"{'relation':<42}{'where':<42}{'residual':>10}{'allowed':>10}")
    for relation in relations():
        failed += not relation.holds
        allowed = f"{'>' if relation.must_fail else '≤'} {relation.allowed:.0e}"
        note = "" if relation.holds else "  ← does not hold"
        print(
            f"{relation.statement:<42}{relation.where:<42}"
            f"{relation.residual:>10.1e}{allowed:>10}{note}"
        )
    print(f"\n{failed or 'none'} out of bounds, {time.perf_counter() - start:.1f} s")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
