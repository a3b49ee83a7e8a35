"""Langevin diffusions against the Ornstein-Uhlenbeck process and reflected Brownian motion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import scipy.stats
import torch
from torch import Tensor

from oism import OrnsteinUhlenbeck
from oism.basis import recurrence
from oism.process import (
    Box,
    InfinitesimalGenerator,
    Langevin,
    MonteCarlo,
    Quadrature,
    Semigroup,
    SimulatedTransition,
)
from oism.storage import load, save


def quadratic(x: Tensor) -> Tensor:
    return 0.5 * x.square().sum(dim=1)


def flat(x: Tensor) -> Tensor:
    return 0 * x[:, 0]


def double_well(x: Tensor) -> Tensor:
    return 2 * (x[:, 0].square() - 1).square() + 0.5 * x[:, 1:].square().sum(dim=1)


def hermite(x: Tensor, count: int) -> Tensor:
    return torch.stack(list(recurrence(x[:, 0], count)), dim=1)[:, 1:]


OU = Langevin.of(quadratic, [(-9.0, 9.0)])
WELLS = Langevin.of(double_well, [(-2.2, 2.4), (-4.0, 4.0)], cells=20)


def test_eigenpairs_of_a_quadratic_potential_converge_to_hermite_polynomials() -> None:
    values, functions = [], []
    for cells in (20, 40):  # cubic splines: the fourth polynomial is not one of them
        process = Langevin.of(quadratic, [(-9.0, 9.0)], cells=cells, degree=3)
        rates, c = process.eigenpairs(4)
        values.append(float((rates - torch.arange(1, 5)).abs().max()))
        x = torch.linspace(-4, 4, 401, dtype=torch.float64)[:, None]
        gap = process.splines.evaluate(x, c, (0,)).abs() - hermite(x, 4).abs()
        functions.append(float((gap.square() * torch.exp(-quadratic(x))[:, None]).mean().sqrt()))
    assert 5.5 < math.log2(values[0] / values[1]) < 7  # 2p
    assert 3.5 < math.log2(functions[0] / functions[1]) < 5  # p + 1


def test_default_cells_are_accurate() -> None:
    rates, c = OU.eigenpairs(6)  # the faces at ±9 change the eighth by 5e-9
    torch.testing.assert_close(rates, torch.arange(1.0, 7.0).double(), rtol=1e-9, atol=0)
    x = torch.linspace(-4, 4, 101, dtype=torch.float64)[:, None]
    found = OU.splines.evaluate(x, c, (0,))
    torch.testing.assert_close(found.abs(), hermite(x, 6).abs(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("degree", [3, 4, 5])
def test_eigenpairs_without_a_potential_converge_to_cosines(degree: int) -> None:
    exact = (math.pi * torch.arange(1, 4).double()).square()
    x = torch.linspace(0, 1, 301, dtype=torch.float64)[:, None]
    waves = math.sqrt(2) * torch.cos(math.pi * x * torch.arange(1, 4))
    values, functions = [], []
    for cells in (6, 12):
        process = Langevin.of(flat, [(0.0, 1.0)], cells=cells, degree=degree)
        rates, c = process.eigenpairs(3)
        values.append(float(((rates - exact) / exact).abs().max()))
        gap = process.splines.evaluate(x, c, (0,)).abs() - waves.abs()
        functions.append(float(gap.square().mean().sqrt()))
    assert 2 * degree - 1 < math.log2(values[0] / values[1]) < 2 * degree + 2
    assert degree + 0.5 < math.log2(functions[0] / functions[1]) < degree + 2.5


def test_rates_on_the_plane_are_sums_of_those_on_the_line() -> None:
    first = Langevin.of(lambda x: double_well(torch.cat((x, 0 * x), 1)), [(-2.2, 2.4)], cells=20)
    second = Langevin.of(quadratic, [(-4.0, 4.0)], cells=20)
    a, b = (torch.cat((torch.zeros(1), one.eigenpairs(9)[0])) for one in (first, second))
    sums = (a[:, None] + b).reshape(-1).sort().values[1:9]
    torch.testing.assert_close(WELLS.eigenpairs(8)[0], sums, rtol=1e-8, atol=1e-10)


def test_dense_and_sparse_eigenpairs_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rates, c = WELLS.eigenpairs(6)
    monkeypatch.setattr("oism.process._langevin.DENSE", 1)
    again, d = Langevin(WELLS.box, WELLS.cells, WELLS.degree, WELLS.potential).eigenpairs(6)
    torch.testing.assert_close(rates, again, rtol=1e-9, atol=1e-9)
    x = WELLS.invariant.sample((200, 2), generator=torch.Generator().manual_seed(0)).double()
    values = [WELLS.splines.evaluate(x, one, (0, 0)) for one in (c, d)]
    torch.testing.assert_close(*values, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("process", [OU, WELLS], ids=["line", "plane"])
def test_the_generator_has_these_eigenfunctions(process: Langevin) -> None:
    rates, c = process.eigenpairs(5)
    x = process.invariant.sample((50, process.dim), generator=torch.Generator().manual_seed(0))
    x = x.double()
    zero = (0,) * process.dim

    def f(y: Tensor) -> Tensor:
        return process.splines.evaluate(y, c, zero)

    found = InfinitesimalGenerator(process)(f)(x)
    scale = (1e-5 if process is OU else 0.02) * float(rates[-1])
    torch.testing.assert_close(found, -rates * f(x), rtol=0, atol=scale)


def test_the_invariant_distribution_is_the_gibbs_measure() -> None:
    x, w = WELLS.invariant.quadrature(2, 120)
    assert float(w.sum()) == pytest.approx(1)
    log = WELLS.invariant.log_density(x)
    torch.testing.assert_close(log + double_well(x), (log + double_well(x))[:1].expand(len(x)),
                               rtol=0, atol=1e-3)  # fmt: skip
    torch.testing.assert_close(WELLS.drift(x), WELLS.invariant.score(x))
    y = WELLS.invariant.sample((20_000, 2), generator=torch.Generator().manual_seed(0))
    assert scipy.stats.kstest(y[:, 1], scipy.stats.truncnorm(-4, 4).cdf).pvalue > 1e-3
    mass = (w * (x[:, 0] > 0.9)).sum()
    share = (y[:, 0] > 0.9).double().mean()
    assert abs(float(share - mass)) < 4 * math.sqrt(0.25 / 20_000) + 5e-3


def test_transition_densities_are_those_of_the_ornstein_uhlenbeck_process() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 1, generator=generator).double()
    y = x + 0.3 * torch.randn(40, 1, generator=generator).double()
    for t in (0.1, 1.0):
        found = OU.transition(t).log_density(y, x)
        expected = OrnsteinUhlenbeck(1.0, math.sqrt(2)).transition(t).log_density(y, x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("process", [OU, WELLS], ids=["line", "plane"])
def test_the_semigroup_acts_on_eigenfunctions(process: Langevin) -> None:
    rates, c = process.eigenpairs(4)
    zero = (0,) * process.dim
    x = process.invariant.sample((4, process.dim), generator=torch.Generator().manual_seed(0))
    x = x.double()

    def f(y: Tensor) -> Tensor:
        return process.splines.evaluate(y, c, zero)

    t = 0.5 if process is OU else 0.2
    exact = torch.exp(-t * rates) * f(x)
    found = Semigroup(process, t, Quadrature(80))(f)(x)
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5)
    generator = torch.Generator().manual_seed(1)
    draws = Semigroup(process, t, MonteCarlo(200, generator))(f)(x)
    error = Semigroup(process, t, Quadrature(80))(lambda y: f(y).square())(x) - exact.square()
    error = (error.clamp(min=0) / 200).sqrt()
    assert float(((draws - exact).abs() / (error + 1e-3)).max()) < 4


def test_densities_of_times_too_short_for_the_series_are_refused() -> None:
    x = torch.zeros(1, 1).double()
    with pytest.raises(ValueError, match="t must be at least"):
        OU.transition(1e-6).log_density(x, x)
    assert OU.transition(1e-6).sample(x).abs() < 0.1


@dataclass(frozen=True)
class Quiet(OrnsteinUhlenbeck):
    """Without noise, so that the order of the drift's treatment can be measured."""

    def _sample_noise(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        return torch.zeros_like(x)


@dataclass(frozen=True)
class Multiplied(Quiet):
    has_constant_noise = False


@pytest.mark.parametrize(("process", "order"), [(Quiet(), 2), (Multiplied(), 1)])
def test_simulations_have_their_order(process: Quiet, order: int) -> None:
    t, x = torch.tensor(1.0).double(), torch.ones(1, 1).double()
    errors = [
        abs(float(SimulatedTransition(process, t, steps).sample(x)) - math.exp(-1))
        for steps in (16, 32)
    ]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)


