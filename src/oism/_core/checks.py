"""Argument checks with error messages.

Every message contains the argument's name, its value and what is allowed. Shapes and dtypes are
always checked. Values (finite, non-negative) are checked if they can be read: inside
``torch.func.vmap`` a tensor has no single value, under ``torch.compile`` reading one would break
the graph, and while a CUDA graph is recorded none can be read, so there values are not checked.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import NoReturn, TypeVar

import torch
from torch import Tensor

from oism._core.devices import has_float64

Frozen = TypeVar("Frozen")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


CHANNELS = (1, 3, 4)
"""The numbers of channels of grey, RGB and RGBA images."""


def is_recorded(x: Tensor) -> bool:
    """Return whether operations on a tensor are being recorded as a CUDA graph."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def holds(condition: Tensor) -> bool:
    """Return whether a condition is true everywhere; True if it cannot be read."""
    if torch.compiler.is_compiling() or is_recorded(condition):
        return True
    try:
        return bool(condition.all())
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # inside torch.func.vmap
        return True


def readable(x: Tensor) -> bool:
    """Return whether the values of a tensor can be read: not inside vmap or under compile."""
    if torch.compiler.is_compiling():
        return False
    try:
        bool(torch.isfinite(x).all())
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return False
    return True


def _reject(name: str, x: Tensor, allowed: Tensor, requirement: str) -> NoReturn:
    """Raise an error with the first entry of ``x`` that is not allowed."""
    index = tuple(int(i) for i in (~allowed).nonzero()[0])
    where = f"{name}[{', '.join(map(str, index))}]" if index else name
    raise ValueError(f"{name} must be {requirement}, but {where} = {x[index].item()!r}")


def instance(value: object, kind: type, name: str) -> None:
    """Raise unless ``value`` is an instance of ``kind``."""
    if not isinstance(value, kind):
        got = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise TypeError(f"{name} must be of type {kind.__name__}, got {got}")


def optional(value: object, kind: type, name: str) -> None:
    """Raise unless ``value`` is None or an instance of ``kind``."""
    if value is not None:
        instance(value, kind, name)


def dtype(value: torch.dtype, name: str = "dtype") -> torch.dtype:
    """Return a floating-point dtype."""
    if value not in DTYPES:
        raise TypeError(f"{name} must be one of {DTYPES}, got {value!r}")
    return value


def vectors(x: object, name: str = "x", *, dim: int | None = None) -> Tensor:
    """Return ``x`` if it is a floating-point tensor ``(..., dim)``; values are not checked."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
    if x.dtype not in DTYPES:
        raise TypeError(f"{name} must have a floating-point dtype, one of {DTYPES}, got {x.dtype}")
    if x.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got layout {x.layout}")
    if dim is not None and (x.ndim < 1 or x.shape[-1] != dim):
        raise ValueError(f"{name} must have shape (..., {dim}), got {tuple(x.shape)}")
    return x


def floating(x: object, name: str) -> Tensor:
    """Return ``x`` if it is a floating-point tensor without NaN or infinity."""
    x = vectors(x, name)
    if is_recorded(x):  # nothing can be read, and every repetition would compare
        return x
    finite = torch.isfinite(x)
    if not holds(finite):
        _reject(name, x, finite, "finite")
    return x


def points(x: object, name: str = "x", *, dim: int | None = None) -> Tensor:
    """Return ``x`` if it is a batch of points ``(n, *shape)``, or ``(n, dim)`` if dim is given."""
    x = floating(x, name)
    if dim is not None:
        if x.ndim != 2 or x.shape[1] != dim:
            raise ValueError(f"{name} must have shape (n, {dim}), got {tuple(x.shape)}")
    elif x.ndim < 2 or 0 in x.shape[1:]:
        raise ValueError(
            f"{name} must be a batch of points of shape (n, d) or (n, *shape), got {tuple(x.shape)}"
        )
    return x


def like(y: object, x: Tensor, name: str = "y", other: str = "x") -> Tensor:
    """Return ``y`` if it is a batch of points of the shape and dtype of ``x``."""
    y = points(y, name)
    if y.shape != x.shape:
        raise ValueError(
            f"{name} must have the shape {tuple(x.shape)} of {other}, got {tuple(y.shape)}"
        )
    if y.dtype != x.dtype:
        raise TypeError(f"{name} must have the dtype {x.dtype} of {other}, got {y.dtype}")
    return y


def number(value: object, name: str, requirement: str = "a finite number") -> float:
    """Return a finite real number as a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {requirement}, got {type(value).__name__} {value!r}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise ValueError(f"{name} must be {requirement}, got {result!r}")
    return result


