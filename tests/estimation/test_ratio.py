"""Density ratios by integrating time scores, compared with exact densities and the flow."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from oism import Flow, Fourier, TensorHermite, Torus, fit
from oism.basis import Basis
from oism.data.toys import WrappedMixture
from oism.estimation import DensityRatio, GaussPanels, fit_ratio
from oism.flow import RungeKutta4, log_density
from oism.objectives import FokkerPlanckResidual

CIRCLE = WrappedMixture((0.6, 0.4), (-1.0, 1.2), (0.5, 0.4))
SHARES = torch.tensor([0.6, 0.4], dtype=torch.float64)
MEANS = torch.tensor([-0.9, 1.1], dtype=torch.float64)
DEVIATIONS = torch.tensor([0.6, 0.5], dtype=torch.float64)


def on_line(x: Tensor, t: float) -> Tensor:
    """Return log ρ_t of a mixture under the Ornstein-Uhlenbeck process."""
    alpha = math.exp(-t)
    variance = alpha**2 * DEVIATIONS.square() + 1 - alpha**2
    exponent = -(x - alpha * MEANS).square() / (2 * variance)
    return torch.logsumexp(SHARES.log() + exponent - 0.5 * (2 * math.pi * variance).log(), dim=1)


def on_circle(x: Tensor, t: float) -> Tensor:
    return CIRCLE.density(x, t).log()


def on_torus(x: Tensor, t: float) -> Tensor:
    """Return log ρ_t of a mixture of two wrapped normal distributions on the torus."""
    means = torch.tensor([[-1.0, 0.5], [1.2, -0.8]], dtype=torch.float64)
    images = 2 * math.pi * torch.arange(-3, 4, dtype=torch.float64)
    variance = (DEVIATIONS.square() + 2 * t)[:, None]
    step = x[:, None, :, None] - means[:, :, None] + images
    each = torch.logsumexp(-step.square() / (2 * variance[..., None]), dim=-1)
    each = each - 0.5 * (2 * math.pi * variance).log()
    return torch.logsumexp(SHARES.log() + each.sum(dim=-1), dim=1)


def even(side: int) -> Tensor:
    return torch.linspace(-math.pi, math.pi, side + 1, dtype=torch.float64)[:-1]


WIDE = torch.linspace(-9, 9, 1501, dtype=torch.float64)[:, None]
ROUND, SQUARE = even(512)[:, None], torch.cartesian_prod(even(48), even(48))
LAWS = {
    "line": (on_line, WIDE, WIDE[WIDE.abs() <= 2.5][:, None]),
    "circle": (on_circle, ROUND, ROUND),
    "torus": (on_torus, SQUARE, SQUARE[::7]),
}


def errors(law: str, basis: Basis, t: float, *, exact: bool = True, n: int = 2000) -> list[float]:
    """Return the errors of log ρ_t, in L²(ρ_t): of the integrated time score, and of the flow."""
    truth, data, y = LAWS[law]
    weights: Tensor | None = truth(data, 0.0).exp()
    if not exact:
        generator = torch.Generator().manual_seed(0)
        drawn = torch.multinomial(truth(data, 0.0).exp(), n, True, generator=generator)
        data, weights = data[drawn], None
    ratio = fit_ratio(data, basis, sample_weight=weights, ridge=0.0 if exact else 1e-3)
    score = fit(data, basis, sample_weight=weights, ridge=0.0 if exact else None, progress=False)
    start = float(score.clock.inverse(t))
    flow = log_density(
        Flow(score, span=(start, 1.0)), y, method=RungeKutta4(160 if law == "line" else 64)
    )
    density = truth(y, t).exp()
    return [
        float((density * (found - truth(y, t)).square()).sum() / density.sum()) ** 0.5
        for found in (ratio.log_density(y, t), flow)
    ]


@pytest.mark.parametrize(
    ("law", "basis", "t", "bounds"),
    [
        ("line", TensorHermite(1, 10), 0.3, (0.0059, 0.0094)),
        ("line", TensorHermite(1, 10), 0.05, (0.051, 0.13)),
        ("circle", Fourier.lattice(1, 100), 0.2, (5.5e-4, 3.5e-3)),
        ("circle", Fourier.lattice(1, 100), 0.02, (5.3e-3, 2.6e-2)),
        ("torus", Fourier.lattice(2, 36), 0.2, (1.05e-2, 4.6e-2)),
    ],
)
def test_with_exact_averages_the_ratio_is_more_accurate_than_the_flow(
    law: str, basis: Basis, t: float, bounds: tuple[float, float]
) -> None:
    """With the same functions. The flow has errors along its path and of its divergence."""
    ratio, flow = errors(law, basis, t)
    assert ratio < bounds[0]
    assert flow < bounds[1]
    assert ratio < 0.7 * flow


@pytest.mark.parametrize(("t", "bound"), [(0.005, 0.11), (0.02, 0.08), (0.2, 0.04)])
def test_with_two_thousand_points_ratio_and_flow_are_equally_accurate(
    t: float, bound: float
) -> None:
    """Both errors are those of the averages."""
    ratio, flow = errors("circle", Fourier.lattice(1, 100), t, exact=False)
    assert ratio < bound
    assert flow < bound
    assert ratio < 1.15 * flow


def test_the_error_decreases_with_more_functions() -> None:
    weights, found = on_circle(ROUND, 0.0).exp(), []
    for r in (6, 10, 14):
        ratio = fit_ratio(ROUND, Fourier.lattice(1, r**2), sample_weight=weights, ridge=0.0)
        found.append(float((ratio.log_density(ROUND, 0.2) - on_circle(ROUND, 0.2)).abs().max()))
    assert found[0] > 8 * found[1] > 64 * found[2]
    assert found[2] < 1e-3


@pytest.mark.parametrize("law", ["line", "circle"])
def test_the_density_is_normalised(law: str) -> None:
    truth, data, _ = LAWS[law]
    weights = truth(data, 0.0).exp()
    basis: Basis = Fourier.lattice(1, 144) if law == "circle" else TensorHermite(1, 10)
    ratio = fit_ratio(data, basis, sample_weight=weights, ridge=0.0)
    inside = data[data.abs() < 4][:, None]  # outside, polynomials are not fitted
    for t in (0.3, 1.0):
        mass = (ratio.log_density(inside, t).exp() * float(data[1] - data[0])).sum()
        assert float(mass) == pytest.approx(1, abs=3e-4)
        # Because the mean of a time score is zero.
        drift = (truth(data, t).exp() * ratio.time_score(data, t)).sum() * float(data[1] - data[0])
        assert abs(float(drift)) < 1e-10


def test_the_time_score_is_the_derivative_of_the_ratio() -> None:
    weights = on_circle(ROUND, 0.0).exp()
    ratio = fit_ratio(ROUND, Fourier.lattice(1, 36), sample_weight=weights, rule=GaussPanels(32))
    t, step = 0.3, 1e-4
    slope = (ratio.log_ratio(ROUND, t + step) - ratio.log_ratio(ROUND, t - step)) / (2 * step)
    torch.testing.assert_close(slope, ratio.time_score(ROUND, t), rtol=1e-5, atol=1e-5)


def test_with_more_functions_the_density_solves_the_fokker_planck_equation() -> None:
    weights = on_circle(ROUND, 0.0).exp()
    residual, left = FokkerPlanckResidual(Torus()), []
    for r in (5, 9):
        ratio = fit_ratio(ROUND, Fourier.lattice(1, r**2), sample_weight=weights, ridge=0.0)
        left.append(float(residual.energy(ratio.log_ratio, ROUND[::64], 0.3).abs().max()))
    assert left[0] > 5 * left[1]


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_quadrature_has_the_declared_order(nodes: int) -> None:
    weights = on_circle(ROUND, 0.0).exp()
    basis = Fourier.lattice(1, 16)

    def coefficients(rule: GaussPanels) -> Tensor:
        ratio = fit_ratio(ROUND, basis, sample_weight=weights, rule=rule, ridge=0.0)
        return ratio.coefficients(0.1)

    exact = coefficients(GaussPanels(64, 6))
    coarse, fine = 16, 32
    wrong = [
        float((coefficients(GaussPanels(p, nodes)) - exact).abs().max()) for p in (coarse, fine)
    ]
    order = math.log2(wrong[0] / wrong[1])
    assert GaussPanels(coarse, nodes).order == 2 * nodes
    assert order == pytest.approx(2 * nodes, abs=0.4)


def test_a_gaussian_is_exact_to_rounding() -> None:
    """log(ρ_t/π) of N(m, s²) is a polynomial of degree two, and so is its time score."""
    x = torch.linspace(-12, 12, 4001, dtype=torch.float64)[:, None]
    mean, deviation = 0.4, 0.8
    weights = torch.exp(-0.5 * ((x[:, 0] - mean) / deviation).square())
    ratio = fit_ratio(x, TensorHermite(1, 2), sample_weight=weights, ridge=0.0, last=16.0)
    y = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    for t in (0.05, 0.5):
        alpha = math.exp(-t)
        variance = 1 - alpha**2 * (1 - deviation**2)
        truth = -0.5 * ((y[:, 0] - alpha * mean).square() / variance)
        truth = truth - 0.5 * math.log(2 * math.pi * variance)
        torch.testing.assert_close(ratio.log_density(y, t), truth, rtol=0, atol=1e-6)


def test_two_dimensions_and_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    data = 0.7 * torch.randn(4000, 2, generator=generator)
    ratio = fit_ratio(data, Fourier.lattice(2, 20), last=10.0)
    x = torch.tensor([[0.0, 0.0], [0.5, -0.3]])
    variance = 0.49 + 2 * 0.1
    truth = -x.square().sum(dim=1) / (2 * variance) - math.log(2 * math.pi * variance)
    found = ratio.log_density(x, 0.1)
    assert found.dtype == torch.float32
    assert float((found - truth).abs().max()) < 0.1
    each = ratio.log_density(x, torch.tensor([0.1, 0.1]))  # one time per row
    torch.testing.assert_close(each, found)


def test_invalid_arguments_are_rejected() -> None:
    basis = Fourier.lattice(1, 4)
    ratio = fit_ratio(ROUND, basis)
    for t in (0.0, -1.0, 1e9):
        with pytest.raises(ValueError, match="t must be in"):
            ratio.log_ratio(ROUND, t)
    with pytest.raises(ValueError, match="ridge must be a finite number >= 0, got -1"):
        fit_ratio(ROUND, basis, ridge=-1.0)
    with pytest.raises(ValueError, match="last must be a positive finite number"):
        fit_ratio(ROUND, basis, last=0.0)
    with pytest.raises(TypeError, match="rule must be of type GaussPanels, got int"):
        fit_ratio(ROUND, basis, rule=4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="panels must be an integer >= 1"):
        GaussPanels(0)
    with pytest.raises(TypeError, match="equations must be of type ProductEquations"):
        DensityRatio(basis)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"x must have shape \(n, 1\)"):
        ratio.log_ratio(torch.zeros(2, 2), 0.1)
