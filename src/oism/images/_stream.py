"""Batches of tensors of any shape, read as often as a fit needs, checked once each time.

Data are an array or tensor ``(n, *shape)``, or an iterable of such batches that can be read again
from its beginning (a list, a `torch.utils.data.DataLoader`, `oism.data.files.Images`): learning a
frame takes one pass and the moments in it another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oism._core import checks
from oism.estimation import fold_of
from oism.estimation._moments.rows import batches, check_finite, tensor
from oism.estimation._moments.sharing import gathered, together
from oism.flow import Pixels

Kind = tuple[tuple[int, ...], Pixels | None]
"""The shape of a row, and its range."""

ENTRIES = 2**23
"""The number of entries that are read at a time."""


@dataclass
class Stream:
    """Rows of data in pieces, each with its folds; bytes are pixels from 0 to 255 by default.

    ``shape`` is that of a row, ``rows`` their number, set by the first pass. Where the data are
    ``shared``, these are the rows of one rank, which may have none if others do.
    """

    data: object
    pixels: Pixels | None
    folds: int
    device: torch.device
    shared: bool = False
    shape: tuple[int, ...] = field(init=False)
    rows: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        with together(self.shared):
            kind = self._look()
        if self.shared:
            kind = _agreed(kind)
        if kind is None:
            raise ValueError("data must hold at least one row, got none")
        self.shape, self.pixels = kind

    def _look(self) -> Kind | None:
        """Return shape and range of the first batch, if there is one."""
        first = next(self._batches(), None)
        if first is None:
            return None
        if isinstance(self.data, Iterator):  # it can be read once, so the first batch is put back
            self.data = itertools.chain([first], self.data)
        if self.shared and not len(first):
            return None  # shape and range come from other ranks
        return tuple(first.shape[1:]), Pixels.of(first, self.pixels)

    @property
    def dim(self) -> int:
        """The number of entries of a row."""
        return math.prod(self.shape)

    @property
    def is_repeatable(self) -> bool:
        """Whether the data can be read again from their beginning."""
        return (
            isinstance(self.data, Tensor)
            or hasattr(self.data, "__array__")
            or (
                iter(self.data) is not self.data  # type: ignore[call-overload]
            )
        )

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield rows ``(n, dim)``, bytes or float64 in the model's units, and folds ``(n,)``."""
        self.rows = 0
        for batch in self._batches():
            if tuple(batch.shape[1:]) != self.shape:
                raise ValueError(
                    f"data must have one shape: row 0 is {self.shape}, row {self.rows} is "
                    f"{tuple(batch.shape[1:])}"
                )
            for piece in torch.split(batch.flatten(1), max(1, ENTRIES // self.dim)):
                yield self._checked(piece.to(self.device))
                self.rows += len(piece)
        if not self.rows and not self.shared:
            raise ValueError("data must hold at least one row, got none")

    def _checked(self, piece: Tensor) -> tuple[Tensor, Tensor]:
        if self.pixels is None:
            check_finite(piece, self.rows)
            rows = piece.double()
            return rows, fold_of(rows, self.folds)
        rows = self.pixels.offsets(piece, self.rows)
        exact = rows.double() if self.folds > 1 else rows
        return rows, fold_of(exact, self.folds)

    def units(self, rows: Tensor) -> Tensor:
        """Return what `__iter__` yielded in the model's units: in its dtype, bytes in float64."""
        if self.pixels is None:
            return rows
        rows = rows if rows.is_floating_point() else rows.double()
        return rows * self.pixels.step - 1

    def _batches(self) -> Iterator[Tensor]:
        for batch, _ in batches(self.data):
            found = tensor(_images(batch), "data")
            if found.ndim < 2 or 0 in found.shape[1:]:
                raise ValueError(
                    "data must be batches of tensors, (n, *shape) with at least one entry each, "
                    f"got {tuple(found.shape)}"
                )
            yield found


def _agreed(kind: Kind | None) -> Kind | None:
    """Return shape and range that all ranks with rows agree on; raise on every rank otherwise."""
    known = {rank: one for rank, one in enumerate(gathered(kind)) if one is not None}
    first = min(known, default=0)
    for rank, one in known.items():
        if one != known[first]:
            words = (f"rank {r} holds shape {known[r][0]} and {known[r][1]}" for r in (first, rank))
            raise ValueError(f"data must be alike on every rank: {', '.join(words)}")
    return known.get(first)


def _images(batch: object) -> object:
    """Return the images of a batch that comes with labels, as a DataLoader yields them."""
    if isinstance(batch, list | tuple) and len(batch) > 1:
        first, *others = batch
        if all(isinstance(part, Tensor) for part in batch) and all(x.ndim <= 1 for x in others):
            return first
    return batch


def device_of(data: object, device: torch.device | str | None) -> torch.device:
    """Return the device that was asked for, or that of the data."""
    if device is not None:
        return checks.device(device)
    return data.device if isinstance(data, Tensor) else torch.device("cpu")
