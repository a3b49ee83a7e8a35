from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oism import Brownian, Logarithmic, OrnsteinUhlenbeck, VarianceExploding, VariancePreserving
from oism.process import Clock, IdentityClock, Noising

CLOCKS: list[Clock] = [
    VariancePreserving(),
    VariancePreserving(beta_0=3.0, beta_1=3.0),
    VariancePreserving(beta_0=4.0, beta_1=0.5),
    VarianceExploding(),
    VarianceExploding(sigma_min=0.002, sigma_max=80.0),
    IdentityClock(),
    IdentityClock(horizon=7.0),
    Logarithmic(),
    Logarithmic(first=0.01, last=2.0),
]
clocks = pytest.mark.parametrize("clock", CLOCKS, ids=repr)


@clocks
def test_inverse_undoes_time(clock: Clock) -> None:
    tau = torch.linspace(0, clock.horizon, 1001, dtype=torch.float64)
    torch.testing.assert_close(clock.inverse(clock.time(tau)), tau, rtol=0, atol=1e-14 * 7)
    t = clock.time(tau)
    torch.testing.assert_close(clock.time(clock.inverse(t)), t, rtol=1e-12, atol=0)


@clocks
def test_rate_is_the_derivative(clock: Clock) -> None:
    tau, h = torch.linspace(0.01, clock.horizon - 0.01, 50, dtype=torch.float64), 1e-4
    # five-point stencil: error O(h⁴)
    steps = [clock.time(tau + k * h) for k in (-2, -1, 1, 2)]
    finite = (steps[0] - 8 * steps[1] + 8 * steps[2] - steps[3]) / (12 * h)
    torch.testing.assert_close(clock.rate(tau), finite, rtol=1e-9, atol=1e-9)


@clocks
@given(fraction=st.floats(0, 1, width=32))
def test_float32_round_trip(clock: Clock, fraction: float) -> None:
    tau = torch.tensor(fraction * clock.horizon, dtype=torch.float32)
    t = clock.time(tau)
    assert t.dtype == torch.float32
    torch.testing.assert_close(clock.inverse(t), tau, rtol=1e-4, atol=2e-6)


@clocks
def test_the_ends_are_accepted_in_any_rounding(clock: Clock) -> None:
    for dtype in (torch.float16, torch.float32, torch.float64):
        tau = torch.tensor([0.0, clock.horizon], dtype=dtype)
        back = clock.inverse(clock.time(tau))
        assert back.dtype == dtype
        assert bool(((back >= 0) & (back <= clock.horizon)).all())
        clock.time(back)
    # rounded to float32 and converted back
    ends = torch.tensor([0.0, clock.horizon], dtype=torch.float64)
    coarse = clock.time(ends).float().double()
    torch.testing.assert_close(clock.inverse(coarse), ends, rtol=0, atol=1e-5)
    assert torch.equal(clock.inverse(coarse * (1 + 1e-7))[1], ends[1])
    assert float(VariancePreserving().inverse(5.025)) == pytest.approx(1, abs=1e-15)


def test_low_precision_arguments_are_converted_exactly() -> None:
    clock, tau = VarianceExploding(), torch.tensor(1.0, dtype=torch.bfloat16)
    assert clock.time(tau) == torch.tensor(1250.0, dtype=torch.bfloat16)
    noising = Noising(Brownian(), clock)
    tau32 = torch.tensor(0.7)
    assert noising.sigma(tau32) == noising.sigma(float(tau32)).float()
    assert noising.alpha(tau).dtype == torch.bfloat16


