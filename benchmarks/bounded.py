"""Proportions and positive numbers: OISM at bounds against boundary-corrected kernel estimates.

Known mixtures of Beta and Gamma distributions, some with an infinite density at a bound. The error
is the Kullback-Leibler divergence from the truth, by quadrature, as mean and standard error over
seeds. Methods:

    OISM                process="auto": diffusions that end at the bounds, reflection and kernels
                        with the same bounds, pooled with weights from held-out likelihoods
    reflection          OISM on the torus, with the data reflected at their bounds
    diffusion           OISM with Jacobi's or Laguerre's diffusion alone, whose powers at the ends
                        are those of the Beta or Gamma distribution of maximal likelihood
    warping             OISM without bounds in y = log x/(1 - x) or y = log x
    KDE, reflected      Gaussian kernels, reflected at the bounds
    KDE, Beta or Gamma  Chen's (1999, 2000) kernels, whose support has the same bounds, divided by
                        the integral of the estimate

The widths of both KDE maximise the leave-one-out likelihood over 25 widths.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.special
import scipy.stats
import tyro
from numpy.typing import NDArray

from oism import OISM
from oism.process import Jacobi, Laguerre, Process

Array = NDArray[np.float64]
Density = Callable[[Array], Array]

LEAST = 1e-300
POWERS = (0.25, 3.0)
"""The range of the powers of the diffusions at the ends."""

HELD_OUT = 500
"""The number of rows at which widths are compared."""


@dataclass(frozen=True)
class Mixture:
    """A mixture of Beta(a, b) on [0, 1], or of Gamma(a) with scale b on (0, ∞)."""

    parts: tuple[tuple[float, float, float], ...]
    """a, b and the weight of each component."""
    bounded: bool

    def _law(self, a: float, b: float) -> scipy.stats.rv_continuous:
        return scipy.stats.beta(a, b) if self.bounded else scipy.stats.gamma(a, scale=b)

    @property
    def bounds(self) -> tuple[float, float | None]:
        """The bounds of the column."""
        return (0.0, 1.0) if self.bounded else (0.0, None)

    def sample(self, n: int, seed: int) -> Array:
        """Return n numbers."""
        rng = np.random.default_rng(seed)
        part = rng.choice(len(self.parts), size=n, p=[weight for *_, weight in self.parts])
        draws = [self._law(a, b).rvs(size=n, random_state=rng) for a, b, _ in self.parts]
        return np.asarray(np.choose(part, draws), dtype=np.float64)

    def density(self, x: Array) -> Array:
        """Return the density."""
        return np.asarray(sum(w * self._law(a, b).pdf(x) for a, b, w in self.parts))

    def rule(self, nodes: int = 1500) -> tuple[Array, Array]:
        """Return points and weights for integrals over all but 1e-9 of the mass.

        Points are dense at the ends, where densities may be infinite.
        """
        s, w = np.polynomial.legendre.leggauss(nodes)
        s, w = 0.5 * (s + 1), 0.5 * w
        if self.bounded:
            return np.sin(0.5 * np.pi * s) ** 2, w * 0.5 * np.pi * np.sin(np.pi * s)
        high = max(self._law(a, b).isf(1e-9) for a, b, _ in self.parts)
        return high * s**4, w * 4 * high * s**3

    def divergence(self, estimate: Density) -> tuple[float, float]:
        """Return KL(truth, estimate), and the integral of the estimate over the rule."""
        x, w = self.rule()
        p, q = self.density(x), estimate(x)
        log_ratio = np.log(np.maximum(p, LEAST)) - np.log(np.maximum(q, LEAST))
        return float(w @ (p * log_ratio)), float(w @ q)


MIXTURES = {
    "Beta(½, ½)": Mixture(((0.5, 0.5, 1.0),), bounded=True),
    "Beta: two bumps": Mixture(((2.0, 5.0, 0.6), (20.0, 6.0, 0.4)), bounded=True),
    "Beta: peaks and a bump": Mixture(((0.5, 0.5, 0.5), (8.0, 20.0, 0.5)), bounded=True),
    "Beta: peak at 0": Mixture(((0.5, 4.0, 0.5), (12.0, 3.0, 0.5)), bounded=True),
    "Gamma(0.7)": Mixture(((0.7, 1.0, 1.0),), bounded=False),
    "Gamma: two bumps": Mixture(((3.0, 1.0, 0.6), (20.0, 0.5, 0.4)), bounded=False),
    "Gamma: peak and a bump": Mixture(((0.7, 1.0, 0.5), (9.0, 0.5, 0.5)), bounded=False),
}
"""The distributions that the method was developed with."""

FRESH = {
    "Beta(0.3, 1.5)": Mixture(((0.3, 1.5, 1.0),), bounded=True),
    "Beta: unequal peaks and a bump": Mixture(
        ((0.4, 2.0, 0.35), (3.0, 0.6, 0.25), (30.0, 30.0, 0.4)), bounded=True
    ),
    "Beta: bumps near both ends": Mixture(((1.5, 12.0, 0.5), (25.0, 2.5, 0.5)), bounded=True),
    "Beta: three bumps": Mixture(
        ((40.0, 160.0, 0.3), (60.0, 60.0, 0.4), (90.0, 12.0, 0.3)), bounded=True
    ),
    "Beta: uniform and a bump": Mixture(((1.0, 1.0, 0.7), (80.0, 40.0, 0.3)), bounded=True),
    "Gamma(0.4)": Mixture(((0.4, 1.0, 1.0),), bounded=False),
    "Gamma: exponential and a bump": Mixture(((1.0, 1.0, 0.6), (30.0, 0.2, 0.4)), bounded=False),
    "Gamma: three bumps": Mixture(
        ((4.0, 0.5, 0.4), (40.0, 0.2, 0.3), (100.0, 0.2, 0.3)), bounded=False
    ),
    "Gamma: two scales": Mixture(((0.5, 0.2, 0.4), (2.5, 2.0, 0.6)), bounded=False),
    "Gamma(1.6)": Mixture(((1.6, 1.0, 1.0),), bounded=False),
}
"""Distributions that were written down before any method was run on them."""

DRAWN_SEED = 2026


def drawn_mixtures(seed: int = DRAWN_SEED, count: int = 10) -> dict[str, Mixture]:
    """Return random mixtures of one to three components, half of them on [0, 1].

    With probability 0.4 a component has a peak at an end, otherwise it is inside. The seed was
    fixed before any method was run on these mixtures.
    """
    rng, found = np.random.default_rng(seed), {}
    for k in range(count):
        bounded, size = k < count // 2, int(rng.integers(1, 4))
        weights = rng.dirichlet(np.full(size, 3.0)) if size > 1 else np.ones(1)
        peaks = rng.random(size) < 0.4
        parts = []
        for peak, weight in zip(peaks, weights, strict=True):
            if bounded and peak:
                a, b = rng.uniform(0.3, 1.0), rng.uniform(1.0, 5.0)
                a, b = (a, b) if rng.random() < 0.5 else (b, a)
            elif bounded:
                mean, total = rng.uniform(0.1, 0.9), np.exp(rng.uniform(np.log(8), np.log(200)))
                a, b = mean * total, (1 - mean) * total
            elif peak:
                a, b = rng.uniform(0.3, 1.0), np.exp(rng.uniform(np.log(0.2), np.log(2)))
            else:
                a = np.exp(rng.uniform(np.log(3), np.log(60)))
                b = np.exp(rng.uniform(0, np.log(8))) / a
            parts.append((round(float(a), 3), round(float(b), 3), float(weight)))
        kind = "Beta" if bounded else "Gamma"
        name = f"{kind} {k + 1}: {peaks.sum()} at ends, {size - peaks.sum()} inside"
        found[name] = Mixture(tuple(parts), bounded=bounded)
    return found


DRAWN = drawn_mixtures()


def reflected(x: Array, data: Array, width: float, bounded: bool) -> Array:
    """Return Gaussian kernels with their mirror images: (m, n)."""
    images = [data, -data, *([2 - data] if bounded else [])]
    total = sum(np.exp(-0.5 * ((x[:, None] - image) / width) ** 2) for image in images)
    return np.asarray(total / (width * np.sqrt(2 * np.pi)))


def natural(x: Array, data: Array, width: float, bounded: bool) -> Array:
    """Return Chen's kernels: Beta(x/w + 1, (1 - x)/w + 1) or Gamma(x/w + 1) at the data: (m, n)."""
    at = x[:, None] / width
    if bounded:
        other = (1 - x[:, None]) / width
        logs = at * np.log(data) + other * np.log1p(-data)
        return np.asarray(np.exp(logs - scipy.special.betaln(at + 1, other + 1)))
    logs = at * np.log(data / width) - data / width - scipy.special.gammaln(at + 1)
    return np.asarray(np.exp(logs) / width)


