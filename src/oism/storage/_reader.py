"""From the description of an object to the object. Nothing in a description is trusted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from oism.storage._dtypes import DTYPES, REALS
from oism.storage._entry import Entry, StorageError, public_name
from oism.storage._module import build_module, fill
from oism.storage._registry import resolve
from oism.storage._signature import fault_of

Given = Mapping[str, object]


def restore(
    described: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    expected: type[Any] | None = None,
    given: Given | None = None,
) -> Any:  # noqa: ANN401
    """Return the object that was described, on the CPU; ``expected`` and ``given`` as in `load`."""
    reader = _Reader(tensors, given or {})
    with torch.device("cpu"):
        obj = reader.build(described, Entry(), expected)
    for name in sorted(set(tensors) - reader.used):
        raise StorageError(f"tensor {name!r} belongs to no entry")
    for key in sorted(set(reader.given) - set(reader.taken)):
        raise StorageError(f"given {key!r} is not the name of an entry that has to be given")
    return obj


class _Reader:
    """Turns JSON into values. Nothing in it is trusted: every kind and every name is checked."""

    def __init__(self, tensors: Mapping[str, Tensor], given: Given) -> None:
        self.tensors, self.given = tensors, given
        self.used: set[str] = set()
        self.taken: dict[str, str] = {}
        self.decoders: dict[str, Callable[[Any, Entry], object]] = {
            "$tensor": self._tensor,
            "$object": self.build,
            "$external": self._external,
            "$float": lambda raw, at: float(_one_of(raw, ("inf", "-inf", "nan"), at)),
            "$dtype": lambda raw, at: DTYPES[_one_of(raw, DTYPES, at)],
            "$list": lambda raw, at: list(self._array(raw, at)),
        }

    def build(self, raw: object, at: Entry, expected: type[Any] | None = None) -> object:
        name, config = _class_and(raw, "config", at)
        if not isinstance(config, dict):
            (at / "config").wrong("an object", config)
        cls = resolve(name)
        if cls is None:
            what = f"holds an object of class {name!r}, which is not registered: import the module "
            what += "that defines it before loading, or give it (see `given`)"
            part = self._given(name, config.get("state"), what, at)
            self.used |= {tensor for tensor in self.tensors if tensor.startswith(f"{at.path}.")}
            return part
        if expected is not None and not issubclass(cls, expected):
            at.fail(f"holds an object of class {name!r}, not {public_name(expected)!r}")
        stores_state = getattr(cls, "stores_state", False)
        rest = {key: one for key, one in config.items() if key != "state" or not stores_state}
        entries = {key: self.value(one, at / key) for key, one in rest.items()}
        fault = fault_of(cls, entries, at)
        if fault is not None:
            raise StorageError(fault)
        state = self._state(config.get("state"), at / "state") if stores_state else None
        maker = getattr(cls, "from_config", cls)
        try:
            return maker(**entries) if state is None else build_module(cls, entries, state)
        except Exception as error:
            kind = "" if isinstance(error, ValueError | TypeError) else f"{type(error).__name__}: "
            reason = str(error).partition("\n")[0]  # torch appends the calls in its own code
            raise StorageError(f"{at}cannot be built: {kind}{reason}") from error

    def value(self, raw: object, at: Entry) -> object:
        if isinstance(raw, list):
            return self._array(raw, at)
        if not isinstance(raw, dict):
            return raw
        mark = next((key for key in raw if key.startswith("$")), None)
        if mark is None:
            return {key: self.value(one, at / key) for key, one in raw.items()}
        if len(raw) > 1 or mark not in self.decoders:
            at.wrong(f"an object with one key out of {', '.join(self.decoders)}", raw)
        return self.decoders[mark](raw[mark], at)

    def _array(self, raw: object, at: Entry) -> tuple[object, ...]:
        if not isinstance(raw, list):
            at.wrong("an array", raw)
        return tuple(self.value(one, at / i) for i, one in enumerate(raw))

    def _tensor(self, raw: object, at: Entry) -> Tensor:
        dtype = DTYPES[_one_of(raw, DTYPES, at)]
        found = self.tensors.get(at.path)
        if found is None or at.path in self.used:
            at.fail("is missing: no tensor has this name" if found is None else "is named twice")
        self.used.add(at.path)
        if found.dtype != REALS.get(dtype, dtype) or (dtype in REALS and found.shape[-1:] != (2,)):
            shape = tuple(found.shape)
            at.fail(f"must be a tensor that holds {dtype}, got {found.dtype} of shape {shape}")
        return torch.view_as_complex(found) if dtype in REALS else found

    def _state(self, raw: object, at: Entry) -> dict[str, Tensor]:
        if raw is None:
            at.fail("is missing")
        state = self.value(raw, at)
        if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
            at.wrong("an object whose values are tensors", raw)
        return state

    def _external(self, raw: object, at: Entry) -> object:
        name, state = _class_and(raw, "state", at)
        what = f"is an object of class {name!r} that is not part of oism: give it again, "
        what += f"load(path, given={{{at.path.rpartition('.')[2]!r}: …}})"
        return self._given(name, state, what, at)

    def _given(self, name: str, state: object, what: str, at: Entry) -> object:
        """Return the part that was given for an entry, filled with the weights of the file."""
        key = at.path if at.path in self.given else at.path.rpartition(".")[2]
        if key not in self.given:
            at.fail(what)
        if key in self.taken:
            at.fail(f"needs a part of its own: given {key!r} is that of {self.taken[key]!r}")
        self.taken[key], part = at.path, self.given[key]
        # By its last name: the module is another one where a script that trained is imported.
        if name.rpartition(".")[2] != type(part).__name__:
            got = public_name(type(part))
            at.fail(f"is an object of class {name!r}, but the one given is of class {got!r}")
        if state is not None and isinstance(part, nn.Module):
            weights = self._state(state, at / "state")
            try:
                fill(part, weights)
            except (StorageError, RuntimeError) as error:
                at.fail(f"cannot be filled: {error}")
        return part


def _one_of(raw: object, allowed: Collection[str], at: Entry) -> str:
    if not isinstance(raw, str) or raw not in allowed:
        at.wrong(f"one of {', '.join(allowed)}", raw)
    return raw


def _class_and(raw: object, other: str, at: Entry) -> tuple[str, Any]:
    if not isinstance(raw, Mapping) or set(raw) != {"class", other}:
        at.wrong(f"an object with the keys 'class' and {other!r}", raw)
    if not isinstance(raw["class"], str):
        (at / "class").wrong("text", raw["class"])
    return raw["class"], raw[other]
