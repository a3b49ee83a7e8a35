"""Integers from integers: the reference sequence, and seeds that differ."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oism._core.hashing import GOLDEN, WORD, seed_from, splitmix64


def test_splitmix64_agrees_with_the_reference_implementation() -> None:
    """The first numbers of the reference implementation in C (Vigna) for the seed 1234567."""
    found, state = [], 1234567
    for _ in range(5):
        found.append(splitmix64(state))
        state = (state + GOLDEN) % WORD
    assert found == [
        6457827717110365317, 3203168211198807973, 9817491932198370423,
        4593380528125082431, 16408922859458223821,
    ]  # fmt: skip


@given(numbers=st.lists(st.integers(0, 2**40), min_size=1, max_size=4))
def test_seeds_are_valid_and_depend_on_all_numbers(numbers: list[int]) -> None:
    seed = seed_from(*numbers)
    assert 0 <= seed < 2**63
    assert seed == seed_from(*numbers)
    for place in range(len(numbers)):
        other = [*numbers]
        other[place] += 1
        assert seed_from(*other) != seed, "the seed depends on every number"
    if numbers != numbers[::-1]:
        assert seed_from(*reversed(numbers)) != seed, "the seed depends on the order"


def test_seeds_differ() -> None:
    assert len({seed_from(i, j) for i in range(100) for j in range(100)}) == 10_000