def test_simulated_variances_have_order_two() -> None:
    process = OrnsteinUhlenbeck(1.0, math.sqrt(2))
    x = torch.zeros(200_000, 1).double()
    law = SimulatedTransition(process, torch.tensor(1.0), 8)
    found = float(law.sample(x, generator=torch.Generator().manual_seed(0)).var())
    h = 1 / 8  # one step maps the variance v to (1 - h + h²/2)² v + 2h (1 - h/2)²
    a, noise = (1 - h + h**2 / 2) ** 2, 2 * h * (1 - h / 2) ** 2
    expected = noise * (1 - a**8) / (1 - a)
    assert found == pytest.approx(expected, abs=4 * math.sqrt(2 / 200_000))
    assert expected == pytest.approx(1 - math.exp(-2), abs=0.01)  # Euler's error is 0.08


def test_simulations_have_no_density() -> None:
    law = SimulatedTransition(OrnsteinUhlenbeck(), torch.tensor(1.0))
    x = torch.zeros(1, 1)
    with pytest.raises(TypeError, match="use MonteCarlo"):
        law.log_density(x, x)
    with pytest.raises(TypeError, match="no quadrature rule"):
        law.nodes(x, 3)


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    save(WELLS, tmp_path / "process.safetensors")
    again = load(tmp_path / "process.safetensors")
    x = torch.tensor([[0.5, -1.0]]).double()
    torch.testing.assert_close(again.drift(x), WELLS.drift(x), rtol=1e-14, atol=1e-14)
    assert repr(again) == "Langevin(box=[[-2.2, 2.4], [-4.0, 4.0]], cells=(20, 20), degree=5)"


def test_the_box_reflects() -> None:
    box = Box(torch.tensor([[0.0, 1.0]]))
    x = torch.tensor([[0.3], [1.25], [-2.25]])
    torch.testing.assert_close(box.wrap(x), torch.tensor([[0.3], [0.75], [0.25]]))
    assert box.contains(x).tolist() == [True, False, False]


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="one or two axes"):
        Langevin.of(quadratic, [(-1.0, 1.0)] * 3, cells=2)
    with pytest.raises(ValueError, match="potential must map points"):
        Langevin.of(lambda x: x, [(-1.0, 1.0)])
    with pytest.raises(ValueError, match="potential must be finite on the box, but it is inf"):
        Langevin.of(lambda x: -x[:, 0].clamp(min=0).log(), [(-1.0, 1.0)])
    with pytest.raises(ValueError, match="at most half the number of splines"):
        Langevin.of(quadratic, [(-1.0, 1.0)], cells=5).eigenpairs(9)
