"""Rounded sums of blocks: the same bits in any order and over any accumulators."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oism import Fourier
from oism._core.transforms import threads_apart
from oism.estimation import FourierMoments

BLOCKS = 12


def rows(seed: int, n: int = 60) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BLOCKS, n, 2, generator=generator, dtype=torch.float64)


def moments(*, rounded: bool = True, total: float = 60.0 * BLOCKS) -> FourierMoments:
    found = FourierMoments(Fourier.lattice(2, 9), 3, squares=True)
    if rounded:
        found.round_blocks(total)
    return found


@given(st.integers(0, 1000), st.permutations(range(BLOCKS)), st.integers(0, BLOCKS))
def test_neither_order_nor_accumulators_matter(seed: int, order: list[int], cut: int) -> None:
    blocks = rows(seed)
    weights = torch.rand(60, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    one, first, last = moments(), moments(), moments()
    for block in blocks:
        one.update(block, weights)
    with threads_apart():
        for place, index in enumerate(order):
            (first if place < cut else last).update(blocks[index], weights)
    merged = last.merge(first)
    assert torch.equal(merged._sums, one._sums)
    assert torch.equal(merged.weight, one.weight)


def test_sums_that_are_not_rounded_depend_on_the_order() -> None:
    blocks = rows(0)
    forth, back = moments(rounded=False), moments(rounded=False)
    for block in blocks:
        forth.update(block)
    for block in blocks.flip(0):
        back.update(block)
    assert not torch.equal(forth._sums, back._sums)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_rounding_changes_averages_by_less_than_an_ulp_per_block(scale: float) -> None:
    blocks = rows(1)
    weights = torch.full((60,), scale, dtype=torch.float64)
    exact, rounded = moments(rounded=False), moments(total=scale * 60 * BLOCKS)
    for block in blocks:
        exact.update(block, weights)
        rounded.update(block, weights)
    gap = (exact.averages().total - rounded.averages().total).abs().max()
    assert 0 < float(gap) < 4 * BLOCKS * 2**-52
