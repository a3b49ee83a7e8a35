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
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oism.basis import Wigner
from oism.estimation import ChosenRidge, CrossValidation, fit, fold_of
from oism.flow import OrdinaryMethod, RungeKutta4, StochasticMethod
from oism.process import Clock, Rotations
from oism.score import OperatorScore
from oism.storage import storable
from oism.tables._collector import FEW_ROWS_RIDGE
from oism.tables._kernels import DirectionalKernels, RotationHaar
from oism.tables._pool import pool_weights
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
@dataclass(frozen=True, eq=False)
class RotationPool:
    """A density of unit quaternions (w, x, y, z) with respect to the Haar measure.

    ``weights`` are those of the flow, of the uniform distribution, of the members of ``kernels``
    and of ``mixtures``.
    """

    scores: OperatorScore
    kernels: DirectionalKernels
    mixtures: tuple[RotationMixture, ...]
    weights: Tensor

    def __post_init__(self) -> None:
        count = 2 + len(self.kernels.members) + len(self.mixtures)
        if self.weights.shape != (count,):
            raise ValueError(f"weights must be {count}, got shape {tuple(self.weights.shape)}")

    @torch.no_grad()
    def log_density(self, q: Tensor, method: OrdinaryMethod | None = None) -> Tensor:
        """Return log p of unit quaternions ``(n, 4)``: ``(n,)``."""
        logs = pool_terms(self.scores, self.kernels, self.mixtures, q, method)
        return torch.logsumexp(logs + self.weights.log(), dim=1)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: torch.Generator,
        method: OrdinaryMethod | StochasticMethod | None = None,
    ) -> Tensor:
        """Return n unit quaternions with w ≥ 0."""
        part = torch.zeros(n, dtype=torch.int64)
        if n:
            part = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        q = torch.empty(n, 4, dtype=torch.float64)
        flow, uniform, first = part == 0, part == 1, 2 + len(self.kernels.members)
        q[flow] = self.scores.flow.sample(
            int(flow.sum()),
            method=method or RungeKutta4(STEPS),
            generator=generator,
            dtype=torch.float64,
        )
        q[uniform] = Rotations().invariant.sample(
            (int(uniform.sum()), 4), generator=generator, dtype=torch.float64
        )
        local = (part >= 2) & (part < first)
        q[local] = self.kernels.sample(part[local] - 2, generator)
        for j, mixture in enumerate(self.mixtures):
            own = part == first + j
            q[own] = mixture.sample(torch.zeros(int(own.sum()), dtype=torch.int64), generator)
        return Rotations().wrap(q)

    def facts(self) -> dict[str, Any]:
        """Return the weights of the parts."""
        first = 2 + len(self.kernels.members)
        return {
            "flow": float(self.weights[0]),
            "uniform": float(self.weights[1]),
            "kernels": float(self.weights[2:first].sum()),
            "members": len(self.kernels.members),
            "mixtures": float(self.weights[first:].sum()),
            "components": [len(mixture.points) for mixture in self.mixtures],
        }


def pool_terms(
    scores: OperatorScore,
    kernels: DirectionalKernels,
    mixtures: Sequence[RotationMixture],
    q: Tensor,
    method: OrdinaryMethod | None = None,
) -> Tensor:
    """Return the log-densities of flow, uniform distribution, kernels and mixtures, by column."""
    flow = scores.log_density(q, method=method or RungeKutta4(STEPS)).double()[:, None]
    local = [kernels.log_densities(q), *(mixture.log_densities(q) for mixture in mixtures)]
    return torch.cat((flow, torch.zeros_like(flow), *local), dim=1)


def fit_pool(
    q: Tensor, weights: Tensor, degree: int, clock: Clock | None, progress: bool | None
) -> RotationPool:
    """Return the density of unit quaternions ``(n, 4)`` with weights ``(n,)`` > 0, in float64."""
    fold = fold_of(q, FOLDS)
    used = torch.unique(fold)
    scores = fit(
        q,
        Wigner(degree),
        clock=clock,
        ridge=CrossValidation(FOLDS, TIMES) if len(used) > 1 else FEW_ROWS_RIDGE,
        sample_weight=weights,
        progress=progress,
    )
    space, floor = RotationHaar(), 1 / (1 + len(q))
    none = DirectionalKernels(q[:0], weights[:0], torch.arange(0), space)
    if len(used) < 2:  # nothing can be held out
        return RotationPool(scores, none, (), torch.tensor([1 - floor, floor], dtype=torch.float64))
    basis = Wigner(scores.basis.facts()["finest"])
    counts = [k for k in COMPONENTS if ROWS_EACH * k <= len(q)]
    logs, mass = [], []
    for one in used[:1] if len(q) > ONE_FOLD else used:
        own = fold == one
        rest, heavy, shown = q[~own], weights[~own], own.nonzero()[:HELD_OUT, 0]
        before = fit(
            rest,
            basis,
            clock=scores.clock,
            ridge=ChosenRidge(scores.schedule, TIMES),
            sample_weight=heavy,
            progress=progress,
        )
        mixtures = [fit_mixture(rest, heavy, count) for count in counts]
        kernels = DirectionalKernels(rest, heavy, space=space)
        logs.append(pool_terms(before, kernels, mixtures, q[shown]))
        mass.append(weights[shown])
    found, _ = pool_weights(torch.cat(logs), torch.cat(mass))
    found = found.clamp(min=1e-300)
    found[1] = found[1].clamp(min=floor)  # no rotation is impossible
    kept = torch.cat((torch.tensor([True, True]), found[2:] >= LEAST_WEIGHT))
    first = len(found) - len(counts)
    members = kept[2:first].nonzero()[:, 0]
    used_mixtures = kept[first:].nonzero()[:, 0].tolist()
    share = found[kept] / found[kept].sum()
    return RotationPool(
        scores,
        DirectionalKernels(q, weights, members, space) if len(members) else none,
        tuple(improved(q, weights, mixtures[j]) for j in used_mixtures),  # from the last fold's
        share,
    )
