"""`TableModel` in the data's units: process, flow, noise and denoised rows, dtypes and devices."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from torch import Tensor

from oism import OISM, Linear, OrnsteinUhlenbeck
from oism.flow import ExactTrace, Flow, RungeKutta4, StochasticHeun, log_density
from oism.tables import TableModel

DOUBLE = torch.float64
PLANE = np.random.default_rng(0).normal(size=(300, 2)) @ np.array([[3.0, 1.0], [0.0, 0.2]]) + 5
MIXED = np.stack(
    [
        np.random.default_rng(1).vonmises(0.5, 2.0, 300) * 180 / math.pi,
        np.random.default_rng(2).beta(2.0, 1.0, 300),
        np.random.default_rng(3).normal(2.0, 3.0, 300),
    ],
    axis=1,
)
CASES: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "free": (PLANE, {"max_eigenvalue": 16}),
    "mixed": (MIXED, {"max_eigenvalue": 5, "periodic": {0: 360.0}, "bounds": {1: (0.0, 1.0)}}),
    "principal": (PLANE, {"process": "ou", "order": 3}),
    "columns": (PLANE, {"process": OrnsteinUhlenbeck(0.5, 2.0), "order": 3, "frame": "identity"}),
    "linear": (
        PLANE,
        {"process": Linear(torch.tensor([[-1.0, -0.5], [0.5, -1.0]]), torch.eye(2)), "order": 3},
    ),
}
cases = pytest.mark.parametrize("case", CASES)


@cache
def fitted(case: str) -> TableModel:
    x, settings = CASES[case]
    model: TableModel = OISM(flow_steps=32, **settings).fit(x).model_
    return model


def rows(case: str, n: int = 10) -> Tensor:
    return torch.from_numpy(CASES[case][0][:n])


def inner(model: TableModel) -> TableModel:
    """Return the model without its background."""
    return TableModel(model.operator_score, model.chart, None, model.span, model.steps)


@pytest.mark.slow
@cases
def test_the_flow_in_data_units_has_the_same_density(case: str) -> None:
    model, x = fitted(case), rows(case)
    found = log_density(Flow(model, span=model.span), x, method=RungeKutta4(32))
    torch.testing.assert_close(found, inner(model).log_density(x), rtol=1e-9, atol=1e-9)
    by_derivatives = log_density(model.flow, x, method=RungeKutta4(32), divergence=ExactTrace())
    torch.testing.assert_close(by_derivatives, found, rtol=1e-6, atol=1e-6)


@cases
def test_the_flow_in_data_units_draws_the_same_rows(case: str) -> None:
    model = inner(fitted(case))
    flow = model.flow.sample(
        400, method=RungeKutta4(32), generator=torch.Generator().manual_seed(0), dtype=DOUBLE
    )
    own = model.sample(400, torch.Generator().manual_seed(1))
    assert bool(model.chart.covers(flow).all())
    for one, other in zip(flow.mT.numpy(), own.mT.numpy(), strict=True):
        assert scipy.stats.ks_2samp(one, other).pvalue > 1e-3
    sde = model.flow.sample(
        400, method=StochasticHeun(64), generator=torch.Generator().manual_seed(2), dtype=DOUBLE
    )
    for one, other in zip(sde.mT.numpy(), own.mT.numpy(), strict=True):
        assert scipy.stats.ks_2samp(one, other).pvalue > 1e-3


@cases
def test_the_process_moves_rows_as_its_coordinates_move(
    case: str, generator: torch.Generator
) -> None:
    """Drift, noise and transition against a simulation of the process in its coordinates."""
    model, t = fitted(case), 0.02
    x = rows(case, 1).repeat(40_000, 1)
    law, chart = model.process.transition(t), model.chart
    drawn = law.sample(x, generator=generator)
    u = model.process.inner.transition(t).sample(chart.to_process(x), generator=generator)
    simulated = chart.to_data(u)
    for one, other in zip(drawn.mT.numpy(), simulated.mT.numpy(), strict=True):
        assert scipy.stats.ks_2samp(one, other).pvalue > 1e-3
    deviations = model.noise_deviations(t)
    torch.testing.assert_close(law.covariance(model.dim).diagonal().sqrt(), deviations)
    if case != "mixed":  # nothing wraps or reflects at this time
        torch.testing.assert_close(drawn.std(dim=0), deviations, rtol=0.02, atol=0)
        error = 5 * float(deviations.max()) / math.sqrt(len(x))
        torch.testing.assert_close(drawn.mean(dim=0), law.mean(x)[0], rtol=0, atol=error)
        offsets, weights = law.quadrature(model.dim, 40)
        torch.testing.assert_close(
            torch.einsum("m,mi,mj->ij", weights, offsets, offsets), law.covariance(model.dim)
        )
        step = 1e-4
        short = model.process.transition(step)
        rate = (short.mean(x[:1]) - x[:1]) / step
        torch.testing.assert_close(rate, model.process.drift(x[:1]), rtol=1e-3, atol=1e-6)
        matrix = short.covariance(model.dim) / (2 * step)
        scale = float(matrix.abs().max())
        expected = model.process.diffusion(model.dim)
        torch.testing.assert_close(matrix, expected, rtol=0, atol=1e-3 * scale)


@pytest.mark.parametrize("start", [0.02, 0.5, 1.0])
def test_a_reflected_transition_integrates_to_one(start: float) -> None:
    x = np.random.default_rng(0).beta(2.0, 1.0, (100, 1))
    model = OISM(max_eigenvalue=4, flow_steps=4, bounds={0: (0.0, 1.0)}).fit(x).model_
    law = model.process.transition(0.05)
    grid = torch.linspace(0, 1, 2001, dtype=DOUBLE)[:, None]
    log = law.log_density(grid, torch.full_like(grid, start))
    mass = scipy.integrate.simpson(log.exp().numpy(), x=grid[:, 0].numpy())
    assert mass == pytest.approx(1.0, abs=1e-6)
    uniform = model.process.invariant.log_density(grid)
    torch.testing.assert_close(uniform, torch.zeros_like(uniform))
    points, weights = model.process.invariant.quadrature(1, 16)
    assert float(weights @ points[:, 0]) == pytest.approx(0.5)


def test_noise_needs_one_size_in_all_columns() -> None:
    with pytest.raises(TypeError, match="noise of one size in all columns"):
        fitted("free").noise(rows("free"), 0.5)
    with pytest.raises(TypeError, match="noise of one size in all columns"):
        fitted("principal")(rows("principal"), 0.5)
    x = np.random.default_rng(0).vonmises(0.0, 2.0, (200, 2)) * 180 / math.pi
    model = OISM(max_eigenvalue=9, flow_steps=8, periodic=360).fit(x).model_
    points, tau = torch.from_numpy(x[:5]), torch.linspace(0.3, 0.6, 5, dtype=DOUBLE)
    sigma = torch.stack([model.noise_deviations(t)[0] for t in model.clock.time(tau)])
    expected = -sigma[:, None] * model.score(points, model.clock.time(tau))
    torch.testing.assert_close(model.noise(points, tau), expected)


def test_denoised_rows_are_conditional_means() -> None:
    """Order 2 is the Gaussian of the data, whose conditional means are known."""
    model = OISM(process="ou", order=2, ridge=0.0, flow_steps=4).fit(PLANE).model_
    tau = 0.3
    law = model.process.transition(model.clock.time(tau))
    mean = torch.from_numpy(PLANE.mean(axis=0))
    covariance = torch.from_numpy(np.cov(PLANE.T, bias=True))
    alpha = math.exp(-float(model.clock.time(tau)))
    gain = alpha * covariance @ torch.linalg.inv(alpha**2 * covariance + law.covariance(2))
    x = rows("free")
    expected = mean + (x - mean) @ gain.mT
    torch.testing.assert_close(model.denoise(x, tau), expected, rtol=1e-6, atol=1e-6)
    with pytest.raises(TypeError, match="no closed form for columns with bounds"):
        fitted("mixed").denoise(rows("mixed"), tau)


@cases
def test_single_precision_rows_stay_single(case: str) -> None:
    model, x = fitted(case), rows(case)
    for found, exact in (
        (model.score(x.float(), 0.1), model.score(x, 0.1)),
        (model.log_density(x.float()), model.log_density(x)),
    ):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), exact, rtol=0.02, atol=0.02)


def test_a_generator_is_optional_and_rows_are_checked() -> None:
    model = fitted("free")
    torch.manual_seed(0)
    first = model.sample(5)
    torch.manual_seed(0)
    assert torch.equal(first, model.sample(5))
    assert not torch.equal(first, model.sample(5))
    for use in (model.log_density, lambda x: model.score(x, 0.1)):
        with pytest.raises(ValueError, match=r"x must have shape \(n, 2\), got \(3, 1\)"):
            use(torch.zeros(3, 1))
        with pytest.raises(ValueError, match="x must be finite"):
            use(torch.full((3, 2), math.nan))


def test_a_model_prints_what_it_is() -> None:
    text = repr(fitted("free"))
    assert "TableModel" in text
    assert "2 columns, flow of 32 steps, background 0.0033" in text


def test_facts_have_names_or_numbers() -> None:
    model = fitted("free")
    assert [column["name"] for column in model.facts()["columns"]] == ["0", "1"]
    assert [column["name"] for column in model.facts(["a", "b"])["columns"]] == ["a", "b"]
    assert model.facts()["kind"] == "TableModel"
