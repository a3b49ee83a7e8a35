"""Moments across processes: each rank reads a shard of the data and gets the sums of all.

Sums over disjoint sets of rows add up, so processes exchange only accumulators. With the
accumulator A_r of rank r, every rank computes

    A = (⋯((A_0 + A_1) + A_2) + ⋯) + A_{R-1},

in this order and from the same bits, so the sums are bit-identical on all ranks. One A_r is
broadcast at a time: a rank holds its own, the sum so far and one other, for any number of ranks.

Processes are those of `torch.distributed` in its default group, with any backend; for nccl every
rank must have selected its device (`torch.cuda.set_device`). If it is not initialised, or there is
one process, all functions here are the identity. Decisions and errors of one rank are sent to all:
if one rank stopped without the others, these would wait forever.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

PIECE = 2**28
"""The number of bytes per broadcast."""


class Mergeable(Protocol):
    """An accumulator; its attributes are tensors, numbers, and objects equal on all ranks."""

    def merge(self, other: Self) -> Self:
        """Return the accumulator of the rows of both."""


Accumulator = TypeVar("Accumulator", bound=Mergeable)
"""The type of what is merged across processes: sums with a method `merge`."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Slot:
    """Shape and dtype of a tensor that is received."""

    shape: tuple[int, ...]
    dtype: torch.dtype


Outline = Mapping[str, Slot | float | None]


def processes() -> int:
    """Return the number of processes: 1 if `torch.distributed` is not initialised."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def across_processes(accumulator: Accumulator) -> Accumulator:
    """Return the accumulator of the rows of all ranks, the same bits on each.

    Every rank must call it with an accumulator of the same type, which may be empty.

    >>> from oism.estimation import HistogramMoments
    >>> moments = HistogramMoments(dim=3)
    >>> across_processes(moments) is moments  # one process
    True
    """
    if processes() == 1:
        return accumulator
    check_same(accumulator=type(accumulator))
    outlines = gathered(_outline(accumulator))
    _check_alike(outlines)
    total = _received(accumulator, 0, outlines[0])
    for rank, outline in enumerate(outlines[1:], start=1):
        total = total.merge(_received(accumulator, rank, outline))
    return total


def of_first(value: Value) -> Value:
    """Return the object with the tensors and numbers that it has on rank 0."""
    return value if processes() == 1 else _received(value, 0, gathered(_outline(value))[0])


def gathered(value: Value) -> list[Value]:
    """Return the values of all ranks, in the order of ranks; for small objects."""
    found = [value] * processes()
    if len(found) > 1:
        dist.all_gather_object(found, value)
    return found


def check_same(**settings: object) -> None:
    """Raise on every rank unless all ranks have the same arguments."""
    first, *others = gathered({name: repr(value) for name, value in settings.items()})
    for rank, theirs in enumerate(others, start=1):
        for name, value in theirs.items():
            if value != first[name]:
                raise ValueError(
                    f"{name} must be the same on every rank, got {first[name]} on rank 0 and "
                    f"{value} on rank {rank}"
                )


@contextmanager
def together(shared: bool = True) -> Iterator[None]:
    """Raise on every rank if the block raises on one; the block itself must not communicate."""
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        error = raised
    if shared:
        messages = gathered(None if error is None else f"{type(error).__name__}: {error}")
        failed = [rank for rank, message in enumerate(messages) if message is not None]
        if failed and error is None:
            raise RuntimeError(f"rank {failed[0]} failed: {messages[failed[0]]}")
    if error is not None:
        raise error


def _outline(value: object) -> dict[str, Slot | float | None]:
    """Return the attributes that are sent: slots of tensors, and numbers."""
    found: dict[str, Slot | float | None] = {}
    for name, part in vars(value).items():
        if isinstance(part, Tensor):
            found[name] = Slot(tuple(part.shape), part.dtype)
        elif part is None or isinstance(part, int | float):
            found[name] = part
    return found


def _check_alike(outlines: list[dict[str, Slot | float | None]]) -> None:
    """Raise unless tensors have the same shapes and dtypes on all ranks that have them."""
    first = outlines[0]
    for rank, theirs in enumerate(outlines):
        for name, one in first.items():
            other = theirs.get(name)
            if isinstance(one, Slot) and isinstance(other, Slot) and one != other:
                raise ValueError(
                    f"accumulator must be the same on every rank, but {name} is {one.dtype} "
                    f"{one.shape} on rank 0 and {other.dtype} {other.shape} on rank {rank}"
                )


def _received(own: Value, rank: int, outline: Outline) -> Value:
    """Return the object of a rank, on the device of ``own``.

    Tensors are made contiguous on every rank, including the sender: the order of summation depends
    on the memory layout.
    """
    mine, result = rank == dist.get_rank(), copy.copy(own)
    state = vars(result)
    device = next(part.device for part in state.values() if isinstance(part, Tensor))
    for name, part in outline.items():
        if not isinstance(part, Slot):
            state[name] = part
            continue
        if mine:
            state[name] = state[name].contiguous()
        else:
            state[name] = torch.empty(part.shape, dtype=part.dtype, device=device)
        _broadcast(state[name], rank)
    return result


def _broadcast(tensor: Tensor, rank: int) -> None:
    """Fill a contiguous tensor with its bits on a rank."""
    flat, device = tensor.reshape(-1).view(torch.uint8), _backend_device()
    for piece in torch.split(flat, PIECE) if len(flat) else ():
        buffer = piece.to(device)
        dist.broadcast(buffer, src=rank)
        if rank != dist.get_rank():
            piece.copy_(buffer)


def _backend_device() -> torch.device:
    """Return the device whose memory the backend sends: for nccl only that of the GPU."""
    kinds = [word.split(":")[0] for word in dist.get_backend_config().split(",")]
    return torch.device("cpu" if "cpu" in kinds else kinds[0])