def test_values_of_the_paper() -> None:
    ve = Noising(Brownian(), VarianceExploding(sigma_min=0.01, sigma_max=50.0))
    for tau in (0.0, 0.3, 1.0):
        sigma = 0.01 * 5000**tau
        assert float(ve.sigma(tau)) == pytest.approx(sigma, rel=1e-14)
        assert float(ve.clock.time(tau)) == pytest.approx(0.5 * sigma**2, rel=1e-14)
        # dX = σ_min (σ_max/σ_min)^τ √(2 log(σ_max/σ_min)) dW
        noise = math.sqrt(2 * float(ve.diffusivity(tau)))
        assert noise == pytest.approx(sigma * math.sqrt(2 * math.log(5000)), rel=1e-14)
    vp = Noising(OrnsteinUhlenbeck(), VariancePreserving(beta_0=0.1, beta_1=20.0))
    assert float(vp.clock.time(1.0)) == pytest.approx(5.025, rel=1e-15)
    x = torch.tensor([[2.0]], dtype=torch.float64)
    for tau in (0.0, 0.3, 1.0):
        beta = 0.1 + 19.9 * tau
        alpha = math.exp(-0.5 * (0.1 * tau + 19.9 * tau**2 / 2))  # e^{-½∫β}
        assert float(vp.alpha(tau)) == pytest.approx(alpha, rel=1e-14)
        assert float(vp.sigma(tau)) == pytest.approx(math.sqrt(1 - alpha**2), rel=1e-12)
        # dX = -½β_τ X dτ + √β_τ dW
        assert float(vp.drift(x, tau)) == pytest.approx(-0.5 * beta * 2.0, rel=1e-14)
        assert 2 * float(vp.diffusivity(tau)) == pytest.approx(beta, rel=1e-14)


def test_log_snr_decreases_and_agrees_with_alpha_and_sigma() -> None:
    noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    tau = torch.linspace(1e-5, 1, 100, dtype=torch.float64)
    snr = noising.log_snr(tau)
    assert (snr.diff() < 0).all()
    torch.testing.assert_close(snr, 2 * (noising.alpha(tau) / noising.sigma(tau)).log())


def test_one_time_per_row() -> None:
    noising = Noising(OrnsteinUhlenbeck(), VariancePreserving())
    x, tau = torch.ones(3, 2, 2), torch.tensor([0.1, 0.5, 1.0])
    rows = [noising.drift(x[i : i + 1], float(tau[i])) for i in range(3)]
    torch.testing.assert_close(noising.drift(x, tau), torch.cat(rows))
    with pytest.raises(ValueError, match="tau must be one number or one per row"):
        noising.drift(x, tau[:2])


@clocks
@pytest.mark.parametrize("beyond", [-1e-9, 1e-9, math.nan])
def test_tau_outside_the_clock_is_rejected(clock: Clock, beyond: float) -> None:
    tau = beyond if beyond < 0 else clock.horizon + beyond
    for method in (clock.time, clock.rate):
        with pytest.raises(ValueError, match="tau must be"):
            method(tau)


@clocks
def test_time_outside_the_clock_is_rejected(clock: Clock) -> None:
    for t in (float(clock.time(clock.horizon)) * 1.001, float(clock.time(0.0)) - 1e-6):
        with pytest.raises(ValueError, match=r"t must be in \["):
            clock.inverse(t)


def test_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="beta_0 must be a positive"):
        VariancePreserving(beta_0=0.0)
    with pytest.raises(ValueError, match="beta_1 must be a positive"):
        VariancePreserving(beta_1=-1.0)
    with pytest.raises(ValueError, match=r"sigma_max must exceed sigma_min = 2.0, got 1.0"):
        VarianceExploding(sigma_min=2.0, sigma_max=1.0)
    with pytest.raises(ValueError, match="horizon must be a positive"):
        IdentityClock(horizon=math.inf)
    with pytest.raises(ValueError, match=r"sigma_min² must be a positive finite number, got 0.0"):
        VarianceExploding(sigma_min=1e-200)
    with pytest.raises(ValueError, match=r"sigma_max² must be a positive finite number, got inf"):
        VarianceExploding(sigma_max=1e200)
    with pytest.raises(TypeError, match="process must be of type Isotropic, got NoneType"):
        Noising(None, IdentityClock())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="clock must be of type Clock, got Brownian"):
        Noising(Brownian(), Brownian())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"x must be a torch.Tensor, got list"):
        Noising(Brownian(), IdentityClock()).drift([[1.0]], 0.5)  # type: ignore[arg-type]


