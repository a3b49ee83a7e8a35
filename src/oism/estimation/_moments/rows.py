"""Rows of data: accepted types, and the fold of a row.

Data are an array, a tensor, anything that NumPy converts to an array (a data frame), or an iterable
of batches of these, which may be larger than memory. Rows are converted to float64; a row of any
shape is the vector of its entries.

The fold of a row is a hash of its content. So it does not depend on the order of the rows or on
their split into batches and accumulators, and duplicates are never in both the training and the
held-out rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from oism._core import checks
from oism._core.hashing import GOLDEN, WORD, splitmix64
from oism._core.transforms import shared_tensor


def rows(batch: object, dim: int, name: str = "data") -> Tensor:
    """Return one batch as a tensor ``(n, dim)`` of its own dtype; values are not checked."""
    batch = tensor(batch, name)
    if batch.ndim < 2 or batch.shape[1:].numel() != dim:
        raise ValueError(
            f"{name} must have rows of {dim} entries, the dimension of the basis: shape (n, {dim}),"
            f" got {tuple(batch.shape)}"
        )
    return batch.flatten(1)


def tensor(batch: object, name: str = "data") -> Tensor:
    """Return one batch as a tensor of its own dtype and shape; values are not checked."""
    if isinstance(batch, list | tuple) and len(batch) == 1:  # as from a DataLoader
        batch = batch[0]
    if not isinstance(batch, Tensor):
        if not hasattr(batch, "__array__"):
            raise TypeError(f"{name} must be arrays or tensors, got {type(batch).__name__}")
        batch = _tensor(batch, name)
    if batch.is_complex() or batch.dtype == torch.bool:
        raise TypeError(f"{name} must be real numbers, got dtype {batch.dtype}")
    if batch.layout != torch.strided:
        raise TypeError(f"{name} must be dense, got layout {batch.layout}")
    return batch.detach()


def _tensor(values: object, name: str) -> Tensor:
    """Return numbers as a tensor by way of NumPy; memory is shared if torch supports the dtype."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise TypeError(f"{name} must not be masked: drop or fill the masked entries first")
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be real numbers, got dtype {array.dtype}")
    if not _is_shared(array.dtype):
        # Integers stay integers, which images ask for, but for those that torch has not.
        whole = array.dtype.kind in "iu" and not (array.size and int(array.max()) >= 2**63)
        array = array.astype(np.int64 if whole else np.float64)
    return shared_tensor(array)


def _is_shared(dtype: np.dtype[np.generic]) -> bool:
    """Return whether torch computes with numbers of a dtype as they are in memory."""
    known = dtype not in (np.uint16, np.uint32, np.uint64)
    return dtype.isnative and dtype.itemsize <= 8 and known


def check_finite(batch: Tensor, offset: int, name: str = "data") -> None:
    """Raise unless all rows are finite, with the first other row in the message."""
    if not batch.is_floating_point() or bool(batch.sum().isfinite()):
        return  # the common case, one pass; a sum of finite rows may overflow
    allowed = batch.isfinite().all(dim=1)
    if not bool(allowed.all()):
        row = int((~allowed).nonzero()[0])
        raise ValueError(f"{name} must be finite, but row {offset + row} holds NaN or infinity")


def weights_of(sample_weight: object, n: int, name: str = "sample_weight") -> Tensor | None:
    """Return one non-negative weight per row in float64, or None for None."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Tensor) and not sample_weight.is_complex():
        weights = sample_weight.detach().double()
    else:
        weights = _tensor(sample_weight, name).double()
    if weights.shape != (n,):
        raise ValueError(f"{name} must have one entry per row, ({n},), got {tuple(weights.shape)}")
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError(f"{name} must be finite and not negative")
    return weights


def batches(data: object, sample_weight: object = None) -> Iterator[tuple[object, object]]:
    """Yield batches with their weights; an array or tensor is one batch."""
    if isinstance(data, Tensor) or hasattr(data, "__array__"):
        yield data, sample_weight
        return
    if isinstance(data, str | bytes | dict) or not isinstance(data, Iterable):
        raise TypeError(
            f"data must be an array, a tensor or an iterable of batches, got {type(data).__name__}"
        )
    if sample_weight is None:
        yield from zip(data, itertools.repeat(None))
    elif isinstance(sample_weight, Iterable):
        missing = object()
        for batch, weights in itertools.zip_longest(data, sample_weight, fillvalue=missing):
            if batch is missing or weights is missing:
                raise ValueError("sample_weight must have one array per batch of data")
            yield batch, weights
    else:
        raise TypeError("sample_weight must be an iterable of one array per batch of data")


@lru_cache(maxsize=8)
def _multipliers(dim: int) -> Tensor:
    """Return one odd 64-bit integer per column: the splitmix64 sequence."""
    numbers = [splitmix64(GOLDEN * column) | 1 for column in range(dim)]
    return torch.tensor([z - WORD if z >= WORD // 2 else z for z in numbers])


class Scratch:
    """Memory that is reused for every block: allocation would cost more than the arithmetic."""

    def __init__(self) -> None:
        self._parts: dict[str, Tensor] = {}

    def like(self, name: str, block: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return uninitialised memory of the shape and device of a block."""
        part = self._parts.get(name)
        if part is None or len(part) < len(block) or part.device != block.device:
            part = self._parts[name] = torch.empty_like(block, dtype=dtype)
        return part[: len(block)]


def fold_of(block: Tensor, folds: int, scratch: Scratch | None = None) -> Tensor:
    """Return the fold of each row of a float64 block: ``(n,)``, int64.

    A multilinear hash of the bits modulo 2^64, then mixed; integer sums do not depend on the order
    of summation. -0.0 equals 0.0.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]], dtype=torch.float64)
    >>> fold = fold_of(x, 5)
    >>> bool(fold[0] == fold[2])
    True
    """
    if folds == 1:
        return torch.zeros(len(block), dtype=torch.int64, device=block.device)
    scratch = scratch or Scratch()
    exact = torch.add(block, 0.0, out=scratch.like("exact", block))
    bits = exact.view(torch.int64)
    # Small integers differ only in their high bits, which multiplication modulo 2^64 would lose.
    bits ^= torch.bitwise_right_shift(bits, 32, out=scratch.like("shifted", bits, torch.int64))
    mixed = bits.mul_(_multipliers(block.shape[1]).to(bits.device)).sum(dim=1)
    for shift in (29, 32):
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * _multipliers(2)[1].item()
    return ((mixed >> 33) & 0x7FFFFFFF) % checks.integer(folds, "folds", minimum=1)