def positive(value: object, name: str) -> float:
    """Return a positive finite number as a float."""
    requirement = "a positive finite number"
    result = number(value, name, requirement)
    if result <= 0:
        raise ValueError(f"{name} must be {requirement}, got {result!r}")
    return result


def integer(value: object, name: str, *, minimum: int) -> int:
    """Return an integer that is at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(
            f"{name} must be an integer >= {minimum}, got {type(value).__name__} {value!r}"
        )
    if value < minimum:
        raise ValueError(f"{name} must be an integer >= {minimum}, got {int(value)}")
    return int(value)


def shape(value: object, name: str = "shape", *, minimum: int = 0) -> tuple[int, ...]:
    """Return a shape: at least one axis, each at least ``minimum``."""
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise TypeError(f"{name} must be a sequence of integers, got {type(value).__name__}")
    result = tuple(integer(n, f"{name}[{i}]", minimum=minimum) for i, n in enumerate(value))
    if not result:
        raise ValueError(f"{name} must have at least one axis, got ()")
    return result


def mirrored(shape: tuple[int, ...]) -> None:
    """Raise where rows to be mirrored along their last axis have channels there.

    These are three axes of which the last has 1, 3 or 4 entries, and the first is neither such a
    number nor smaller than the last.
    """
    if (
        len(shape) == 3
        and shape[-1] in CHANNELS
        and shape[0] not in CHANNELS
        and shape[0] > shape[-1]
    ):
        raise ValueError(
            "images must be channels first, because flip=True mirrors along the last axis, got "
            f"rows of shape {shape}: use images.permute(0, 3, 1, 2), or flip=False if they shall "
            "not be mirrored"
        )


def instants(
    t: object,
    name: str,
    *,
    low: Tensor | float,
    high: Tensor | float,
    slack: float = 0.0,
) -> Tensor:
    """Return times in float64, one number or one per row, within [low, high].

    ``slack`` is the relative tolerance at the ends, for times that were rounded.
    """
    if not isinstance(t, Tensor):
        t = torch.tensor(number(t, name, "a finite number or a tensor"), dtype=torch.float64)
    t = floating(t, name)
    if t.ndim > 1:
        raise ValueError(f"{name} must have shape () or (n,), got {tuple(t.shape)}")
    if is_recorded(t):
        return t.double()
    allowed = (t >= low * (1 - slack)) & (t <= high * (1 + slack))
    if not holds(allowed):
        end = "]" if math.isfinite(high) else ")"
        _reject(name, t, allowed, f"in [{float(low):g}, {float(high):g}{end}")
    return t.double() if has_float64(t.device) else t


def time(t: object, name: str = "t") -> Tensor:
    """Return a time of the process, t ≥ 0: shape () or (n,), float64."""
    return instants(t, name, low=0.0, high=math.inf)


def orthogonal(matrix: object, name: str = "matrix") -> Tensor:
    """Return a square matrix, checked to have orthonormal rows to 1e-10 (float32: 1e-4)."""
    matrix = floating(matrix, name)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(f"{name} must be a square matrix, got shape {tuple(matrix.shape)}")
    tolerances = {torch.float64: 1e-10, torch.float32: 1e-4}
    if matrix.dtype not in tolerances:
        raise TypeError(f"{name} must have dtype float32 or float64, got {matrix.dtype}")
    exact = matrix.detach().double()
    defect = float((exact @ exact.mT - torch.eye(len(matrix)).to(exact)).abs().max())
    allowed = tolerances[matrix.dtype]
    if defect > allowed:
        raise ValueError(
            f"{name} must be orthogonal: max|VVᵀ - I| = {defect:.3g}, allowed {allowed:.3g}"
        )
    return matrix


def device(value: torch.device | str, name: str = "device") -> torch.device:
    """Return a device, checked to be available on this machine and build of torch."""
    try:
        return torch.empty(0, device=value).device
    except (AssertionError, RuntimeError) as error:  # AssertionError: a build without CUDA
        reason = str(error).splitlines()[0]
        raise ValueError(f"{name} {str(value)!r} cannot be used here: {reason}") from error


def assign(frozen: object, **values: object) -> None:
    """Store checked values in a frozen dataclass, as the Python numbers that the checks return."""
    for name, value in values.items():
        object.__setattr__(frozen, name, value)


def changed(frozen: Frozen, **values: object) -> Frozen:
    """Return a frozen dataclass with other values, unchecked; the same object if it has them."""
    if all(getattr(frozen, name) is value for name, value in values.items()):
        return frozen
    other = copy.copy(frozen)
    assign(other, **values)
    return other
