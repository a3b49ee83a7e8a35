"""Tensors on devices, one kind of which has no float64: Apple's, "mps"."""

from __future__ import annotations

from typing import overload

import torch
from torch import Tensor


def has_float64(device: torch.device | str | None) -> bool:
    """Return whether a device has float64; None is the default one."""
    return device is None or torch.device(device).type != "mps"


@overload
def moved(values: Tensor, device: torch.device | str) -> Tensor: ...


@overload
def moved(values: Tensor | None, device: torch.device | str) -> Tensor | None: ...


def moved(values: Tensor | None, device: torch.device | str) -> Tensor | None:
    """Return values on a device; float64 values stay where they are if it has no float64."""
    if values is None or (values.dtype == torch.float64 and not has_float64(device)):
        return values
    return values.to(device)
