"""The check of the tensors that charts and backgrounds are made of."""

from __future__ import annotations

import torch
from torch import Tensor

from oism._core import checks


def check_tensor(
    part: Tensor, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float64
) -> None:
    """Raise unless a tensor has a shape and a dtype and finite values."""
    checks.instance(part, Tensor, name)
    if part.shape != shape or part.dtype != dtype:
        raise ValueError(
            f"{name} must be {dtype} of shape {shape}, got {part.dtype} of shape "
            f"{tuple(part.shape)}"
        )
    if not bool(part.isfinite().all()):
        raise ValueError(f"{name} must be finite")
