"""Objects as files: one safetensors file for each object, and a registry of the classes in them.

The header of a file has one metadata entry, ``oism``, whose text is JSON:

    {"format": "oism", "version": 3, "class": "oism.process.VariancePreserving",
     "config": {"beta_0": 0.1, "beta_1": 20.0}, "sha256": "…"}

``class`` is a registered name and ``config`` holds the arguments that rebuild the object. Tensors
among them lie in the file under their dotted path, as ``system.basis.frequencies``. An array is a
tuple. For values that JSON does not have, an object with one key that starts with ``$`` is written:

    {"$tensor": "complex128"}  the tensor of this path; complex ones are stored as (…, 2) reals
    {"$object": {"class": …, "config": …}}    another registered object
    {"$external": {"class": …, "state": …}}   an object that has to be given again, see `External`
    {"$float": "inf"}, {"$dtype": "float64"}, {"$list": […]}

``sha256`` is the digest of the JSON text of {"class", "config"}, with sorted keys and no spaces;
then, for each tensor in the order of names, of the JSON text of [name, dtype, shape] and its bytes.
So a changed byte or value is an error. Equal objects give equal files; dictionaries come back
sorted. Nothing is pickled, and no file decides which code is run: it can only name classes that are
registered, or that a public module of oism registers when it is imported.

A class takes part by `storable`. Its ``to_config(self) -> dict`` returns the arguments, which go
back to its classmethod ``from_config`` if there is one and to the constructor otherwise; for a
dataclass they are the fields. Names and types are compared with the signature, on saving as well:
what can be saved can be loaded. A `torch.nn.Module` that sets ``stores_state = True`` has its state
dict stored as the entry ``state``, and `build_module` makes it again. A module that is made of
other modules states these and its own tensors instead, so that nothing is stored twice.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import importlib
import inspect
import json
import math
import os
import re
import reprlib
import stat
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, NoReturn, Self, TypeVar

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import oism._core.forks  # noqa: F401 (every model is used through this module)
from oism._core.atomic import StrPath, replacing

FORMAT, VERSION = "oism", 3
MODEL = "model.safetensors"
DEPTH = 32  # how deep objects and containers may lie in each other: recursion ends there
LONGEST_HEADER = 100_000_000  # bytes; safetensors reads no longer one
REALS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
INTEGERS = [f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
DTYPES: dict[str, torch.dtype] = {n: getattr(torch, n) for n in ("bool", *INTEGERS, *FLOATS)}
# At most three packages deep: a longer name would let a file choose how deep an import recurses.
PUBLIC = re.compile(r"(oism(?:\.[a-z]\w*){1,3})\.([A-Z]\w*)", re.ASCII)
WORDS: dict[object, str] = {int: "an integer", float: "a number", bool: "true or false"}
WORDS |= {str: "text", dict: "an object", Tensor: "a tensor", NoneType: "None"}

C = TypeVar("C", bound=type[Any])
M = TypeVar("M", bound=nn.Module)
Given = Mapping[str, object]

_CLASSES: dict[str, type[Any]] = {}
_NAMES: dict[type[Any], str] = {}


class StorageError(ValueError):
    """A file, or a description of an object, from which no object can be made."""


@dataclasses.dataclass(frozen=True, eq=False)
class External:
    """A part that may be a user's own: ``to_config`` wraps it, and the constructor gets the part.

    If its class is registered, it is stored as any other object. Otherwise the file holds the name
    of its class, and the state dict of a `torch.nn.Module`; the part must be given to `load`.
    """

    part: object


class Storable:
    """Adds ``save`` and ``load`` to a registered class, or to the base class of several."""

    __slots__ = ()

    def save(self, path: StrPath) -> None:
        """Write the object to one file, atomically."""
        save(self, path)

    @classmethod
    def load(cls, path: StrPath, *, given: Given | None = None) -> Self:
        """Return the object in a file, on the CPU, if it is of this class; see `storage.load`."""
        obj: Self = load(path, expected=cls, given=given)
        return obj


def public_name(cls: type[Any]) -> str:
    """Return module and name of a class; private modules of oism are left out.

    >>> public_name(StorageError)
    'oism.storage.StorageError'
    """
    parts = cls.__module__.split(".")
    if parts[0] == "oism":
        parts = [part for part in parts if not part.startswith("_")]
    return ".".join((*parts, cls.__qualname__))


@typing.overload
def storable(cls: C) -> C: ...
@typing.overload
def storable(cls: str) -> Callable[[C], C]: ...
def storable(cls: C | str) -> C | Callable[[C], C]:
    """Return a class, registered under its public name or under the name that is given.

    >>> @storable
    ... @dataclasses.dataclass(frozen=True)
    ... class Exponential:
    ...     rate: float
    >>> save(Exponential(math.inf), "fast.safetensors")
    >>> load("fast.safetensors")
    Exponential(rate=inf)
    """
    if isinstance(cls, str):
        name = cls
        return lambda cls: _register(cls, name)
    return _register(cls, public_name(cls))


def _register(cls: C, name: str) -> C:
    known = _CLASSES.get(name, cls)  # a class that a notebook defines again replaces itself
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"{name!r} is the name of {known!r}: give {cls!r} another, storable(name)")
    if name.startswith("oism.") and PUBLIC.fullmatch(name) is None:
        raise ValueError(f"{name!r} must be a public name: package and class, without underscores")
    if getattr(cls, "stores_state", False) and not issubclass(cls, nn.Module):
        raise TypeError(f"{cls!r} must be a torch.nn.Module to set stores_state")
    if not hasattr(cls, "to_config") and not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls!r} must be a dataclass or have a method to_config to be storable")
    _CLASSES[name], _NAMES[cls] = cls, name
    return cls


def _resolve(name: str) -> type[Any] | None:
    """Return a registered class; a public module of oism is imported if the name is in it."""
    public = PUBLIC.fullmatch(name)
    if name not in _CLASSES and public is not None:
        try:
            getattr(importlib.import_module(public[1]), public[2], None)  # names may be lazy
        except ModuleNotFoundError as error:
            if not f"{public[1]}.".startswith(f"{error.name}."):
                raise  # the module exists, and something that it imports does not
    return _CLASSES.get(name)


def save(obj: object, path: StrPath) -> None:
    """Write an object of a registered class to one file, atomically."""
    content = to_bytes(obj)
    # Not safetensors' `save_file`: it renames a draft of its own, over pipes and devices as well.
    with replacing(path) as draft:
        draft.write_bytes(content)


def to_bytes(obj: object) -> bytes:
    """Return the content of the file that `save` writes."""
    described, tensors = describe(obj)
    digest = _digest(described, tensors)
    about = {"format": FORMAT, "version": VERSION, **described, "sha256": digest}
    # One entry: safetensors writes several in any order, and equal models are to be equal files.
    return safetensors.torch.save(tensors, metadata={"oism": _canonical(about)})


def load(path: StrPath, *, expected: type[Any] | None = None, given: Given | None = None) -> Any:  # noqa: ANN401
    """Return the object in a file, on the CPU.

    Parameters
    ----------
    path
        A file that `save` wrote, or a folder with the file ``model.safetensors``, as that of a
        training run.
    expected
        The class that the object must be of.
    given
        The parts that the file does not hold, see `External`, by the last name of their entry or by
        its dotted path: ``{"net": net}`` or ``{"predictor.net": net}``. The weights in the file are
        copied into modules.
    """
    path = _file_of(path)
    with _naming(path):
        described, digest, tensors = _read(path, with_tensors=True)
        if _digest(described, tensors) != digest:
            raise StorageError("is damaged: its content does not have the SHA-256 that it states")
        return restore(described, tensors, expected=expected, given=given)


def config_of(path: StrPath) -> dict[str, Any]:
    """Return {"class", "config"} of a file, as `describe` does, from its header alone.

    The digest is not compared: it covers the tensors, which are not read.
    """
    path = _file_of(path)
    with _naming(path):
        return _read(path, with_tensors=False)[0]


def class_of(path: StrPath) -> str | None:
    """Return the class that the header of a file names, or None where it cannot be read."""
    try:
        return str(config_of(path)["class"])
    except (OSError, StorageError):
        return None


def describe(obj: object) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return {"class", "config"} of an object, made of JSON values, and copies of its tensors."""
    writer = _Writer()
    return writer.describe(obj, _Entry()), writer.tensors


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
        obj = reader.build(described, _Entry(), expected)
    for name in sorted(set(tensors) - reader.used):
        raise StorageError(f"tensor {name!r} belongs to no entry")
    for key in sorted(set(reader.given) - set(reader.taken)):
        raise StorageError(f"given {key!r} is not the name of an entry that has to be given")
    return obj


