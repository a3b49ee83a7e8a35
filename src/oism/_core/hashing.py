"""Pseudorandom 64-bit integers computed from other integers by splitmix64 (Steele, 2014)."""

from __future__ import annotations

WORD = 1 << 64
GOLDEN = 0x9E3779B97F4A7C15
"""2⁶⁴ divided by the golden ratio, odd: the increment between successive states."""


def splitmix64(state: int) -> int:
    """Return the number in [0, 2⁶⁴) of a state; the next state is ``state + GOLDEN``.

    >>> hex(splitmix64(0))
    '0xe220a8397b1dcdaf'
    """
    z = (state + GOLDEN) % WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
    return z ^ z >> 31


def seed_from(*numbers: int) -> int:
    """Return a seed below 2⁶³ that depends on every number and on their order.

    >>> seed_from(0, 1) != seed_from(1, 0)
    True
    """
    state = 0
    for number in numbers:
        state = splitmix64(state ^ number)
    return state >> 1
