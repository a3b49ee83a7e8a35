"""Positions with random velocities."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oism import CriticallyDamped, Linear
from oism.process import PhaseSpace

from .systems import matrix, normal


@pytest.mark.parametrize("c", [0.5, 2.0, 5.0])
@pytest.mark.parametrize("t", [1e-3, 0.3, 4.0])
def test_the_distribution_given_positions_agrees_with_the_process(c: float, t: float) -> None:
    # Gauss's rule for the initial velocity gives mean and covariance exactly.
    space = PhaseSpace(CriticallyDamped(1, c=c), gamma=0.3)
    mean, root = space._law(torch.tensor(t, dtype=torch.float64))
    law = space.process.transition(t)
    velocity = math.sqrt(0.3) * matrix([-1.0], [1.0])
    ends = law.mean(torch.cat((matrix([1.7], [1.7]), velocity), dim=1))
    torch.testing.assert_close(ends.mean(dim=0), 1.7 * mean, rtol=1e-12, atol=1e-15)
    spread = torch.cov(ends.mT, correction=0) + law.covariances
    torch.testing.assert_close(root @ root.mT, spread, rtol=1e-9, atol=1e-15)
    assert root[0, 1] == 0


@pytest.mark.parametrize("c", [0.5, 2.0, 5.0])
def test_the_conditional_variance_of_velocities_at_short_times(c: float) -> None:
    for t in (1e-8, 1e-5):
        root = PhaseSpace(CriticallyDamped(1, c=c))._law(torch.tensor(t).double())[1]
        assert float(root[1, 1].square()) == pytest.approx(2 * c * t / 3, rel=1e3 * c * t + 1e-6)


@given(st.integers(1, 3), st.integers(0, 4))
def test_lift_positions_and_velocities_are_consistent(dim: int, n: int) -> None:
    space, x = PhaseSpace(CriticallyDamped(dim), gamma=0.09), normal(n, dim)
    points = space.lift(x, torch.Generator().manual_seed(0))
    assert points.shape == (n, 2 * dim)
    assert torch.equal(space.positions(points), x)
    again = space.lift(x, torch.Generator().manual_seed(0))
    assert torch.equal(space.velocities(points), space.velocities(again))
    law = torch.distributions.Normal(0.0, 0.3)
    expected = law.log_prob(space.velocities(points)).sum(dim=1)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(space.log_density(space.velocities(points)), expected)


def test_velocities_have_the_given_variance() -> None:
    space = PhaseSpace(CriticallyDamped(1), gamma=0.25)
    draws = space.velocities(space.lift(torch.zeros(40_000, 1), torch.Generator().manual_seed(0)))
    assert float(draws.var()) == pytest.approx(0.25, rel=0.03)


def test_invalid_arguments_are_rejected() -> None:
    process = CriticallyDamped(2)
    for gamma in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="gamma must be a positive finite number"):
            PhaseSpace(process, gamma)
    with pytest.raises(TypeError, match="process must be of type CriticallyDamped, got Linear"):
        PhaseSpace(Linear(-torch.eye(2), torch.eye(2)))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"x must have shape \(n, 2\)"):
        PhaseSpace(process).lift(torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"points must have shape \(n, 4\)"):
        PhaseSpace(process).positions(torch.zeros(3, 2))
