"""Density estimates of two columns on the same points: OISM, a network with the same time, KDE.

All methods see the same points, and nothing is chosen on test points. The network is trained for as
long as the default fit took. The default is that on the torus: `OISM()` alone might take a mixture.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from oism.data.toys import PLANE, PlaneDistribution
from oism.plot import Limits, grid, limits_of
from oism.tables import KDE, OISM
from studies.neural import DDPM
from studies.study import Claim

Array = NDArray[np.float64]

PAPER, FEWER, DEFAULT, NETWORK, KERNEL = (
    "paper's rule, 400",
    "OISM, 400",
    "OISM",
    "network",
    "KDE",
)
MAX_EIGENVALUE = 125
"""The paper's: ‖ξ‖² ≤ 125, 200 frequencies, 400 functions."""


class Estimator(Protocol):
    """The interface of all methods."""

    def fit(self, X: Array) -> Self:  # noqa: N803
        """Fit to rows."""

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return log-densities."""


class Exact:
    """A distribution of `oism.data.toys` as an estimator."""

    def __init__(self, distribution: PlaneDistribution) -> None:
        self.distribution = distribution

    def fit(self, X: Array) -> Self:  # noqa: N803, ARG002
        """Return the estimator; there is nothing to fit."""
        return self

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return the exact log-density."""
        return self.distribution.log_density(torch.from_numpy(X)).numpy()


@dataclass(frozen=True)
class Entry:
    """A fitted method: held-out negative log-likelihood, seconds, and density on a window.

    ``image`` holds log-densities on the cells of the window, ``(side, side)``; ``area`` is that of
    the window.
    """

    model: Any
    nll: float
    error: float
    fit_seconds: float
    density_seconds: float
    image: Array
    area: float

    @property
    def mass(self) -> float:
        """The integral of the density over the window, by the midpoint rule."""
        return float(np.exp(self.image).mean()) * self.area

    def numbers(self) -> dict[str, float]:
        """Return the numbers for JSON."""
        return {
            "nll": self.nll,
            "excess_standard_error": self.error,
            "fit_seconds": self.fit_seconds,
            "density_seconds": self.density_seconds,
            "mass": self.mass,
        }


@dataclass(frozen=True)
class Window:
    """The window of the figures: cells per side, and limits (None: those of the model)."""

    side: int
    limits: Limits | None = None


@dataclass(frozen=True)
class Comparison:
    """The methods by name, on the points of one distribution."""

    name: str
    train: Array
    test: Array
    truth: float
    entries: dict[str, Entry]

    @property
    def limits(self) -> Limits:
        """The limits of the figures: the box of the default model."""
        return limits_of(self.entries[DEFAULT].model)

    @property
    def ceiling(self) -> float:
        """The density with the darkest colour: the 99% quantile of the exact density."""
        log = PLANE[self.name].log_density(torch.from_numpy(self.test))
        return float(torch.quantile(log, 0.99).exp())

    def numbers(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        return {"truth": self.truth, **{n: one.numbers() for n, one in self.entries.items()}}

    def mass_claims(self) -> list[Claim]:
        """Return the claims that the densities in closed form integrate to one."""
        return [
            Claim(f"{self.name}: density integrates to one: {name}", abs(one.mass - 1), 2e-3)
            for name, one in self.entries.items()
            if name in (FEWER, DEFAULT)
        ]


def measure(model: Estimator, rows: tuple[Array, Array], exact: Array, window: Window) -> Entry:
    """Fit a method to training rows and measure it on test rows; ``exact`` is the true log p."""
    train, test = rows
    start = time.perf_counter()
    model.fit(train)
    fitted = time.perf_counter()
    log = np.asarray(model.score_samples(test))
    done = time.perf_counter()
    error = float((exact - log).std(ddof=1)) / math.sqrt(len(test))
    limits = window.limits or limits_of(model)  # type: ignore[arg-type]
    image = model.score_samples(grid(limits, window.side)[2]).reshape(window.side, window.side)
    area = math.prod(high - low for low, high in limits)
    nll = -float(log.mean())
    return Entry(model, nll, error, fitted - start, done - fitted, image, area)


def compare(
    name: str,
    rows: tuple[Array, Array],
    *,
    side: int,
    seed: int,
    which: Iterable[str],
) -> Comparison:
    """Return the comparison of methods on training and test rows of one distribution."""
    exact = Exact(PLANE[name]).score_samples(rows[1])
    default = measure(OISM(process="torus"), rows, exact, Window(side))
    window = Window(side, limits_of(default.model))
    makers: dict[str, Callable[[], Estimator]] = {
        PAPER: lambda: OISM(max_eigenvalue=MAX_EIGENVALUE, shrinkage="modulation", ridge=0.0),
        FEWER: lambda: OISM(max_eigenvalue=MAX_EIGENVALUE),
        NETWORK: lambda: DDPM(seconds=default.fit_seconds, random_state=seed),
        KERNEL: KDE,
    }
    entries = {
        one: default if one == DEFAULT else measure(makers[one](), rows, exact, window)
        for one in which
    }
    return Comparison(name, *rows, -float(exact.mean()), entries)
