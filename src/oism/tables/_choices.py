"""The choices of `OISM` before it sees rows: the family, the folds, and what rows may choose."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Protocol

import numpy as np
import torch
from sklearn.model_selection import check_cv
from torch import Tensor

from oism._core import checks
from oism.estimation import JamesStein, Modulation, Monotone, SampleMeans, Shrinkage
from oism.process import Clock, Process, Sphere
from oism.tables._columns import Columns
from oism.tables._directions import Directions
from oism.tables._ends import JacobiFamily, LaguerreFamily
from oism.tables._family import Family
from oism.tables._joint_family import JointFamily, MixtureFamily
from oism.tables._linear import LinearFamily
from oism.tables._ornstein_uhlenbeck import OrnsteinUhlenbeckFamily
from oism.tables._sphere import SphereFamily
from oism.tables._sphere_table import SphereTableFamily
from oism.tables._torus import MOST_COLUMNS, TorusFamily

PROCESSES: tuple[type[Family[Any]], ...] = (
    TorusFamily,
    OrnsteinUhlenbeckFamily,
    LinearFamily,
    JacobiFamily,
    LaguerreFamily,
)
FAMILIES: tuple[type[Family[Any]], ...] = (*PROCESSES, JointFamily, MixtureFamily)
NAMES = {family.name: family for family in FAMILIES if family.name is not None}

SHRINKAGES: dict[str, type[Shrinkage]] = {
    "none": SampleMeans,
    "james-stein": JamesStein,
    "modulation": Modulation,
    "monotone": Monotone,
}

FOLDS = 5
"""The number of folds, unless given."""

OF_FLOWS = (
    "max_eigenvalue", "order", "network", "ridge", "shrinkage", "clock", "flow_steps", "device",
)  # fmt: skip
"""Parameters for models with a flow: where one differs from its default, the model has a flow."""


class Parameters(Protocol):
    """The parameters of `OISM` that a fit depends on; without arguments they are the defaults."""

    process: str | Process
    sphere: Sequence[Any] | None
    sphere_unit: str
    max_eigenvalue: float | str
    order: int | str
    frame: str
    shrinkage: str
    ridge: float | str
    cv: Any
    clock: Clock | None
    flow_steps: int | str
    network: float | str | None
    device: str | torch.device | None

    def __init__(self) -> None: ...


def choose_family(
    process: str | Process,
    columns: Columns,
    directions: Directions | None = None,
    **settings: Any,  # noqa: ANN401
) -> Family[Any]:
    """Return the family of the process that is given, or of the one that suits the columns."""
    if directions is not None:
        sphere = Sphere() if process == "auto" else process
        if not isinstance(sphere, Sphere):
            raise ValueError(f"process must be 'auto' or Sphere() with sphere=, got {process!r}")
        alone = len(directions.columns) == columns.count
        kind_of = SphereFamily if alone else SphereTableFamily
        points = kind_of(sphere, **settings, directions=directions)
        points.check(columns)
        return points
    if process == "auto":
        few = columns.count <= MOST_COLUMNS and not columns.categorical
        process = "torus" if few else "joint"
    if isinstance(process, str):
        kind = NAMES[process]
        family = kind(kind.process_type(), **settings)
    else:
        found = [kind for kind in PROCESSES if isinstance(process, kind.process_type)]
        if not found:
            known = ", ".join((*map(repr, ("auto", *NAMES)), *(kind.example for kind in PROCESSES)))
            raise ValueError(
                f"process must be one of {known}, got {process!r}: data without a box need an "
                "invariant distribution"
            )
        family = found[0](process, **settings)
    family.check(columns)
    return family


def choose_folds(cv: Any, n: int) -> tuple[int, Tensor | None]:  # noqa: ANN401
    """Return the number of folds, and the fold of each of n rows or None for folds by content."""
    if cv is None or isinstance(cv, Integral):
        folds = FOLDS if cv is None else checks.integer(cv, "cv", minimum=2)
        return folds, None
    tests = [test for _, test in check_cv(cv).split(np.zeros(n))]
    held = np.concatenate(tests) if tests else np.zeros(0, dtype=np.int64)
    if not np.array_equal(np.sort(held), np.arange(n)):
        raise ValueError("cv must have test sets that hold every row exactly once, as KFold's do")
    fold = np.zeros(n, dtype=np.int64)
    for number, test in enumerate(tests):
        fold[test] = number
    return len(tests), torch.from_numpy(fold)


def allows_ends(given: Parameters) -> bool:
    """Return whether rows may choose the process at bounds: nothing of the torus is given."""
    own = given.clock is not None or given.network is not None or given.max_eigenvalue != "auto"
    own |= not SHRINKAGES[given.shrinkage].keeps_positivity  # others need the torus' projection
    return _is_automatic(given) and not own and given.order == "auto"


def allows_mixture(given: Parameters) -> bool:
    """Return whether held-out rows may choose a mixture: no parameter of a flow is given."""
    usual = type(given)()
    changed = [name for name in OF_FLOWS if getattr(given, name) != getattr(usual, name)]
    usual_folds = isinstance(given.cv, Integral) and given.cv == usual.cv
    return _is_automatic(given) and not changed and (given.cv is None or usual_folds)


def _is_automatic(given: Parameters) -> bool:
    return isinstance(given.process, str) and given.process == "auto"
