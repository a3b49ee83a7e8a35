"""Tensors of a model as images: which shapes are images, and their bytes."""

from __future__ import annotations

from torch import Tensor

from oism.flow import Pixels, TensorSpec

BYTES = Pixels()


def image_shape(spec: TensorSpec) -> tuple[int, int, int] | None:
    """Return channels, height and width where tensors are grey or colour images, else None."""
    shape = (1, *spec.shape) if len(spec.shape) == 2 else spec.shape
    if spec.pixels is None or len(shape) != 3 or shape[0] not in (1, 3):
        return None
    channels, height, width = shape
    return channels, height, width


def as_images(spec: TensorSpec, x: Tensor) -> Tensor:
    """Return tensors in the model's units as bytes ``(n, channels, height, width)``, on the CPU.

    Pixels from 0 to 255 become the nearest levels; other ranges are stretched to 0 to 255.
    """
    shape = image_shape(spec)
    if shape is None:
        without = "" if spec.pixels else " without pixels"
        raise ValueError(
            f"spec must be that of images, 1 or 3 channels of pixels, got shape {spec.shape}"
            f"{without}"
        )
    return BYTES.values(x).reshape(len(x), *shape).cpu()
