"""Score-matching losses on the circle, compared with the exact scores of the Bart Simpson mixture.

The loss of an estimate ŝ is E‖ŝ - ∇log ρ_t‖² under ρ_t. The trapezoidal rule on evenly spaced
points of the circle computes it to rounding. Its integral over t bounds a divergence: for
dX = √2 dW the reverse SDE with ŝ in place of the score ends in a distribution with
KL(ρ_0 ‖ ρ̂_0) ≤ ∫ E‖ŝ - ∇log ρ_t‖² dt, plus the divergence that remains at the last t.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism.basis import Fourier
from oism.data.toys import BART_SIMPSON
from oism.estimation import FourierEquations, FourierMoments, Shrinkage, TorusSystem, fit
from oism.score import OperatorScore

Array = NDArray[np.float64]
Score = Callable[[Tensor, float], Tensor]

TRUTH = BART_SIMPSON
CIRCLE = torch.linspace(-math.pi, math.pi, 4097, dtype=torch.float64)[:-1, None]


def frequencies(count: int) -> Fourier:
    """Return the Fourier functions on the circle up to a frequency."""
    return Fourier.lattice(dim=1, max_eigenvalue=count**2)


def loss(score: Score, t: float) -> float:
    """Return E‖ŝ - ∇log ρ_t‖²."""
    error = (score(CIRCLE, t) - TRUTH.score(CIRCLE, t)).square()[:, 0]
    return float((error * TRUTH.density(CIRCLE, t)).mean() * 2 * math.pi)


def losses(score: Score, times: Array) -> Array:
    """Return the losses at several times."""
    return np.array([loss(score, float(t)) for t in times])


def divergence_bound(times: Array, values: Array) -> float:
    """Return ∫ loss dt, a bound on the KL divergence of the distribution of the reverse SDE."""
    return float(np.trapezoid(values * times, np.log(times)))


def exact_fit(count: int) -> OperatorScore:
    """Return the score fitted with exact moments: points of the circle weighted by the density."""
    weights = TRUTH.density(CIRCLE, 0.0)
    return fit(CIRCLE, frequencies(count), sample_weight=weights, ridge=0.0, progress=False)


def unregularised(x: Tensor, count: int, shrinkage: Shrinkage) -> TorusSystem:
    """Return the equations with estimated moments, without regularisation."""
    moments = FourierMoments(frequencies(count), folds=1, squares=True).update(x)
    averages = moments.shrunk(shrinkage)
    return TorusSystem(moments.basis, moments.frequencies, averages, dense=True)


def plain_solution(system: TorusSystem) -> Score:
    """Return the score of a system without ridge and truncation, solved anew at every time."""

    def score(x: Tensor, t: float) -> Tensor:
        one = torch.ones(1, dtype=torch.float64)
        alpha = system.solve(t * one, 0 * one, system.untruncated * one).alpha[0]
        return system.basis.series(x, alpha, derivative=1)

    return score


def smallest_eigenvalues(system: TorusSystem, times: Array) -> Array:
    """Return the smallest eigenvalues of Λ^{-½}A_tΛ^{-½} at times; 1 for uniform data."""
    means = system.averages.total
    equations = FourierEquations.of(system.basis, system.lattice, means)
    scale = (-equations.eigenvalues).rsqrt()
    matrices = scale[:, None] * equations.dense(torch.from_numpy(times)) * scale
    lowest: Array = torch.linalg.eigvalsh(matrices)[..., 0].numpy().reshape(len(times))
    return lowest
