"""Noised tensors, errors of the predicted noise, and the score that follows from it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import Brownian, OrnsteinUhlenbeck, Torus, VarianceExploding, VariancePreserving
from oism.flow import NoiseScore, noise_errors, noised
from oism.process import Clock, IdentityClock, Noising

OU = Noising(OrnsteinUhlenbeck(), VariancePreserving())
VE = Noising(Brownian(), VarianceExploding())


class Stub:
    """ε̂ = 2x + τ, and what it was given."""

    def __call__(self, x: Tensor, tau: Tensor, /) -> Tensor:
        self.given = x, tau
        return 2 * x + tau.to(x).reshape(-1, *[1] * (x.ndim - 1))


@given(
    share=st.floats(0.001, 1),
    shape=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    rows=st.integers(0, 3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    noising=st.sampled_from([OU, VE]),
)
def test_a_score_is_minus_the_noise_over_its_deviation(
    share: float, shape: list[int], rows: int, dtype: torch.dtype, noising: Noising
) -> None:
    stub = Stub()
    x = torch.ones(rows, *shape, dtype=dtype)
    t = noising.clock.time(share)
    found = NoiseScore(stub, noising)(x, t)
    assert found.dtype == dtype
    assert found.shape == x.shape
    variance = 2 * float(t) if noising is VE else -math.expm1(-2 * float(t))
    np.testing.assert_allclose(found, -(2 * x + share) / math.sqrt(variance), rtol=1e-4)
    assert stub.given[1].tolist() == pytest.approx([share] * rows, rel=1e-6)


def test_a_time_for_every_row() -> None:
    x, t = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)), torch.rand(3)
    score = NoiseScore(Stub(), OU)
    for i in range(3):
        one = score(x[i : i + 1], float(t[i]))
        torch.testing.assert_close(score(x, t)[i : i + 1], one)
    with pytest.raises(ValueError, match="one per row: 3 rows, got shape"):
        score(x, t[:2])


@pytest.mark.parametrize("clock", [OU.clock, VE.clock], ids=repr)
def test_the_ends_of_the_clock(clock: Clock) -> None:
    """A last time that was rounded to float32 is still one; another one is a mistake."""
    noising = Noising(OrnsteinUhlenbeck(), clock)
    stub = Stub()
    score, last = NoiseScore(stub, noising), clock.time(clock.horizon)
    score(torch.zeros(1, 1), last.float() * (1 + 1e-7))
    assert float(stub.given[1]) == clock.horizon
    with pytest.raises(ValueError, match=r"t must be in \["):
        score(torch.zeros(1, 1), 2 * last)


@pytest.mark.parametrize("tau", [torch.tensor(0.3), torch.tensor([0.0, 0.3, 1.0])])
def test_errors_are_those_of_the_noise_that_was_added(tau: Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2, 3, 2, 2, generator=generator, dtype=torch.float64)
    t = 0.05 * tau.double() + 19.9 * tau.double() ** 2 / 4  # ∫β/2 of the default clock
    alpha, sigma = (-t).exp(), (-torch.expm1(-2 * t)).sqrt()
    rows = (-1, 1, 1) if tau.ndim else ()
    expected = alpha.reshape(rows) * x + sigma.reshape(rows) * noise
    torch.testing.assert_close(noised(OU, x, tau, noise), expected)
    found = noise_errors(lambda y, _: 0.5 * y, OU, x, tau, noise)
    square = (0.5 * expected - noise).square()
    torch.testing.assert_close(found, square.flatten(1).mean(dim=1))


def test_noised_angles_are_wrapped() -> None:
    noising = Noising(Torus(), IdentityClock(3.0))
    x, noise = torch.full((2, 1), 3.0), torch.ones(2, 1)
    found = noised(noising, x, torch.tensor([0.0, 2.0]), noise)
    torch.testing.assert_close(found, torch.tensor([[3.0], [3.0 + 2.0 - 2 * math.pi]]))


def test_noise_of_another_shape() -> None:
    x, tau = torch.zeros(3, 2), torch.tensor(0.5)
    with pytest.raises(ValueError, match=r"noise must have the shape \(3, 2\) of x, got \(3, 1\)"):
        noised(OU, x, tau, torch.zeros(3, 1))
    with pytest.raises(ValueError, match=r"must return noise of shape \(3, 2\), got \(3, 1\)"):
        noise_errors(lambda y, _: y[:, :1], OU, x, tau, x)
