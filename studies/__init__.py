"""Studies: the experiments of the paper and what follows from them, one folder each.

A folder holds ``study.py`` (the code), ``text.md`` (the words of the report), and what a run wrote:
``report.md``, ``figure.png`` and ``numbers.json``. Studies use the public names of `oism` only.
``python -m studies`` lists them, ``python -m studies NAME`` runs one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from studies.study import Study

STUDIES: Mapping[str, str] = MappingProxyType(
    {
        "bart-simpson": "Figure 1: scores and densities on the circle",
        "plane": "Figure 2: a density in two dimensions, a network with the same time, KDE",
        "gallery": "the appendix: eight distributions, densities, samples by ODE and SDE",
        "stein": "where shrinkage lowers the error, positivity, memorisation",
        "polynomials": "Hermite polynomials in one dimension: a higher order does no harm",
        "fokker-planck": "the score Fokker-Planck equation as a regulariser of networks",
        "critically-damped": "critically damped Langevin dynamics in closed form",
        "eigenfunctions": "functions adapted to the data: numerical eigenfunctions, and Fourier's",
        "coefficients": "Figure 5: coefficients over time, exact and interpolated",
        "closed-form-cifar": "images without a network: errors, bits per dimension, samples",
        "sampling": "samples of a network with few evaluations, and diffusers' schedulers",
        "training": "Figure 3, Table 1: does a prior help a network? Forms, parametrisations, cost",
    }
)
"""What each study is about, by name."""


def folder_of(name: str) -> Path:
    """Return the folder of a study, which holds its code and its report."""
    return Path(__file__).parent / name.replace("-", "_")


def make_study(name: str, *, quick: bool = False, seed: int = 0, data: str | None = None) -> Study:
    """Return a study by name, in its full or quick form; ``data`` is for studies of images."""
    name = name.replace("_", "-")
    if name not in STUDIES:
        raise ValueError(f"name must be one of {', '.join(STUDIES)}, got {name!r}")
    kind: type[Study] = import_module(f"studies.{folder_of(name).name}.study").STUDY
    study = kind.quick(seed) if quick else kind(seed)
    if data is None:
        return study
    if "data" not in {field.name for field in fields(study)}:
        raise ValueError(f"data must be None for {name}, which makes its own, got {data!r}")
    return replace(study, data=data)  # type: ignore[call-arg]
