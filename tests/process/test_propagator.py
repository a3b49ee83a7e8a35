"""S_t and Σ_t, compared with 60 digits, Van Loan, Lyapunov, quadrature and their equations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath  # type: ignore[import-untyped]
import pytest
import scipy.integrate
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import CriticallyDamped, Linear
from oism.process._propagator import Propagator

from .systems import ALL, STABLE, hurwitz, matrix

TIMES = [1e-8, 1e-4, 1e-2, 0.3, 1.0, 3.0, 10.0, 30.0]


def propagated(process: Linear, t: float) -> tuple[Tensor, Tensor]:
    return Propagator(process.drift_matrix, process.noise_matrix)(
        torch.tensor(t, dtype=torch.float64)
    )


def exact(process: Linear, t: float, digits: int = 60) -> tuple[Tensor, Tensor]:
    """Van Loan's block exponential, with enough digits for a large e^{-Ft}."""
    size, noise = len(process.drift_matrix), process.noise_matrix.numpy()
    with mpmath.workdps(digits + int(3 * t * float(process.drift_matrix.norm()))):
        drift, squared = mpmath.matrix(process.drift_matrix.tolist()), mpmath.matrix(noise)
        squared = squared * squared.T
        block = mpmath.zeros(2 * size)
        block[:size, :size], block[:size, size:], block[size:, size:] = drift, squared, -drift.T
        power = mpmath.expm(block * mpmath.mpf(t))
        mean = power[:size, :size]
        covariance = power[:size, size:] * mean.T
        return _rounded(mean), _rounded(covariance)


def _rounded(entries: mpmath.matrix) -> Tensor:
    return torch.tensor([[float(x) for x in row] for row in entries.tolist()], dtype=torch.float64)


def van_loan(process: Linear, t: float, exponential: Callable[[Tensor], Any]) -> Tensor:
    size, noise = len(process.drift_matrix), process.noise_matrix
    block = torch.zeros(2 * size, 2 * size, dtype=torch.float64)
    block[:size, :size], block[:size, size:] = process.drift_matrix, noise @ noise.mT
    block[size:, size:] = -process.drift_matrix.mT
    power = torch.as_tensor(exponential(t * block))
    return power[:size, size:] @ power[:size, :size].mT


def difference(process: Linear, t: float) -> Tensor:
    """Σ∞ - SΣ∞Sᵀ."""
    power = torch.from_numpy(scipy.linalg.expm(process.drift_matrix.numpy() * t))
    limit = process.stationary_covariance
    return limit - power @ limit @ power.mT


def correlation_error(ours: Tensor, right: Tensor) -> float:
    """The largest error of an entry of Σ, in units of the deviations of its row and column."""
    scale = right.diagonal().sqrt()
    return float(((ours - right) / (scale[:, None] * scale)).abs().max())


@pytest.mark.parametrize("process", ALL.values(), ids=ALL.keys())
@pytest.mark.parametrize("t", TIMES)
def test_the_error_is_a_few_roundings_at_every_time(process: Linear, t: float) -> None:
    # The declared accuracy: a relative error of a few roundings, plus ‖F‖t roundings.
    mean, covariance = propagated(process, t)
    right_mean, right_covariance = exact(process, t)
    allowed = 2e-15 * (4 + t * float(process.drift_matrix.norm()))
    assert correlation_error(covariance, right_covariance) < allowed
    assert float((mean - right_mean).norm() / right_mean.norm()) < allowed


@pytest.mark.parametrize("c", [0.5, 2.0, 50.0])
def test_the_textbook_formulas_are_less_accurate(c: float) -> None:
    process = CriticallyDamped(1, c=c)
    for t in (1e-8, 1e-4):  # the variance of the position is (2c/3)t³(1 - 3ct/4 + …)
        right = exact(process, t)[1]
        assert float(right[0, 0]) == pytest.approx(2 * c / 3 * t**3, rel=c * t, abs=0)
        ours = propagated(process, t)[1]
        assert float(ours[0, 0]) == pytest.approx(float(right[0, 0]), rel=1e-15, abs=0)
        assert abs(float(difference(process, t)[0, 0] / right[0, 0]) - 1) > 1e-7
    torchs = van_loan(process, t, torch.linalg.matrix_exp)[0, 0]
    assert abs(float(torchs / right[0, 0]) - 1) > 1e-12
    if c > 2:
        right, ours = exact(process, 1.0)[1], propagated(process, 1.0)[1]
        assert correlation_error(ours, right) < 1e-13
        assert correlation_error(van_loan(process, 1.0, scipy.linalg.expm), right) > 1


@pytest.mark.parametrize("process", ALL.values(), ids=ALL.keys())
def test_the_covariance_is_the_integral_over_time(process: Linear) -> None:
    noise, t = process.noise_matrix.numpy(), 1.7

    def integrand(s: float) -> Any:
        moved = scipy.linalg.expm(process.drift_matrix.numpy() * s) @ noise
        return moved @ moved.T

    integral = scipy.integrate.quad_vec(integrand, 0, t, epsabs=1e-13, epsrel=1e-13)[0]
    torch.testing.assert_close(propagated(process, t)[1], torch.from_numpy(integral))


@given(process=hurwitz, t=st.floats(1e-9, 40), split=st.floats(0.05, 0.95))
def test_two_steps_agree_with_one(process: Linear, t: float, split: float) -> None:
    (first, early), (second, late) = (propagated(process, s) for s in (split * t, t - split * t))
    mean, covariance = propagated(process, t)
    allowed = 1e-13 * (1 + t * float(process.drift_matrix.norm()))
    assert correlation_error(late + second @ early @ second.mT, covariance) < allowed
    assert float((second @ first - mean).abs().max()) < allowed


