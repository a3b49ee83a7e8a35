"""Densities of the plane side by side: the closed form, a network of equal time, kernels.

Every contender sees the same points, and nothing is chosen on test points. The network is trained
for as long as the default fit took.
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

from oism.data.toys import PLANE, PlaneLaw
from oism.plot import limits_of
from oism.plot._frame import Limits, grid
from oism.studies.kernels import KDE
from oism.studies.neural import DDPM
from oism.tables import OISM

Array = NDArray[np.float64]

PAPER, FEWER, DEFAULT, NETWORK, KERNELS = (
    "paper's rule, 400",
    "OISM, 400",
    "OISM",
    "network",
    "kernels",
)
MAX_EIGENVALUE = 125
"""The paper's: ‖ξ‖² ≤ 125, 200 frequencies, 400 functions."""


class Estimator(Protocol):
    """The face that all contenders share."""

    def fit(self, X: Array) -> Self:  # noqa: N803
        """Fit to rows."""

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return log-densities."""


class Truth:
    """A law of `oism.data.toys` with the face of an estimator."""

    def __init__(self, law: PlaneLaw) -> None:
        self.law = law

    def fit(self, X: Array) -> Self:  # noqa: N803, ARG002
        """Know already."""
        return self

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return the exact log-density."""
        return self.law.log_density(torch.from_numpy(X)).numpy()


@dataclass(frozen=True)
class Entry:
    """A fitted contender: its held-out negative log-likelihood, seconds, and density on a window.

    ``image`` are log-densities on the cells of the window ``(side, side)``, ``area`` that of it.
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
        """Return what is written to JSON."""
        return {
            "nll": self.nll,
            "excess_standard_error": self.error,
            "fit_seconds": self.fit_seconds,
            "density_seconds": self.density_seconds,
            "mass": self.mass,
        }


@dataclass(frozen=True)
class Window:
    """What a picture shows: cells on a side, and limits, or None for those of the model itself."""

    side: int
    limits: Limits | None = None


@dataclass(frozen=True)
class Contest:
    """One law: its points, and the contenders by name."""

    name: str
    train: Array
    test: Array
    truth: float
    entries: dict[str, Entry]

    @property
    def limits(self) -> Limits:
        """What pictures show: the box of the default model."""
        return limits_of(self.entries[DEFAULT].model)

    @property
    def ceiling(self) -> float:
        """The density that is drawn darkest: all but the top per cent of the truth's."""
        log = PLANE[self.name].log_density(torch.from_numpy(self.test))
        return float(torch.quantile(log, 0.99).exp())

    def numbers(self) -> dict[str, Any]:
        """Return what is written to JSON."""
        return {"truth": self.truth, **{n: one.numbers() for n, one in self.entries.items()}}


def enter(model: Estimator, rows: tuple[Array, Array], exact: Array, window: Window) -> Entry:
    """Fit and measure one contender on training and test rows; ``exact`` is the true log p."""
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


def contest(
    name: str,
    rows: tuple[Array, Array],
    *,
    side: int,
    seed: int,
    which: Iterable[str],
) -> Contest:
    """Return the contest on training and test rows of one law."""
    exact = Truth(PLANE[name]).score_samples(rows[1])
    default = enter(OISM(), rows, exact, Window(side))
    window = Window(side, limits_of(default.model))
    makers: dict[str, Callable[[], Estimator]] = {
        PAPER: lambda: OISM(max_eigenvalue=MAX_EIGENVALUE, shrinkage="modulation", ridge=0.0),
        FEWER: lambda: OISM(max_eigenvalue=MAX_EIGENVALUE),
        NETWORK: lambda: DDPM(seconds=default.fit_seconds, random_state=seed),
        KERNELS: KDE,
    }
    entries = {
        one: default if one == DEFAULT else enter(makers[one](), rows, exact, window)
        for one in which
    }
    return Contest(name, *rows, -float(exact.mean()), entries)