def build_module(cls: type[M], arguments: Mapping[str, Any], state: Mapping[str, Tensor]) -> M:
    """Return a module made with ``arguments`` and filled with ``state``, in evaluation mode.

    It is first built on the meta device, where tensors have a shape and no memory, and compared
    with ``state``: a file gets no memory for sizes that it claims and does not have. So a
    constructor must not read values of the tensors that it makes. The dtypes become those of
    ``state``. Torch's random state is left as it was.
    """
    maker: Callable[..., M] = getattr(cls, "from_config", cls)
    # The limit may end a constructor while gradients are off, and then they must come back.
    gradients = torch.set_grad_enabled(torch.is_grad_enabled())
    with torch.random.fork_rng(devices=[]):
        with gradients, torch.device("meta"), _CallLimit(10_000 + 100 * len(state)):
            skeleton = maker(**arguments)
        _compare(skeleton, state)
        module = maker(**arguments)
    _fill(module, state)
    return module.eval()


class _CallLimit(TorchFunctionMode):
    """Ends the construction of a module with far more layers than there are tensors for."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.left = limit

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        self.left -= 1
        if self.left < 0:
            raise StorageError("it has far more layers than there are tensors")
        return func(*args, **(kwargs or {}))


def _compare(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Raise unless a module has the tensors of a state, by name and shape."""
    own, kind = module.state_dict(), type(module).__name__
    for name in (*own, *state):
        if name not in state or name not in own:
            fault = "is missing" if name not in state else f"is unknown to {kind}"
            raise StorageError(f"tensor {name!r} {fault}")
        shape, found = tuple(own[name].shape), tuple(state[name].shape)
        if shape != found:
            raise StorageError(f"tensor {name!r} has shape {found}, but {kind} has {shape} there")


