"""Tensors as they come: batches of any shape, read as often as a fit needs, checked once each time.

Data are an array or tensor ``(n, *shape)``, or an iterable of such batches that can be read again
from its beginning (a list, a `torch.utils.data.DataLoader`, `oism.data.files.Images`): learning a frame
takes one pass and the moments in it another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oism._core import checks
from oism.estimation import batches, fold_of
from oism.estimation._moments.rows import demand_finite, tensor
from oism.estimation._moments.sharing import gathered, together
from oism.images._pixels import Pixels

Kind = tuple[tuple[int, ...], Pixels | None]
"""The shape of a row, and its range."""

ENTRIES = 2**23
"""The number of entries that are read at a time."""


@dataclass
class Stream:
    """Rows of data in pieces, each with its folds. Bytes are pixels without being said to be.

    ``shape`` is that of a row, ``rows`` their number, known after a first pass. Where the data are
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
        """Return what the first batch shows, if there is one."""
        first = next(self._batches(), None)
        if first is None:
            return None
        if isinstance(self.data, Iterator):  # read once: what was looked at must come again
            self.data = itertools.chain([first], self.data)
        if self.shared and not len(first):
            return None  # other ranks know better
        if self.pixels is None and first.dtype == torch.uint8:
            return tuple(first.shape[1:]), Pixels()
        if self.pixels is None and not first.is_floating_point():
            raise TypeError(
                f"pixels must be given for integers other than bytes, got {first.dtype}: "
                "Pixels(low, high) says their range"
            )
        return tuple(first.shape[1:]), self.pixels

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
            demand_finite(piece, self.rows)
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
    """Return what the ranks that have rows know of them; raise on every rank where they differ."""
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
    """Return where work is to be done: where it is asked for, or where the data are."""
    if device is not None:
        return checks.device(device)
    return data.device if isinstance(data, Tensor) else torch.device("cpu")
