"""Random tensors for any device from a generator of any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from oism._core import draws
from oism.flow import Pixels
from oism.process import OrnsteinUhlenbeck, Process, Sphere, ThreeSphere, Torus
from tests.elsewhere import PLACE, SimulatedDevice

ELSEWHERE = torch.device("meta")
"""A device without numbers: a draw that torch refuses for want of a generator is refused here."""


def source() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("draw", [draws.normal_like, draws.uniform_like])
def test_draws_come_from_the_generator_and_go_to_the_device_of_the_tensor(
    draw: Callable[[Tensor, torch.Generator], Tensor],
) -> None:
    used, other = source(), source()
    found = draw(torch.empty(5, 3, dtype=torch.float64, device=ELSEWHERE), used)
    here = draw(torch.empty(5, 3, dtype=torch.float64), other)
    assert found.device == ELSEWHERE
    assert found.shape == here.shape
    assert found.dtype == here.dtype == torch.float64
    # The same numbers were taken from the generator for a tensor on any device.
    assert torch.equal(used.get_state(), other.get_state())
    assert not torch.equal(used.get_state(), source().get_state())


def test_draws_on_the_cpu_are_those_of_torch() -> None:
    x = torch.empty(40, 7, dtype=torch.float64)
    assert torch.equal(
        draws.normal_like(x, source()), torch.randn(40, 7, dtype=x.dtype, generator=source())
    )
    assert torch.equal(
        draws.uniform_like(x, source()), torch.rand(40, 7, dtype=x.dtype, generator=source())
    )


def test_places_are_drawn_in_proportion_to_weights() -> None:
    weights = torch.tensor([1.0, 0.0, 3.0])
    drawn = draws.multinomial(weights, 20_000, source())
    share = torch.bincount(drawn, minlength=3) / len(drawn)
    assert share[1] == 0
    assert abs(float(share[0]) - 0.25) < 0.02
    used = source()
    assert draws.multinomial(weights, 0, used).shape == (0,)
    assert torch.equal(used.get_state(), source().get_state())
    assert draws.multinomial(weights.to(ELSEWHERE), 4, None).device == ELSEWHERE


def test_a_seed_is_restored_and_leaves_other_devices_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    before = torch.get_rng_state()
    with draws.seeded(5):
        found = torch.rand(4)
    assert torch.equal(found, torch.rand(4, generator=torch.Generator().manual_seed(5)))
    assert torch.equal(torch.get_rng_state(), before)
    assert seeds == []


def test_the_generator_of_the_device_in_use_is_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    second, seen = torch.device("cuda", 1), list[object]()

    @contextmanager
    def noted(*args: object, **kwargs: object) -> Iterator[None]:
        seen.extend((*args, *kwargs.values()))
        yield

    monkeypatch.setattr(torch.random, "fork_rng", noted)
    monkeypatch.setattr(torch.cuda, "device", noted)
    monkeypatch.setattr(torch.cuda, "manual_seed", seen.append)
    state = torch.get_rng_state()
    with draws.seeded(5, second):
        pass
    torch.set_rng_state(state)
    assert seen == [[second], second, 5]


def test_other_draws_are_those_of_torch() -> None:
    chances = torch.tensor([[1.0, 2.0, 0.5], [0.0, 1.0, 1.0], [3.0, 0.0, 0.0]])
    shape = torch.tensor([0.5, 2.0, 7.0], dtype=torch.float64)
    assert torch.equal(
        draws.categorical(chances, source()),
        torch.multinomial(chances, 1, generator=source())[:, 0],
    )
    assert draws.categorical(chances[:0], source()).shape == (0,)
    assert torch.equal(
        draws.gamma(shape, source()), torch._standard_gamma(shape, generator=source())
    )
    assert torch.equal(draws.permutation(9, source()), torch.randperm(9, generator=source()))
    with SimulatedDevice():
        for draw, parameter in ((draws.categorical, chances), (draws.gamma, shape)):
            found = draw(parameter.to(PLACE), source())
            assert found.device == PLACE
            assert torch.equal(found.cpu(), draw(parameter, source()))


@pytest.mark.parametrize(
    ("process", "dim"),
    [(OrnsteinUhlenbeck(), 2), (Torus(), 2), (Sphere(), 3), (ThreeSphere(), 4)],
)
def test_invariant_measures_and_noise_accept_a_generator_of_the_cpu(
    process: Process, dim: int
) -> None:
    found = process.invariant.sample((4, dim), generator=source(), device=ELSEWHERE)
    assert found.device == ELSEWHERE
    if process.has_constant_noise:
        assert process._sample_noise(found, source()).device == ELSEWHERE


def test_dequantisation_accepts_a_generator_of_the_cpu() -> None:
    x = torch.empty(2, 1, 4, 4, device=ELSEWHERE)
    assert Pixels(0, 16).dequantised(x, source()).device == ELSEWHERE