def _fill(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    _compare(module, state)
    for name, own in module.state_dict(keep_vars=True).items():
        if own.dtype != state[name].dtype:
            own.data = own.data.to(state[name].dtype)  # as `Module.to` does: a copy would be cast
    module.load_state_dict(dict(state))


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A place in a configuration; its text begins a sentence, and `load` puts the file before."""

    path: str = ""
    depth: int = 0

    def __str__(self) -> str:
        return f"entry {self.path!r} " if self.path else ""

    def __truediv__(self, name: object) -> _Entry:
        if self.depth == DEPTH:
            self.fail(f"has more than {DEPTH} levels: is it a part of itself?")
        return _Entry(f"{self.path}.{name}" if self.path else str(name), self.depth + 1)

    def fail(self, fault: str) -> NoReturn:
        raise StorageError(f"{self}{fault}")

    def wrong(self, demand: str, value: object) -> NoReturn:
        self.fail(f"must be {demand}, got {_shown(value)}")


class _Writer:
    """Turns values into JSON, and collects the tensors among them."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.encoders: dict[type[Any], Callable[[Any, _Entry], object]] = {
            External: self._external,
            Tensor: self._tensor,
            torch.dtype: lambda value, at: {"$dtype": _dtype_name(value, at)},
            **dict.fromkeys((bool, str, NoneType), lambda value, _: value),
            int: lambda value, _: int(value),
            float: lambda x, _: float(x) if math.isfinite(x) else {"$float": repr(float(x))},
            tuple: self._array,
            list: lambda value, at: {"$list": self._array(value, at)},
            dict: self._dict,
        }

    def describe(self, obj: Any, at: _Entry) -> dict[str, Any]:  # noqa: ANN401
        cls = type(obj)
        if cls not in _NAMES:
            raise TypeError(
                f"{at}is of class {public_name(cls)!r}, which cannot be stored: register the class "
                "(storable), or let the object that holds it wrap it (External)"
            )
        if hasattr(cls, "to_config"):
            entries = obj.to_config()
        else:
            entries = {f.name: getattr(obj, f.name) for f in dataclasses.fields(obj) if f.init}
        fault = _fault(cls, entries, at)
        if fault is not None:
            raise TypeError(f"{_NAMES[cls]} must state the arguments that rebuild it: {fault}")
        if getattr(cls, "stores_state", False):
            entries = {**entries, "state": obj.state_dict()}
        return {"class": _NAMES[cls], "config": self._dict(entries, at)}

    def value(self, value: object, at: _Entry) -> object:
        if type(value) in _NAMES:
            return {"$object": self.describe(value, at)}
        for kind, encode in self.encoders.items():
            if isinstance(value, kind) and not hasattr(value, "_fields"):  # no named tuples
                return encode(value, at)
        return self.describe(value, at)  # raises

    def _external(self, value: External, at: _Entry) -> object:
        part = value.part
        if part is None or type(part) in _NAMES:
            return self.value(part, at)
        state = part.state_dict() if isinstance(part, nn.Module) else None
        encoded = self.value(state, at / "state")
        return {"$external": {"class": public_name(type(part)), "state": encoded}}

    def _tensor(self, value: Tensor, at: _Entry) -> object:
        if value.layout != torch.strided or value.is_meta:
            raise TypeError(f"{at}must be a dense tensor with values to be stored")
        if at.path in self.tensors:
            at.fail("is the path of two tensors")
        part = value.detach().cpu().resolve_conj().resolve_neg()
        part = torch.view_as_real(part) if part.is_complex() else part
        self.tensors[at.path] = part.clone(memory_format=torch.contiguous_format)
        return {"$tensor": _dtype_name(value.dtype, at)}

    def _array(self, value: Sequence[object], at: _Entry) -> list[object]:
        return [self.value(one, at / i) for i, one in enumerate(value)]

    def _dict(self, value: dict[Any, object], at: _Entry) -> dict[str, object]:
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                raise TypeError(f"{at}must have keys that are text without $, got {key!r}")
        return {key: self.value(one, at / key) for key, one in value.items()}


