"""How good the closed form is: score-matching losses against known scores.

Run it with ``python -m oism.studies.closed_form`` (``--repetitions 50`` is the default; a few give
a quick look). The loss of an estimate ŝ is E‖ŝ - ∇log ρ_t‖² under ρ_t, by quadrature.

1. Bart Simpson on the circle, 25 frequencies, exact moments: what the functions can represent.
2. The same from 2,000 points: sample means, the paper's shrinkage, its projection, and the default,
   cross-validation; then the default with a bound of 100 frequencies instead of 25.
3. Hermite polynomials of one coordinate, bound 9 against 3, on laws with skew, tails or two modes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.stats
import torch
import tyro
from torch import Tensor
from tqdm import tqdm

from oism.basis import Fourier, Hermite
from oism.clock import VariancePreserving
from oism.datasets import BART_SIMPSON, WrappedMixture
from oism.estimation import fit
from oism.moments import Averages, FourierMoments, extended
from oism.shrinkage import Modulation, SampleMeans, Shrinkage, shrink_fourier
from oism.solve import TorusSystem

TIMES = (5e-5, 0.005, 0.02)
POINTS = 2000
CIRCLE = torch.linspace(-math.pi, math.pi, 4097, dtype=torch.float64)[:-1, None]


def frequencies(count: int) -> Fourier:
    """Return the waves of the circle up to a frequency."""
    return Fourier.lattice(dim=1, max_eigenvalue=count**2)


def circle_loss(law: WrappedMixture, score: Callable[[Tensor], Tensor], t: float) -> float:
    """Return E‖ŝ - ∇log ρ_t‖² on the circle; the trapezoidal rule is exact to rounding."""
    error = (score(CIRCLE) - law.score(CIRCLE, t)).square()[:, 0]
    return float((error * law.density(CIRCLE, t)).mean() * 2 * math.pi)


def solved(system: TorusSystem, ridge: float, t: float) -> Callable[[Tensor], Tensor]:
    """Return the score of a system at one time and one ridge, with nothing truncated."""
    one = torch.ones(1, dtype=torch.float64)
    alpha = system.solve(t * one, ridge * one, system.untruncated * one).alpha[0]
    return lambda x: system.basis.series(x, alpha, derivative=1)


def exact_moments(count: int, t: float) -> float:
    """Return the loss with the exact moments of the law."""
    basis = frequencies(count)
    lattice = extended(basis)
    means, none = BART_SIMPSON.characteristic(lattice), torch.zeros(0, dtype=torch.float64)
    averages = Averages(means, means.new_zeros(0, len(means)), none, none, none)
    system = TorusSystem(basis, lattice, averages, dense=True)
    return circle_loss(BART_SIMPSON, solved(system, 0.0, t), t)


def unregularised(x: Tensor, shrinkage: Shrinkage) -> list[float]:
    """Return the losses of the plain solution with estimated moments."""
    moments = FourierMoments(frequencies(25), folds=1, squares=True).update(x)
    averages = shrink_fourier(moments, shrinkage)
    system = TorusSystem(moments.basis, moments.frequencies, averages, dense=True)
    return [circle_loss(BART_SIMPSON, solved(system, 0.0, t), t) for t in TIMES]


def cross_validated(x: Tensor, count: int) -> list[float]:
    """Return the losses of the default fit with a bound on the frequencies."""
    score = fit(x, frequencies(count), progress=False)
    return [circle_loss(BART_SIMPSON, lambda y, t=t: score.score(y, t), t) for t in TIMES]  # type: ignore[misc]


ESTIMATES: dict[str, Callable[[Tensor], list[float]]] = {
    "sample means": lambda x: unregularised(x, SampleMeans()),
    "paper's rule": lambda x: unregularised(x, Modulation(project=False)),
    "rule and projection": lambda x: unregularised(x, Modulation()),
    "cross-validated, 25": lambda x: cross_validated(x, 25),
    "cross-validated, 100": lambda x: cross_validated(x, 100),
}


def bart_simpson(repetitions: int) -> dict[str, np.ndarray]:
    """Return the losses of every estimate: ``(repetitions, times)``."""
    losses: dict[str, list[list[float]]] = {name: [] for name in ESTIMATES}
    for seed in tqdm(range(repetitions), desc="Bart Simpson", disable=None, leave=False):
        x = BART_SIMPSON.sample(POINTS, torch.Generator().manual_seed(seed))
        for name, estimate in ESTIMATES.items():
            losses[name].append(estimate(x))
    return {name: np.array(many) for name, many in losses.items()}


class Law(Protocol):
    """A law on the line, as SciPy describes it."""

    def pdf(self, x: np.ndarray) -> np.ndarray:
        """Return the density."""

    def ppf(self, q: np.ndarray) -> np.ndarray:
        """Return the quantiles."""


class TwoModes:
    """½N(-1.5, 0.5²) + ½N(1.5, 0.5²)."""

    def pdf(self, x: np.ndarray) -> np.ndarray:
        """Return the density."""
        left, right = (scipy.stats.norm.pdf(x, side, 0.5) for side in (-1.5, 1.5))
        density: np.ndarray = 0.5 * (left + right)
        return density

    def ppf(self, q: np.ndarray) -> np.ndarray:
        """Return quantiles of one mode for q < ½, of the other above; they do not overlap much."""
        right = q >= 0.5
        inner = np.where(right, 2 * q - 1, 2 * q).clip(1e-12, 1 - 1e-12)
        mode: np.ndarray = np.where(right, 1.5, -1.5) + 0.5 * scipy.stats.norm.ppf(inner)
        return mode


@dataclass(frozen=True)
class Line:
    """A law on the line with its noised versions."""

    name: str
    law: Law

    def sample(self, n: int, seed: int) -> Tensor:
        """Draw n points ``(n, 1)``."""
        return torch.from_numpy(self.law.ppf(np.random.default_rng(seed).random(n)))[:, None]

    def noised(self, alpha: float, sigma: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return points, their weights under the law of αX + σZ, and its score there.

        ρ_t(x) = ∫ ρ((x - σz)/α) φ(z) dz/α, and its score is -E[z ρ]/(σE[ρ]) with the same weights.
        """
        z = np.linspace(-8, 8, 801)
        normal = np.exp(-0.5 * z**2)
        low, high = alpha * self.law.ppf(np.array([1e-4, 1 - 1e-4]))
        x = np.linspace(low - 4 * sigma, high + 4 * sigma, 4001)
        terms = self.law.pdf((x[:, None] - sigma * z) / alpha) * normal
        mass = terms.sum(axis=1)
        score = -(terms * z).sum(axis=1) / (sigma * mass.clip(1e-300))
        parts = (x[:, None], mass / mass.sum(), score[:, None])
        return tuple(torch.from_numpy(part) for part in parts)  # type: ignore[return-value]


