"""The random subsample: the rows of the smallest keys, for any batches and any processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from oism._core.hashing import splitmix64
from oism.tables._reservoir import Reservoir, keys_of


def filled(positions: torch.Tensor, size: int = 20) -> Reservoir:
    x = torch.stack((positions.double(), -positions.double()), dim=1)
    return Reservoir(size, 2).update(x, 1 + positions % 3, positions)


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_keys_are_splitmix64(positions: list[int]) -> None:
    found = keys_of(torch.tensor(positions)).tolist()
    assert [key % 2**64 for key in found] == [splitmix64(one) for one in positions]


@given(st.integers(0, 200), st.integers(1, 30), st.randoms(use_true_random=False))
def test_it_has_the_rows_of_the_smallest_keys(n: int, size: int, source: object) -> None:
    """For any cut of the rows into batches, in any order, and over two reservoirs."""
    rng = np.random.default_rng(source.randint(0, 2**31))  # type: ignore[attr-defined]
    order = torch.from_numpy(rng.permutation(n))
    parts = torch.tensor_split(order, sorted(rng.integers(0, n + 1, 3).tolist()))
    one, other = Reservoir(size, 2), Reservoir(size, 2)
    for part in parts:
        target = one if rng.random() < 0.5 else other
        x = torch.stack((part.double(), -part.double()), dim=1)
        target.update(x, 1 + part % 3, part)
    merged = one.merge(other)

    def signed(position: int) -> int:
        key = splitmix64(position)
        return key - 2**64 if key >= 2**63 else key

    expected = sorted(range(n), key=signed)[:size]
    assert merged.positions().tolist() == expected
    assert merged.rows().tolist() == [[float(i), -float(i)] for i in expected]
    assert merged.weights().tolist() == [1.0 + i % 3 for i in expected]
    assert (merged.seen, len(merged)) == (n, min(n, size))


def test_every_row_is_as_likely() -> None:
    """Sorted rows: the positions that are drawn are uniform, and those of a half are not."""
    n, size = 200_000, 2000
    drawn = filled(torch.arange(n), size).positions().double() / n
    assert stats.kstest(drawn.numpy(), "uniform").pvalue > 0.01
    half = filled(torch.arange(n // 2 + n // 20), size).positions().double() / n
    assert stats.kstest(half.numpy(), "uniform").pvalue < 1e-6


def test_merging_leaves_the_parts_alone() -> None:
    one, other = filled(torch.arange(50)), filled(torch.arange(50, 90))
    before = one.positions().tolist()
    assert one.merge(other).positions().tolist() == filled(torch.arange(90)).positions().tolist()
    assert one.positions().tolist() == before


def test_reservoirs_of_other_sizes_do_not_merge() -> None:
    with pytest.raises(ValueError, match="size and the columns"):
        filled(torch.arange(5)).merge(filled(torch.arange(5), size=3))


@given(st.integers(0, 40), st.integers(0, 40))
def test_the_state_has_only_the_rows_that_are_held(first: int, second: int) -> None:
    """So a small table has a small pickle, whatever the largest number of rows."""
    found = filled(torch.arange(first)).merge(filled(torch.arange(first, first + second)))
    held = [len(part) for part in vars(found).values() if isinstance(part, torch.Tensor)]
    assert held == [len(found)] * 4
    assert len(found) == min(20, first + second)
