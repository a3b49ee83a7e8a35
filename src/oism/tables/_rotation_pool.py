"""The density of rotations: a probability flow pooled with kernels of many widths and mixtures.

    p(q) = v₀ ρ(q) + v_u + Σ_j v_j k_j(q) + Σ_j w_j m_j(q)    with respect to the Haar measure

ρ is the density of the flow of Wigner functions, whose roughness penalty is one for the whole
group. Structure that is sharp in few places is left to kernel estimates k_j of many widths
(`oism.tables._kernels`) and mixtures m_j of 1, 2, 3, … components
(`oism.tables._rotation_mixture`). The weights maximise the likelihood of rows that the parts were
fitted without (`oism.tables._pool`), then every part is fitted to all rows. Samples choose a part
first, so they are exact for the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from oism.basis import Wigner
from oism.estimation import ChosenRidge, CrossValidation, fit_moments, moments_of
from oism.process import Clock, Rotations
from oism.score import OperatorScore
from oism.storage import storable
from oism.tables._collector import FEW_ROWS_RIDGE
from oism.tables._folds import folds_of_rotations
from oism.tables._kernels import DirectionalKernels, RotationHaar
from oism.tables._pool import Densities, FlowDensity, Invariant, Pool, held_out_weights, notable
from oism.tables._rotation_mixture import RotationMixture, fit_mixture, improved

STEPS = 24
"""The steps of the probability flow: log-densities agree with those of twice as many to 0.001."""

TIMES = 20
"""The number of times at which ridge and penalty are chosen."""

FOLDS = 5

ONE_FOLD = 1000
"""The number of rows above which one fold is held out for the weights of the pool, not all."""

HELD_OUT = 4000
"""The largest number of held-out rows of a fold for the weights of the pool."""

COMPONENTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""The numbers of components of the mixtures, with at least `ROWS_EACH` rows for each."""

ROWS_EACH = 20

LEAST_WEIGHT = 0.01
"""Kernels and mixtures of less weight are left out."""


@storable
class RotationPool(Pool):
    """A density of unit quaternions (w, x, y, z) with respect to the Haar measure.

    ``weights`` are those of the flow, of the uniform distribution, of the members of ``kernels``
    and of ``mixtures``.
    """

    def __init__(
        self,
        scores: OperatorScore,
        kernels: DirectionalKernels,
        mixtures: Sequence[RotationMixture],
        weights: Tensor,
    ) -> None:
        super().__init__(_parts(scores, kernels, mixtures), weights)
        self.scores, self.kernels, self.mixtures = scores, kernels, tuple(mixtures)

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {name: getattr(self, name) for name in ("scores", "kernels", "mixtures", "weights")}

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> Tensor:
        """Return n unit quaternions with w ≥ 0."""
        return Rotations().wrap(super().sample(n, generator, **settings))

    def facts(self) -> dict[str, Any]:
        """Return the weights of the parts."""
        flow, uniform, kernels, *mixtures = (float(part.sum()) for part in self.shares)
        return {
            "flow": flow,
            "uniform": uniform,
            "kernels": kernels,
            "members": self.kernels.count,
            "mixtures": sum(mixtures),
            "components": [len(mixture.points) for mixture in self.mixtures],
        }


def _parts(
    scores: OperatorScore, kernels: DirectionalKernels, mixtures: Sequence[RotationMixture]
) -> list[Densities]:
    return [FlowDensity(scores, STEPS), Invariant(Rotations(), 4), kernels, *mixtures]


def fit_pool(
    q: Tensor, weights: Tensor, degree: int, clock: Clock | None, progress: bool | None
) -> RotationPool:
    """Return the density of unit quaternions ``(n, 4)`` with weights ``(n,)`` > 0, in float64."""
    fold = folds_of_rotations(q, FOLDS)
    used = torch.unique(fold)
    scores = fit_moments(
        moments_of(Wigner(degree), FOLDS).update(q, weights, fold=fold),
        clock=clock,
        ridge=CrossValidation(FOLDS, TIMES) if len(used) > 1 else FEW_ROWS_RIDGE,
        progress=progress,
    )
    space, floor = RotationHaar(), 1 / (1 + len(q))
    none = DirectionalKernels(q[:0], weights[:0], torch.arange(0), space)
    if len(used) < 2:  # nothing can be held out
        return RotationPool(scores, none, (), torch.tensor([1 - floor, floor], dtype=torch.float64))
    basis = Wigner(scores.basis.facts()["finest"])
    counts = [k for k in COMPONENTS if ROWS_EACH * k <= len(q)]

    def fit_parts(own: Tensor) -> list[Densities]:
        rest, heavy = q[own], weights[own]
        before = fit_moments(
            moments_of(basis, 1).update(rest, heavy),
            clock=scores.clock,
            ridge=ChosenRidge(scores.schedule, TIMES),
            progress=progress,
        )
        mixtures = [fit_mixture(rest, heavy, count) for count in counts]
        return _parts(before, DirectionalKernels(rest, heavy, space=space), mixtures)

    folds = [fold == one for one in (used[:1] if len(q) > ONE_FOLD else used)]
    found, last = held_out_weights(fit_parts, q, weights, folds, HELD_OUT)
    always = torch.zeros_like(found)
    always[0], always[1] = 1e-300, floor  # no rotation is impossible
    kept, share = notable(found, LEAST_WEIGHT, always)
    first = len(found) - len(counts)
    members = kept[(kept >= 2) & (kept < first)] - 2
    starts = [cast("RotationMixture", last[3 + k]) for k in (kept[kept >= first] - first).tolist()]
    return RotationPool(
        scores,
        DirectionalKernels(q, weights, members, space) if len(members) else none,
        [improved(q, weights, start) for start in starts],
        share,
    )
