"""The registry: which classes can be stored, and the name of each in a file.

A name of oism is package and class, without private modules, so that a file does not depend on the
module in which a class is defined. An object of a class that is not registered has to be given
again, see `External`.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from oism.storage._entry import public_name

# At most three packages deep: a longer name would let a file choose how deep an import recurses.
PUBLIC = re.compile(r"(oism(?:\.[a-z]\w*){1,3})\.([A-Z]\w*)", re.ASCII)

C = TypeVar("C", bound=type[Any])

CLASSES: dict[str, type[Any]] = {}
NAMES: dict[type[Any], str] = {}


@dataclasses.dataclass(frozen=True, eq=False)
class External:
    """A part that may be a user's own: ``to_config`` wraps it, and the constructor gets the part.

    If its class is registered, it is stored as any other object. Otherwise the file holds the name
    of its class, and the state dict of a `torch.nn.Module`; the part must be given to `load`.
    """

    part: object


@typing.overload
def storable(cls: C) -> C: ...
@typing.overload
def storable(cls: str) -> Callable[[C], C]: ...
def storable(cls: C | str) -> C | Callable[[C], C]:
    """Return a class, registered under its public name or under the name that is given.

    >>> from oism.storage import load, save
    >>> @storable
    ... @dataclasses.dataclass(frozen=True)
    ... class Exponential:
    ...     rate: float
    >>> save(Exponential(float("inf")), "fast.safetensors")
    >>> load("fast.safetensors")
    Exponential(rate=inf)
    """
    if isinstance(cls, str):
        name = cls
        return lambda cls: _register(cls, name)
    return _register(cls, public_name(cls))


def _register(cls: C, name: str) -> C:
    known = CLASSES.get(name, cls)  # a class that a notebook defines again replaces itself
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"{name!r} is the name of {known!r}: give {cls!r} another, storable(name)")
    if name.startswith("oism.") and PUBLIC.fullmatch(name) is None:
        raise ValueError(f"{name!r} must be a public name: package and class, without underscores")
    if getattr(cls, "stores_state", False) and not issubclass(cls, nn.Module):
        raise TypeError(f"{cls!r} must be a torch.nn.Module to set stores_state")
    if not hasattr(cls, "to_config") and not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls!r} must be a dataclass or have a method to_config to be storable")
    CLASSES[name], NAMES[cls] = cls, name
    return cls


def resolve(name: str) -> type[Any] | None:
    """Return a registered class; a public module of oism is imported if the name is in it."""
    public = PUBLIC.fullmatch(name)
    if name not in CLASSES and public is not None:
        try:
            getattr(importlib.import_module(public[1]), public[2], None)  # names may be lazy
        except ModuleNotFoundError as error:
            if not f"{public[1]}.".startswith(f"{error.name}."):
                raise  # the module exists, and something that it imports does not
    return CLASSES.get(name)
