"""oism: operator-informed score matching, the library that fits a diffusion model in closed form.

The packages in the order of their dependence, each importing only those before it:
`oism.storage` (the file format), `oism.process` (processes, clocks, operators), `oism.basis`
(eigenfunctions), `oism.flow` (the contract of fitted models, flows, likelihoods), `oism.score`
(fitted scores), `oism.estimation` (from data to scores), `oism.images` (priors of tensors),
`oism.nn`, `oism.objectives`, `oism.training`, `oism.diffusers` and `oism.azula` (bridges to other
libraries), `oism.tables` (`OISM`), `oism.data` (toy distributions, readers of files), `oism.plot`
and `oism.cli`.

Names are imported when they are first used; ``__init__.pyi`` lists them.
"""

import ast
from importlib import import_module
from pathlib import Path

__version__ = "0.2.0"

_stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_home = {  # the module of each name; None for a module itself
    alias.name: node.module
    for node in _stub.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = [name for name, module in _home.items() if module]  # `import *` brings no modules


def __getattr__(name: str) -> object:
    if name not in _home:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_home[name] or name}")
    value = getattr(module, name) if _home[name] else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_home)