@clocks
def test_clocks_compile_without_a_graph_break(clock: Clock) -> None:
    torch.compiler.reset()
    tau = torch.linspace(0, clock.horizon, 5)
    for method, at in ((clock.time, tau), (clock.rate, tau), (clock.inverse, clock.time(tau))):
        compiled = torch.compile(method, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(at), method(at))


def test_a_clock_must_define_its_three_maps() -> None:
    class Half(Clock):
        def _time(self, tau: torch.Tensor) -> torch.Tensor:
            return tau / 2

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]


NOISINGS = [
    Noising(OrnsteinUhlenbeck(), VariancePreserving()),
    Noising(OrnsteinUhlenbeck(theta=0.7, sigma=0.5), IdentityClock(30.0)),
    Noising(OrnsteinUhlenbeck(2.0, 3.0), VariancePreserving(beta_0=4.0, beta_1=0.5)),
    Noising(Brownian(), VarianceExploding()),
    Noising(Brownian(), IdentityClock(5.0)),
    Noising(OrnsteinUhlenbeck(), Logarithmic()),
]


@pytest.mark.parametrize("noising", NOISINGS, ids=repr)
def test_tau_of_log_snr_inverts_log_snr(noising: Noising) -> None:
    horizon = noising.clock.horizon
    tau = torch.cat((torch.logspace(-9, 0, 200, dtype=torch.float64), torch.tensor([1 - 1e-9])))
    tau = horizon * tau
    log_snr = noising.log_snr(tau)
    torch.testing.assert_close(noising.tau_of_log_snr(log_snr), tau, rtol=1e-9, atol=1e-15)
    # The rounding of ℓ to float32.
    coarse = noising.tau_of_log_snr(log_snr.float())
    assert coarse.dtype == torch.float32
    torch.testing.assert_close(coarse.double(), tau, rtol=1e-4, atol=1e-5 * horizon)
    one = noising.tau_of_log_snr(float(log_snr[100]))
    assert one.shape == ()
    assert float(one) == pytest.approx(float(tau[100]), rel=1e-9)


@pytest.mark.parametrize("noising", NOISINGS, ids=repr)
def test_the_range_of_the_log_snr_is_that_of_its_ends(noising: Noising) -> None:
    horizon = noising.clock.horizon
    first = 0.01 * horizon
    found = noising.log_snr_range(first)
    assert found == (float(noising.log_snr(first)), float(noising.log_snr(horizon)))
    assert found[0] > found[1]
    for tau in (0.0, horizon):
        with pytest.raises(ValueError, match="first must be"):
            noising.log_snr_range(tau)


@pytest.mark.parametrize("noising", NOISINGS, ids=repr)
def test_a_log_snr_beyond_the_clock_gives_one_of_its_ends(noising: Noising) -> None:
    beyond = torch.tensor([math.inf, 1e300, 800.0, -800.0, -1e300, -math.inf], dtype=torch.float64)
    found = noising.tau_of_log_snr(beyond)
    horizon = noising.clock.horizon
    assert bool((found[:3] <= 1e-12 * horizon).all())
    assert found[3:].tolist() == pytest.approx([horizon] * 3, rel=1e-12)


@given(log_snr=st.floats(-600, 600), theta=st.floats(0.1, 5), sigma=st.floats(0.1, 5))
def test_the_time_of_any_log_snr_is_accurate(log_snr: float, theta: float, sigma: float) -> None:
    process = OrnsteinUhlenbeck(theta, sigma)
    with localcontext(prec=320):
        signal = Decimal(-log_snr).exp() / Decimal(process.stationary_variance)
        expected = float((1 + signal).ln() / (2 * Decimal(theta)))
    found = float(process._time_of_log_snr(torch.tensor(log_snr, dtype=torch.float64)))
    # ℓ near 600 has a rounding error of 1e-13.
    assert found == pytest.approx(expected, rel=1e-12)


def test_invalid_log_snr_are_rejected() -> None:
    for value in (True, "high"):
        with pytest.raises(TypeError, match="log_snr must be a finite number, got"):
            NOISINGS[0].tau_of_log_snr(value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="log_snr must have a floating-point dtype"):
        NOISINGS[0].tau_of_log_snr(torch.tensor([1, 2]))
