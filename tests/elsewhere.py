"""A simulated device: tensors that say they are elsewhere, and refuse to meet those of the CPU.

Their numbers are on the CPU. As on a GPU, an operation with tensors of both places is an error,
except for copies, for indices on the CPU and for single numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

PLACE = torch.device("meta")

ACROSS = ("aten::_to_copy", "aten::copy_", "aten::index", "aten::index_put_")
"""Operations that take tensors of both places."""


class Elsewhere(Tensor):
    """A tensor of the simulated device."""

    numbers: Tensor

    @staticmethod
    def __new__(cls: type[Elsewhere], inner: Tensor) -> Elsewhere:
        result: Elsewhere = Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), dtype=inner.dtype, device=PLACE
        )
        result.numbers = inner
        return result

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return computed(func, args, kwargs or {})


class SimulatedDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within, `PLACE` is a device with numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the result of an operation, at the place of its arguments or the one it names."""
    tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
    far = [one for one in tensors if isinstance(one, Elsewhere)]
    near = [one for one in tensors if not isinstance(one, Elsewhere) and one.ndim]
    name = func._schema.name
    if any(one.device == PLACE for one in near):
        raise RuntimeError(
            f"{name} got a tensor without numbers, as torch makes of a list of places"
        )
    if far and near and name not in ACROSS:
        raise RuntimeError(f"{name} got tensors of two devices")
    place = kwargs.get("device")
    place = (PLACE if far else torch.device("cpu")) if place is None else torch.device(place)
    if name == "aten::copy_":
        place = args[0].device
    if "device" in kwargs:
        kwargs = {**kwargs, "device": torch.device("cpu")}

    def inside(one: Any) -> Any:
        return one.numbers if isinstance(one, Elsewhere) else one

    def outside(one: Any) -> Any:
        return Elsewhere(one) if isinstance(one, Tensor) else one

    result = func(*tree_map(inside, args), **tree_map(inside, kwargs))
    return tree_map(outside, result) if place == PLACE else result
