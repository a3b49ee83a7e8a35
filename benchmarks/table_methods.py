"""The methods that are compared on tables, each fitted by one function, and the mass of a density.

    closed   OISM()
    network  OISM(network=seconds)
    gmm      Gaussian mixtures with full covariances, their number by BIC
    kde      kernel density estimate with a cross-validated width
    flow     zuko's spline flow (circular splines for angles), stopped early: `table_flows`

On the mixed table, gmm is the mixture after transforms made by hand.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from oism import OISM
from oism.tables import fit_kde, fit_mixture_by_bic

Array = NDArray[np.float64]

UNIFORM = 0.1
WIDER = 1.25


@dataclass(frozen=True)
class Split:
    """The rows of one table and seed: arrays, or frames where ``by_hand``."""

    train: Any
    test: Any
    truth: Array | None = None  # log-densities of the test rows
    settings: dict[str, Any] = field(default_factory=dict)  # of OISM
    periods: dict[int, float] | None = None
    by_hand: bool = False
    seed: int = 0


def closed(split: Split, seconds: float) -> Any:  # noqa: ANN401, ARG001
    """Return `OISM` with its defaults."""
    return OISM(**split.settings).fit(split.train)


def network(split: Split, seconds: float) -> Any:  # noqa: ANN401
    """Return `OISM` with a network trained for so many seconds."""
    return OISM(network=seconds, **split.settings).fit(split.train)


def gmm(split: Split, seconds: float) -> Any:  # noqa: ANN401, ARG001
    """Return mixtures of Gaussians."""
    if split.by_hand:
        by_hand = importlib.import_module("mixed_mixture")  # other tables do not need pandas
        return by_hand.fit_by_hand(split.train, seed=split.seed)
    return fit_mixture_by_bic(split.train, seed=split.seed, periodic=split.periods)


def kde(split: Split, seconds: float) -> Any:  # noqa: ANN401, ARG001
    """Return a kernel density estimate."""
    return fit_kde(split.train, periodic=split.periods, seed=split.seed)


def flow(split: Split, seconds: float) -> Any:  # noqa: ANN401
    """Return a spline flow trained for at most so many seconds."""
    flows = importlib.import_module("table_flows")  # the other methods do not need zuko
    return flows.fit_best_flow(split.train, seconds, seed=split.seed, periodic=split.periods)


METHODS: dict[str, Callable[[Split, float], Any]] = {
    "closed": closed,
    "network": network,
    "gmm": gmm,
    "kde": kde,
    "flow": flow,
}
BY_HAND = ("closed", "network", "gmm")
"""The methods that take the mixed table."""


class Mean(NamedTuple):
    """A mean with its standard error."""

    value: float
    error: float


def mean_of(values: Array) -> Mean:
    """Return the mean of independent values, with its standard error."""
    return Mean(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values)))


def bridge(at_others: Array, at_own: Array) -> Mean:
    """Return the mass Z = ∫p of a density from log p/q at draws of q, and at draws of p/Z.

    With r = p/q, both E_q[r/(1 + r)] and Z E_p[1/(1 + r)] are ∫pq/(p + q). The averages are of
    numbers between 0 and 1, so a single draw where q is too small does not decide, as it can in
    E_q[p/q] = Z. The two sets of draws are independent; their relative errors add in squares.
    """
    above, below = mean_of(special.expit(at_others)), mean_of(special.expit(-at_own))
    mass = above.value / below.value
    return Mean(mass, mass * math.hypot(above.error / above.value, below.error / below.value))


def angle_masses(model: Any, train: Array, draws: int, seed: int = 0) -> dict[str, Mean]:  # noqa: ANN401
    """Return two estimates of ∫p for a density p of angles in radians.

    The other density, q, is a KDE with a width 1.25 times the cross-validated one, with a tenth of
    the uniform distribution. Its draws give E_q[p/q]; draws of the model are added in `bridge`.
    """
    dim = train.shape[1]
    wide = fit_kde(train, periodic=dict.fromkeys(range(dim), 2 * math.pi), seed=seed)
    wide.density.bandwidth_ *= WIDER  # type: ignore[attr-defined]

    def log_ratio(x: Array) -> Array:
        uniform = math.log(UNIFORM) - dim * math.log(2 * math.pi)
        q = np.logaddexp(math.log1p(-UNIFORM) + wide.score_samples(x), uniform)
        ratio: Array = model.score_samples(x) - q
        return ratio

    rng = np.random.default_rng(seed)
    x = wide.sample(draws, random_state=seed)
    replaced = rng.random(draws) < UNIFORM
    x[replaced] = rng.random((int(replaced.sum()), dim)) * 2 * math.pi
    own = np.asarray(model.sample(draws, random_state=seed + 1), dtype=np.float64)
    others = log_ratio(x)
    return {"mass": mean_of(np.exp(others)), "mass by both": bridge(others, log_ratio(own))}
