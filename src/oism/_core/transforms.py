"""Broadcasting of coefficients over a batch, and helpers for autograd, memory and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import jvp, vmap

Item = TypeVar("Item")
Result = TypeVar("Result")

BLOCK = 2**16
"""The number of points per batch of derivatives."""

NUMPY_DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


def per_row(coefficient: Tensor, x: Tensor, name: str = "t") -> Tensor:
    """Return a coefficient, one number or one per row, shaped to multiply a batch ``(n, *shape)``.

    This is the only broadcasting rule of the library. The coefficient is cast to the dtype and
    device of the data: spectral quantities are computed in float64 and cast here.
    """
    if coefficient.ndim == 0 and coefficient.device.type == "cpu":
        return coefficient.to(x.dtype)  # a scalar on the CPU multiplies data on any device
    coefficient = coefficient.to(device=x.device, dtype=x.dtype)
    if coefficient.ndim == 0:
        return coefficient
    if len(coefficient) != len(x):
        raise ValueError(
            f"{name} must be one number or one per row: {len(x)} rows, {len(coefficient)} values"
        )
    return coefficient.reshape(-1, *[1] * (x.ndim - 1))


def one_per_row(tau: Tensor | float, x: Tensor) -> Tensor:
    """Return clock times ``(n,)`` for a batch of n rows, from one number or one per row."""
    if not isinstance(tau, Tensor):
        tau = torch.tensor(tau, dtype=torch.float64, device=x.device)
    if tau.ndim == 0:
        return tau.expand(len(x))
    if tau.shape != x.shape[:1]:
        raise ValueError(
            f"tau must be one number or one per row: {len(x)} rows, got shape {tuple(tau.shape)}"
        )
    return tau


def as_given(result: Tensor, argument: Tensor | float) -> Tensor:
    """Return a float64 result in the dtype of the argument, if that is a tensor."""
    return result.to(argument.dtype) if isinstance(argument, Tensor) else result


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b in the dtype of the factors, also under autocast."""
    if not torch.amp.is_autocast_available(a.device.type):
        return a @ b
    with torch.autocast(a.device.type, enabled=False):
        return a @ b


def is_differentiated(x: Tensor) -> bool:
    """Return whether autograd, forward mode, torch.func or compile records operations on ``x``.

    If not, results may be written into preallocated memory.
    """
    return (
        torch.compiler.is_compiling()
        or (x.requires_grad and torch.is_grad_enabled())
        or torch._C._functorch.is_functorch_wrapped_tensor(x)
        or forward_ad.unpack_dual(x).tangent is not None  # type: ignore[no-untyped-call]
    )


def output_like(x: Tensor, shape: Sequence[int]) -> Tensor | None:
    """Return new memory for ``out=`` in the dtype of ``x``, or None if x is differentiated.

    On the CPU it is allocated by NumPy, which requests huge pages. Otherwise the first access to a
    large new array costs several times the arithmetic that fills it (benchmarks/hermite.py).
    """
    if is_differentiated(x):
        return None
    if x.device.type == "cpu" and x.dtype in NUMPY_DTYPES:
        return torch.from_numpy(np.empty(tuple(shape), NUMPY_DTYPES[x.dtype]))
    return x.new_empty(tuple(shape))


HOST = "cpu"
"""The device with fast Fourier transforms at scattered points, and threads for `in_parallel`."""


def on_host(x: Tensor) -> bool:
    """Return whether a tensor is on the CPU; elsewhere large batches and few synchronisations."""
    return x.device.type == HOST


POOL: ContextVar[ThreadPoolExecutor | None] = ContextVar("POOL", default=None)


@contextmanager
def threads_apart(most: int | None = None) -> Iterator[None]:
    """Use the threads of torch, or at most so many, in `in_parallel`, and one for each operation.

    In a long sequence of short operations, threads within an operation wait for each other after
    each of them; if another program uses a core, waiting costs many times the work. Of operations
    that take less than 0.1 ms, threads apart gain nothing either: they wait for the interpreter.
    """
    threads = torch.get_num_threads()
    count = threads if most is None else min(most, threads)
    # New threads do not inherit the number: MKL and OpenMP have one per thread.
    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        mark = POOL.set(pool if count > 1 else None)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            POOL.reset(mark)


def in_parallel(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return ``work(item)`` for independent items, in parallel within `threads_apart`.

    Each item uses one thread, with the gradient mode and the context variables of the caller:
    torch and Python keep both for each thread, and a new thread would record gradients.
    """
    pool = POOL.get()
    if pool is None or len(items) < 2:
        return [work(item) for item in items]
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def inside(item: Item) -> Result:
        POOL.set(None)  # work that waited for this pool would occupy the thread that it waits for
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return work(item)

    def run(item: Item, context: Context) -> Result:
        return context.run(inside, item)

    return list(pool.map(run, items, [copy_context() for _ in items]))


def divergence(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return ∇·f at points ``(n, *shape)`` by differentiation along every entry: ``(n,)``.

    The result is differentiable. Entries are processed in batches of bounded memory.
    """
    units = torch.eye(x.shape[1:].numel()).to(x).reshape(-1, *x.shape[1:])

    def along(unit: Tensor) -> Tensor:
        slope: Tensor = jvp(f, (x,), (unit.expand_as(x),))[1]
        return (slope * unit).flatten(1).sum(dim=1)

    chunk = max(1, BLOCK // max(1, len(x)))
    return vmap(along, randomness="same", chunk_size=chunk)(units).sum(dim=0)


def shared_tensor(array: np.ndarray[Any, Any]) -> Tensor:
    """Return the tensor of an array, with its memory where torch can share it.

    Torch needs memory that may be written to and has no negative strides. NumPy calls an array
    contiguous also where an axis of length 1 has one.
    """
    array = np.require(array, requirements=["C", "W"])
    return torch.from_numpy(array.copy() if min(array.strides, default=0) < 0 else array)
