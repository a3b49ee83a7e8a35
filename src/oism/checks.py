"""What an argument may be, and the error that says so.

Every check names the argument, shows the value and states what is allowed. Shapes and dtypes are
always checked. Values (finite, non-negative) are checked where they can be read: inside
``torch.func.vmap`` a tensor has no single value, and under ``torch.compile`` reading one would
break the graph, so there the caller outside the transform is the one who is checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import NoReturn

import torch
from torch import Tensor


def holds(condition: Tensor) -> bool:
    """Tell whether a condition is true everywhere; taken as true where it cannot be read."""
    if torch.compiler.is_compiling():
        return True
    try:
        return bool(condition.all())
    except RuntimeError:  # torch.func.vmap: the tensor stands for many
        return True


def _refuse(name: str, x: Tensor, allowed: Tensor, demand: str) -> NoReturn:
    """Raise, quoting the first entry of ``x`` that is not allowed."""
    index = tuple(int(i) for i in (~allowed).nonzero()[0])
    where = f"{name}[{', '.join(map(str, index))}]" if index else name
    raise ValueError(f"{name} must be {demand}, but {where} = {x[index].item()!r}")


def floating(x: object, name: str) -> Tensor:
    """Return ``x`` if it is a floating-point tensor without NaN or infinity."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"{name} must have a floating-point dtype, got {x.dtype}")
    finite = torch.isfinite(x)
    if not holds(finite):
        _refuse(name, x, finite, "finite")
    return x


def points(x: object, name: str = "x", *, dim: int | None = None) -> Tensor:
    """Return ``x`` if it is a batch of points ``(n, *shape)``, or ``(n, dim)`` if dim is given."""
    x = floating(x, name)
    if dim is not None:
        if x.ndim != 2 or x.shape[1] != dim:
            raise ValueError(f"{name} must have shape (n, {dim}), got {tuple(x.shape)}")
    elif x.ndim < 2:
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


def number(value: object, name: str, demand: str = "a finite number") -> float:
    """Return a finite real number as a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {demand}, got {type(value).__name__} {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be {demand}, got {float(value)!r}")
    return float(value)


def positive(value: object, name: str) -> float:
    """Return a positive finite number as a float."""
    demand = "a positive finite number"
    result = number(value, name, demand)
    if result <= 0:
        raise ValueError(f"{name} must be {demand}, got {result!r}")
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


def shape(value: Sequence[int], name: str = "shape") -> tuple[int, ...]:
    """Return the shape of a batch or of one point: at least one axis, none negative."""
    result = tuple(integer(n, f"{name}[{i}]", minimum=0) for i, n in enumerate(value))
    if not result:
        raise ValueError(f"{name} must have at least one axis, got ()")
    return result


def moments_in_time(
    t: object, name: str, *, low: float, high: float, closed: bool = True
) -> Tensor:
    """Return times as a tensor, one number or one per row, within [low, high] or (low, high].

    A Python number becomes a zero-dimensional float64 tensor, which leaves the dtype of whatever it
    multiplies alone.
    """
    interval = f"{'[' if closed else '('}{low:g}, {high:g}{']' if math.isfinite(high) else ')'}"
    demand = f"a number or a tensor of shape () or (n,) in {interval}"
    if isinstance(t, Tensor):
        t = floating(t, name)
        if t.ndim > 1:
            raise ValueError(f"{name} must be {demand}, got shape {tuple(t.shape)}")
    else:
        t = torch.tensor(number(t, name, demand), dtype=torch.float64)
    # Bounds are compared in the dtype of t: a float32 horizon is the float32 nearest to it.
    least, most = t.new_tensor(low), t.new_tensor(high)
    allowed = ((t >= least) if closed else (t > least)) & (t <= most)
    if not holds(allowed):
        _refuse(name, t, allowed, demand)
    return t


def time(t: object, name: str = "t", *, positive: bool = False) -> Tensor:
    """Return a time of the process, t ≥ 0 (or t > 0), as a tensor of shape () or (n,)."""
    return moments_in_time(t, name, low=0.0, high=math.inf, closed=not positive)


def orthogonal(matrix: object, name: str = "matrix") -> Tensor:
    """Return a square matrix whose rows are orthonormal to the precision of its dtype."""
    matrix = floating(matrix, name)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(f"{name} must be a square matrix, got shape {tuple(matrix.shape)}")
    exact = matrix.double()
    defect = float((exact @ exact.mT - torch.eye(len(matrix)).to(exact)).abs().max())
    allowed = 16 * len(matrix) ** 0.5 * torch.finfo(matrix.dtype).eps
    if defect > allowed:
        raise ValueError(
            f"{name} must be orthogonal: max|VVᵀ - I| = {defect:.3g}, allowed {allowed:.3g}"
        )
    return matrix
