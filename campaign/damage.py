"""Damage to the bytes of a file, as disks, transfers and mistakes do it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Damage = Callable[[bytes, bytes, np.random.Generator], bytes]
"""Returns the content of a file after damage; the second content is that of another file."""


def _place(content: bytes, rng: np.random.Generator, longest: int = 64) -> tuple[int, int]:
    """Return beginning and end of a part of the content, half of the time near its beginning."""
    near = min(len(content), 200) if rng.random() < 0.5 else len(content)
    start = int(rng.integers(near))
    return start, min(len(content), start + int(rng.integers(1, longest + 1)))


def _cut(content: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    return content[: int(rng.integers(1, len(content)))]


def _flipped(content: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    changed, (start, _end) = bytearray(content), _place(content, rng)
    changed[start] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _overwritten(content: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    start, end = _place(content, rng)
    return content[:start] + rng.bytes(end - start) + content[end:]


def _zeroed(content: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    start, end = _place(content, rng, 512)
    return content[:start] + bytes(end - start) + content[end:]


def _swapped(content: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    size = int(rng.integers(1, max(2, min(256, len(content) // 2))))
    first = int(rng.integers(len(content) - 2 * size + 1))
    second = int(rng.integers(first + size, len(content) - size + 1))
    parts = content[first : first + size], content[second : second + size]
    between = content[first + size : second]
    return content[:first] + parts[1] + between + parts[0] + content[second + size :]


def _removed(content: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    start, end = _place(content, rng)
    return content[:start] + content[end:]


def _inserted(content: bytes, _: bytes, rng: np.random.Generator) -> bytes:
    start, end = _place(content, rng)
    return content[:start] + rng.bytes(end - start) + content[start:]


def _extended(content: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    more = (rng.bytes(int(rng.integers(1, 100))), bytes(100), content, other, b"\n")
    return content + more[rng.integers(len(more))]


def _emptied(_content: bytes, _: bytes, _rng: np.random.Generator) -> bytes:
    return b""


def _replaced(_content: bytes, other: bytes, _rng: np.random.Generator) -> bytes:
    return other


WAYS: dict[str, Damage] = {
    "cut": _cut,
    "bit flipped": _flipped,
    "overwritten": _overwritten,
    "zeroed": _zeroed,
    "blocks swapped": _swapped,
    "block removed": _removed,
    "bytes inserted": _inserted,
    "extended": _extended,
    "emptied": _emptied,
    "of another kind": _replaced,
}
SHARES = (0.15, 0.2, 0.12, 0.1, 0.1, 0.1, 0.08, 0.09, 0.02, 0.04)
