"""Distributions of noise levels: quantiles against integrated densities, rates against autodiff."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from oism import (
    Brownian,
    Logarithmic,
    OrnsteinUhlenbeck,
    Torus,
    VarianceExploding,
    VariancePreserving,
)
from oism.objectives import (
    MixedLevels,
    NoiseLevels,
    NormalLogSNR,
    UniformLogSNR,
    UniformTime,
    low_discrepancy,
)
from oism.objectives._levels import likelihood_rate
from oism.process import IdentityClock, Noising

NOISINGS = {
    "VP": Noising(OrnsteinUhlenbeck(), VariancePreserving()),
    "VE": Noising(Brownian(), VarianceExploding()),
    "torus": Noising(Torus(), VarianceExploding(sigma_max=5.0)),
    "general": Noising(OrnsteinUhlenbeck(theta=0.7, sigma=0.5), IdentityClock(3.0)),
    "falling": Noising(OrnsteinUhlenbeck(2.0, 3.0), VariancePreserving(beta_0=4.0, beta_1=0.5)),
    "even": Noising(OrnsteinUhlenbeck(), Logarithmic(first=1e-3)),
}
LEVELS: list[type[NoiseLevels]] = [UniformTime, UniformLogSNR]
noisings = pytest.mark.parametrize("name", NOISINGS)
every_kind = pytest.mark.parametrize("levels_of", LEVELS)


@given(n=st.integers(1, 600), seed=st.integers(0, 2**40))
def test_one_in_each_part_of_the_interval(n: int, seed: int) -> None:
    u = low_discrepancy(n, torch.Generator().manual_seed(seed))
    assert u.dtype == torch.float64
    assert bool(((u >= 0) & (u < 1)).all())
    assert torch.equal((u.sort().values * n).floor(), torch.arange(n, dtype=torch.float64))
    gaps = torch.diff(u.sort().values)
    torch.testing.assert_close(gaps, torch.full_like(gaps, 1 / n), rtol=0, atol=1e-12)


def test_each_of_them_is_uniform(generator: torch.Generator) -> None:
    draws = torch.stack([low_discrepancy(5, generator) for _ in range(2000)])
    for column in draws.T:
        assert scipy.stats.kstest(column.numpy(), "uniform").pvalue > 1e-3
    with pytest.raises(ValueError, match="n must be an integer >= 1, got 0"):
        low_discrepancy(0)


@noisings
def test_the_rate_is_the_derivative_of_the_log_snr(name: str) -> None:
    noising = NOISINGS[name]
    horizon = noising.clock.horizon
    tau = torch.logspace(-5, 0, 60, dtype=torch.float64).mul(horizon).requires_grad_()
    (slope,) = torch.autograd.grad(noising.log_snr(tau).sum(), tau)
    torch.testing.assert_close(likelihood_rate(noising, tau.detach()), -slope, rtol=1e-8, atol=0)


def test_the_rate_of_the_variance_preserving_process() -> None:
    """β/σ², as the papers write it."""
    tau = torch.linspace(0.01, 1, 9, dtype=torch.float64)
    beta = 0.1 + 19.9 * tau
    sigma2 = 1 - torch.exp(-(0.1 * tau + 19.9 * tau**2 / 2))
    torch.testing.assert_close(likelihood_rate(NOISINGS["VP"], tau), beta / sigma2)


@noisings
@every_kind
@pytest.mark.parametrize("first", [1e-5, 0.05])
def test_quantiles_invert_the_integrated_density(
    name: str, levels_of: type[NoiseLevels], first: float
) -> None:
    levels = levels_of(NOISINGS[name], first)

    def density(s: float) -> float:
        """In s = log τ, where it is smooth."""
        tau = torch.tensor(math.exp(s), dtype=torch.float64)
        return math.exp(s) * float(levels.density(tau))

    u = torch.tensor([0.0, 0.01, 0.2, 0.5, 0.9, 0.999, 1.0], dtype=torch.float64)
    ends = np.log(levels.at(u).numpy())
    parts = [
        scipy.integrate.quad(density, a, b, epsrel=1e-11)[0] for a, b in itertools.pairwise(ends)
    ]
    np.testing.assert_allclose(np.cumsum(parts), u[1:], rtol=1e-8)
    assert levels.at(u)[0].item() == pytest.approx(levels.first, rel=1e-9)
    assert levels.at(u)[-1].item() == pytest.approx(levels.last, rel=1e-9)


@noisings
@every_kind
@given(u=st.lists(st.floats(0, 1), min_size=1, max_size=8), double=st.booleans())
def test_times_are_within_the_range(
    name: str, levels_of: type[NoiseLevels], u: list[float], double: bool
) -> None:
    levels = levels_of(NOISINGS[name], 1e-4)
    places = torch.tensor(sorted(u), dtype=torch.float64 if double else torch.float32)
    tau = levels.at(places)
    assert tau.dtype == torch.float64
    assert bool(((tau >= levels.first) & (tau <= levels.last)).all())
    assert bool((tau.diff() >= 0).all()), "noise grows with u"


@noisings
@every_kind
def test_draws_follow_the_distribution(name: str, levels_of: type[NoiseLevels]) -> None:
    levels = levels_of(NOISINGS[name], 1e-3)
    tau = levels.draw(1000, torch.Generator().manual_seed(1))
    again = levels.draw(1000, torch.Generator().manual_seed(1))
    assert torch.equal(tau, again)
    expected = levels.at((torch.arange(1000, dtype=torch.float64) + 0.5) / 1000)
    place = tau.sort().values
    if levels_of is UniformLogSNR:
        place, expected = (levels.noising.log_snr(part) for part in (place, expected))
    gap = (place - expected).abs().max() / (expected[-1] - expected[0]).abs()
    assert float(gap) < 1e-3


@noisings
def test_bins_are_even_in_the_log_snr(name: str) -> None:
    levels = UniformLogSNR(NOISINGS[name], 1e-4)
    bins = levels.bins(5)
    assert len(bins) == 5
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bins))
    ends = torch.tensor([bins[0][0], *(b for _, b in bins)], dtype=torch.float64)
    assert ends[0].item() == pytest.approx(1e-4, rel=1e-9)
    assert ends[-1].item() == pytest.approx(levels.last, rel=1e-9)
    steps = levels.noising.log_snr(ends).diff()
    torch.testing.assert_close(steps, torch.full_like(steps, -levels.width / 5), rtol=1e-8, atol=0)


@every_kind
def test_mistakes(levels_of: type[NoiseLevels]) -> None:
    noising = NOISINGS["VP"]
    with pytest.raises(TypeError, match="noising must be of type Noising, got VariancePres"):
        levels_of(noising.clock)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="first must be a positive finite number, got 0"):
        levels_of(noising, 0.0)
    with pytest.raises(ValueError, match="first must be less than the clock's horizon 1, got 1"):
        levels_of(noising, 1.0)


def test_a_clock_that_leaves_no_signal() -> None:
    """At t = 1000 a factor e^-t has become 0."""
    noising = Noising(OrnsteinUhlenbeck(), IdentityClock(1000.0))
    with pytest.raises(ValueError, match="noising must leave some signal at the horizon 1000 of"):
        UniformLogSNR(noising)
    assert UniformTime(noising).last == 1000


def test_times_are_drawn_where_the_generator_is(generator: torch.Generator) -> None:
    other = torch.Generator().manual_seed(0)
    u = torch.rand((), generator=other, dtype=torch.float64)
    expected = (u + torch.arange(5, dtype=torch.float64) / 5) % 1
    assert torch.equal(low_discrepancy(5, generator), expected)
    third = torch.Generator().manual_seed(0)
    assert low_discrepancy(5, third, "meta").device.type == "meta"
    assert torch.equal(third.get_state(), other.get_state())


def test_arguments_of_levels() -> None:
    noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    levels = NormalLogSNR(noising, 1e-3, mean=0.5, deviation=2.0)
    assert levels.to_config() == {"noising": noising, "first": 1e-3, "mean": 0.5, "deviation": 2.0}
    again = NormalLogSNR(**levels.to_config())
    assert torch.equal(
        again.draw(9, torch.Generator().manual_seed(0)),
        levels.draw(9, torch.Generator().manual_seed(0)),
    )
    assert UniformTime(noising).to_config() == {"noising": noising, "first": 1e-5}


@noisings
@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_a_mixture_has_both_distributions(name: str, share: float) -> None:
    """The share of draws below a time is the integral of the density up to it."""
    one, other = UniformLogSNR(NOISINGS[name], 1e-3), UniformTime(NOISINGS[name], 1e-3)
    levels = MixedLevels(one, other, share)
    tau = levels.draw(4000, torch.Generator().manual_seed(0))
    assert bool(((tau >= levels.first) & (tau <= levels.last)).all())
    for place in one.at(torch.tensor([0.2, 0.5, 0.9])).tolist():
        below, _ = scipy.integrate.quad(
            lambda s: math.exp(s) * float(levels.density(torch.tensor(math.exp(s)).double())),
            math.log(levels.first), math.log(place), epsrel=1e-9,
        )  # fmt: skip
        assert float((tau < place).double().mean()) == pytest.approx(below, abs=1e-3)


def test_parts_of_a_mixture_have_low_discrepancy() -> None:
    """With a share of 0.3, one in each 19th or so of one part, in each 45th of the other."""
    one = UniformLogSNR(NOISINGS["VP"])
    u = low_discrepancy(64, torch.Generator().manual_seed(3))
    tau = MixedLevels(one, one, 0.3).at(u)
    for chosen, share in ((u < 0.3, 0.3), (u >= 0.3, 0.7)):
        log_snr = one.noising.log_snr(tau[chosen]).sort().values
        gaps = log_snr.diff() / one.width
        torch.testing.assert_close(gaps, torch.full_like(gaps, 1 / (64 * share)), rtol=1e-6, atol=0)
        ends = (log_snr[0] - one.lowest) + (one.highest - log_snr[-1])
        assert float(ends) < 2 * one.width / (64 * share)


def test_arguments_of_a_mixture() -> None:
    noising = NOISINGS["VP"]
    one, other = UniformLogSNR(noising, 1e-4), NormalLogSNR(noising, 1e-4, mean=-1.0)
    levels = MixedLevels(one, other, 0.3)
    again = MixedLevels(**levels.to_config())
    first, second = (part.draw(9, torch.Generator().manual_seed(0)) for part in (levels, again))
    assert torch.equal(first, second)
    assert json.loads(json.dumps(levels.settings())) == {
        "one": {"levels": "UniformLogSNR", "first": 1e-4},
        "other": {"levels": "NormalLogSNR", "first": 1e-4, "mean": -1.0, "deviation": 1.2},
        "share": 0.3,
    }
    with pytest.raises(ValueError, match="other must have the same noising and first time as one"):
        MixedLevels(one, UniformTime(noising, 1e-3))
    with pytest.raises(ValueError, match="share must be between 0 and 1, got 1"):
        MixedLevels(one, other, 1)
    with pytest.raises(TypeError, match="other must be of type NoiseLevels, got float"):
        MixedLevels(one, 0.5)  # type: ignore[arg-type]
