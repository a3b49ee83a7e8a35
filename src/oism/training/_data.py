"""Rows to train on: all of a set in memory, in the form it comes in, on the device that trains."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from oism._core import checks
from oism.images import Pixels
from oism.images._base import Setting


class Rows:
    """Tensors ``(n, *shape)``: integers with the range of their pixels, or floating point.

    Bytes are pixels from 0 to 255 without being said to be. Pixels are dequantised whenever they
    are taken, unless that is not wanted. What is taken is in float32, as networks are.
    """

    def __init__(
        self, values: Tensor, pixels: Pixels | None = None, *, dequantise: bool = True
    ) -> None:
        checks.instance(values, Tensor, "data")
        checks.optional(pixels, Pixels, "pixels")
        if values.ndim < 2 or 0 in values.shape:
            raise ValueError(f"data must be tensors (n, *shape), got {tuple(values.shape)}")
        if pixels is None and values.dtype == torch.uint8:
            pixels = Pixels()
        if pixels is None and not values.is_floating_point():
            raise TypeError(
                f"pixels must be given for integers other than bytes, got {values.dtype}: "
                "Pixels(low, high) says their range"
            )
        if pixels is None:
            values = checks.floating(values, "data").float()
        else:
            pixels.demand(values)
        self.values, self.pixels = values, pixels
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
        """Where the rows are."""
        return self.values.device

    @property
    def checksum(self) -> int:
        """A number that other rows hardly have."""
        return zlib.crc32(self.values.cpu().contiguous().numpy().data)

    def to(self, device: torch.device) -> Rows:
        """Return the same rows on a device."""
        moved = object.__new__(Rows)
        moved.values, moved.pixels = self.values.to(device), self.pixels
        moved.dequantise = self.dequantise
        return moved

    def take(self, indices: Tensor, mirrored: Tensor | None, spread: Tensor) -> Tensor:
        """Return rows in the model's units, some mirrored, with uniform ``spread`` over steps."""
        x = self.values[indices]
        x = x if self.pixels is None else self.pixels.units(x).float()
        if mirrored is not None:
            chosen = mirrored.reshape(-1, *[1] * (x.ndim - 1))
            x = torch.where(chosen, x.flip(-1), x)
        if self.dequantise and self.pixels is not None:
            x = x + self.pixels.step * (spread - 0.5)
        return x

    def demand(self, setting: Setting, name: str) -> None:
        """Raise unless a setting, that of the model or of a prior, is for tensors like these."""
        these = _words(self.shape, self.pixels, self.dequantise)
        others = _words(setting.shape, setting.pixels, setting.dequantised)
        for own, other in zip(these, others, strict=True):
            if own != other:
                raise ValueError(
                    f"{name} must be for data that are {own}, as these, got one for data that are "
                    f"{other}"
                )


def _words(shape: tuple[int, ...], pixels: Pixels | None, dequantised: bool) -> tuple[str, ...]:
    """Return what data are, in words."""
    return (
        f"of shape {shape}",
        "no pixels" if pixels is None else f"pixels from {pixels.low} to {pixels.high}",
        "dequantised" if dequantised else "not dequantised",
    )


def array_of(batches: Iterable[object]) -> Tensor:
    """Return batches of images as one tensor."""
    parts = [np.asarray(batch) for batch in batches]
    return torch.from_numpy(np.concatenate(parts))
