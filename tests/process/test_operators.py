from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
import sympy
import torch
from torch import Tensor

from oism import Brownian, OrnsteinUhlenbeck, Torus
from oism._core.transforms import per_row
from oism.process import (
    AdjointGenerator,
    CarreDuChamp,
    DirichletForm,
    Domain,
    Euclidean,
    Gaussian,
    InfinitesimalGenerator,
    Isotropic,
    IsotropicTransition,
    Measure,
    MonteCarlo,
    NotAProbabilityError,
    Process,
    Quadrature,
    Rule,
    Semigroup,
    Transition,
)
from oism.process._expectation import expectation

OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)
PROCESSES: list[Isotropic] = [Brownian(), OU, Torus()]
processes = pytest.mark.parametrize("process", PROCESSES, ids=repr)


@dataclass(frozen=True)
class RotatedTransition(IsotropicTransition):
    """N(e^{-t} R_{ωt} x, (1 - e^{-2t}) I)."""

    angle: Tensor

    def _mean(self, x: Tensor) -> Tensor:
        c, s = self.angle.cos(), self.angle.sin()
        turned = torch.stack((c * x[:, 0] - s * x[:, 1], s * x[:, 0] + c * x[:, 1]), dim=1)
        return per_row(self.alpha, x) * turned


@dataclass(frozen=True)
class Swirl(Process):
    """dX = (-I + ωJ)X dt + √2 dW in the plane: π = N(0, I), but not reversible."""

    omega: float = 1.5

    domain: ClassVar[Domain] = Euclidean()
    invariant: ClassVar[Gaussian] = Gaussian(1.0)

    def drift(self, x: Tensor) -> Tensor:
        return -x + self.omega * torch.stack((-x[:, 1], x[:, 0]), dim=1)

    def noise(self, dim: int) -> Tensor:
        return math.sqrt(2) * torch.eye(dim, dtype=torch.float64)

    def _transition(self, t: Tensor) -> RotatedTransition:
        return RotatedTransition(torch.exp(-t), -torch.expm1(-2 * t), self.omega * t)


@dataclass(frozen=True)
class Skew(Swirl):
    """The same with a rectangular noise matrix of rank one."""

    def noise(self, dim: int) -> Tensor:
        assert dim == 2
        return torch.tensor([[1.0, 2.0, -0.5], [-0.5, -1.0, 0.25]], dtype=torch.float64)


