"""Tensors of a model as pictures: which shapes are images, and their bytes."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from oism.images._pixels import Pixels

BYTES = Pixels()


class OfTensors(Protocol):
    """What has tensors of a shape: a prior, or a model with a network."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor."""

    @property
    def pixels(self) -> Pixels | None:
        """The range of integer data."""


def picture_shape(prior: OfTensors) -> tuple[int, int, int] | None:
    """Return channels, height and width where the tensors of a model are grey or colour images."""
    shape = (1, *prior.shape) if len(prior.shape) == 2 else prior.shape
    if prior.pixels is None or len(shape) != 3 or shape[0] not in (1, 3):
        return None
    channels, height, width = shape
    return channels, height, width


def pictures(prior: OfTensors, x: Tensor) -> Tensor:
    """Return tensors in the model's units as bytes ``(n, channels, height, width)``, on the CPU.

    For pixels from 0 to 255 they are the nearest levels; other ranges are stretched to that.
    """
    shape = picture_shape(prior)
    if shape is None:
        without = "" if prior.pixels else " without pixels"
        raise ValueError(
            "prior must be one of images, 1 or 3 channels of pixels, got shape "
            f"{prior.shape}{without}"
        )
    return BYTES.values(x).reshape(len(x), *shape).cpu()