class _Reader:
    """Turns JSON into values. Nothing in it is trusted: every kind and every name is checked."""

    def __init__(self, tensors: Mapping[str, Tensor], given: Given) -> None:
        self.tensors, self.given = tensors, given
        self.used: set[str] = set()
        self.taken: dict[str, str] = {}
        self.decoders: dict[str, Callable[[Any, _Entry], object]] = {
            "$tensor": self._tensor,
            "$object": self.build,
            "$external": self._external,
            "$float": lambda raw, at: float(_one_of(raw, ("inf", "-inf", "nan"), at)),
            "$dtype": lambda raw, at: DTYPES[_one_of(raw, DTYPES, at)],
            "$list": lambda raw, at: list(self._array(raw, at)),
        }

    def build(self, raw: object, at: _Entry, expected: type[Any] | None = None) -> object:
        name, config = _class_and(raw, "config", at)
        if not isinstance(config, dict):
            (at / "config").wrong("an object", config)
        cls = _resolve(name)
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
        fault = _fault(cls, entries, at)
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

    def value(self, raw: object, at: _Entry) -> object:
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

    def _array(self, raw: object, at: _Entry) -> tuple[object, ...]:
        if not isinstance(raw, list):
            at.wrong("an array", raw)
        return tuple(self.value(one, at / i) for i, one in enumerate(raw))

    def _tensor(self, raw: object, at: _Entry) -> Tensor:
        dtype = DTYPES[_one_of(raw, DTYPES, at)]
        found = self.tensors.get(at.path)
        if found is None or at.path in self.used:
            at.fail("is missing: no tensor has this name" if found is None else "is named twice")
        self.used.add(at.path)
        if found.dtype != REALS.get(dtype, dtype) or (dtype in REALS and found.shape[-1:] != (2,)):
            shape = tuple(found.shape)
            at.fail(f"must be a tensor that holds {dtype}, got {found.dtype} of shape {shape}")
        return torch.view_as_complex(found) if dtype in REALS else found

    def _state(self, raw: object, at: _Entry) -> dict[str, Tensor]:
        if raw is None:
            at.fail("is missing")
        state = self.value(raw, at)
        if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
            at.wrong("an object whose values are tensors", raw)
        return state

    def _external(self, raw: object, at: _Entry) -> object:
        name, state = _class_and(raw, "state", at)
        what = f"is an object of class {name!r} that is not part of oism: give it again, "
        what += f"load(path, given={{{at.path.rpartition('.')[2]!r}: …}})"
        return self._given(name, state, what, at)

    def _given(self, name: str, state: object, what: str, at: _Entry) -> object:
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
                _fill(part, weights)
            except (StorageError, RuntimeError) as error:
                at.fail(f"cannot be filled: {error}")
        return part