@dataclass(frozen=True)
class Recording(Rule):
    """A rule with one point, so that its result differs from the default."""

    def nodes_given(self, law: Transition, x: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        yield law.mean(x)[None] + 0.25, x.new_ones(1)

    def points(self, measure: Measure, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        return torch.full((1, *shape), 0.25), torch.ones(1)


def f(x: Tensor) -> Tensor:
    return torch.exp(0.3 * torch.sin(x[:, 0])) * torch.cos(x[:, 1])


def g(x: Tensor) -> Tensor:
    return torch.cos(x[:, 0] - 2 * x[:, 1]) + torch.sin(x[:, 1])


def points(n: int = 30, dim: int = 2) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@processes
def test_the_generator_agrees_with_computer_algebra(process: Isotropic) -> None:
    a, b = symbols = sympy.symbols("a b")
    expression = sympy.exp(sympy.sin(a) * sympy.Rational(3, 10)) * sympy.cos(b)
    theta = process.theta if isinstance(process, OrnsteinUhlenbeck) else 0.0
    generated = sum(
        process.diffusivity * sympy.diff(expression, s, 2) - theta * s * sympy.diff(expression, s)
        for s in symbols
    )
    expected = [float(generated.subs({a: x[0], b: x[1]})) for x in points().tolist()]
    ours = InfinitesimalGenerator(process)(f)(points())
    exact = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(ours, exact, rtol=1e-13, atol=1e-13)


def test_rectangular_and_singular_noise_matrices() -> None:
    process, x = Skew(), points()
    noise = process.noise(2)
    matrix = 0.5 * noise @ noise.T
    first = torch.func.vmap(torch.func.grad(lambda y: f(y[None])[0]))(x)
    second = torch.func.vmap(torch.func.hessian(lambda y: f(y[None])[0]))(x)
    expected = (process.drift(x) * first).sum(dim=1) + (matrix * second).sum(dim=(1, 2))
    torch.testing.assert_close(InfinitesimalGenerator(process)(f)(x), expected)
    other = torch.func.vmap(torch.func.grad(lambda y: g(y[None])[0]))(x)
    gamma = torch.einsum("ni,ij,nj->n", first, matrix, other)
    torch.testing.assert_close(CarreDuChamp(process)(f, g)(x), gamma)
    torch.testing.assert_close(process.diffusion(2), matrix)
    torch.testing.assert_close(process.diffuse(x, x), x @ matrix)
    torch.testing.assert_close(process.adjoint_drift(x), -2 * x @ matrix - process.drift(x))


def test_a_given_rule_is_used() -> None:
    x = points()
    mean = OU.transition(0.3).mean(x)
    torch.testing.assert_close(Semigroup(OU, 0.3, Recording())(g)(x), g(mean + 0.25))
    at = torch.full((1, 2), 0.25, dtype=torch.float64)
    assert torch.equal(expectation(g, OU.invariant, (2,), Recording()), g(at)[0])
    torch.testing.assert_close(DirichletForm(OU, (2,), Recording())(g), CarreDuChamp(OU)(g)(at)[0])
    # Monte Carlo samples from the given generator: equal seeds, equal results.
    averages, integrals = zip(*(seeded(seed) for seed in (4, 4, 5)), strict=True)
    for results in (averages, integrals):
        assert torch.equal(results[0], results[1])
        assert not torch.equal(results[0], results[2])


def seeded(seed: int) -> tuple[Tensor, Tensor]:
    rules = [MonteCarlo(9, torch.Generator().manual_seed(seed)) for _ in range(2)]
    averaged = Semigroup(OU, 0.3, rules[0])(g)(points())
    return averaged, expectation(g, OU.invariant, (2,), rules[1])


@processes
def test_operators_compose(process: Isotropic) -> None:
    generator, semigroup = InfinitesimalGenerator(process), Semigroup(process, 0.2)
    x = points(5)
    # L²φ = λ²φ, and the commutation LP_t = P_tL, which is Kolmogorov's equation.
    scale = math.sqrt(2 * OU.theta) / OU.sigma
    polynomial, wave = (lambda y: (scale * y[:, 0]) ** 2 - 1), (lambda y: torch.sin(2 * y[:, 1]))
    phi, eigenvalue = (polynomial, -2 * OU.theta) if process == OU else (wave, -4.0)
    torch.testing.assert_close(generator(generator(phi))(x), eigenvalue**2 * phi(x))
    torch.testing.assert_close(
        generator(semigroup(g))(x), semigroup(generator(g))(x), rtol=1e-11, atol=1e-11
    )


@processes
def test_the_generator_is_the_derivative_of_the_semigroup(process: Isotropic) -> None:
    x, t = points(5), torch.tensor(0.3, dtype=torch.float64)
    in_time = torch.func.jacfwd(lambda s: Semigroup(process, s, Quadrature(48))(g)(x))(t)
    expected = InfinitesimalGenerator(process)(Semigroup(process, t, Quadrature(48))(g))(x)
    torch.testing.assert_close(in_time, expected, rtol=1e-9, atol=1e-9)


@processes
def test_carre_du_champ_of_vector_valued_functions(process: Isotropic) -> None:
    x = points()
    both = CarreDuChamp(process)(lambda y: torch.stack((f(y), g(y)), dim=1))(x)
    alone = [CarreDuChamp(process)(h)(x) for h in (f, g)]
    torch.testing.assert_close(both, torch.stack(alone, dim=1))
    gradient = torch.func.vmap(torch.func.grad(lambda y: f(y[None])[0]))(x)
    expected = process.diffusivity * gradient.square().sum(dim=1)
    torch.testing.assert_close(alone[0], expected)


@pytest.mark.parametrize("process", [OU, Torus(), Swirl()], ids=repr)
def test_the_adjoint_satisfies_integration_by_parts(process: Process) -> None:
    generator, adjoint = InfinitesimalGenerator(process), AdjointGenerator(process)
    rule = Quadrature(48)
    left = expectation(lambda x: f(x) * generator(g)(x), process.invariant, (2,), rule)
    right = expectation(lambda x: g(x) * adjoint(f)(x), process.invariant, (2,), rule)
    torch.testing.assert_close(left, right, rtol=0, atol=1e-12)


def test_an_irreversible_process_is_not_its_own_adjoint() -> None:
    process, x = Swirl(), points()
    generator, adjoint = InfinitesimalGenerator(process), AdjointGenerator(process)
    assert float((generator(f)(x) - adjoint(f)(x)).abs().max()) > 0.1
    left = expectation(lambda x: f(x) * generator(g)(x), process.invariant, (2,))
    wrong = expectation(lambda x: g(x) * generator(f)(x), process.invariant, (2,))
    assert abs(float(left - wrong)) > 1e-2
    # ½(L + L*) is the symmetric part: -∫ f ½(L + L*)g dπ is the Dirichlet form.
    half = expectation(
        lambda x: -0.5 * f(x) * (generator(g)(x) + adjoint(g)(x)), process.invariant, (2,)
    )
    torch.testing.assert_close(DirichletForm(process, (2,))(f, g), half, rtol=0, atol=1e-12)
    kernel = Semigroup(process, 0.4).log_kernel
    assert float((kernel(x, x.flip(0)) - kernel(x.flip(0), x)).abs().max()) > 0.1


@pytest.mark.parametrize("process", [OU, Torus(), Swirl()], ids=repr)
def test_the_kernel_represents_the_semigroup(process: Process) -> None:
    # P_t g(x) = ∫ k_t(x, y) g(y) dπ(y)
    x, t = points(1).expand(96**2, 2), 0.5
    semigroup = Semigroup(process, t, Quadrature(48))
    nodes, weights = process.invariant.quadrature(2, 96)
    integral = weights @ (semigroup.log_kernel(x, nodes).exp() * g(nodes))
    torch.testing.assert_close(integral, semigroup(g)(x[:1])[0], rtol=0, atol=1e-9)


@processes
def test_p_zero_is_the_identity(process: Isotropic) -> None:
    x = points()
    assert torch.equal(Semigroup(process, 0.0)(f)(x), f(process.wrap(x)))


@processes
def test_monte_carlo_agrees_with_quadrature(process: Isotropic, generator: torch.Generator) -> None:
    x, rule = points(3), MonteCarlo(40_000, generator)
    simulated = Semigroup(process, 0.4, rule)(g)(x)
    torch.testing.assert_close(simulated, Semigroup(process, 0.4)(g)(x), rtol=0, atol=0.03)
    if process.invariant.is_probability:
        form = DirichletForm(process, (2,), rule)(f, g)
        torch.testing.assert_close(form, DirichletForm(process, (2,))(f, g), rtol=0, atol=0.03)


def test_monte_carlo_is_the_default_in_high_dimension(generator: torch.Generator) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    averaged = Semigroup(OU, 0.4)(lambda y: y.sum(dim=1))(x)
    torch.testing.assert_close(averaged, OU.alpha(0.4) * x.sum(dim=1), rtol=0, atol=0.15)
    # The samples are the same for all points, so P_t f can be differentiated: L P_t f, f linear.
    linear = Semigroup(OU, 0.4, MonteCarlo(64, generator))(lambda y: y.sum(dim=1))
    slope = InfinitesimalGenerator(OU)(linear)(x)
    torch.testing.assert_close(slope, -OU.theta * OU.alpha(0.4) * x.sum(dim=1))


@processes
def test_images_are_points(process: Isotropic) -> None:
    x = points(3, 2).reshape(3, 1, 2)
    for operator in (InfinitesimalGenerator(process), Semigroup(process, 0.3)):
        flat = operator(g)(x.flatten(1))
        torch.testing.assert_close(operator(lambda y: g(y.flatten(1)))(x), flat)


def test_blocks_bound_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return g(x)

    x = points(10)
    whole = Semigroup(OU, 0.3)(g)(x)
    monkeypatch.setattr("oism.process._operators.BLOCK", 1000)
    torch.testing.assert_close(Semigroup(OU, 0.3)(counted)(x), whole, rtol=1e-14, atol=1e-14)
    assert max(sizes) <= 1000
    assert sum(sizes) == 32**2 * 10


def test_autocast_does_not_change_sums_and_noise() -> None:
    x, process = points().float(), Skew()

    def results() -> list[Tensor]:
        return [
            Semigroup(OU, 0.3)(g)(x),
            DirichletForm(OU, (2,), dtype=torch.float32)(g),
            process.diffuse(x, x),
            process.adjoint_drift(x),
        ]

    plain = results()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = results()
    for one, other in zip(plain, cast, strict=True):
        assert torch.equal(one, other)


def test_dtypes_are_kept() -> None:
    x = points(4).float()
    for operator in (InfinitesimalGenerator(OU), Semigroup(OU, 0.3), CarreDuChamp(OU)):
        assert operator(g)(x).dtype == torch.float32


@pytest.mark.parametrize("t", [1e-10, 1e-8, 1e-3, 0.07, 0.08, 0.5, 10.0])
def test_the_rule_of_the_torus_is_exact_up_to_22_frequencies_below_its_nodes(t: float) -> None:
    nodes, x = 48, points(5, 1)
    for k in (0, 1, 13, nodes - 22):
        averaged = Semigroup(Torus(), t, Quadrature(nodes))(lambda y: torch.cos(k * y[:, 0]))(x)  # noqa: B023
        exact = math.exp(-(k**2) * t) * torch.cos(k * x[:, 0])
        torch.testing.assert_close(averaged, exact, rtol=0, atol=1e-13)


@processes
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_every_rule_has_mass_one(process: Isotropic, nodes: int) -> None:
    ones = Semigroup(process, 1e-3, Quadrature(nodes))(lambda y: torch.ones(len(y)).double())
    torch.testing.assert_close(ones(points(3)), torch.ones(3).double(), rtol=0, atol=1e-14)


@processes
def test_expectations_of_indicators_are_probabilities(process: Isotropic) -> None:
    x = torch.zeros(2, 1, dtype=torch.float64)
    for kind in (torch.int64, torch.bool, torch.float32):
        half = Semigroup(process, 0.3)(lambda y: (y[:, 0] > 0).to(kind))(x)  # noqa: B023
        torch.testing.assert_close(half, torch.full((2,), 0.5).double(), rtol=0, atol=1e-14)


@processes
def test_the_derivative_in_time_at_zero_is_rejected(process: Isotropic) -> None:
    t = torch.tensor(0.0, dtype=torch.float64)
    with pytest.raises(ValueError, match="t must be positive if a rule is differentiated in t"):
        torch.func.grad(lambda s: Semigroup(process, s)(g)(points()).sum())(t)


def test_networks_in_float32() -> None:
    torch.manual_seed(0)
    network = torch.nn.Linear(2, 3)
    form = DirichletForm(OU, (2,), dtype=torch.float32)(network)
    exact = OU.diffusivity * network.weight.square().sum(dim=1)
    torch.testing.assert_close(form.detach(), exact.detach())


def test_default_samples_are_reproducible_without_the_global_generator() -> None:
    x = points(3, 5)
    state = torch.get_rng_state()
    first, second = (Semigroup(OU, 0.3)(lambda y: y.cos().sum(dim=1))(x) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)


def test_functions_with_wrong_output_shapes_are_rejected() -> None:
    x = points(3)
    for operator in (InfinitesimalGenerator(OU), Semigroup(OU, 0.3), CarreDuChamp(OU)):
        with pytest.raises(ValueError, match=r"f must map a batch .* got \(\)"):
            operator(lambda y: y.square().sum())(x)
        with pytest.raises(ValueError, match=r"f must map a batch .* got float"):
            operator(lambda y: 1.0)(x)  # type: ignore[arg-type, return-value]
        with pytest.raises(TypeError, match="f must be a function of a batch of points, got None"):
            operator(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"g must have values of the shape \(3, 2\) .* got \(3,\)"):
        CarreDuChamp(OU)(lambda y: y, g)(x)


def test_invalid_arguments_are_rejected() -> None:
    for kind in (InfinitesimalGenerator, CarreDuChamp, AdjointGenerator):
        with pytest.raises(TypeError, match="process must be of type Process, got the class Orn"):
            kind(OrnsteinUhlenbeck)  # type: ignore[arg-type]
    for rule in (0, "", 3):
        with pytest.raises(TypeError, match="rule must be of type Rule, got"):
            Semigroup(OU, 0.3, rule)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="rule must be of type Rule, got"):
            DirichletForm(OU, (2,), rule)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="rule must be of type Rule, got"):
            expectation(g, OU.invariant, (2,), rule)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="generator must be of type Generator, got int"):
        MonteCarlo(10, generator=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="shape must be a sequence of integers, got int"):
        DirichletForm(OU, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"t = -1.0"):
        Semigroup(OU, -1.0)
    with pytest.raises(ValueError, match=r"t must be one number, got shape \(2,\)"):
        Semigroup(OU, torch.ones(2))
    with pytest.raises(ValueError, match="nodes must be an integer >= 1, got 0"):
        Quadrature(0)
    with pytest.raises(ValueError, match="samples must be an integer >= 1, got 0"):
        MonteCarlo(0)
    with pytest.raises(NotAProbabilityError, match="no invariant distribution"):
        DirichletForm(Brownian(), (1,))(torch.sum)
    with pytest.raises(ValueError, match="shape must have at least one axis"):
        DirichletForm(OU, ())
    for operator in (InfinitesimalGenerator(OU), Semigroup(OU, 0.3), CarreDuChamp(OU)):
        with pytest.raises(ValueError, match="x must be a batch of points"):
            operator(g)(torch.zeros(2))
        with pytest.raises(ValueError, match=r"x must be finite, but x\[0, 1\] = inf"):
            operator(g)(torch.tensor([[0.0, math.inf]]))
