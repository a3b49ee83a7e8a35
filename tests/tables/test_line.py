"""The tabulated flow of one column, compared with the general solver."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from oism import Fourier, fit
from oism.basis import JacobiPolynomials, LaguerrePolynomials
from oism.flow import Flow, RungeKutta4, log_density
from oism.process import Jacobi, Laguerre, VarianceExploding
from oism.score import OperatorScore
from oism.tables._line import LineFlow, converged, line_of


@pytest.fixture(scope="module")
def score() -> OperatorScore:
    """Two clusters, one of them narrow."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2000, 1, generator=generator, dtype=torch.float64)
    wide = torch.arange(2000)[:, None] % 3 > 0
    x = torch.where(wide, 0.8 + 0.6 * noise, -1.5 + 0.08 * noise)
    return fit(x, Fourier.lattice(1, 2500), clock=VarianceExploding(0.005, 5.0))


def points() -> Tensor:
    return torch.linspace(-math.pi, math.pi, 401, dtype=torch.float64)[:-1]


@pytest.mark.parametrize("steps", [16, 37, 64])  # 37 is no multiple of the block
def test_densities_agree_with_the_general_solver(score: OperatorScore, steps: int) -> None:
    span = (0.0, score.clock.horizon)
    own = LineFlow(score, span).log_density(points(), steps)
    flow = Flow(score, span=span)
    expected = log_density(flow, points()[:, None], method=RungeKutta4(steps))
    weight = torch.softmax(expected, dim=0)
    assert float((weight @ (own - expected).square()).sqrt()) < 1e-4
    assert float((own - expected).abs().max()) < 1e-2


def test_the_mass_is_one(score: OperatorScore) -> None:
    u = torch.linspace(-math.pi, math.pi, 2001, dtype=torch.float64)[:-1]
    mass = LineFlow(score, (0.0, score.clock.horizon)).log_density(u, 128).exp().mean()
    assert float(mass) * 2 * math.pi == pytest.approx(1, abs=2e-4)


def test_points_are_taken_modulo_the_circle(score: OperatorScore) -> None:
    flow = LineFlow(score, (0.0, score.clock.horizon))
    moved = points() + 2 * math.pi * torch.tensor([-1.0, 3.0]).double().repeat(200)
    torch.testing.assert_close(flow.log_density(moved, 16), flow.log_density(points(), 16))


def test_frequencies_may_be_negative() -> None:
    x = torch.tensor([[0.3], [0.9], [1.1], [2.0]], dtype=torch.float64)
    found = []
    for sign in (1.0, -1.0):
        basis = Fourier(sign * torch.arange(1, 6).double()[:, None])
        score = fit(x, basis, ridge=0.1)
        found.append(LineFlow(score, (0.0, score.clock.horizon)).log_density(points(), 32))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-10)


def test_steps_are_doubled_until_densities_settle(score: OperatorScore) -> None:
    flow = LineFlow(score, (0.0, score.clock.horizon))
    counts = (4, 8, 16, 32, 64, 128, 256)
    steps = converged(flow, counts, 1e-3)
    assert steps in counts[2:]
    fine = flow.log_density(points(), 512)

    def error(steps: int) -> float:
        gap = flow.log_density(points(), steps) - fine
        return float((torch.softmax(fine, dim=0) @ gap.square()).sqrt())

    assert error(steps) < 5e-4
    assert error(steps // 4) > 1e-3
    assert converged(flow, counts, 1e9) == 8
    with pytest.warns(UserWarning, match="still change by .* between 4 and 8 steps"):
        assert converged(flow, (4, 8), 1e-12) == 8


def test_other_scores_are_rejected() -> None:
    score = fit(
        torch.randn(50, 2, generator=torch.Generator().manual_seed(0)), Fourier.lattice(2, 2)
    )
    with pytest.raises(ValueError, match="one dimension"):
        LineFlow(score, (0.0, 1.0))


ENDS = {
    "Jacobi": (JacobiPolynomials(Jacobi(0.6, 1.7), 16), 2e-4),
    "Jacobi with two infinite ends": (JacobiPolynomials(Jacobi(0.5, 0.3), 16), 2e-4),
    "Laguerre": (LaguerrePolynomials(Laguerre(0.7), 8), 1e-5),
}


@pytest.fixture(scope="module", params=ENDS)
def at_ends(request: pytest.FixtureRequest) -> tuple[OperatorScore, float]:
    basis, tolerance = ENDS[request.param]
    generator = torch.Generator().manual_seed(1)
    z = torch.rand(500, 1, generator=generator, dtype=torch.float64)
    x = z**2 if isinstance(basis, JacobiPolynomials) else -2 * z.log() * z
    return fit(x, basis, ridge=0.02), tolerance


def test_flows_that_end_agree_with_the_general_solver(
    at_ends: tuple[OperatorScore, float],
) -> None:
    """Also next to the ends, where densities are infinite or 0."""
    score, tolerance = at_ends
    span = (0.0, score.clock.horizon)
    x = torch.cat((torch.logspace(-9, -2, 40), torch.linspace(0.02, 0.98, 200))).double()
    # Laguerre polynomials are clamped softly beyond the data, which reach 0.74.
    x = torch.cat((x, 1 - x[:40])) if getattr(score.process.domain, "high", None) == 1 else 0.7 * x
    own = LineFlow(score, span, 24).log_density(x, 64)
    expected = log_density(Flow(score, span=span), x[:, None], method=RungeKutta4(64))
    assert float((own - expected).abs().max()) < tolerance
    wrong = LineFlow(score, span, 3).log_density(x, 64)  # a grid that is too coarse
    assert float((wrong - expected).abs().max()) > tolerance
    z = torch.linspace(0.01, 0.97, 50, dtype=torch.float64)
    pulled = LineFlow(score, span, 24).pull(z, 64)
    expected = Flow(score, span=span).pull(z[:, None], method=RungeKutta4(64))[:, 0]
    torch.testing.assert_close(pulled, expected, rtol=0, atol=1e-5)


def test_points_are_pulled_to_the_box_of_the_torus(score: OperatorScore) -> None:
    span = (0.0, score.clock.horizon)
    expected = Flow(score, span=span).pull(points()[:, None], method=RungeKutta4(64))[:, 0]
    torch.testing.assert_close(
        LineFlow(score, span, 24).pull(points(), 64), expected, rtol=0, atol=1e-5
    )


def test_polynomials_without_a_range_have_no_table() -> None:
    basis = LaguerrePolynomials(Laguerre(1.0), 4)
    assert line_of(basis) is None
    assert line_of(basis.within(torch.tensor(0.0), torch.tensor(3.0))) is not None