@given(process=hurwitz)
def test_the_stationary_covariance_is_the_limit(process: Linear) -> None:
    limit = process.stationary_covariance
    _, late = propagated(process, 500.0)
    assert correlation_error(late, limit) < 1e-10
    noise = process.noise_matrix @ process.noise_matrix.mT
    flow = process.drift_matrix @ limit
    residual = (flow + flow.mT + noise).norm() / (flow.norm() + noise.norm())
    assert float(residual) < 1e-12


@given(process=hurwitz, t=st.floats(1e-6, 5))
def test_means_and_covariances_solve_their_equations(process: Linear, t: float) -> None:
    # dS/dt = FS and dΣ/dt = FΣ + ΣFᵀ + LLᵀ, by forward and by reverse mode.
    propagator = Propagator(process.drift_matrix, process.noise_matrix)
    time = torch.tensor(t, dtype=torch.float64)
    mean, covariance = propagator(time)
    flow = process.drift_matrix @ covariance
    right = (
        process.drift_matrix @ mean,
        flow + flow.mT + process.noise_matrix @ process.noise_matrix.mT,
    )
    for derivative in (torch.func.jacfwd(propagator)(time), torch.func.jacrev(propagator)(time)):
        for ours, expected in zip(derivative, right, strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("process", STABLE.values(), ids=STABLE.keys())
def test_derivatives_agree_with_finite_differences(process: Linear) -> None:
    step, t = 1e-5, 0.8
    (_, before), (_, after) = (propagated(process, t + h) for h in (-step, step))
    slope = (after - before) / (2 * step)
    flow = process.drift_matrix @ propagated(process, t)[1]
    right = flow + flow.mT + process.noise_matrix @ process.noise_matrix.mT
    torch.testing.assert_close(slope, right, rtol=1e-8, atol=1e-8)


def test_times_of_very_different_sizes_are_independent() -> None:
    propagator = Propagator(STABLE["over-damped"].drift_matrix, matrix([0.0], [1.0]))
    times = torch.tensor([0.0, 1e-12, 1e-3, 0.4, 7.0, 1e5, 1e300], dtype=torch.float64)
    together = propagator(times)
    alone = [torch.stack(parts) for parts in zip(*map(propagator, times), strict=True)]
    for ours, one_by_one in zip(together, alone, strict=True):
        torch.testing.assert_close(ours, one_by_one, rtol=1e-13, atol=1e-300)
    assert torch.equal(together[0][0], torch.eye(2).double())
    assert not together[1][0].any()
    assert not together[0][-1].any()
    limit = Linear(propagator.drift, propagator.noise).stationary_covariance
    torch.testing.assert_close(together[1][-1], limit, rtol=1e-13, atol=1e-13)
    assert propagator(times[:0])[1].shape == (0, 2, 2)


@pytest.mark.parametrize("unit", [2.0**-40, 1e-6, 1e9])
def test_results_are_equivariant_under_changes_of_units(unit: float) -> None:
    process = STABLE["critically damped"]
    units = torch.tensor([unit, 1.0], dtype=torch.float64)
    drift = process.drift_matrix * (units[:, None] / units)
    propagator = Propagator(drift, process.noise_matrix * units[:, None])
    for t in (1e-4, 2.0, 20.0):
        mean, covariance = propagator(torch.tensor(t, dtype=torch.float64))
        right_mean, right = propagated(process, t)
        scale = units[:, None] * units
        torch.testing.assert_close(covariance / scale, right, rtol=1e-13, atol=1e-15)
        torch.testing.assert_close(mean / (units[:, None] / units), right_mean, rtol=0, atol=1e-13)


def test_inside_transforms_and_graphs() -> None:
    process = STABLE["sheared, three noises"]
    propagator = Propagator(process.drift_matrix, process.noise_matrix)
    times = torch.tensor([0.0, 1e-5, 0.7, 90.0], dtype=torch.float64)
    plain = propagator(times)
    torch.compiler.reset()
    compiled = torch.compile(propagator.__call__, backend="eager", fullgraph=True)(times)
    for results in (torch.func.vmap(propagator)(times), compiled):
        for ours, right in zip(results, plain, strict=True):
            torch.testing.assert_close(ours, right, rtol=1e-14, atol=1e-16)
    # If the number of doublings cannot be read, it is bounded; results beyond are NaN.
    assert torch.func.vmap(propagator)(torch.tensor([1e30], dtype=torch.float64))[1].isnan().all()
    assert propagator(torch.tensor(1e30, dtype=torch.float64))[1].isfinite().all()


def test_no_drift_and_no_noise() -> None:
    still, noise = torch.zeros(2, 2).double(), matrix([1.0, 2.0], [0.0, 3.0])
    mean, covariance = Propagator(still, noise)(torch.tensor(3.0, dtype=torch.float64))
    assert torch.equal(mean, torch.eye(2).double())
    assert torch.equal(covariance, 3 * noise @ noise.mT)
    mean, covariance = Propagator(-torch.eye(2).double(), still)(
        torch.tensor(3.0, dtype=torch.float64)
    )
    assert float(mean[0, 0]) == pytest.approx(math.exp(-3), rel=1e-14)
    assert not covariance.any()
