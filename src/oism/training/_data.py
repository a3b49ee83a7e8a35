"""The rows of a training run: a data set in memory, on the device that trains."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from oism._core import checks
from oism._core.labels import training_labels
from oism.flow import Pixels, TensorSpec


class Rows:
    """Tensors ``(n, *shape)``: integers with the range of their pixels, or floating point.

    Bytes are pixels from 0 to 255; the range of other integers must be given. Pixels are
    dequantised whenever they are taken, unless ``dequantise`` is False. Rows are taken in float32.
    ``labels`` ``(n,)``, integers from 0, are the classes of the rows, for a network that takes
    them.

    >>> rows = Rows(torch.zeros(4, 2), labels=[0, 1, 2, 1])
    >>> rows.classes
    3
    """

    def __init__(
        self,
        values: Tensor,
        pixels: Pixels | None = None,
        *,
        labels: object = None,
        dequantise: bool = True,
    ) -> None:
        checks.instance(values, Tensor, "data")
        checks.optional(pixels, Pixels, "pixels")
        if values.ndim < 2 or 0 in values.shape:
            raise ValueError(f"data must be tensors (n, *shape), got {tuple(values.shape)}")
        pixels = Pixels.of(values, pixels)
        if pixels is None:
            values = checks.floating(values, "data").float()
        else:
            pixels.check(values)
        self.values, self.pixels = values, pixels
        found = None if labels is None else training_labels(labels, len(values))
        self.labels = None if found is None else found.to(values.device)
        self.classes = None if found is None else int(found.max()) + 1
        self.dequantise = bool(dequantise and pixels is not None)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return tuple(self.values.shape[1:])

    @property
    def device(self) -> torch.device:
        """The device of the rows."""
        return self.values.device

    @property
    def checksum(self) -> int:
        """The CRC-32 of the values, and of labels if there are any."""
        found = zlib.crc32(self.values.cpu().contiguous().numpy().data)
        return found if self.labels is None else zlib.crc32(self.labels.cpu().numpy().data, found)

    def to(self, device: torch.device) -> Rows:
        """Return the same rows on a device."""
        moved = copy.copy(self)
        moved.values = self.values.to(device)
        moved.labels = None if self.labels is None else self.labels.to(device)
        return moved

    def take(self, indices: Tensor, mirrored: Tensor | None, spread: Tensor) -> Tensor:
        """Return rows in the model's units, some mirrored, moved by ``spread`` within a level."""
        x = self.values[indices]
        x = x if self.pixels is None else self.pixels.units(x).float()
        if mirrored is not None:
            chosen = mirrored.reshape(-1, *[1] * (x.ndim - 1))
            x = torch.where(chosen, x.flip(-1), x)
        if self.dequantise and self.pixels is not None:
            x = x + self.pixels.step * (spread - 0.5)
        return x

    def check(self, spec: TensorSpec, name: str) -> None:
        """Raise unless a specification, that of a model or a prior, is one of these rows."""
        these = _words(self.shape, self.pixels, self.dequantise)
        others = _words(spec.shape, spec.pixels, spec.dequantised)
        for own, other in zip(these, others, strict=True):
            if own != other:
                raise ValueError(
                    f"{name} must be for data that are {own}, as these, got one for data that are "
                    f"{other}"
                )


def _words(shape: tuple[int, ...], pixels: Pixels | None, dequantised: bool) -> tuple[str, ...]:
    """Return a description of data in words."""
    return (
        f"of shape {shape}",
        "no pixels" if pixels is None else f"pixels from {pixels.low} to {pixels.high}",
        "dequantised" if dequantised else "not dequantised",
    )


def rows_of(data: object, pixels: Pixels | None, *, dequantise: bool) -> Rows:
    """Return data as rows: a tensor, an array, batches of them, or rows already."""
    if isinstance(data, Rows):
        return data
    if isinstance(data, Tensor | np.ndarray):
        return Rows(torch.as_tensor(data), pixels, dequantise=dequantise)
    if not isinstance(data, Iterable):
        raise TypeError(
            f"data must be a tensor, an array, batches of them or Rows, got {type(data).__name__}"
        )
    return Rows(stacked(data), pixels, dequantise=dequantise)


def stacked(batches: Iterable[object]) -> Tensor:
    """Return batches of rows as one tensor."""
    parts = [_as_tensor(_values(batch)) for batch in batches]
    if not parts:
        raise ValueError("data must hold at least one batch, got none")
    return torch.cat(parts)


def _values(batch: object) -> object:
    """Return the rows of a batch that comes with labels, as a DataLoader yields them."""
    if not isinstance(batch, list | tuple) or len(batch) < 2:
        return batch
    tensors = all(isinstance(part, Tensor) for part in batch)
    return batch[0] if tensors and all(part.ndim < 2 for part in batch[1:]) else batch


def _as_tensor(values: object) -> Tensor:
    """Return values in their dtype, on the device they are on."""
    if isinstance(values, Tensor):
        return values.detach()
    array = np.ascontiguousarray(values)
    # torch has no tensors that cannot be written to.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
