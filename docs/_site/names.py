"""The public names of the package: those of ``__all__``, or without it those that a module defines.

A name that only refers to something defined elsewhere in the package has one page, that of the
package which defines it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from functools import cache
from types import ModuleType

import oism

COMMANDS = "oism.cli"
"""The command line: its reference is the help of the commands."""


@cache
def packages() -> tuple[str, ...]:
    """Return the names of all public modules that have a page, in alphabetical order."""
    found = []
    for prefix, path in (
        ("oism", oism.__path__),
        ("oism.data", importlib.import_module("oism.data").__path__),
    ):
        found += [f"{prefix}.{one.name}" for one in pkgutil.iter_modules(path)]
    public = [one for one in found if not one.rpartition(".")[2].startswith("_")]
    return tuple(sorted({*public} - {COMMANDS, "oism.data"}))


def public_names(package: str) -> list[str]:
    """Return the public names of one module.

    >>> public_names("oism.explorer")
    ['local_server', 'page']
    """
    module = importlib.import_module(package)
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == package
    ]


@cache
def places() -> dict[str, str]:
    """Return the package of every public name, for those that only one package has."""
    found: dict[str, list[str]] = {}
    for package in packages():
        for name in public_names(package):
            found.setdefault(name, []).append(package)
    return {name: where[0] for name, where in found.items() if len(where) == 1}


def is_documented_class(value: object) -> bool:
    """Return whether a value is a class with a page of the reference."""
    return inspect.isclass(value) and places().get(value.__name__, "#") in value.__module__


def members(value: type) -> list[str]:
    """Return the public methods and properties of a class with a docstring of their own.

    These are the ones it defines, or inherits from a base of the package that is not public.
    """
    names: dict[str, None] = {}
    for base in value.__mro__:
        ours = base.__module__.startswith("oism.")
        if base is value or (ours and not is_documented_class(base)):
            for name, one in vars(base).items():
                callable_ = getattr(one, "__func__", getattr(one, "fget", one))
                if not name.startswith("_") and getattr(callable_, "__doc__", None):
                    names.setdefault(name)
    return [name for name in names if _has_own_text(value, name)]


def _has_own_text(value: type, name: str) -> bool:
    one = inspect.getattr_static(value, name)
    return isinstance(one, (property, staticmethod, classmethod)) or inspect.isfunction(one)


def constant_text(package: str, name: str) -> str:
    """Return the docstring of a constant: the string after its definition, or its comment."""
    module = importlib.import_module(package)
    source = inspect.getsource(module)
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and name in {one.name for one in node.names}:
            return _text_in(importlib.import_module(str(node.module)), name)
    return _text_in(module, name)


def _text_in(module: ModuleType, name: str) -> str:
    body = ast.parse(inspect.getsource(module)).body
    for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if name in {getattr(one, "id", None) for one in targets} and isinstance(after, ast.Expr):
            value = getattr(after.value, "value", None)
            return inspect.cleandoc(value) if isinstance(value, str) else ""
    return ""
