"""Fits by quadrature and simulation against those in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from oism import Fourier, OrnsteinUhlenbeck, TensorHermite, VarianceExploding, load
from oism.basis import Basis, Features
from oism.estimation import (
    JamesStein,
    ProductEquations,
    ProductMoments,
    SampleMeans,
    SimulatedMoments,
    SimulatedSystem,
    fit_moments,
    fit_simulated,
)
from oism.flow import RungeKutta4
from oism.process import (
    Clock,
    Domain,
    Gaussian,
    Measure,
    MonteCarlo,
    Process,
    Quadrature,
    SimulatedTransition,
    Transition,
    VariancePreserving,
)
from oism.score import OperatorScore
from oism.storage import storable

VP = VariancePreserving()
VE = VarianceExploding(sigma_min=0.05, sigma_max=5.0)


def data(n: int = 200, seed: int = 0) -> Tensor:
    draws = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed)).double()
    return 0.4 * draws[:, :1] + 0.9 * draws[:, 1:].sign()


def seeded(samples: int, seed: int = 0) -> MonteCarlo:
    return MonteCarlo(samples, torch.Generator().manual_seed(seed))


CASES = {
    "hermite": (TensorHermite(1, 4), VP, Quadrature(24)),
    "fourier": (Fourier.lattice(1, 16), VE, Quadrature(48)),
}
cases = pytest.mark.parametrize(("basis", "clock", "rule"), CASES.values(), ids=CASES.keys())


def own_system(score: OperatorScore) -> SimulatedSystem:
    assert isinstance(score.system, SimulatedSystem)
    return score.system


def exact(basis: Basis, x: Tensor, t: Tensor) -> Tensor:
    equations = ProductEquations(basis, basis.doubled().values(x).mean(dim=0))
    return torch.cat((equations.right(t)[:, 1:, None], equations.energies(t)), dim=2)


@cases
def test_quadrature_is_exact(basis: Basis, clock: Clock, rule: Quadrature) -> None:
    x = data(50)
    for functions in (basis, Features(basis.values, basis.process, 1, basis.size)):
        moments = SimulatedMoments(functions, clock, rule, times=5).update(x)
        found = moments.system(SampleMeans())
        t = clock._time(found.tau)
        torch.testing.assert_close(found.averages.total, exact(basis, x, t), rtol=1e-9, atol=1e-10)


@cases
def test_simulation_agrees_within_its_error(basis: Basis, clock: Clock, rule: Quadrature) -> None:
    x = data(50)
    truth = exact(basis, x, clock._time(torch.linspace(0, 1, 9).double()))
    found = []
    for seed in range(12):
        moments = SimulatedMoments(basis, clock, seeded(16, seed), times=9, folds=1).update(x)
        system = moments.system(SampleMeans())
        assert system.groups is not None
        torch.testing.assert_close(system.groups.mean(dim=0), system.averages.total)
        own = (system.groups.var(dim=0) / len(system.groups)).sqrt()
        found.append((system.averages.total - truth, own))
    gap, own = (torch.stack(part) for part in zip(*found, strict=True))
    spread = gap.square().mean(dim=0).sqrt()
    random = spread > 1e-8  # some averages are constant
    ratio = (own.square().mean(dim=0).sqrt() / spread)[random]
    assert 0.6 < float(ratio.median()) < 1.7  # the stated errors are those that occur
    bias = (gap.mean(dim=0) / spread * math.sqrt(12))[random]
    assert float(bias.square().mean()) < 2


@cases
def test_fits_have_the_coefficients_of_closed_forms(
    basis: Basis, clock: Clock, rule: Quadrature
) -> None:
    x = data(300)
    found = fit_simulated(x, basis, rule=rule, clock=clock, ridge=1e-3, progress=False)
    moments = ProductMoments(basis, 1).update(x)
    expected = fit_moments(moments, clock=clock, ridge=1e-3, progress=False)
    t = clock._time(own_system(found).tau)[1:]
    # The penalty is that of the functions at the last time, which is not quite equilibrium.
    torch.testing.assert_close(
        found.coefficients(t, exact=True),
        expected.coefficients(t, exact=True),
        rtol=2e-3,
        atol=2e-4,
    )
    between = 0.5 * (t[10] + t[11])
    y = torch.linspace(-1.5, 1.5, 20).double()[:, None]
    torch.testing.assert_close(
        found.score(y, between), expected.score(y, between), rtol=0.02, atol=0.02
    )
    assert float(own_system(found).error.max()) == 0


def test_the_choice_does_not_depend_on_the_coordinates_of_the_span() -> None:
    basis, x = TensorHermite(1, 4), data(100)
    mix = torch.tensor([[1.0, 2.0, 0.0, 1.0, 0.0], [0, 1, 5, 0, 0], [0, 0, 1, 0, 1],
                        [3, 0, 0, 1, 0]]).double()  # fmt: skip
    mixed = Features(lambda y: basis.values(y) @ mix[:, :4] + 7.0, basis.process, 1, 4)
    more = Features(  # a constant and a dependent function change nothing
        lambda y: torch.cat((basis.values(y) @ mix, torch.ones_like(y)), 1), basis.process, 1, 6
    )
    y = torch.linspace(-1, 1, 9).double()[:, None]
    rule = Quadrature(24)
    plain, *others = (fit_simulated(x, f, rule=rule, progress=False) for f in (basis, mixed, more))
    for other in others:
        torch.testing.assert_close(other.score(y, 0.3), plain.score(y, 0.3), rtol=1e-5, atol=1e-5)


def test_simulated_scores_sample_and_have_densities(tmp_path: Path) -> None:
    x, functions = data(500), Features(Bumps(), OrnsteinUhlenbeck(), 1, 9)
    score = fit_simulated(x, functions, rule=seeded(24), times=11, progress=False)
    error = own_system(score).error
    assert 0 < float(error[1:].min()) < float(error.max()) < 0.2
    grid = torch.linspace(-4, 4, 321).double()[:, None]
    density = score.log_density(grid, method=RungeKutta4(48)).exp()
    assert float(torch.trapezoid(density, grid[:, 0])) == pytest.approx(1, abs=1e-3)
    y = score.sample(2000, torch.Generator().manual_seed(1), method=RungeKutta4(48))
    cumulative = torch.cumulative_trapezoid(density, grid[:, 0])
    places = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0])
    model = torch.stack([cumulative[int((grid[1:, 0] - p).abs().argmin())] for p in places])
    assert float(((y <= places).double().mean(dim=0) - model).abs().max()) < 0.035
    truth = 0.5 * sum(torch.special.ndtr((places - m) / 0.4) for m in (-0.9, 0.9))
    assert float((truth - model).abs().max()) < 0.08  # of 500 rows
    score.save(tmp_path / "score.safetensors")
    again = load(tmp_path / "score.safetensors")  # a registered class is stored
    assert torch.equal(again.score(grid, 0.2), score.score(grid, 0.2))
    assert torch.equal(own_system(again).error, own_system(score).error)


@storable
@dataclass(frozen=True)
class Bumps:
    """Nine normal bumps on [-2, 2]."""

    width: float = 0.5

    def __call__(self, x: Tensor) -> Tensor:
        centres = torch.linspace(-2, 2, 9).to(x)
        return torch.exp(-0.5 * ((x - centres) / self.width).square())


class Log(Measure):
    """The distribution of e^Z with Z ~ N(0, 1)."""

    def score(self, x: Tensor) -> Tensor:
        return -(1 + x.log()) / x

    def log_density(self, x: Tensor) -> Tensor:
        z = x.log()
        return (-0.5 * z.square() - z).sum(dim=1) - 0.5 * math.log(2 * math.pi) * x.shape[1]

    def _fill(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        return x.normal_(generator=generator).exp_()

    def quadrature(self, dim: int, nodes: int) -> tuple[Tensor, Tensor]:
        points, weights = Gaussian(1.0).quadrature(dim, nodes)
        return points.exp(), weights


class HalfLine(Domain):
    def wrap(self, x: Tensor) -> Tensor:
        return x.clamp(min=1e-3)

    def contains(self, x: Tensor) -> Tensor:
        return (x > 0).all(dim=1)


@dataclass(frozen=True)
class Exponential(Process):
    """X = e^Z for dZ = -Z dt + √2 dW: dX = X(1 - log X) dt + √2 X dW, simulated only."""

    has_constant_noise = False
    domain = HalfLine()
    invariant = Log()

    def drift(self, x: Tensor) -> Tensor:
        return x * (1 - x.log())

    def noise(self, dim: int) -> Tensor:
        raise NotImplementedError

    def noise_at(self, x: Tensor) -> Tensor:
        return math.sqrt(2) * torch.diag_embed(x)

    def flow_drift(self, x: Tensor) -> Tensor:
        return self.drift(x) - 2 * x

    def symmetric_drift(self, x: Tensor) -> Tensor:
        return self.drift(x)

    def _transition(self, t: Tensor) -> Transition:
        return ExponentialTransition(self, t, steps=max(1, math.ceil(200 * float(t))))


class ExponentialTransition(SimulatedTransition):
    """Simulated draws, and the exact nodes of e^Z."""

    def nodes(self, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
        points, weights = OrnsteinUhlenbeck().transition(self.t).nodes(x.log(), count)
        return points.exp(), weights


def test_a_process_with_its_own_noise_has_the_fit_of_its_image() -> None:
    """X = e^Z has the fit of Z, in other coordinates: functions of log X are those of Z."""
    z, rule = 0.4 * data(50), Quadrature(24)
    basis = TensorHermite(1, 3)
    functions = Features(lambda x: basis.values(x.log()), Exponential(), 1, 3)
    found = fit_simulated(z.exp(), functions, rule=rule, ridge=1e-2, times=9, progress=False)
    plain = fit_simulated(z, basis, rule=rule, ridge=1e-2, times=9, progress=False)
    y = torch.linspace(-0.8, 0.8, 9).double()[:, None]
    # log ρ_X(x) = log ρ_Z(log x) - log x, and the same for π: the log-ratios are equal.
    torch.testing.assert_close(found.log_ratio(y.exp(), 0.3), plain.log_ratio(y, 0.3))
    score = (plain.score(y, 0.3) - 1) / y.exp()
    torch.testing.assert_close(found.score(y.exp(), 0.3), score)
    density = found.log_density(y.exp(), method=RungeKutta4(24))
    expected = plain.log_density(y, method=RungeKutta4(24)) - y[:, 0]
    torch.testing.assert_close(density, expected, rtol=0, atol=2e-3)  # at T, ρ/π is 1 ± e^{-5}


def test_a_process_with_its_own_noise_is_simulated() -> None:
    z, basis = 0.4 * data(200), TensorHermite(1, 2)
    functions = Features(lambda x: basis.values(x.log()), Exponential(), 1, 2)
    clock = VarianceExploding(0.1, 1.0)
    exact, drawn = (
        SimulatedMoments(functions, clock, rule, times=4).update(z.exp()).system(SampleMeans())
        for rule in (Quadrature(24), seeded(64))
    )
    assert drawn.groups is not None
    error = (drawn.groups.var(dim=0) / len(drawn.groups)).sqrt()
    gap = (drawn.averages.total - exact.averages.total).abs()
    assert float((gap / (3.5 * error + 0.01)).max()) < 1  # and the error of Euler's method
    assert float((error / exact.averages.total.abs().amax()).max()) < 0.02


def test_merged_moments_are_those_of_all_rows() -> None:
    x, basis = data(40), TensorHermite(1, 2)
    parts = [
        SimulatedMoments(basis, VP, Quadrature(8), times=5).update(p) for p in torch.split(x, 25)
    ]
    whole = SimulatedMoments(basis, VP, Quadrature(8), times=5).update(x)
    merged = parts[0].merge(parts[1]).system(SampleMeans())
    torch.testing.assert_close(merged.averages.total, whole.system(SampleMeans()).averages.total)


def test_the_error_of_one_draw_is_not_known() -> None:
    score = fit_simulated(
        data(20), TensorHermite(1, 2), rule=seeded(1), ridge=0.1, times=4, progress=False
    )
    assert bool(own_system(score).error.isnan().all())


def test_weights_are_repetitions() -> None:
    x, basis = data(30), TensorHermite(1, 2)
    w = torch.arange(30).double() % 3
    rule = Quadrature(8)
    some = fit_simulated(x, basis, rule=rule, ridge=0.1, sample_weight=w, times=5, progress=False)
    rows = x.repeat_interleave(w.long(), dim=0)
    many = fit_simulated(rows, basis, rule=rule, ridge=0.1, times=5, progress=False)
    torch.testing.assert_close(some.coefficients(0.2), many.coefficients(0.2))


def test_mistakes() -> None:
    x = data(20)
    with pytest.raises(TypeError, match="functions must be"):
        fit_simulated(x, torch.sin)  # type: ignore[arg-type]
    constant = Features(torch.ones_like, OrnsteinUhlenbeck(), 1, 1)
    with pytest.raises(ValueError, match="all of them are constant"):
        fit_simulated(x, constant, progress=False)
    moments = SimulatedMoments(TensorHermite(1, 2), VP, Quadrature(4), times=4).update(x)
    with pytest.raises(ValueError, match="SampleMeans"):
        moments.system(JamesStein())
    with pytest.raises(ValueError, match="times must be"):
        fit_simulated(x, TensorHermite(1, 2), times=2)
