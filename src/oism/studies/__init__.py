"""The measurements behind the documentation, one file each; every one is a command.

`STUDIES` are those that ``oism reproduce`` knows: the paper's figures, by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oism.studies.study import Study

STUDIES: Mapping[str, str] = MappingProxyType(
    {
        "bart-simpson": "oism.studies.bart_simpson:BartSimpson",
        "plane": "oism.studies.plane:Plane",
        "gallery": "oism.studies.gallery:Gallery",
        "stein": "oism.studies.stein:Stein",
        "polynomials": "oism.studies.polynomials:Polynomials",
    }
)
"""The class of each study, imported when it is asked for: some need matplotlib."""


def by_name(name: str, *, quick: bool = False, seed: int = 0) -> Study:
    """Return a study by name, in full or in its quick form."""
    if name not in STUDIES:
        raise ValueError(f"name must be one of {', '.join(STUDIES)}, got {name!r}")
    module, _, kind = STUDIES[name].partition(":")
    found: type[Study] = getattr(import_module(module), kind)
    return found.quick(seed) if quick else found(seed)
