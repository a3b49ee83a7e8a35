"""Entries of a configuration, and errors that name them: the place, the value and its class."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from types import NoneType
from typing import Any, NoReturn

from torch import Tensor

DEPTH = 32  # how deep objects and containers may lie in each other: recursion ends there
WORDS: dict[object, str] = {int: "an integer", float: "a number", bool: "true or false"}
WORDS |= {str: "text", dict: "an object", Tensor: "a tensor", NoneType: "None"}


class StorageError(ValueError):
    """A file, or a description of an object, from which no object can be made."""


@dataclass(frozen=True)
class Entry:
    """A place in a configuration; its text begins a sentence, and `load` puts the file before."""

    path: str = ""
    depth: int = 0

    def __str__(self) -> str:
        return f"entry {self.path!r} " if self.path else ""

    def __truediv__(self, name: object) -> Entry:
        if self.depth == DEPTH:
            self.fail(f"has more than {DEPTH} levels: is it a part of itself?")
        return Entry(f"{self.path}.{name}" if self.path else str(name), self.depth + 1)

    def fail(self, fault: str) -> NoReturn:
        """Raise an error about this entry."""
        raise StorageError(f"{self}{fault}")

    def wrong(self, demand: str, value: object) -> NoReturn:
        """Raise an error that shows the value and what it must be."""
        self.fail(f"must be {demand}, got {shown(value)}")


def public_name(cls: type[Any]) -> str:
    """Return module and name of a class; private modules of oism are left out.

    >>> public_name(StorageError)
    'oism.storage.StorageError'
    """
    parts = cls.__module__.split(".")
    if parts[0] == "oism":
        parts = [part for part in parts if not part.startswith("_")]
    return ".".join((*parts, cls.__qualname__))


def shown(value: object) -> str:
    """Return a short text for a value that came from a file."""
    if value is None or isinstance(value, (bool, int, float, str, list, tuple, dict)):
        return reprlib.repr(value)
    return f"an object of class {public_name(type(value))!r}"
