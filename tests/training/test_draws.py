"""What a step sees follows from the seed and its number, whoever asks."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from oism import OrnsteinUhlenbeck, VariancePreserving
from oism._core.hashing import seed_from
from oism.flow import Pixels
from oism.objectives import UniformLogSNR
from oism.process import Noising
from oism.training import Rows
from oism.training._draws import Batch, Draws

LEVELS = UniformLogSNR(Noising(OrnsteinUhlenbeck(), VariancePreserving()))


def numbered(n: int, shape: tuple[int, ...] = (3,)) -> Tensor:
    """Return rows that say which they are, in every entry."""
    return torch.arange(n, dtype=torch.float32).reshape(n, *[1] * len(shape)).expand(n, *shape)


def draws(n: int = 20, size: int = 6, **changes: Any) -> Draws:
    arguments: dict[str, Any] = {"seed": 0, "flip": False, **changes}
    return Draws(Rows(numbered(n)), LEVELS, size=size, **arguments)


def same(one: Batch, other: Batch) -> bool:
    if one.labels is None or other.labels is None:
        labels = one.labels is other.labels
    else:
        labels = torch.equal(one.labels, other.labels)
    return labels and all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in ("x", "tau", "noise")
    )


@given(
    n=st.integers(8, 60),
    world=st.integers(1, 4),
    each=st.integers(1, 5),
    k=st.integers(0, 40),
    flip=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_several_processes_see_the_parts_of_one_batch(
    n: int, world: int, each: int, k: int, flip: bool, seed: int
) -> None:
    size = min(world * each, n // world * world)
    labels = torch.arange(n) % 3
    rows = Rows(torch.randint(0, 256, (n, 2, 3), dtype=torch.uint8), labels=labels)
    common: dict[str, Any] = {"size": size, "seed": seed, "flip": flip, "dropped": 0.3}
    whole = Draws(rows, LEVELS, **common).step(k)
    parts = [Draws(rows, LEVELS, **common, rank=r, world=world).step(k) for r in range(world)]
    assert all(len(part.x) == size // world for part in parts)
    joined = Batch(*(torch.cat([getattr(p, name) for p in parts]) for name in vars(whole)))
    assert same(joined, whole)


@given(n=st.integers(1, 40), size=st.integers(1, 40), epochs=st.integers(1, 4))
def test_every_row_comes_once_in_an_epoch(n: int, size: int, epochs: int) -> None:
    size = min(n, size)
    source = draws(n, size)
    steps = -(-n * epochs // size)
    seen = torch.cat([source.step(k).x[:, 0] for k in range(steps)]).long()
    for epoch in seen[: n * epochs].split(n):  # type: ignore[no-untyped-call]
        assert epoch.sort().values.tolist() == list(range(n))
    if n > 12 and epochs > 1:
        assert not torch.equal(seen[:n], seen[n : 2 * n]), "in another order"


def test_a_step_does_not_depend_on_those_before_it() -> None:
    """A run that is resumed has not seen them; batches straddle epochs here."""
    one = draws()
    walked = [one.step(k) for k in range(12)]
    for k in (11, 3, 7, 3):
        assert same(draws().step(k), walked[k])
        assert same(one.step(k), walked[k])


def test_steps_and_seeds_differ() -> None:
    found = [draws(seed=seed).step(k) for seed, k in itertools.product((0, 1, 2**40), (0, 1, 2))]
    for one, other in itertools.combinations(found, 2):
        assert not torch.equal(one.noise, other.noise)
        assert not torch.equal(one.tau, other.tau)
    assert not torch.equal(draws(seed=0).step(0).x, draws(seed=1).step(0).x)


def test_seeds_have_nothing_in_common() -> None:
    """Neighbouring seeds, steps and roles share nothing: half of the bits change, none repeat."""
    numbers = [
        (seed, k, *role) for seed in range(8) for k in range(50) for role in ((), (0,), (1,))
    ]
    found = [seed_from(*one) for one in numbers]
    assert len(set(found)) == len(found)
    assert all(0 <= one < 2**63 for one in found)
    changed = [(a ^ b).bit_count() for a, b in itertools.pairwise(found)]
    assert np.mean(changed) == pytest.approx(31.5, abs=0.5)


def test_the_global_generator_is_not_asked_and_is_left_seeded() -> None:
    """Dropout draws from it: by the step alone, otherwise in every process."""
    torch.manual_seed(1)
    first, after = draws().step(5), torch.rand(3)
    torch.manual_seed(2)
    torch.rand(17)
    second, again = draws().step(5), torch.rand(3)
    assert same(first, second)
    assert torch.equal(after, again)
    draws(rank=1, world=2).step(5)
    assert not torch.equal(torch.rand(3), after)
    draws().step(6)
    assert not torch.equal(torch.rand(3), after)


def test_a_batch_for_evaluation_seeds_nothing() -> None:
    state = torch.get_rng_state()
    found = draws().batch(5)
    assert torch.equal(torch.get_rng_state(), state)
    assert same(found, draws().step(5))


def test_times_cover_the_range_evenly_in_every_batch() -> None:
    tau = draws(64, 64).step(0).tau
    place = (LEVELS.highest - LEVELS.noising.log_snr(tau)) / LEVELS.width
    assert (place.sort().values * 64).floor().tolist() == list(range(64))


def test_noise_is_normal() -> None:
    source = Draws(Rows(torch.zeros(64, 100)), LEVELS, size=64, seed=3, flip=False)
    noise = torch.cat([source.step(k).noise.flatten() for k in range(5)])
    assert stats.kstest(noise.numpy(), "norm").pvalue > 1e-3
    assert noise.dtype == torch.float32


def test_half_of_the_rows_are_mirrored() -> None:
    values = torch.tensor([[[0.0, 1.0, 2.0], [3.0, 4.0, 2.0]]]).repeat(400, 1, 1)
    source = Draws(Rows(values), LEVELS, size=400, seed=0, flip=True)
    x = source.step(0).x
    mirrored = x[:, 0, 0] == 2
    assert torch.equal(x[mirrored], values[mirrored].flip(2))
    assert torch.equal(x[~mirrored], values[~mirrored])
    assert 150 < int(mirrored.sum()) < 250
    assert not torch.equal(source.step(1).x, x), "anew in every step"
    plain = Draws(Rows(values), LEVELS, size=400, seed=0, flip=False)
    assert torch.equal(plain.step(0).x, values)


@pytest.mark.parametrize("pixels", [Pixels(), Pixels(0, 16), Pixels(-3, 4)])
def test_dequantised_rows_stay_within_their_step(pixels: Pixels) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(pixels.low, pixels.high + 1, (500, 7), generator=generator)
    source = Draws(Rows(values, pixels), LEVELS, size=500, seed=0, flip=False)
    where = source._indices(0)
    away = (source.step(0).x - pixels.units(values[where])) / pixels.step
    assert float(away.abs().max()) <= 0.5 + 1e-4
    assert stats.kstest(away.flatten().numpy(), stats.uniform(-0.5, 1).cdf).pvalue > 1e-3
    as_it_is = Draws(Rows(values, pixels, dequantise=False), LEVELS, size=500, seed=0, flip=False)
    assert torch.equal(as_it_is.step(0).x, pixels.units(values[where]))
    assert torch.equal(as_it_is.step(0).noise, source.step(0).noise), "a paired comparison"


def test_a_step_reads_the_rows_of_its_batch_alone() -> None:
    """Bytes stay bytes until they are taken, and only what is taken is turned into numbers."""
    rows = Rows(torch.zeros(10_000, 3, 18, 18, dtype=torch.uint8))
    assert rows.values.dtype == torch.uint8
    source = Draws(rows, LEVELS, size=16, seed=0, flip=True)
    source.step(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        source.step(1)
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in watched.key_averages())
    assert allocated < 16 * 3 * 18 * 18 * 4 * 20, "of 40 MB that all rows would take as float32"


def test_bad_sizes() -> None:
    with pytest.raises(ValueError, match="batch must be a multiple of the 4 processes, got 6"):
        draws(world=4)
    with pytest.raises(ValueError, match="batch must be at most the 20 rows of data, got 21"):
        draws(size=21)


def test_vectors_have_no_mirror_images() -> None:
    """Their entries would be exchanged."""
    with pytest.raises(ValueError, match=r"flip must be False for vectors, .* got True"):
        draws(flip=True)


@pytest.mark.parametrize("shape", [(8, 8, 1), (8, 5, 3), (32, 32, 4)])
def test_images_with_channels_last_have_no_mirror_images(shape: tuple[int, ...]) -> None:
    rows = torch.zeros(20, *shape)
    with pytest.raises(ValueError, match=r"images must be channels first, .*permute\(0, 3, 1, 2\)"):
        Draws(Rows(rows), LEVELS, size=6, seed=0, flip=True)
    Draws(Rows(rows), LEVELS, size=6, seed=0, flip=False)


@pytest.mark.parametrize("shape", [(1, 8, 3), (3, 8, 4), (4, 8, 3), (2, 8, 3), (8, 3), (5, 8, 8)])
def test_narrow_images_with_channels_first_are_mirrored(shape: tuple[int, ...]) -> None:
    rows = torch.arange(20.0 * math.prod(shape)).reshape(20, *shape)
    batch = Draws(Rows(rows), LEVELS, size=20, seed=0, flip=True).batch(0)
    known = {tuple(x.flatten().tolist()) for x in torch.cat((rows, rows.flip(-1)))}
    assert {tuple(x.flatten().tolist()) for x in batch.x} <= known
