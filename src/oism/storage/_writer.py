"""From an object to its description: a class name, a configuration of JSON values, tensors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn

from oism.storage._dtypes import dtype_name
from oism.storage._entry import Entry, public_name
from oism.storage._registry import NAMES, External
from oism.storage._signature import fault_of


def describe(obj: object) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return {"class", "config"} of an object, made of JSON values, and copies of its tensors."""
    writer = _Writer()
    return writer.describe(obj, Entry()), writer.tensors


class _Writer:
    """Turns values into JSON, and collects the tensors among them."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.encoders: dict[type[Any], Callable[[Any, Entry], object]] = {
            External: self._external,
            Tensor: self._tensor,
            torch.dtype: lambda value, at: {"$dtype": dtype_name(value, at)},
            **dict.fromkeys((bool, str, NoneType), lambda value, _: value),
            int: lambda value, _: int(value),
            float: lambda x, _: float(x) if math.isfinite(x) else {"$float": repr(float(x))},
            tuple: self._array,
            list: lambda value, at: {"$list": self._array(value, at)},
            dict: self._dict,
        }

    def describe(self, obj: Any, at: Entry) -> dict[str, Any]:  # noqa: ANN401
        cls = type(obj)
        if cls not in NAMES:
            raise TypeError(
                f"{at}is of class {public_name(cls)!r}, which cannot be stored: register the class "
                "(storable), or let the object that holds it wrap it (External)"
            )
        if hasattr(cls, "to_config"):
            entries = obj.to_config()
        else:
            entries = {f.name: getattr(obj, f.name) for f in dataclasses.fields(obj) if f.init}
        fault = fault_of(cls, entries, at)
        if fault is not None:
            raise TypeError(f"{NAMES[cls]} must state the arguments that rebuild it: {fault}")
        if getattr(cls, "stores_state", False):
            entries = {**entries, "state": obj.state_dict()}
        return {"class": NAMES[cls], "config": self._dict(entries, at)}

    def value(self, value: object, at: Entry) -> object:
        if type(value) in NAMES:
            return {"$object": self.describe(value, at)}
        for kind, encode in self.encoders.items():
            if isinstance(value, kind) and not hasattr(value, "_fields"):  # no named tuples
                return encode(value, at)
        return self.describe(value, at)  # raises

    def _external(self, value: External, at: Entry) -> object:
        part = value.part
        if part is None or type(part) in NAMES:
            return self.value(part, at)
        state = part.state_dict() if isinstance(part, nn.Module) else None
        encoded = self.value(state, at / "state")
        return {"$external": {"class": public_name(type(part)), "state": encoded}}

    def _tensor(self, value: Tensor, at: Entry) -> object:
        if value.layout != torch.strided or value.is_meta:
            raise TypeError(f"{at}must be a dense tensor with values to be stored")
        if at.path in self.tensors:
            at.fail("is the path of two tensors")
        part = value.detach().cpu().resolve_conj().resolve_neg()
        part = torch.view_as_real(part) if part.is_complex() else part
        self.tensors[at.path] = part.clone(memory_format=torch.contiguous_format)
        return {"$tensor": dtype_name(value.dtype, at)}

    def _array(self, value: Sequence[object], at: Entry) -> list[object]:
        return [self.value(one, at / i) for i, one in enumerate(value)]

    def _dict(self, value: dict[Any, object], at: Entry) -> dict[str, object]:
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                raise TypeError(f"{at}must have keys that are text without $, got {key!r}")
        return {key: self.value(one, at / key) for key, one in value.items()}
