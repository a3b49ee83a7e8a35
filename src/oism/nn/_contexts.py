"""Contexts for a network: evaluation mode, half or full precision, no gradients of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn


def checked_precision(name: str) -> str:
    """Return a precision if it is one: "bf16" for layers in bfloat16, or "no"."""
    if name not in ("no", "bf16"):
        raise ValueError(f"precision must be 'no' or 'bf16', got {name!r}")
    return name


def half_precision(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Within, layers compute in bfloat16 for "bf16"; "no" changes nothing."""
    if checked_precision(precision) == "no":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Within, autocast is off: half precision is coarser than the lowest noise."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Within, dropout is off; afterwards every part is in the mode that it was in before."""
    trained = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in trained:
            part.training = True


@contextmanager
def no_gradients_of(module: nn.Module) -> Iterator[None]:
    """Within, the parameters of a module require no gradients; its inputs still may."""
    wanted = [part for part in module.parameters() if part.requires_grad]
    for part in wanted:
        part.requires_grad_(False)
    try:
        yield
    finally:
        for part in wanted:
            part.requires_grad_(True)
