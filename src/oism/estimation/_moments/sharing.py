"""Moments across processes: each sees a shard of the data, and all hold the sums of the whole.

Sums over disjoint sets of rows add up, so accumulators are all that processes need to exchange.
With A_r that of rank r, every rank computes

    A = (⋯((A_0 + A_1) + A_2) + ⋯) + A_{R-1},

in this order and from the same bits, so that all ranks hold bit-identical sums. One A_r travels at
a time: a rank holds its own, the sum so far and one other, however many ranks there are.

Processes are those of `torch.distributed` in its default group, with any backend; for nccl every
rank must have chosen its device (`torch.cuda.set_device`). Where it is not initialised, or there is
one process, everything here is the identity. What is decided from a shard is told to all ranks, an
error too: a rank that stopped alone would let the others wait.
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
"""The number of bytes that travel at a time."""


class Mergeable(Protocol):
    """An accumulator: its attributes are tensors, numbers, and what all ranks have in common."""

    def merge(self, other: Self) -> Self:
        """Return the accumulator of the rows of both."""


Accumulator = TypeVar("Accumulator", bound=Mergeable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class Slot:
    """What a rank has to know of a tensor before it comes."""

    shape: tuple[int, ...]
    dtype: torch.dtype


Outline = Mapping[str, Slot | float | None]


def processes() -> int:
    """Return the number of processes: 1 where `torch.distributed` is not initialised."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def across_processes(accumulator: Accumulator) -> Accumulator:
    """Return the accumulator of the rows of all ranks, the same bits on each.

    Every rank must call it, with an accumulator of the same kind; one without rows will do.

    >>> from oism.estimation._moments import HistogramMoments
    >>> alone = HistogramMoments(dim=3)
    >>> across_processes(alone) is alone
    True
    """
    if processes() == 1:
        return accumulator
    demand_same(accumulator=type(accumulator))
    outlines = gathered(_outline(accumulator))
    _demand_alike(outlines)
    total = _received(accumulator, 0, outlines[0])
    for rank, outline in enumerate(outlines[1:], start=1):
        total = total.merge(_received(accumulator, rank, outline))
    return total


def of_first(value: Value) -> Value:
    """Return rank 0's copy of an object that all ranks hold: its tensors and numbers."""
    return value if processes() == 1 else _received(value, 0, gathered(_outline(value))[0])


def gathered(value: Value) -> list[Value]:
    """Return the small values of all ranks, in their order."""
    found = [value] * processes()
    if len(found) > 1:
        dist.all_gather_object(found, value)
    return found


def demand_same(**settings: object) -> None:
    """Raise on every rank unless arguments are the same on all."""
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
    """Raise on every rank where the block raises on one. No rank may wait for others within it."""
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        error = raised
    if shared:
        told = gathered(None if error is None else f"{type(error).__name__}: {error}")
        failed = [rank for rank, message in enumerate(told) if message is not None]
        if failed and error is None:
            raise RuntimeError(f"rank {failed[0]} failed: {told[failed[0]]}")
    if error is not None:
        raise error


def _outline(value: object) -> dict[str, Slot | float | None]:
    """Return what travels: tensors and numbers; the rest is what ranks have in common."""
    found: dict[str, Slot | float | None] = {}
    for name, part in vars(value).items():
        if isinstance(part, Tensor):
            found[name] = Slot(tuple(part.shape), part.dtype)
        elif part is None or isinstance(part, int | float):
            found[name] = part
    return found


def _demand_alike(outlines: list[dict[str, Slot | float | None]]) -> None:
    """Raise unless tensors have the same shapes wherever there are any."""
    first = outlines[0]
    for rank, theirs in enumerate(outlines):
        for name, one in first.items():
            other = theirs.get(name)
            if isinstance(one, Slot) and isinstance(other, Slot) and one != other:
                raise ValueError(
                    f"accumulator must be of one kind on every rank, but {name} is {one.dtype} "
                    f"{one.shape} on rank 0 and {other.dtype} {other.shape} on rank {rank}"
                )


def _received(own: Value, rank: int, outline: Outline) -> Value:
    """Return the object of a rank, on the device of one's own.

    Tensors are contiguous on every rank, the sender's too: the same numbers in another order of
    memory would be added up in another order.
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
    """Fill a contiguous tensor with the bits that it has on a rank."""
    flat, way = tensor.reshape(-1).view(torch.uint8), _way()
    for piece in torch.split(flat, PIECE) if len(flat) else ():
        travelling = piece.to(way)
        dist.broadcast(travelling, src=rank)
        if rank != dist.get_rank():
            piece.copy_(travelling)


def _way() -> torch.device:
    """Return the device whose memory the backend sends: nccl knows no other than the GPU's."""
    kinds = [word.split(":")[0] for word in dist.get_backend_config().split(",")]
    return torch.device("cpu" if "cpu" in kinds else kinds[0])