def _fault(cls: type[Any], entries: Mapping[str, object], at: _Entry) -> str | None:
    """Return what is wrong with the arguments of a class, compared with its signature."""
    maker = getattr(cls, "from_config", cls)
    known = inspect.signature(maker).parameters
    named = {k: p for k, p in known.items() if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}}
    for name, parameter in named.items():
        if name not in entries and parameter.default is parameter.empty:
            return f"{at / name}is missing"
    others = any(p.kind is p.VAR_KEYWORD for p in known.values())
    source = cls.__init__ if maker is cls else inspect.unwrap(maker)
    for name, value in entries.items():
        if name not in named and not others:
            return f"{at / name}is unknown: {public_name(cls)} has no such argument"
        if name in named:
            hint = _hint(named[name].annotation, getattr(source, "__globals__", {}))
            if not _matches(value, hint):
                return f"{at / name}must be {_words(hint)}, got {_shown(value)}"
    return None


def _hint(annotation: object, names: dict[str, Any]) -> object:
    """Return the type that an annotation stands for, or Any where that cannot be found."""
    if annotation is inspect.Parameter.empty:
        return Any
    # One at a time: a name that only type checkers import must not hide the other annotations.
    holder = SimpleNamespace(__annotations__={"entry": annotation})
    try:
        return typing.get_type_hints(holder, names)["entry"]
    except Exception:  # whatever evaluating the text of an annotation raises
        return Any


def _matches(value: object, hint: object) -> bool:
    """Return whether a value is of an annotated type; true where that cannot be decided."""
    value = value.part if isinstance(value, External) else value
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, UnionType}:
        return any(_matches(value, one) for one in inner)
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if hint is int or hint is float:
        return isinstance(value, int | hint) and not isinstance(value, bool)
    kind: Any = origin or hint
    if isinstance(value, str) and kind in (Sequence, Iterable, Collection):
        return False  # a text is a sequence of texts, and never meant as one
    try:
        return isinstance(value, kind) and _contents_match(value, kind, inner)
    except TypeError:  # no class, or a protocol that cannot be asked at run time
        return True


def _contents_match(value: Any, kind: type[Any], inner: tuple[Any, ...]) -> bool:  # noqa: ANN401
    if kind is tuple and inner and inner[-1] is not Ellipsis:
        return len(value) == len(inner) and all(map(_matches, value, inner))
    if isinstance(value, tuple | list) and inner:
        return all(_matches(one, inner[0]) for one in value)
    if isinstance(value, Mapping) and len(inner) == 2:
        return all(_matches(k, inner[0]) and _matches(v, inner[1]) for k, v in value.items())
    return True


def _words(hint: object) -> str:
    if typing.get_origin(hint) in {typing.Union, UnionType}:
        return " or ".join(map(_words, typing.get_args(hint)))
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        return WORDS.get(hint, f"of class {public_name(hint)!r}")
    return str(hint)


def _shown(value: object) -> str:
    """Return a short text for a value that came from a file."""
    if value is None or isinstance(value, (bool, int, float, str, list, tuple, dict)):
        return reprlib.repr(value)
    return f"an object of class {public_name(type(value))!r}"


def _one_of(raw: object, allowed: Collection[str], at: _Entry) -> str:
    if not isinstance(raw, str) or raw not in allowed:
        at.wrong(f"one of {', '.join(allowed)}", raw)
    return raw


def _class_and(raw: object, other: str, at: _Entry) -> tuple[str, Any]:
    if not isinstance(raw, Mapping) or set(raw) != {"class", other}:
        at.wrong(f"an object with the keys 'class' and {other!r}", raw)
    if not isinstance(raw["class"], str):
        (at / "class").wrong("text", raw["class"])
    return raw["class"], raw[other]


