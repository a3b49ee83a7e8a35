"""Densities of rotations: `fit_rotations`, for quaternions, rotation matrices or SciPy's rotations.

A rotation is one object with three degrees of freedom, not a row of columns: four or nine numbers
that no column kind, bound or conditional of a table applies to. So it has its own function, and the
model has `log_density` and `sample` in the form of the data. This module checks and converts; the
density, of unit quaternions, is that of `oism.tables._rotation_pool`. Densities are with respect to
the Haar measure of total mass 1: the uniform distribution has density 1, whatever the form.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from torch import Tensor

from oism import storage
from oism._core import checks
from oism.flow import OrdinaryMethod, StochasticMethod
from oism.process import Clock, Rotations
from oism.score import OperatorScore
from oism.storage import storable
from oism.tables._rotation_pool import RotationPool, fit_pool

Array = NDArray[Any]

TOLERANCE = 1e-3
"""The largest error of a norm, or of an entry of RRᵀ, that counts as rounding of the data."""

FORMS = {"quaternions": (4,), "matrices": (3, 3), "flat matrices": (9,), "Rotation": (4,)}
"""The shape of a row in each form."""


def form_of(x: object, name: str = "x") -> str:
    """Return the form of rotations, one of `FORMS`."""
    if hasattr(x, "as_matrix"):  # SciPy's Rotation, and what behaves like it
        return "Rotation"
    shape = tuple(x.shape) if isinstance(x, Tensor) else np.asarray(x).shape
    for form, row in FORMS.items():
        if shape[1:] == row:
            return form
    raise ValueError(
        f"{name} must be rotations: quaternions (n, 4), matrices (n, 3, 3) or (n, 9), or a SciPy "
        f"Rotation, got shape {shape}"
    )


def quaternions_of(x: object, name: str = "x", *, scalar_first: bool = True) -> Tensor:
    """Return unit quaternions (w, x, y, z) with w ≥ 0 of rotations in any form: ``(n, 4)``.

    >>> quaternions_of([[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])  # 90° around z
    tensor([[0.7071, 0.0000, 0.0000, 0.7071]], dtype=torch.float64)
    """
    form = form_of(x, name)
    if hasattr(x, "as_matrix"):
        x = np.reshape(x.as_matrix(), (-1, 3, 3))
    values = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, dtype=np.float64)
    if not np.isfinite(values).all():
        row = int(np.argmax(~np.isfinite(values).reshape(len(values), -1).all(axis=1)))
        raise ValueError(f"{name} must be finite, but row {row} is {values[row].tolist()}: drop it")
    if form == "quaternions":
        _check_quaternions(values, name)
        found = torch.from_numpy(values if scalar_first else np.roll(values, 1, axis=1))
    else:
        matrices = values.reshape(-1, 3, 3)
        _check_matrices(matrices, name)
        if not len(matrices):
            return torch.zeros(0, 4, dtype=torch.float64)
        found = torch.from_numpy(np.roll(Rotation.from_matrix(matrices).as_quat(), 1, axis=1))
    return Rotations().wrap(found)


def _check_quaternions(values: Array, name: str) -> None:
    norms = np.linalg.norm(values, axis=1)
    wrong = np.nonzero(abs(norms - 1) > TOLERANCE)[0]
    if len(wrong):
        raise ValueError(
            f"{name} must be unit quaternions, but the norm of row {wrong[0]} is "
            f"{norms[wrong[0]]:.6g} ({len(wrong)} of {len(values)} rows): if they are rotations, "
            f"divide by the norm, {name} / norm({name}, axis=1)"
        )


def _check_matrices(matrices: Array, name: str) -> None:
    error = abs(matrices @ matrices.swapaxes(1, 2) - np.eye(3)).max(axis=(1, 2), initial=0.0)
    wrong = np.nonzero(error > TOLERANCE)[0]
    if len(wrong):
        raise ValueError(
            f"{name} must be rotation matrices, but row {wrong[0]} is not orthogonal: RRᵀ differs "
            f"from I by {error[wrong[0]]:.3g} ({len(wrong)} of {len(matrices)} rows); take the "
            "nearest rotations, UVᵀ of the singular value decomposition UΣVᵀ, if that is meant"
        )
    wrong = np.nonzero(np.linalg.det(matrices) < 0)[0]
    if len(wrong):
        raise ValueError(
            f"{name} must be rotation matrices, but row {wrong[0]} is a reflection, with "
            f"determinant -1 ({len(wrong)} of {len(matrices)} rows): check the order and signs of "
            "its axes"
        )


def rotations_from(q: Tensor, form: str, *, scalar_first: bool = True) -> Any:  # noqa: ANN401
    """Return unit quaternions (w, x, y, z) as arrays of another form, or a SciPy `Rotation`."""
    last = np.roll(q.numpy(), -1, axis=1)
    if form == "quaternions":
        return q.numpy() if scalar_first else last
    if form == "Rotation":
        return Rotation.from_quat(last)
    matrices = Rotation.from_quat(last).as_matrix() if len(q) else np.zeros((0, 3, 3))
    return matrices.reshape(len(q), *FORMS[form])


@storable
@dataclass(frozen=True, eq=False)
class RotationModel:
    """A density of rotations and its samples, in the form of the data it was fitted to.

    ``pool`` is the density of unit quaternions (w, x, y, z).
    """

    pool: RotationPool
    form: str = "quaternions"
    tensors: bool = False
    scalar_first: bool = True

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"form must be one of {', '.join(FORMS)}, got {self.form!r}")

    @property
    def scores(self) -> OperatorScore:
        """The scores of all noise levels of unit quaternions (w, x, y, z): those of the flow."""
        return self.pool.scores

    def log_density(self, x: object, *, method: OrdinaryMethod | None = None) -> Any:  # noqa: ANN401
        """Return log ρ(x) with respect to the Haar measure, ``(n,)``; rotations in any form.

        A tensor if ``x`` is one, otherwise an array. The uniform distribution has log ρ = 0.
        """
        q = quaternions_of(x, scalar_first=self.scalar_first)
        found = self.pool.log_density(q, method=method)
        return found if isinstance(x, Tensor) else found.numpy()

    def sample(
        self,
        n: int,
        *,
        random_state: int | None = None,
        method: OrdinaryMethod | StochasticMethod | None = None,
    ) -> Any:  # noqa: ANN401
        """Return n rotations in the form of the data.

        Those of the flow by the probability flow, or with `oism.flow.EulerMaruyama` or `Heun` by
        the reverse SDE; those of kernels and mixtures exactly.
        """
        generator = torch.Generator()
        if random_state is None:
            generator.seed()
        else:
            generator.manual_seed(checks.integer(random_state, "random_state", minimum=0))
        q = self.pool.sample(checks.integer(n, "n", minimum=0), generator, method=method)
        found = rotations_from(q, self.form, scalar_first=self.scalar_first)
        return torch.from_numpy(found) if self.tensors else found

    def facts(self) -> dict[str, Any]:
        """Return a description of the model as JSON values."""
        return {**self.scores.facts(), "form": self.form, "pool": self.pool.facts()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model atomically to one file; `oism.load` reads it."""
        storage.save(self, path)


def _weights_of(sample_weight: object, count: int) -> Tensor:
    """Return checked weights ``(n,)``, ones by default."""
    if sample_weight is None:
        return torch.ones(count, dtype=torch.float64)
    values = np.asarray(sample_weight).astype(np.float64)
    if values.shape != (count,):
        raise ValueError(f"sample_weight must have shape ({count},), got {values.shape}")
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        raise ValueError("sample_weight must be finite and not negative, with a positive sum")
    return torch.from_numpy(values)


def fit_rotations(
    x: object,
    *,
    degree: int = 16,
    scalar_first: bool = True,
    clock: Clock | None = None,
    sample_weight: object = None,
    progress: bool | None = None,
) -> RotationModel:
    """Return a density of rotations in closed form.

    Parameters
    ----------
    x
        Unit quaternions ``(n, 4)``, rotation matrices ``(n, 3, 3)`` or ``(n, 9)`` row by row, or a
        `scipy.spatial.transform.Rotation`. q and -q are the same rotation.
    degree
        The largest degree of the Wigner functions, at most 32. The finest detail is about
        180°/degree; finer structure is left to kernels and mixtures. A lower degree is used if the
        data have no structure beyond, and ridge and order of the penalty are chosen by
        cross-validation.
    scalar_first
        Whether quaternions are (w, x, y, z), or as SciPy's default (x, y, z, w).
    clock
        The noise levels, as standard deviations of the rotation vector in radians for
        `VarianceExploding`; by default those of the basis.
    sample_weight
        One weight per rotation.

    Examples
    --------
    >>> from scipy.spatial.transform import Rotation
    >>> turns = Rotation.from_rotvec(0.3 * np.random.default_rng(0).normal(size=(300, 3)))
    >>> model = fit_rotations(turns, degree=2)
    >>> bool(model.log_density(Rotation.identity(1)) > 2)  # the uniform distribution has 0
    True
    """
    most = 32
    if checks.integer(degree, "degree", minimum=1) > most:
        raise ValueError(f"degree must be at most {most}, got {degree}")
    form = form_of(x)
    q = quaternions_of(x, scalar_first=scalar_first)
    if not len(q):
        raise ValueError("x must hold at least one rotation, got none")
    weights = _weights_of(sample_weight, len(q))
    q, weights = q[weights > 0], weights[weights > 0]
    pool = fit_pool(q, weights, degree, clock, progress)
    return RotationModel(pool, form, isinstance(x, Tensor), scalar_first)
