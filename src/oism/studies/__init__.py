"""The measurements behind the documentation, one file each; every one is a command.

`STUDIES` are those that ``oism reproduce`` knows: the paper's figures, by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
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
        "fokker-planck": "oism.studies.fokker_planck:FokkerPlanck",
        "critically-damped": "oism.studies.critically_damped:Damped",
        "coefficients": "oism.studies.coefficients:Coefficients",
        "closed-form-cifar": "oism.studies.closed_form_cifar:ClosedFormCifar",
        "cifar10": "oism.studies.cifar10:Cifar10",
    }
)
"""The class of each study, imported when it is asked for: some need matplotlib."""


def by_name(name: str, *, quick: bool = False, seed: int = 0, data: str | None = None) -> Study:
    """Return a study by name, in full or in its quick form; ``data`` is for studies of images."""
    if name not in STUDIES:
        raise ValueError(f"name must be one of {', '.join(STUDIES)}, got {name!r}")
    module, _, kind = STUDIES[name].partition(":")
    found: type[Study] = getattr(import_module(module), kind)
    study = found.quick(seed) if quick else found(seed)
    if data is None:
        return study
    if "data" not in {field.name for field in fields(study)}:
        raise ValueError(f"data must be None for {name}, which makes its own, got {data!r}")
    return replace(study, data=data)  # type: ignore[call-arg]
