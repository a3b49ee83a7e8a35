"""The tensors of a model: which specifications there are, and which data are pixels."""

from __future__ import annotations

import math

import pytest
import torch

from oism import VarianceExploding, VariancePreserving, fit_mixture, fit_prior
from oism.flow import Pixels, TensorSpec
from oism.images import image_statistics, prior_from_statistics
from oism.process import Clock, IdentityClock, Logarithmic

CLOCK = VariancePreserving()


def test_a_spec_states_its_tensors() -> None:
    spec = TensorSpec([3, 4, 5], CLOCK, Pixels(0, 9), dequantised=True)  # type: ignore[arg-type]
    assert (spec.shape, spec.dim, spec.clock) == ((3, 4, 5), 60, CLOCK)
    assert spec == TensorSpec((3, 4, 5), CLOCK, Pixels(0, 9), dequantised=True)
    assert TensorSpec((2,), CLOCK).pixels is None


def test_a_spec_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"shape\[1\] must be an integer >= 1, got 0"):
        TensorSpec((2, 0), CLOCK)
    with pytest.raises(ValueError, match="shape must have at least one axis"):
        TensorSpec((), CLOCK)
    with pytest.raises(TypeError, match="clock must be of type Clock, got float"):
        TensorSpec((2,), 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pixels must be of type Pixels, got int"):
        TensorSpec((2,), CLOCK, 255)  # type: ignore[arg-type]


@pytest.mark.parametrize("clock", [VarianceExploding(), IdentityClock(21.0)], ids=repr)
def test_a_clock_that_leaves_no_signal_is_refused_before_the_work(clock: Clock) -> None:
    """At t = 1250 the Ornstein-Uhlenbeck process has forgotten its start."""
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    last = float(clock.time(clock.horizon))
    message = rf"clock must end at a time t of at most 20: .* e\^-{last:g} .*VariancePreserving\(\)"
    read = []

    class Data(list[torch.Tensor]):
        def __iter__(self) -> object:  # type: ignore[override]
            read.append(True)
            return super().__iter__()

    for fit in (fit_prior, fit_mixture):
        with pytest.raises(ValueError, match=message):
            fit(Data([x]), clock=clock)
    assert not read, "before any row was read"
    with pytest.raises(ValueError, match=message):
        prior_from_statistics(image_statistics(x, order=2), clock=clock)
    with pytest.raises(ValueError, match=message):
        TensorSpec((2,), clock)


def test_a_clock_of_brownian_motion_is_refused() -> None:
    """Its times would be those of another process, the Ornstein-Uhlenbeck process."""
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"clock must be one of noise that preserves variance"):
        fit_prior(x, order=2, clock=VarianceExploding(0.01, 3.0))


@pytest.mark.parametrize("clock", [CLOCK, IdentityClock(20.0), Logarithmic(1e-3, 12.0)])
def test_clocks_that_leave_some_signal(clock: Clock) -> None:
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    prior = fit_prior(x, order=3, clock=clock)
    assert math.isfinite(float(prior.noise(x, clock.horizon).sum()))


def test_which_data_are_pixels() -> None:
    own = Pixels(0, 16)
    assert Pixels.of(torch.zeros(2, dtype=torch.uint8), None) == Pixels(0, 255)
    assert Pixels.of(torch.zeros(2), None) is None
    for dtype in (torch.uint8, torch.int64, torch.float32):
        assert Pixels.of(torch.zeros(2, dtype=dtype), own) is own
    with pytest.raises(TypeError, match=r"other than bytes, got torch\.int64: Pixels\(low, high\)"):
        Pixels.of(torch.zeros(2, dtype=torch.int64), None)
