"""Contexts for a network: evaluation mode, half or full precision, no gradients of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Half precisions; float16 rounds eight times as finely, and cannot represent large numbers."""

_EVALUATED: ContextVar[tuple[nn.Module, ...]] = ContextVar("evaluated", default=())
"""The modules that are in evaluation mode by `eval_mode`."""


def checked_precision(name: str) -> str:
    """Return a precision if it is one: "bf16" or "fp16" for layers in half precision, or "no"."""
    if name not in ("no", *HALVES):
        raise ValueError(f"precision must be 'no', 'bf16' or 'fp16', got {name!r}")
    return name


def half_precision(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Within, layers compute in half precision; "no" changes nothing."""
    if checked_precision(precision) == "no":
        return nullcontext()
    return torch.autocast(device.type, HALVES[precision])


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Within, autocast is off: half precision is coarser than the lowest noise."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Within, dropout is off; afterwards every part is in the mode that it was in before.

    A second one for the same module, within the first, does nothing: to visit the parts of a large
    network takes milliseconds, in every evaluation.
    """
    outer = _EVALUATED.get()
    if any(module is one for one in outer):
        yield
        return
    trained = [part for part in module.modules() if part.training]
    module.eval()
    token = _EVALUATED.set((*outer, module))
    try:
        yield
    finally:
        _EVALUATED.reset(token)
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
