"""Errata of the paper: printed formulas fail, corrected ones hold. See docs/errata.md."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import scipy.integrate
import scipy.linalg
import torch
from torch import Tensor

from oism import (
    Brownian,
    CriticallyDamped,
    Fourier,
    Hermite,
    Linear,
    OrnsteinUhlenbeck,
    Torus,
    VarianceExploding,
    fit,
)
from oism.basis import product_coefficients, product_lattice
from oism.basis._hermite import tabulate
from oism.data.toys import BART_SIMPSON
from oism.estimation import (
    FourierEquations,
    FourierMoments,
    HermiteSystem,
    Modulation,
    SampleMeans,
)
from oism.process import AdjointGenerator, InfinitesimalGenerator, Noising, Semigroup
from oism.process._expectation import expectation

OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)
X = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]


def hermite(n: int, scale: float, x: Tensor) -> Tensor:
    return tabulate(scale * x[:, 0], n)[:, n]


def test_eigenpairs_of_the_generalised_process() -> None:
    generator = InfinitesimalGenerator(OU)

    def residual(scale: float, eigenvalue: float) -> float:
        generated = generator(lambda x: hermite(3, scale, x))(X)
        return float((generated - eigenvalue * hermite(3, scale, X)).abs().max())

    ours, printed = math.sqrt(2 * OU.theta) / OU.sigma, math.sqrt(OU.theta / 2) * OU.sigma
    assert residual(ours, -OU.theta * 3) < 1e-13
    assert residual(ours, OU.theta * 3) > 1  # the sign of λ
    assert residual(printed, -OU.theta * 3) > 0.5  # the argument


def test_linear_and_quadratic_eigenfunctions_decay() -> None:
    generator = InfinitesimalGenerator(OrnsteinUhlenbeck())
    v = torch.tensor([1.0, -2.0], dtype=torch.float64)
    u = torch.tensor([[1.0, 0.5], [0.2, -3.0]], dtype=torch.float64)
    x = torch.cat((X, X.flip(0) + 0.5), dim=1)

    def quadratic(y: Tensor) -> Tensor:
        return torch.einsum("ni,ij,nj->n", y, u, y) - torch.trace(u)

    torch.testing.assert_close(generator(lambda y: y @ v)(x), -x @ v)
    torch.testing.assert_close(generator(quadratic)(x), -2 * quadratic(x))


def test_products_need_the_constant_function() -> None:
    u = X[:, 0]
    table, beta = tabulate(u, 4), product_coefficients(2)[2, 2]
    torch.testing.assert_close(table @ beta, table[:, 2] ** 2)
    without = table[:, 1:] @ beta[1:]
    assert float((without - table[:, 2] ** 2).abs().min()) == pytest.approx(1)


def test_complex_exponentials_with_root_two_are_not_normalised() -> None:
    def square(x: Tensor) -> Tensor:
        return (math.sqrt(2) * torch.exp(3j * x[:, 0])).abs().square()

    assert float(expectation(square, Torus().invariant, (1,))) == pytest.approx(2)
    ours = expectation(lambda x: Fourier.lattice(1, 9)(x).square(), Torus().invariant, (1,))
    torch.testing.assert_close(ours, torch.ones(6, dtype=torch.float64))


def test_an_eigenvalue_bound_of_125_leaves_200_frequencies_and_400_functions() -> None:
    basis = Fourier.lattice(2, 125)
    assert (len(basis.frequencies), basis.size) == (200, 400)


def test_the_variance_exploding_clock_does_not_start_at_zero() -> None:
    noising = Noising(Brownian(), VarianceExploding(sigma_min=0.01, sigma_max=50.0))
    assert float(noising.clock.time(0.0)) == pytest.approx(0.5 * 0.01**2)
    # The SDE from τ = 0 adds ∫ 2t'(τ) dτ = σ_τ² - σ_min², not σ_τ²: Simpson's rule on its noise.
    tau = torch.linspace(0, 0.2, 2001, dtype=torch.float64)
    added = scipy.integrate.simpson(2 * noising.diffusivity(tau), x=tau)
    sigma = 0.01 * 5000**0.2
    assert added == pytest.approx(sigma**2 - 0.01**2, rel=1e-10, abs=0)
    assert added != pytest.approx(sigma**2, rel=1e-2, abs=0)


def test_the_mehler_kernel_divides_by_the_density_of_the_second_point() -> None:
    x, y, t = X, X.flip(0) + 0.3, 0.4
    log_density, log_pi = OU.transition(t).log_density, OU.invariant.log_density
    kernel = log_density(y, x) - log_pi(y)
    torch.testing.assert_close(kernel, log_density(x, y) - log_pi(x))
    printed = log_density(y, x) - log_pi(x)
    assert float((printed - (log_density(x, y) - log_pi(y))).abs().max()) > 0.1


@pytest.mark.parametrize(
    ("basis", "t"), [(Hermite(1, 80, OU), 0.5), (Fourier.lattice(1, 400), 0.1)]
)
def test_the_spectral_series_is_a_density_with_respect_to_the_invariant_measure(
    basis: Hermite | Fourier, t: float
) -> None:
    # Σ e^{λt} φ(x)φ(y) = ρ_t(y|x)/π(y): as t → 0 the sum is δ(x - y)/π(y), not δ(x - y).
    y = X.flip(0) * 0.7
    series = 1 + (torch.exp(basis.eigenvalues * t) * basis(X) * basis(y)).sum(dim=1)
    kernel = Semigroup(basis.process, t).log_kernel(X, y).exp()
    torch.testing.assert_close(series, kernel, rtol=1e-10, atol=1e-10)
    density = basis.process.transition(t).log_density(y, X).exp()
    assert float((series - density).abs().max()) > 0.1


def test_the_minimiser_has_a_minus_sign() -> None:
    # αᵀAα + 2bᵀα is minimal at -A⁻¹b; the paper solves Aα = b, also in its preconditioned form.
    basis = Fourier.lattice(1, 225)
    law = BART_SIMPSON
    means = law.characteristic(product_lattice(basis))
    equations = FourierEquations.of(basis, product_lattice(basis), means)
    t = 0.02
    time = torch.tensor([t], dtype=torch.float64)
    printed = torch.linalg.solve(equations.dense(time)[0], equations.right(time)[0])
    x = torch.linspace(-math.pi, math.pi, 401, dtype=torch.float64)[:-1, None]
    weights = law.density(x, t) * 2 * math.pi / len(x)

    def loss(alpha: Tensor) -> float:
        error = basis.series(x, alpha, derivative=1) - law.score(x, t)
        return float((weights * error.square()[:, 0]).sum())

    nothing = loss(torch.zeros_like(printed))
    assert loss(-printed) < 0.05 * nothing < nothing < 3 * nothing < loss(printed)


def test_moments_to_twice_the_order_less_two_suffice() -> None:
    # φ_k' = √k φ_{k-1}, so products of gradients have degree 2n - 2, not 2n.
    x = torch.randn(50, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    score = fit(x, Hermite(dim=1, order=4), ridge=0.1)
    assert isinstance(score.system, HermiteSystem)
    means = score.system.averages.total
    assert means.shape == (7, 1)
    means[6] += 1.0
    changed = score.coefficients(0.1, exact=True)
    assert not torch.allclose(changed, score.coefficients(0.1), rtol=1e-3)


def test_shrinking_each_mean_breaks_positivity() -> None:
    # With the paper's rule no density has the moments, and A_t is indefinite near t = 0.
    x = BART_SIMPSON.sample(2000, torch.Generator().manual_seed(0))
    moments = FourierMoments(Fourier.lattice(1, 625), squares=True).update(x)
    smallest = {}
    for rule in (SampleMeans(), Modulation(project=False), Modulation()):
        averages = moments.shrunk(rule)
        equations = FourierEquations.of(moments.basis, moments.frequencies, averages.total)
        matrix = equations.dense(torch.tensor([5e-5], dtype=torch.float64))[0]
        smallest[rule] = float(torch.linalg.eigvalsh(matrix)[0])
    assert smallest[Modulation(project=False)] < -1 < -1e-9 < smallest[SampleMeans()]
    assert smallest[Modulation()] > -1e-9


def test_positive_definite_matrices_do_not_make_a_process_symmetric() -> None:
    # Printed: symmetric if -F and L are positive definite. Here both are, and symmetric matrices.
    drift = -torch.diag(torch.tensor([1.0, 3.0], dtype=torch.float64))
    noise = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    x, y = torch.cat((X, X.flip(0) + 0.5), dim=1), torch.cat((X.sin(), X.cos()), dim=1)

    def asymmetry(process: Linear) -> float:
        kernel = Semigroup(process, 0.4).log_kernel
        return float((kernel(x, y) - kernel(y, x)).abs().max())

    printed = Linear(drift, noise)
    assert not printed.is_symmetric
    assert asymmetry(printed) > 0.1
    # It is not necessary either: with F = -GΣ⁻¹ the process is symmetric, and F is not.
    covariance = torch.tensor([[1.0, 0.6], [0.6, 2.0]], dtype=torch.float64)
    ours = Linear(-0.5 * noise @ noise.mT @ torch.linalg.inv(covariance), noise)
    assert float((ours.drift_matrix - ours.drift_matrix.mT).abs().max()) > 0.1
    assert ours.is_symmetric
    assert asymmetry(ours) < 1e-12


def test_the_adjoint_generator_is_right_as_printed() -> None:
    # ⟨Σ∞⁻¹x, FΣ∞∇f⟩ + ∇·G∇f; with F instead of its adjoint it is wrong.
    process = CriticallyDamped(1)
    x = torch.cat((X, X.flip(0) + 0.5), dim=1)
    sigma, drift = process.stationary_covariance, process.drift_matrix
    adjoint = AdjointGenerator(process)(lambda y: y)(x)
    printed = torch.linalg.solve(sigma, x.mT).mT @ drift @ sigma
    torch.testing.assert_close(adjoint, printed, rtol=0, atol=1e-13)
    assert float((adjoint - x @ drift.mT).abs().max()) > 1


def test_damping_is_critical_at_two() -> None:
    # Printed for any c. The eigenvalues of F are equal at c = 2 only: complex below, real above.
    def discriminant(c: float) -> float:
        drift = CriticallyDamped(1, c=c).drift_matrix
        return float(drift.trace().square() - 4 * torch.linalg.det(drift))

    assert discriminant(2.0) == pytest.approx(0, abs=1e-14)
    assert discriminant(1.9) < -0.1
    assert discriminant(2.1) > 0.1


def test_brownian_motion_has_no_stationary_covariance() -> None:
    # Σ∞ - SΣ∞Sᵀ is printed for all linear SDEs, of which Brownian motion is the first example.
    identity = torch.eye(2, dtype=torch.float64)
    brownian = Linear(torch.zeros(2, 2), math.sqrt(2) * identity)
    with pytest.raises(ValueError, match="drift_matrix must be Hurwitz"):
        _ = brownian.stationary_covariance
    torch.testing.assert_close(brownian.transition(3.0).covariance(2), 6 * identity)
    # If there is one, the difference cancels: a variance of (2c/3)t³ has no correct digits.
    process, t = CriticallyDamped(1), 1e-6
    power = torch.from_numpy(scipy.linalg.expm(t * process.drift_matrix.numpy()))
    printed = identity - power @ power.mT
    ours = process.transition(t).covariance(2)
    assert float(ours[0, 0]) == pytest.approx(4 / 3 * t**3 * (1 - 1.5 * t), rel=1e-11, abs=0)
    assert abs(float(printed[0, 0] / ours[0, 0]) - 1) > 0.5


def test_likelihood_weighting_bounds_the_likelihood_and_does_not_equal_it() -> None:
    # Data N(0, v) and a score -kx/v_t that is wrong by a factor k: the reverse SDE is linear, and
    # its variance w solves an ordinary differential equation, from w = 1 at the last time.
    data, last = 0.25, 6.0

    def variance(t: float) -> float:
        return data * math.exp(-2 * t) - math.expm1(-2 * t)

    def sampled(k: float) -> float:
        def rate(t: float, w: float) -> float:
            return -2 * w * (1 - 2 * k / variance(t)) - 2

        ends = scipy.integrate.solve_ivp(rate, (last, 0.0), [1.0], rtol=1e-10, atol=1e-12)
        return float(ends.y[0, -1])

    def likelihood(k: float) -> float:  # -E log of the sampler's density
        w = sampled(k)
        return 0.5 * math.log(2 * math.pi * w) + 0.5 * data / w

    def loss(k: float) -> float:  # ½∫ g² E‖ŝ - ∇log ρ_t‖² dt, g² = 2, and the entropy of the data
        whole, _ = scipy.integrate.quad(lambda t: (k - 1) ** 2 / variance(t), 0, last)
        return float(whole) + 0.5 * math.log(2 * math.pi * math.e * data)

    assert likelihood(1.0) == pytest.approx(loss(1.0), abs=1e-6)  # equal at the minimum
    for k in (0.8, 1.3, 2.0):
        assert likelihood(k) < loss(k) - 0.01


def test_errata_name_tests_that_exist() -> None:
    """Each row of docs/errata.md names the test that shows it."""
    tests = Path(__file__).parent
    page = (tests.parent / "docs" / "errata.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    text = "\n".join(path.read_text(encoding="utf-8") for path in tests.rglob("test_*.py"))
    assert len(named) > 15
    assert {name for name in named if f"def {name}(" not in text} == set()
