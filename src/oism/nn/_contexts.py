"""How a network is used for a while: at rest, in half or full precision, without gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn


def precision_of(name: str) -> str:
    """Return the name of a precision, if it is one: "bf16" for layers in bfloat16, or "no"."""
    if name not in ("no", "bf16"):
        raise ValueError(f"precision must be 'no' or 'bf16', got {name!r}")
    return name


def half_precision(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Within, layers work in bfloat16 for "bf16"; "no" changes nothing."""
    if precision_of(precision) == "no":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Within, autocast is off: half precision would drown the lowest noise."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


@contextmanager
def at_rest(module: nn.Module) -> Iterator[None]:
    """Within, dropout is off."""
    trained = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in trained:  # a part that was at rest already stays so
            part.training = True


@contextmanager
def no_gradients_of(module: nn.Module) -> Iterator[None]:
    """Within, the parameters of a module ask for no gradients; its inputs still may."""
    wanted = [part for part in module.parameters() if part.requires_grad]
    for part in wanted:
        part.requires_grad_(False)
    try:
        yield
    finally:
        for part in wanted:
            part.requires_grad_(True)
