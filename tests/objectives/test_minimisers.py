"""Each objective has the minimiser of the L² distance to the truth; its naive forms have not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from oism.objectives import (
    GeneralisedScoreMatching,
    ImplicitScoreMatching,
    Model,
    Probes,
    SlicedScoreMatching,
    TimeScoreMatching,
    TransitionScoreMatching,
    score_of,
    time_score_of,
)
from oism.process import (
    AdjointGenerator,
    CarreDuChamp,
    InfinitesimalGenerator,
    Process,
    Quadrature,
    SymmetricPart,
)

from .distributions import DISTRIBUTIONS, TIME, Distribution, at, features, minimiser

Family = Callable[[Tensor], Model]
Loss = Callable[[Tensor], Tensor]

every_distribution = pytest.mark.parametrize("name", DISTRIBUTIONS)
EXACT = 1e-9
WRONG = 0.05
"""How far off a wrong form must be, at least; the minimisers are of order one."""


def energies(mixture: Distribution) -> tuple[Family, int]:
    """Return f = Σ α_kψ_k for coefficients α, and their number."""
    psi = features(mixture)

    def family(alpha: Tensor) -> Model:
        return lambda x, t: psi(x) @ alpha

    return family, psi(mixture.points).shape[1]


def slopes(mixture: Distribution, y: Tensor) -> Tensor:
    """Return ∇ψ_k: ``(n, k, dim)``."""
    family, size = energies(mixture)
    eye = torch.eye(size, dtype=torch.float64)
    return torch.stack(
        [torch.func.grad(lambda z, u=u: family(u)(z, at(z)).sum())(y) for u in eye], dim=1
    )


def nearest(mixture: Distribution) -> Tensor:
    """Return the α of least E_t⟨∇f - s̃, G(∇f - s̃)⟩, from an integral with the known score."""
    y, weights = mixture.rule()
    gradients, truth = slopes(mixture, y), mixture.score_of_ratio(y, at(y))
    matrix = torch.einsum("n,nki,ij,nlj->kl", weights, gradients, mixture.metric, gradients)
    right = torch.einsum("n,nki,ij,nj->k", weights, gradients, mixture.metric, truth)
    solution: Tensor = torch.linalg.solve(matrix, right)
    return solution


def found(mixture: Distribution, terms: Callable[[Model, Tensor], Tensor]) -> Tensor:
    """Return the α at which E_t[terms] is least."""
    y, weights = mixture.rule()
    family, size = energies(mixture)
    return minimiser(lambda alpha: (weights * terms(family(alpha), y)).sum(), size)


def distance(mixture: Distribution, terms: Callable[[Model, Tensor], Tensor]) -> float:
    return float((found(mixture, terms) - nearest(mixture)).abs().max())


class AllSigns(Probes):
    """Every vector of signs once, so that means over probes are exact."""

    def draw(self, process: Process, x: Tensor) -> Tensor:
        noise = process.noise(x.shape[1])
        signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * noise.shape[1]).double()
        directions = signs.reshape(-1, noise.shape[1]) @ noise.mT / math.sqrt(2)
        return directions[:, None].expand(-1, len(x), -1)


@every_distribution
def test_implicit(name: str) -> None:
    mixture = DISTRIBUTIONS[name]
    objective = ImplicitScoreMatching(mixture.process)
    assert distance(mixture, lambda f, y: objective.terms(f, y, TIME)) < EXACT


@every_distribution
def test_generalised(name: str) -> None:
    mixture = DISTRIBUTIONS[name]
    objective = GeneralisedScoreMatching(mixture.process)
    assert distance(mixture, lambda f, y: objective.terms(f, y, TIME)) < EXACT


@every_distribution
@pytest.mark.parametrize("reduced", [True, False, None])
def test_sliced(name: str, reduced: bool | None) -> None:
    mixture = DISTRIBUTIONS[name]
    probes = None if reduced is None else AllSigns()
    objective = SlicedScoreMatching(mixture.process, probes, reduced is not False)
    assert (
        distance(mixture, lambda f, y: objective.terms(score_of(f, mixture.process), y, TIME))
        < EXACT
    )


def pairs(mixture: Distribution) -> tuple[Tensor, Tensor, Tensor]:
    """Return clean points, noised points, and the weight of each pair."""
    y, volume = mixture.grid()
    mass = mixture.log_transition(y, at(y)).exp() * mixture.weights * volume[:, None]
    count = len(mixture.points)
    return mixture.points.repeat(len(y), 1), y.repeat_interleave(count, dim=0), mass.flatten()


def denoised(mixture: Distribution, terms: Callable[[Model, Tensor, Tensor], Tensor]) -> float:
    x, y, weights = pairs(mixture)
    family, size = energies(mixture)
    alpha = minimiser(lambda a: (weights * terms(family(a), x, y)).sum(), size)
    return float((alpha - nearest(mixture)).abs().max())


@every_distribution
def test_denoising(name: str) -> None:
    mixture = DISTRIBUTIONS[name]
    objective = TransitionScoreMatching(mixture.process)

    def right(f: Model, x: Tensor, y: Tensor) -> Tensor:
        return objective.terms(score_of(f, mixture.process), x, y, TIME)

    assert denoised(mixture, right) < EXACT


@every_distribution
def test_the_form_on_clean_data(name: str) -> None:
    """E_0[P_t(Γ(f) + 2Lf)], P_t by a rule of its own; Gauss's is good to seven digits here."""
    mixture = DISTRIBUTIONS[name]
    objective, (family, size) = ImplicitScoreMatching(mixture.process), energies(mixture)
    rule = Quadrature(48)

    def loss(alpha: Tensor) -> Tensor:
        return mixture.weights @ objective.on_clean(family(alpha), mixture.points, TIME, rule)

    assert float((minimiser(loss, size) - nearest(mixture)).abs().max()) < 1e-6


