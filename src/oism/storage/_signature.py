"""The entries of an object, compared with the signature of the function that rebuilds it.

An annotation that cannot be evaluated, or that cannot be checked at run time, accepts every value.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace, UnionType
from typing import Any

from oism.storage._entry import WORDS, Entry, public_name, shown
from oism.storage._registry import External


def fault_of(cls: type[Any], entries: Mapping[str, object], at: Entry) -> str | None:
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
                return f"{at / name}must be {_words(hint)}, got {shown(value)}"
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
