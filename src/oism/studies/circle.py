"""Score-matching losses on the circle, against the known scores of the Bart Simpson mixture.

The loss of an estimate ŝ is E‖ŝ - ∇log ρ_t‖² under ρ_t. The trapezoidal rule on even points of the
circle gives it to rounding. Integrated over t it bounds a divergence: for dX = √2 dW the reverse
SDE with ŝ in place of the score ends in a law with KL(ρ_0 ‖ ρ̂_0) ≤ ∫ E‖ŝ - ∇log ρ_t‖² dt, up to
what is left at the last t.
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

LAW = BART_SIMPSON
CIRCLE = torch.linspace(-math.pi, math.pi, 4097, dtype=torch.float64)[:-1, None]


def frequencies(count: int) -> Fourier:
    """Return the waves of the circle up to a frequency."""
    return Fourier.lattice(dim=1, max_eigenvalue=count**2)


def loss(score: Score, t: float) -> float:
    """Return E‖ŝ - ∇log ρ_t‖²."""
    error = (score(CIRCLE, t) - LAW.score(CIRCLE, t)).square()[:, 0]
    return float((error * LAW.density(CIRCLE, t)).mean() * 2 * math.pi)


def losses(score: Score, times: Array) -> Array:
    """Return the losses at several times."""
    return np.array([loss(score, float(t)) for t in times])


def divergence_bound(times: Array, values: Array) -> float:
    """Return ∫ loss dt, which bounds the Kullback-Leibler divergence of the reverse SDE's law."""
    return float(np.trapezoid(values * times, np.log(times)))


def exact_fit(count: int) -> OperatorScore:
    """Return the score that the exact moments give: those of points weighted by the density."""
    weights = LAW.density(CIRCLE, 0.0)
    return fit(CIRCLE, frequencies(count), sample_weight=weights, ridge=0.0, progress=False)


def unregularised(x: Tensor, count: int, shrinkage: Shrinkage) -> TorusSystem:
    """Return the equations of estimated moments, to be solved as they are."""
    moments = FourierMoments(frequencies(count), folds=1, squares=True).update(x)
    averages = moments.shrunk(shrinkage)
    return TorusSystem(moments.basis, moments.frequencies, averages, dense=True)


def plain_solution(system: TorusSystem) -> Score:
    """Return the score of a system without ridge and truncation, solved at every time anew."""

    def score(x: Tensor, t: float) -> Tensor:
        one = torch.ones(1, dtype=torch.float64)
        alpha = system.solve(t * one, 0 * one, system.untruncated * one).alpha[0]
        return system.basis.series(x, alpha, derivative=1)

    return score


def smallest_eigenvalues(system: TorusSystem, times: Array) -> Array:
    """Return the smallest eigenvalue of Λ^{-½}A_tΛ^{-½} at times; it is 1 for the uniform law."""
    means = system.averages.total
    equations = FourierEquations(system.basis, system.lattice, means)
    scale = (-equations.eigenvalues).rsqrt()
    matrices = scale[:, None] * equations.dense(torch.from_numpy(times)) * scale
    lowest: Array = torch.linalg.eigvalsh(matrices)[..., 0].numpy().reshape(len(times))
    return lowest