def time_family(mixture: Distribution) -> tuple[Family, int]:
    """Return the energies ∂_t of which are ψ₀ + Σ a_kψ_k at the time of the tests."""
    family, size = energies(mixture)

    def family_of_times(a: Tensor) -> Model:
        return lambda x, t: t * (a[0] + family(a[1:])(x, t)) + 0.7 * x[:, 0].sin()

    return family_of_times, size + 1


def time_distance(mixture: Distribution, terms: Callable[[Model, Tensor], Tensor]) -> float:
    """Return how far the minimiser is from that of E_t[(g - ∂_t log ρ_t)²]."""
    y, weights = mixture.rule()
    family, size = time_family(mixture)
    eye = torch.eye(size, dtype=torch.float64)
    values = torch.stack([time_score_of(family(u))(y, at(y)) for u in eye], dim=1)
    matrix = values.mT @ (weights[:, None] * values)
    right = values.mT @ (weights * mixture.time_score(y, at(y)))
    alpha = minimiser(lambda a: (weights * terms(family(a), y)).sum(), size)
    return float((alpha - torch.linalg.solve(matrix, right)).abs().max())


@every_distribution
def test_time(name: str) -> None:
    mixture = DISTRIBUTIONS[name]
    objective = TimeScoreMatching(mixture.process)
    assert time_distance(mixture, lambda f, y: objective.terms(time_score_of(f), y, TIME)) < EXACT


# What does not work: the naive forms.


@pytest.mark.parametrize("operator", [InfinitesimalGenerator, AdjointGenerator])
def test_an_asymmetric_process_needs_both_generators(
    operator: type[InfinitesimalGenerator],
) -> None:
    """Γ(f) + 2Lf, the paper's form, and Γ(f) + 2L*f are both wrong."""
    mixture = DISTRIBUTIONS["asymmetric"]

    def wrong(f: Model, y: Tensor) -> Tensor:
        gamma, part = CarreDuChamp(mixture.process), operator(mixture.process)
        return gamma(lambda z: f(z, at(z)))(y) + 2 * part(lambda z: f(z, at(z)))(y)

    assert distance(mixture, wrong) > WRONG
    line = DISTRIBUTIONS["line"]

    def same(f: Model, y: Tensor) -> Tensor:
        gamma, part = CarreDuChamp(line.process), operator(line.process)
        return gamma(lambda z: f(z, at(z)))(y) + 2 * part(lambda z: f(z, at(z)))(y)

    assert distance(line, same) < EXACT


@pytest.mark.parametrize("operator", [AdjointGenerator, SymmetricPart])
def test_time_scores_need_the_generator_itself(operator: type[InfinitesimalGenerator]) -> None:
    mixture = DISTRIBUTIONS["asymmetric"]

    def wrong(f: Model, y: Tensor) -> Tensor:
        def g(z: Tensor) -> Tensor:
            return time_score_of(f)(z, at(z))

        return g(y).square() - 2 * operator(mixture.process)(g)(y)

    assert time_distance(mixture, wrong) > WRONG


@pytest.mark.parametrize("name", ["line", "plane", "asymmetric"])
def test_a_density_with_respect_to_lebesgue_measure_is_another_objective(name: str) -> None:
    """Generalised score matching of ν dx in the place of ν dπ."""
    mixture = DISTRIBUTIONS[name]
    objective = GeneralisedScoreMatching(mixture.process)

    def wrong(f: Model, y: Tensor) -> Tensor:
        return objective.terms(lambda z, t: f(z, t) + mixture.log_invariant(z), y, TIME)

    assert distance(mixture, wrong) > WRONG


@pytest.mark.parametrize("name", ["line", "plane", "asymmetric"])
def test_the_gradient_of_an_energy_is_not_the_score(name: str) -> None:
    """Hyvärinen's objective and denoising without ∇log π."""
    mixture = DISTRIBUTIONS[name]
    sliced, denoising = (
        SlicedScoreMatching(mixture.process),
        TransitionScoreMatching(mixture.process),
    )

    def bare(f: Model) -> Model:
        return lambda x, t: torch.func.grad(lambda z: f(z, t).sum())(x)

    assert distance(mixture, lambda f, y: sliced.terms(bare(f), y, TIME)) > WRONG
    assert denoised(mixture, lambda f, x, y: denoising.terms(bare(f), x, y, TIME)) > WRONG


@pytest.mark.parametrize("name", ["circle", "torus"])
def test_the_shortest_way_round_the_torus_is_not_the_noise(name: str) -> None:
    """-(y - x)/2t, wrapped, is the score of the transition without its images."""
    mixture = DISTRIBUTIONS[name]

    def wrong(f: Model, x: Tensor, y: Tensor) -> Tensor:
        target = -mixture.process.wrap(y - x) / (2 * TIME)
        return (score_of(f, mixture.process)(y, at(y)) - target).square().sum(dim=1)

    assert denoised(mixture, wrong) > 1e3 * EXACT