def _dtype_name(dtype: torch.dtype, at: _Entry) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TypeError(f"{at}has the dtype {dtype}, which cannot be stored")
    return name


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(described: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 that the head of this module defines."""
    sha = hashlib.sha256(_canonical(described).encode())
    for name in sorted(tensors):
        part = tensors[name]
        dtype = str(part.dtype).removeprefix("torch.")
        sha.update(_canonical([name, dtype, list(part.shape)]).encode())
        sha.update(part.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


@contextmanager
def _naming(path: StrPath) -> Iterator[None]:
    """Put the name of a file before what is wrong with it."""
    try:
        yield
    except StorageError as error:
        raise StorageError(f"{os.fspath(path)}: {error}") from error


def _file_of(path: StrPath) -> StrPath:
    """Return the file itself, or that of the model in a folder."""
    if not os.path.isdir(path):
        return path
    file = os.path.join(path, MODEL)
    if not os.path.isfile(file):
        why = f"is a folder without {MODEL}, which a training run writes with every checkpoint"
        raise IsADirectoryError(errno.EISDIR, why, os.fspath(path))
    return file


def _read(path: StrPath, *, with_tensors: bool) -> tuple[dict[str, Any], str, dict[str, Tensor]]:
    """Return {"class", "config"}, the digest and the tensors of a file."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # a missing file is a FileNotFoundError
        raise StorageError("is not a regular file")
    open(path, "rb").close()  # safetensors calls a file that may not be read missing
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            described, digest = _parse((file.metadata() or {}).get("oism"))
            names = file.keys() if with_tensors else ()
            # Copied: a tensor in a file need not be aligned as complex arithmetic expects.
            return described, digest, {name: file.get_tensor(name).clone() for name in names}
    except (MemoryError, OSError, StorageError):
        raise
    except Exception as error:  # safetensors', and torch's for a dtype or shape it does not have
        raise StorageError(_diagnosis(path) or f"is damaged: {error}") from error


def _parse(text: str | None) -> tuple[dict[str, Any], str]:
    """Return {"class", "config"} and the digest from the entry ``oism`` of a header."""
    if text is None:
        raise StorageError("is not a file of oism: its header has no entry 'oism'")
    try:
        about = json.loads(text)
        _canonical(about)  # what can be read need not be writable: 1e999, arrays that are too deep
    except (ValueError, RecursionError) as error:
        raise StorageError("is damaged: its header is not JSON that oism writes") from error
    if not isinstance(about, dict):
        raise StorageError(f"is damaged: its header must hold an object, got {_shown(about)}")
    form, version = about.get("format"), about.get("version")
    if form != FORMAT or version != VERSION:
        newer = form == FORMAT and isinstance(version, int) and version > VERSION
        raise StorageError(
            f"has format {_shown(form)}, version {_shown(version)}; this oism reads format "
            f"{FORMAT!r}, version {VERSION}: {'upgrade oism' if newer else 'fit again'}"
        )
    kinds = {"format": str, "version": int, "class": str, "config": dict, "sha256": str}
    for name, kind in kinds.items():
        if not isinstance(about.get(name), kind):
            _Entry(name).wrong(WORDS[kind], about.get(name))
    for name in set(about) - set(kinds):
        _Entry(name).fail("is unknown")
    return {name: about[name] for name in ("class", "config")}, about["sha256"]


def _diagnosis(path: StrPath) -> str:
    """Return what is wrong with the length of a file that safetensors refuses, or an empty text."""
    with open(path, "rb") as file:
        start, size = file.read(8), os.fstat(file.fileno()).st_size
        length = int.from_bytes(start, "little")
        if not start or length > LONGEST_HEADER:
            return "is not a safetensors file" if start else "is empty"
        header = file.read(length)
    if header[:1] not in {b"", b"{"}:
        return "is not a safetensors file"
    end = 8 + length
    if size >= end:
        try:
            about = json.loads(header)
            end += max(about[name]["data_offsets"][1] for name in about if name != "__metadata__")
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
            return ""
    if size < end:
        return f"is truncated: {size} bytes of {end}"
    return f"is too long: {size - end} bytes follow its end" if size > end else ""
