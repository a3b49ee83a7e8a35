"""A random subsample of at most m rows, batch by batch and mergeable.

The row at position i of the table has the key h(i), where h is the bijection splitmix64 of 64-bit
integers. The subsample has the m rows with the smallest keys. The keys of distinct positions are
distinct and pseudorandom, so every set of m rows is equally likely, also where rows are equal or
sorted. The m smallest keys of a union are among the m smallest of its parts: the subsample does
not depend on batches, on their order, or on the number of processes that read them. Weights do
not influence which rows are drawn; each row keeps its own.
"""

from __future__ import annotations

import copy
from typing import Self

import numpy as np
import torch
from torch import Tensor

from oism._core import checks
from oism._core.hashing import GOLDEN
from oism.estimation import across_processes

EMPTY = torch.iinfo(torch.int64).max
"""The key of a slot without a row: after all others."""


def keys_of(positions: Tensor) -> Tensor:
    """Return splitmix64 of positions ``(n,)``, int64, as the signed integers of the same bits.

    >>> from oism._core.hashing import splitmix64
    >>> int(keys_of(torch.tensor([7]))) % 2**64 == splitmix64(7)
    True
    """
    z = positions.numpy().view(np.uint64) + np.uint64(GOLDEN)  # modulo 2⁶⁴
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return torch.from_numpy((z ^ z >> np.uint64(31)).view(np.int64))


def uniforms_of(positions: Tensor, count: int) -> Tensor:
    """Return ``count`` pseudorandom numbers in [0, 1) for each position ``(n,)``: ``(n, count)``.

    They are those of the position alone, whatever the batch, and independent of its key: rows with
    small keys, which a `Reservoir` keeps, have numbers as all others do.

    >>> uniforms_of(torch.tensor([7, 8]), 2)
    tensor([[0.1559, 0.8744],
            [0.0240, 0.5570]], dtype=torch.float64)
    """
    keys = keys_of(positions)[:, None] + torch.arange(1, count + 1)  # hashed once more: no key
    return ((keys_of(keys.flatten()) >> 11) & (2**53 - 1)).double().reshape(keys.shape) / 2**53


class Reservoir:
    """At most ``size`` rows of ``dim`` columns, out of ``seen`` rows, in the order of their keys.

    >>> reservoir = Reservoir(3, dim=1)
    >>> x = torch.arange(100, dtype=torch.float64)[:, None]
    >>> reservoir.update(x, torch.ones(100), torch.arange(100)).rows().flatten()
    tensor([17., 15., 79.], dtype=torch.float64)
    """

    def __init__(self, size: int, dim: int) -> None:
        self.size = checks.integer(size, "size", minimum=1)
        self.seen = 0
        self._keys = torch.zeros(0, dtype=torch.int64)
        self._rows = torch.zeros(0, dim, dtype=torch.float64)
        self._weights = torch.zeros(0, dtype=torch.float64)
        self._positions = torch.zeros(0, dtype=torch.int64)

    def __len__(self) -> int:
        """Return the number of rows that are held."""
        return min(self.size, self.seen)

    def update(self, x: Tensor, weights: Tensor, positions: Tensor) -> Self:
        """Return self after rows ``(n, dim)`` with their weights and positions, ``(n,)``."""
        keys = keys_of(positions)
        self.seen += len(x)
        if len(self._keys) == self.size:
            chosen = keys < self._keys[-1]
            keys, x, weights, positions = (one[chosen] for one in (keys, x, weights, positions))
        if len(keys):
            self._keep(keys, x, weights, positions)
        return self

    def merge(self, other: Self) -> Self:
        """Return the subsample of the rows of both."""
        if (self.size, self._rows.shape[1]) != (other.size, other._rows.shape[1]):
            raise ValueError("other must have the size and the columns of this reservoir")
        result = copy.copy(self)
        result.seen += other.seen
        result._keep(other._keys, other._rows, other._weights, other._positions)
        return result

    def across_processes(self) -> Self:
        """Return the subsample of the rows of all processes."""
        # Processes exchange tensors of the same shape, so slots without a row are sent too.
        result = across_processes(self._resized(self.size))
        return result._resized(len(result))

    def rows(self) -> Tensor:
        """Return the rows ``(len, dim)``."""
        return self._rows

    def weights(self) -> Tensor:
        """Return their weights."""
        return self._weights

    def positions(self) -> Tensor:
        """Return their positions in the table."""
        return self._positions

    def _keep(self, keys: Tensor, x: Tensor, weights: Tensor, positions: Tensor) -> None:
        """Replace the rows by those of the smallest keys, of these rows and the ones before."""
        keys = torch.cat((self._keys, keys))
        # NumPy's sort of integers is several times as fast as torch's.
        best = torch.from_numpy(keys.numpy().argsort()[: self.size])
        self._keys = keys[best]
        self._rows = torch.cat((self._rows, x))[best]
        self._weights = torch.cat((self._weights, weights.to(self._weights)))[best]
        self._positions = torch.cat((self._positions, positions))[best]

    def _resized(self, count: int) -> Self:
        """Return a copy with so many slots: with empty ones at the end, or without them."""
        more = max(0, count - len(self._keys))

        def resized(held: Tensor, fill: int = 0) -> Tensor:
            return torch.cat((held, held.new_full((more, *held.shape[1:]), fill)))[:count]

        result = copy.copy(self)
        result._keys = resized(self._keys, EMPTY)
        result._rows = resized(self._rows)
        result._weights = resized(self._weights)
        result._positions = resized(self._positions)
        return result
