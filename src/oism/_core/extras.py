"""Optional dependencies, with an error that names the extra to install."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, extra: str, *, purpose: str, package: str | None = None) -> ModuleType:
    """Return an optional module, or raise an error that names the extra to install.

    The message starts with ``purpose``; ``package`` is the name of the package if it differs from
    the first part of the module's name.

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
            raise  # the package is installed, but one of its own imports is missing
        message = f"{purpose} needs {package or root}: pip install 'oism[{extra}]'"
        raise ModuleNotFoundError(message, name=error.name) from error
