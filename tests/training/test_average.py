"""The average of weights, and the settings of a run."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from oism.training import CHANGEABLE, TrainingConfig
from oism.training._average import Average


def module() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3, 2))
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


@given(decay=st.sampled_from([0.0, 0.5, 0.9, 0.9999]), steps=st.integers(0, 30))
def test_the_formula(decay: float, steps: int) -> None:
    net = nn.Linear(2, 1)
    average = Average(net, decay)
    expected = net.weight.detach().double().clone()
    for k in range(1, steps + 1):
        with torch.no_grad():
            net.weight.add_(k**0.5)
        average.update(k)
        d = min(decay, (1 + k) / (10 + k))
        expected = d * expected + (1 - d) * net.weight.detach().double()
    torch.testing.assert_close(average.state()["weight"].double(), expected, rtol=1e-5, atol=1e-6)


def test_it_is_applied_for_a_while() -> None:
    net = module()
    average = Average(net, 0.5)
    with torch.no_grad():
        for part in net.parameters():
            part.add_(1)
    trained = [part.detach().clone() for part in net.parameters()]
    with average.applied():
        for part, value in zip(net.parameters(), average.values, strict=True):
            assert torch.equal(part, value)
        with average.applied():  # as when something within asks for it as well
            pass
        assert torch.equal(next(net.parameters()), average.values[0])
    for part, value in zip(net.parameters(), trained, strict=True):
        assert torch.equal(part, value)

    def fail() -> None:
        with average.applied():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    for part, value in zip(net.parameters(), trained, strict=True):
        assert torch.equal(part, value)


def test_it_is_a_copy_in_the_layout_of_the_weights() -> None:
    net = module()
    average = Average(net)
    kept = [value.clone() for value in average.values]
    for part, value in zip(net.parameters(), average.values, strict=True):
        assert part.stride() == value.stride()
        assert not value.requires_grad
    with torch.no_grad():
        for part in net.parameters():
            part.zero_()
    for one, other in zip(average.values, kept, strict=True):
        assert torch.equal(one, other)


def test_it_can_be_taken_over() -> None:
    first, second = Average(module(), 0.5), Average(module(), 0.5)
    second.load({name: value + 1 for name, value in first.state().items()})
    for one, other in zip(first.values, second.values, strict=True):
        assert torch.equal(one + 1, other)
    assert list(first.state()) == [name for name, _ in module().named_parameters()]


@pytest.mark.parametrize("decay", [1.0, -0.1, 2])
def test_bad_decays(decay: float) -> None:
    for make in (lambda: Average(module(), decay), lambda: TrainingConfig(decay=decay)):
        with pytest.raises(ValueError, match=re.escape(f"decay must be in [0, 1), got {decay}")):
            make()


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no steps": ({"steps": 0}, ValueError, "steps must be an integer >= 1, got 0"),
    "half a batch": ({"batch": 0.5}, TypeError, "batch must be an integer >= 1, got float 0.5"),
    "keep none": ({"keep": 0}, ValueError, "keep must be an integer >= 1, got 0"),
    "no log": ({"log_every": 0}, ValueError, "log_every must be an integer >= 1, got 0"),
    "a negative seed": ({"seed": -1}, ValueError, "seed must be an integer >= 0, got -1"),
    "no rate": ({"rate": 0.0}, ValueError, "rate must be a positive finite number, got 0.0"),
    "no end": ({"clip": float("inf")}, ValueError, "clip must be a positive finite number"),
    "precision": (
        {"precision": "fp16"},
        ValueError,
        "precision must be 'no' or 'bf16', got 'fp16'",
    ),
    "flip": ({"flip": "yes"}, TypeError, "flip must be of type bool, got str"),
    "compile": ({"compile": 1}, TypeError, "compile must be of type bool, got int"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings(case: str) -> None:
    arguments, error, message = BAD[case]
    with pytest.raises(error, match=re.escape(message)):
        TrainingConfig(**arguments)


def test_the_rate_rises_and_stays() -> None:
    settings = TrainingConfig(rate=0.1, warmup=4)
    rates = [settings.rate_at(k) for k in range(6)]
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    assert TrainingConfig(rate=0.1, warmup=0).rate_at(0) == 0.1


def test_settings_are_fixed_or_changeable() -> None:
    settings = TrainingConfig()
    assert set(settings.fixed()) | set(CHANGEABLE) == set(vars(settings))
    assert not set(settings.fixed()) & set(CHANGEABLE)
    assert {"seed", "batch", "rate", "flip", "precision"} <= set(settings.fixed())
