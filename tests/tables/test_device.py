"""Fits on a device: everything but sums and tables runs there, with the numbers of the CPU."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

from oism import OISM
from oism._core import checks, transforms
from oism.basis import Fourier, ScatteredSeries
from oism.estimation import FourierMoments
from oism.estimation._systems.direct import solved_for_all
from oism.flow import ClosedForm, Flow, RecordedRungeKutta4, State
from oism.tables import converged_steps


def rows(n: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    x[:, -1] += x[:, 0].square()
    return x


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors count as those of another device, and FINUFFT is not installed."""
    monkeypatch.setattr(transforms, "HOST", "none")
    monkeypatch.setitem(sys.modules, "finufft", None)


@pytest.mark.parametrize(("dim", "bound"), [(1, 400.0), (2, 90.0), (3, 12.0)])
def test_a_fit_elsewhere_has_the_numbers_of_the_cpu(
    dim: int, bound: float, request: pytest.FixtureRequest
) -> None:
    x, test = rows(300, dim).numpy(), rows(50, dim, seed=1).numpy()
    model = OISM(max_eigenvalue=bound, flow_steps=32).fit(x)
    expected, samples = model.score_samples(test), model.sample(20, random_state=0)
    request.getfixturevalue("elsewhere")
    other = OISM(max_eigenvalue=bound, flow_steps=32).fit(x)
    assert abs(float((other.score_samples(test) - expected).mean())) < 2e-4
    # A loaded model follows the same flow, whatever sums its series.
    assert model.score_samples(test) == pytest.approx(expected, abs=1e-6)
    assert model.sample(20, random_state=0) == pytest.approx(samples, abs=1e-5)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.usefixtures("elsewhere")
def test_sums_of_waves_elsewhere_are_direct_sums(dim: int) -> None:
    x, basis = rows(60, dim), Fourier.lattice(dim, 6)
    weight = torch.linspace(0.5, 2, len(x), dtype=torch.float64)
    moments = FourierMoments(basis, folds=3).update(x, weight)
    waves = torch.exp(-1j * (x @ moments.frequencies.mT))
    expected = (weight[:, None] * waves).sum(dim=0) / weight.sum()
    torch.testing.assert_close(moments.averages().total, expected, rtol=1e-12, atol=1e-12)


def test_sums_are_the_adjoint_of_series() -> None:
    frequencies = Fourier.lattice(3, 9).frequencies
    series, x = ScatteredSeries(frequencies), rows(40, 3)
    generator = torch.Generator().manual_seed(1)
    spectrum = torch.randn(1, len(frequencies), generator=generator, dtype=torch.complex128)
    weights = torch.randn(1, len(x), generator=generator, dtype=torch.float64)
    inner = (weights * series.products(x, spectrum)).sum()
    adjoint = 2 * (series.sums(x, weights) * spectrum.conj()).sum().real
    torch.testing.assert_close(inner, adjoint, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dim", [2, 3])
def test_recorded_steps_converge_like_others(dim: int) -> None:
    """On the CPU, where steps are not recorded but are the same."""
    model = OISM(max_eigenvalue=20.0).fit(rows(200, dim).numpy()).model_
    score, span = model.operator_score, model.span
    assert score.is_recordable
    assert converged_steps(score, span, "cpu") == converged_steps(score, span) == model.steps


@pytest.mark.parametrize("dim", [2, 3])
def test_a_recorded_step_reads_no_number_from_the_device(
    dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors of the device "meta" have no values to read; checks, which would, are left out."""

    def is_recorded(x: Tensor) -> bool:
        return x.device.type == "meta"

    model = OISM(max_eigenvalue=20.0, flow_steps=4).fit(rows(200, dim).numpy()).model_
    score = model.operator_score.to("meta")
    flow, x = Flow(score, span=model.span), torch.zeros(7, dim, dtype=torch.float64, device="meta")
    path = ClosedForm().path(flow, x)
    monkeypatch.setattr(checks, "is_recorded", is_recorded)

    def field(tau: Tensor, state: State) -> State:
        return path.motion(state[0], flow.clock._time(tau))

    end, change = RecordedRungeKutta4(3).solve(field, (x, torch.zeros_like(x[:, 0])), (1.0, 0.0))
    assert (end.shape, change.shape) == (x.shape, x.shape[:1])
    assert end.device.type == "meta"


@pytest.mark.usefixtures("elsewhere")
def test_systems_elsewhere_are_solved_by_factors() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(2, 3, 6, 4, generator=generator, dtype=torch.float64)
    matrix, right = root @ root.mT, torch.randn(2, 3, 6, generator=generator, dtype=torch.float64)
    shifts = torch.tensor([0.01, 1.0], dtype=torch.float64)
    shifted = matrix[..., None, :, :] + shifts[:, None, None] * torch.eye(6, dtype=torch.float64)
    expected = torch.linalg.solve(shifted, right[..., None, :, None].expand(2, 3, 2, 6, 1))[..., 0]
    found = solved_for_all(matrix, right, shifts)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert bool(solved_for_all(-matrix, right, shifts).isnan().all())
