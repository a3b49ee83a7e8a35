"""Mixtures of few von Mises-Fisher kernels of rotations, by expectation maximisation.

    p(x) = Σ_j w_j κ_j/(2 I₁(κ_j)) cosh(κ_j⟨x, c_j⟩)    with respect to the Haar measure

A kernel is the mean of those of c and -c on S³, so its row has two unknowns: the component, and
the sign of c. Given a component, the mean sign at x is tanh(κ⟨x, c⟩). With the chances r_ij of the
components for the row x_i, the step that maximises the expected likelihood is

    s_j = Σ_i r_ij tanh(κ_j⟨x_i, c_j⟩) x_i,    c_j = s_j/‖s_j‖,    A(κ_j) = ‖s_j‖/Σ_i r_ij,

A = I₂/I₁, inverted by Newton steps with A' = 1 - A² - 3A/κ. A small part of a row of the overall
spread is added to each component, without which one on a single row would have no width.
"""

from __future__ import annotations

import math
from typing import Any

import scipy.special
import torch
from torch import Tensor

from oism.storage import storable
from oism.tables._kernels import KernelSums, RotationHaar

STARTS, FIRST_STEPS = 4, 12
"""The number of random starts, and the number of steps after which the best goes on."""

MOST_STEPS = 100
TOLERANCE = 1e-5
"""The steps end when the mean log-likelihood grows by less."""

PRIOR = 0.1
"""The part of a row that is added to each component."""

LEAST_KAPPA, LARGEST_KAPPA = 1e-2, 1e6


@storable
class RotationMixture(KernelSums):
    """Components with centres ``(k, 4)``, weights ``(k,)`` and concentrations κ ``(1, k)``."""

    def __init__(self, points: Tensor, weights: Tensor, kappa: Tensor) -> None:
        super().__init__(points, weights, kappa, RotationHaar())

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {name: getattr(self, name) for name in ("points", "weights", "kappa")}


def fit_mixture(x: Tensor, weights: Tensor, count: int) -> RotationMixture:
    """Return a mixture of ``count`` components of unit quaternions ``(n, 4)``.

    The best of `STARTS` random starts, the same ones each time.
    """
    generator = torch.Generator().manual_seed(count)
    starts = [_start(x, weights, count, generator) for _ in range(STARTS)]
    tried = [_improved(x, weights, start, FIRST_STEPS) for start in starts]
    return improved(x, weights, max(tried, key=lambda one: one[1])[0])


def improved(x: Tensor, weights: Tensor, start: RotationMixture) -> RotationMixture:
    """Return the mixture after steps from ``start`` until the likelihood grows no more."""
    return _improved(x, weights, start, MOST_STEPS)[0]


def _improved(
    x: Tensor, weights: Tensor, mixture: RotationMixture, steps: int
) -> tuple[RotationMixture, float]:
    """Return the mixture after steps, and its mean log-likelihood before the last one."""
    centre, kappa, share = mixture.points, mixture.kappa[0], mixture.weights
    mass, last = weights / weights.mean(), -math.inf
    spread = float((mass @ (1 - (x @ centre.mT).abs().amax(dim=1))) / mass.sum())
    for _ in range(steps):
        cosine = x @ centre.mT
        size = kappa * cosine.abs()
        logs = size - kappa + torch.log1p(torch.exp(-2 * size)) - math.log(2)
        logs = logs + RotationHaar().log_scale(kappa) + share.log()
        total = torch.logsumexp(logs, dim=1)
        now = float(mass @ total / mass.sum())
        chance = mass[:, None] * torch.exp(logs - total[:, None])
        sums = (chance * torch.tanh(kappa * cosine)).mT @ x
        rows, length = chance.sum(dim=0), sums.norm(dim=1)
        centre = torch.where(length[:, None] > 0, sums / length[:, None], centre)
        kappa = _kappa_of((rows - length + PRIOR * spread) / (rows + PRIOR))
        share = (rows + PRIOR) / (rows + PRIOR).sum()
        if now - last < TOLERANCE:
            break
        last = now
    return RotationMixture(centre, share, kappa[None]), now


def _kappa_of(depth: Tensor) -> Tensor:
    """Return κ with 1 - A(κ) = depth."""
    depth = depth.clamp(1.5 / LARGEST_KAPPA, 1 - LEAST_KAPPA / 4)
    length = 1 - depth
    kappa = length * (4 - length.square()) / (depth * (1 + length))
    for _ in range(4):
        given = kappa.numpy()
        ratio = torch.from_numpy(scipy.special.ive(2, given) / scipy.special.ive(1, given))
        slope = 1 - ratio.square() - 3 * ratio / kappa
        kappa = (kappa - (ratio - length) / slope).clamp(LEAST_KAPPA, LARGEST_KAPPA)
    return kappa


def _start(x: Tensor, weights: Tensor, count: int, generator: torch.Generator) -> RotationMixture:
    """Return a mixture at rows that are far from each other, chosen as by k-means++."""
    chosen, depth = [], torch.ones(len(x), dtype=torch.float64)
    for _ in range(count):
        row = int(torch.multinomial(weights * depth + 1e-300, 1, generator=generator))
        chosen.append(row)
        depth = torch.minimum(depth, (1 - (x @ x[row]).abs()).clamp(min=0))
    spread = float(weights @ depth / weights.sum())
    kappa = torch.full((1, count), min(1.5 / max(spread, 1e-9), LARGEST_KAPPA), dtype=torch.float64)
    return RotationMixture(x[chosen], torch.ones(count).double(), kappa)
