"""Packages that only a part of the library needs, and the error that names what to install."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, extra: str, *, purpose: str, package: str | None = None) -> ModuleType:
    """Return an optional module, or raise the error that names the extra that installs it.

    ``purpose`` begins the message; ``package`` is the name of what is installed, where that is not
    the first part of the name of the module.

    >>> require("json", "images", purpose="reading JSON").__name__
    'json'
    >>> require("no_such_module", "images", purpose="reading images", package="Pillow")
    Traceback (most recent call last):
        ...
    ModuleNotFoundError: reading images needs Pillow: pip install 'oism[images]'
    """
    root = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != root:
            raise  # the package is there, and something that it imports is not
        message = f"{purpose} needs {package or root}: pip install 'oism[{extra}]'"
        raise ModuleNotFoundError(message, name=error.name) from error
