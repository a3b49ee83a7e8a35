"""Scores, flows, likelihoods and reverse SDEs under processes with state-dependent noise."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from oism import Flow, fit, load
from oism.basis import Basis, JacobiPolynomials, LaguerrePolynomials
from oism.flow import (
    Adaptive,
    EulerMaruyama,
    ExactTrace,
    Hutchinson,
    RungeKutta4,
    StochasticHeun,
    log_density,
    sample_with_log_density,
)
from oism.objectives import (
    FokkerPlanckResidual,
    GeneralisedScoreMatching,
    ImplicitScoreMatching,
    SlicedScoreMatching,
    TransitionScoreMatching,
)
from oism.objectives._sliced import Probes
from oism.process import (
    CarreDuChamp,
    InfinitesimalGenerator,
    Jacobi,
    Laguerre,
    Logarithmic,
    Pearson,
    Quadrature,
    Semigroup,
)
from oism.score import ReversibleScore

CASES: dict[str, tuple[Basis, scipy.stats.rv_continuous]] = {
    "Jacobi": (JacobiPolynomials(Jacobi(0.5, 1.0), 16), scipy.stats.beta(2.0, 1.5)),
    "Jacobi with a peak": (JacobiPolynomials(Jacobi(0.5, 0.5), 16), scipy.stats.beta(0.5, 0.8)),
    "Laguerre": (LaguerrePolynomials(Laguerre(2.0), 6), scipy.stats.gamma(3.0, scale=0.7)),
    "Laguerre with a peak": (LaguerrePolynomials(Laguerre(0.7), 6), scipy.stats.gamma(0.7)),
}
cases = pytest.mark.parametrize("name", CASES)
MODELS: dict[str, ReversibleScore] = {}


def model_of(name: str) -> ReversibleScore:
    if name not in MODELS:
        basis, law = CASES[name]
        x = law.rvs(size=(3000, 1), random_state=0)
        found = fit(torch.from_numpy(x), basis, progress=False)
        assert isinstance(found, ReversibleScore)
        MODELS[name] = found
    return MODELS[name]


def rows_of(name: str, n: int = 40) -> Tensor:
    return torch.from_numpy(CASES[name][1].ppf((np.arange(n) + 0.5) / n))[:, None]


@cases
def test_parts_of_the_score_agree_with_the_operators(name: str) -> None:
    model, x = model_of(name), rows_of(name)
    process, t = model.process, torch.tensor(0.05).double()

    def u(y: Tensor) -> Tensor:
        return model._log_ratio(y, t, model.coefficients(t))

    field, generated = model.field_and_generated(x, t)
    slope = torch.func.grad(lambda y: u(y).sum())(x)
    torch.testing.assert_close(field, process.diffuse(slope, x), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        generated, InfinitesimalGenerator(process)(u)(x), rtol=1e-7, atol=1e-7
    )
    torch.testing.assert_close((field * slope).sum(dim=1), CarreDuChamp(process)(u)(x))
    torch.testing.assert_close(model.field(x, t), field)
    torch.testing.assert_close(model.score(x, t), slope + process.invariant.score(x))
    score, spread = model.score_and_diffused_divergence(x, t)
    torch.testing.assert_close(score, model.score(x, t))
    along = torch.func.grad(lambda y: process.diffuse(model.score(y, t), y).sum())(x)[:, 0]
    torch.testing.assert_close(spread, along, rtol=1e-6, atol=1e-6)
    by_rows = model.field(x, t.expand(len(x)))
    torch.testing.assert_close(by_rows, field)


def test_beyond_the_data_polynomials_are_clamped() -> None:
    model = model_of("Laguerre")
    basis, t = model.basis, torch.tensor(0.01).double()
    assert isinstance(basis, LaguerrePolynomials)
    largest = float(CASES["Laguerre"][1].rvs(size=(3000, 1), random_state=0).max())
    assert basis.reach == pytest.approx(largest)
    high = float(basis.limits(t)[1])  # type: ignore[index]
    x = torch.tensor([1.2 * high, 3 * high, 50 * high], dtype=torch.float64)[:, None]

    def u(y: Tensor) -> Tensor:
        return model._log_ratio(y, t, model.coefficients(t))

    assert float((u(x)[2] - u(x)[1]).abs()) < 1e-6, "constant far away"
    generated = InfinitesimalGenerator(model.process)(u)(x)
    torch.testing.assert_close(model.field_and_generated(x, t)[1], generated, rtol=1e-6, atol=1e-6)
    density = model.log_density(x, method=RungeKutta4(64))
    assert bool((density.diff() < 0).all())


@cases
def test_densities(name: str) -> None:
    """They integrate to 1, are near the truth, and need no divergence."""
    model, law = model_of(name), CASES[name][1]
    u = (torch.arange(400, dtype=torch.float64) + 0.5) / 400
    power = 4 if "peak" in name else 2
    reach = 1.0 if "Jacobi" in name else float(law.ppf(1 - 1e-9)) * 1.5
    x, mass = reach * u**power, reach * power * u ** (power - 1) / 400
    if name == "Jacobi with a peak":  # at both ends
        angle = u * math.pi
        x, mass = 0.5 * (1 - angle.cos()), 0.5 * angle.sin() * math.pi / 400
    found = model.log_density(x[:, None], method=RungeKutta4(64))
    assert float((found.exp() * mass).sum()) == pytest.approx(1, abs=1e-3)
    truth = torch.from_numpy(law.pdf(x.numpy()))
    divergence = float((mass * truth * (truth.log() - found).nan_to_num()).sum())
    assert -1e-3 < divergence < 0.01
    rows = rows_of(name)
    method = RungeKutta4(100)
    exact = log_density(Flow(model), rows, method=method, divergence=ExactTrace())
    torch.testing.assert_close(model.log_density(rows, method=method), exact, rtol=1e-4, atol=1e-4)
    hutchinson = Hutchinson(torch.Generator().manual_seed(0))  # exact in one dimension
    same = log_density(Flow(model), rows, method=method, divergence=hutchinson)
    torch.testing.assert_close(same, exact, rtol=1e-6, atol=1e-6)


@cases
def test_flow_and_sde_sample_what_the_density_says(name: str) -> None:
    model = model_of(name)
    for method in (RungeKutta4(64), EulerMaruyama(400), StochasticHeun(400)):
        n = 4000
        generator = torch.Generator().manual_seed(1)
        x = model.flow.sample(n, method=method, generator=generator, dtype=torch.float64)
        assert bool(model.process.domain.contains(x).all())
        ordered = x[:, 0].sort().values.numpy()
        # Cells whose widths vanish towards the ends, where densities may be infinite.
        edges = torch.linspace(0, 1, 601).double()
        edges = (0.5 - 0.5 * (math.pi * edges).cos()) if "Jacobi" in name else 30 * edges**4
        nodes = 0.5 * (edges[1:] + edges[:-1])
        log = model.log_density(nodes[:, None], method=RungeKutta4(48))

        def distance(log: Tensor, edges: Tensor = edges, ordered: np.ndarray = ordered) -> float:
            steps = log.exp() * edges.diff()
            cdf = torch.cat((torch.zeros(1).double(), steps.cumsum(dim=0)))
            at = np.interp(ordered, edges.numpy(), (cdf / cdf[-1]).numpy())
            ranks = (np.arange(len(at)) + 0.5) / len(at)
            return float(np.abs(at - ranks).max()) * math.sqrt(len(at))

        bound = 1.63 if isinstance(method, RungeKutta4) else 2.0  # the SDE has a step error
        assert distance(log) < bound, method
        wrong = log + 0.3 * torch.cos(4 * nodes / (1 + nodes))
        assert distance(wrong) > 2.2, "a density that is off by a third fails"


@cases
def test_samples_with_densities_and_back(name: str) -> None:
    flow = Flow(model_of(name))
    generator = torch.Generator().manual_seed(2)
    method = RungeKutta4(100)
    x, density = sample_with_log_density(
        flow, 20, method=method, generator=generator, dtype=torch.float64
    )
    torch.testing.assert_close(log_density(flow, x, method=method), density, rtol=1e-3, atol=1e-3)
    z = flow.push(x, method=method)
    torch.testing.assert_close(flow.pull(z, method=method), x, rtol=1e-3, atol=1e-5)
    adaptive = log_density(flow, x, method=Adaptive(1e-7, 1e-7))
    torch.testing.assert_close(adaptive, density, rtol=1e-3, atol=1e-3)


@cases
def test_files_give_the_same_model(name: str, tmp_path: Path) -> None:
    model, path = model_of(name), tmp_path / "model.safetensors"
    model.save(path)
    again, x = load(path), rows_of(name)
    assert torch.equal(again.score(x, 0.1), model.score(x, 0.1))
    assert again.process == model.process
    assert torch.equal(again.log_density(x), model.log_density(x))


class Tilted:
    """ρ_0 = π(1 + cφ₁): ρ_t/π = 1 + ce^{λ₁t}φ₁, the exact energy and score of any process."""

    def __init__(self, process: Pearson, c: float) -> None:
        self.process, self.c = process, c
        self.rate = float(process.eigenvalues(1)[0])

    def energy(self, x: Tensor, t: Tensor) -> Tensor:
        first = self.process.invariant.recurrence(1)(x[:, 0])[:, 1]
        return torch.log1p(self.c * torch.exp(self.rate * t) * first)

    def score(self, x: Tensor, t: Tensor) -> Tensor:
        slope: Tensor = torch.func.grad(lambda y: self.energy(y, t).sum())(x)
        return slope + self.process.invariant.score(x)

    def rule(self) -> tuple[Tensor, Tensor]:
        points, weights = self.process.invariant.quadrature(1, 40)
        return points, weights * self.energy(points, torch.zeros(len(points)).double()).exp()


TILTED = [Tilted(Jacobi(1.4, 2.0), 0.4), Tilted(Laguerre(1.6), 0.1)]
tilted = pytest.mark.parametrize("truth", TILTED, ids=lambda truth: repr(truth.process))


@tilted
def test_objectives_are_least_at_the_truth(truth: Tilted) -> None:
    """Their difference from the least value is E_t Γ(f - f*), as for constant noise."""
    process, t = truth.process, 0.2
    points, weights = truth.rule()

    def other(x: Tensor, s: Tensor) -> Tensor:
        return truth.energy(x, s) + 0.3 * x[:, 0] ** 2

    def other_score(x: Tensor, s: Tensor) -> Tensor:
        return truth.score(x, s) + 0.6 * x

    noised = Semigroup(process, t, Quadrature(40))
    excess = noised(lambda y: process.diffuse(0.6 * y, y)[:, 0] * 0.6 * y[:, 0])(points) @ weights
    rule = Quadrature(40)
    for objective in (ImplicitScoreMatching(process), GeneralisedScoreMatching(process)):
        found = [objective.on_clean(f, points, t, rule) @ weights for f in (other, truth.energy)]
        torch.testing.assert_close(found[0] - found[1], excess, rtol=1e-8, atol=1e-9)
    sliced = SlicedScoreMatching(process)
    found = [sliced.on_clean(s, points, t, rule) @ weights for s in (other_score, truth.score)]
    torch.testing.assert_close(found[0] - found[1], excess, rtol=1e-8, atol=1e-9)
    probes = SlicedScoreMatching(process, Probes(1, torch.Generator().manual_seed(0)))
    at = points[:30]  # in one dimension a sign is exact
    torch.testing.assert_close(
        probes.terms(truth.score, at, t), sliced.terms(truth.score, at, t), rtol=1e-9, atol=1e-9
    )


@tilted
def test_the_fokker_planck_equation_holds(truth: Tilted) -> None:
    process = truth.process
    x = torch.linspace(0.1, 0.9, 7, dtype=torch.float64)[:, None]
    residual = FokkerPlanckResidual(process)
    for found in (
        residual.energy(truth.energy, x, 0.3),
        residual.score(truth.score, x, 0.3),
        residual.ratio(lambda y, s: truth.score(y, s) - process.invariant.score(y), x, 0.3),
    ):
        assert float(found.abs().max()) < 1e-10
    wrong = residual.score(lambda y, s: 1.1 * truth.score(y, s), x, 0.3)
    assert float(wrong.abs().max()) > 1e-2


@tilted
def test_denoising_with_the_transition_density(truth: Tilted) -> None:
    """The mean of ∇log ρ_t(y|X_0) given y is the score: both are least at the truth."""
    process, t = truth.process, 0.3
    objective = TransitionScoreMatching(process)
    y = torch.full((40, 1), 0.4, dtype=torch.float64)
    points, weights = truth.rule()
    law = process.transition(t)
    posterior = law.log_density(y, points).exp() * weights
    mean = (posterior[:, None] * objective.target(y, points, t)).sum(dim=0) / posterior.sum()
    expected = truth.score(y[:1], torch.full((1,), t).double())[0]
    torch.testing.assert_close(mean, expected, rtol=1e-6, atol=1e-6)


@tilted
def test_the_exact_score_as_a_function(truth: Tilted) -> None:
    """A score that is a function: the flow uses b - ∇·G - Gs, densities ∇·Gs by autograd."""
    process = truth.process
    flow = Flow(lambda x, t: truth.score(x, t.expand(len(x))), process, Logarithmic(1e-3, 12.0))
    x = torch.linspace(0.05, 0.9, 9, dtype=torch.float64)[:, None]
    found = log_density(flow, x, method=RungeKutta4(200))
    exact = process.invariant.log_density(x) + truth.energy(x, torch.zeros(9).double())
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-4)
    draws = flow.sample(
        4000, (1,), method=EulerMaruyama(300), generator=torch.Generator().manual_seed(0),
        dtype=torch.float64,
    )  # fmt: skip
    first = process.invariant.recurrence(1)(draws[:, 0])[:, 1]
    error = 3 * float(first.std()) / math.sqrt(len(first))
    assert float(first.mean()) == pytest.approx(truth.c, abs=error + 0.01)


def test_data_outside_are_refused() -> None:
    basis = JacobiPolynomials(Jacobi(), 4)
    with pytest.raises(ValueError, match=r"data must be in \[0, 1\].*rescale"):
        fit(torch.linspace(-0.1, 1, 50)[:, None].double(), basis)
    with pytest.raises(ValueError, match=r"data must be in \[0, inf\]"):
        fit(torch.linspace(-0.1, 1, 50)[:, None].double(), LaguerrePolynomials(Laguerre(), 4))
    on_the_ends = fit(torch.linspace(0, 1, 51)[:, None].double(), basis, progress=False)
    ends = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    assert bool(on_the_ends.log_density(ends).isfinite().all())