LINES = (
    Line("lognormal", scipy.stats.lognorm(1.0)),
    Line("Laplace", scipy.stats.laplace()),
    Line("Student t, 5", scipy.stats.t(5)),
    Line("two modes", TwoModes()),
)
NOISE = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Clock times of the variance preserving clock: σ from 0.08 to 0.96."""


def line_losses(line: Line, repetitions: int, orders: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield the losses for each bound on the order: ``(repetitions, noise levels)``."""
    times = VariancePreserving().time(torch.tensor(NOISE, dtype=torch.float64))
    truths = [line.noised(math.exp(-t), math.sqrt(-math.expm1(-2 * t))) for t in map(float, times)]
    for order in orders:
        rows = []
        for seed in tqdm(range(repetitions), desc=line.name, disable=None, leave=False):
            score = fit(line.sample(POINTS, seed), Hermite(dim=1, order=order), progress=False)
            errors = [
                float((weights * (score.score(x, t) - truth).square()[:, 0]).sum())
                for (x, weights, truth), t in zip(truths, times, strict=True)
            ]
            rows.append(errors)
        yield np.array(rows)


def _row(name: str, values: np.ndarray, form: str = ".4g") -> None:
    print(f"{name:<24}" + "".join(f"{value:>12{form}}" for value in values))


def report(repetitions: int = 50) -> None:
    """Print the tables."""
    print("Bart Simpson, 25 frequencies, exact moments: score-matching loss")
    _row("t", np.array(TIMES))
    _row("exact moments", np.array([exact_moments(25, t) for t in TIMES]), ".3g")
    print(f"\n{POINTS} points, {repetitions} repetitions")
    losses = bart_simpson(repetitions)
    for name, many in losses.items():
        _row(f"{name}: mean", many.mean(axis=0))
        _row("  standard error", many.std(axis=0, ddof=1) / math.sqrt(repetitions), ".2g")
        _row("  median", np.median(many, axis=0))
        _row("  largest", many.max(axis=0))
    narrow, wide = (np.median(losses[f"cross-validated, {n}"], axis=0) for n in (25, 100))
    _row("medians, 100 over 25", wide / narrow, ".3f")
    print("\nHermite, one coordinate: mean loss with a bound of 9 over that with 3")
    _row("clock time", np.array(NOISE))
    for line in LINES:
        low, high = (many.mean(axis=0) for many in line_losses(line, repetitions, (3, 9)))
        _row(line.name, high / low, ".3f")


if __name__ == "__main__":
    tyro.cli(report)