def kde(data: Array, bounded: bool, kernels: Callable[..., Array]) -> Density:
    """Return the estimate with the width of the largest leave-one-out likelihood."""
    data = np.clip(data, 1e-12, 1 - 1e-12 if bounded else None)
    scale = float(data.std())
    widths = scale * np.geomspace(0.01, 1, 25)
    if kernels is natural:  # its variance is w x(1 - x) or w x: w is the square of a width
        widths = np.geomspace(1e-4, 0.3, 25) * (1 if bounded else scale)
    rows = np.arange(0, len(data), max(1, len(data) // HELD_OUT))

    def likelihood(width: float) -> float:
        values = kernels(data[rows], data, width, bounded)
        values[np.arange(len(rows)), rows] = 0
        return float(np.log(np.maximum(values.mean(axis=1), LEAST)).sum())

    best = max(widths, key=likelihood)
    return lambda x: kernels(x, data, best, bounded).mean(axis=1)


def normalised(estimate: Density, rule: tuple[Array, Array]) -> Density:
    """Return an estimate divided by its integral."""
    mass = float(rule[1] @ estimate(rule[0]))
    return lambda x: estimate(x) / mass


def oism(data: Array, mixture: Mixture, process: str | Process) -> Density:
    """Return the density of a fit."""
    model = OISM(bounds={0: mixture.bounds}, process=process, discrete=()).fit(data[:, None])
    return lambda x: np.exp(model.score_samples(x[:, None]))


def diffusion(data: Array, mixture: Mixture) -> Process:
    """Return the process with the powers of the Beta or Gamma distribution of the data."""
    inside = np.clip(data, 1e-12, 1 - 1e-12 if mixture.bounded else None)
    if mixture.bounded:
        a, b = scipy.stats.beta.fit(inside, floc=0, fscale=1)[:2]
        return Jacobi(*np.clip((a, b), *POWERS).tolist())
    return Laguerre(float(np.clip(scipy.stats.gamma.fit(inside, floc=0)[0], *POWERS)))


def warped(data: Array, mixture: Mixture) -> Density:
    """Return the density of a fit to logits or logarithms."""

    def warp(x: Array) -> tuple[Array, Array]:
        """Return y and dy/dx."""
        x = np.clip(x, 1e-12, 1 - 1e-12 if mixture.bounded else None)
        if mixture.bounded:
            return np.log(x) - np.log1p(-x), 1 / (x * (1 - x))
        return np.log(x), 1 / x

    model = OISM(discrete=()).fit(warp(data)[0][:, None])

    def density(x: Array) -> Array:
        y, slope = warp(x)
        return np.asarray(np.exp(model.score_samples(y[:, None])) * slope)

    return density


METHODS = (
    "OISM",
    "reflection",
    "diffusion",
    "warping",
    "KDE, reflected",
    "KDE, Beta or Gamma",
)


@dataclass(frozen=True)
class Bounded:
    """Compare densities of one column with bounds."""

    sets: tuple[str, ...] = ("development", "fresh", "drawn")
    """The distributions, by name or by kind: "development", "fresh" and "drawn" at random."""
    methods: tuple[str, ...] = METHODS
    """The methods that are compared."""
    points: tuple[int, ...] = (500, 2000)
    """The numbers of training points."""
    seeds: int = 5
    """The number of repetitions."""
    first_seed: int = 100
    """The first seed; 0 to 99 were used in development."""


def compare(
    mixture: Mixture, n: int, seed: int, names: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Return divergence and seconds of processor time of each method."""
    data, found = mixture.sample(n, seed), {}
    methods: dict[str, Callable[[], Density]] = {
        "OISM": lambda: oism(data, mixture, "auto"),
        "reflection": lambda: oism(data, mixture, "torus"),
        "diffusion": lambda: oism(data, mixture, diffusion(data, mixture)),
        "warping": lambda: warped(data, mixture),
        "KDE, reflected": lambda: kde(data, mixture.bounded, reflected),
        "KDE, Beta or Gamma": lambda: normalised(
            kde(data, mixture.bounded, natural), mixture.rule()
        ),
    }
    for name in names:
        start = time.process_time()
        estimate = methods[name]()
        seconds = time.process_time() - start
        divergence, mass = mixture.divergence(estimate)
        if abs(mass - 1) > 5e-3:
            print(f"the density of {name} has the mass {mass:.4f} over the rule")
        found[name] = divergence, seconds
    return found


def main(options: Bounded) -> None:
    mixtures = MIXTURES | FRESH | DRAWN
    kinds = {"development": list(MIXTURES), "fresh": list(FRESH), "drawn": list(DRAWN)}
    names = [name for given in options.sets for name in kinds.get(given, [given])]
    if unknown := [name for name in names if name not in mixtures]:
        raise SystemExit(f"--sets must be among {', '.join(mixtures)}, got {unknown[0]!r}")
    if unknown := [name for name in options.methods if name not in METHODS]:
        raise SystemExit(f"--methods must be among {', '.join(METHODS)}, got {unknown[0]!r}")
    print(f"KL divergence from the truth in units of 0.001, {options.seeds} seeds")
    for n in options.points:
        seconds = []
        for k, name in enumerate(names):
            seeds = range(options.first_seed, options.first_seed + options.seeds)
            runs = [compare(mixtures[name], n, seed, options.methods) for seed in seeds]
            if k == 0:
                print(f"\n| {n} points | {' | '.join(runs[0])} |\n|{'---|' * (1 + len(runs[0]))}")
            errors = {
                method: 1e3 * np.array([run[method][0] for run in runs]) for method in runs[0]
            }
            seconds.append([[cost for _, cost in run.values()] for run in runs])
            cells = [
                f"{error.mean():.1f} ± {error.std(ddof=1) / np.sqrt(len(runs)):.1f}"
                for error in errors.values()
            ]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        cost = np.mean(seconds, axis=(0, 1))
        print(f"| seconds of a fit | {' | '.join(f'{one:.2f}' for one in cost)} |")


if __name__ == "__main__":
    main(tyro.cli(Bounded))
