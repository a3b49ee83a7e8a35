"""The methods that a density estimate is compared with: KDE, Gaussian mixtures, spline flows.

Each is fitted as a careful user would: in standardised columns z = (x - c)/s, with its size chosen
on held-out rows or by a criterion. A periodic column is cut where its rows leave the widest gap.
From there on the mixture, and a flow whose columns are not all periodic, treat it as an ordinary
column; the KDE has von Mises kernels, and a flow of periodic columns alone has circular splines.
Log-densities are in the units of the data: log p(x) = log p(z) - Σ log s.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor

from oism._core.extras import require
from oism.tables._kde import KDE

Array = NDArray[np.float64]
Periods = Mapping[int, float]

COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
"""The numbers of Gaussians that are tried."""

RISES = 3
"""After so many numbers in a row without a lower criterion no larger one is tried."""

STARTS = 3
JUDGED = 5000
"""The number of held-out rows that choose the width of a KDE."""

RATE = 5e-3
BATCH = 512
DROPS = 3
"""How often the rate of a flow is divided by this number where the loss no longer falls."""

PATIENCE = 15


class Density(Protocol):
    """What a baseline has."""

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return log-densities."""

    def sample(self, n: int = 1, random_state: int = 0) -> Array:
        """Return random rows ``(n, d)``."""


@dataclass(frozen=True, eq=False)
class Standardised:
    """A density of standardised columns, in the units of the data.

    ``notes`` are what was chosen, and ``seconds`` is the time that the fit took.
    """

    density: Density
    scaling: Scaling
    notes: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return log-densities in the units of the data."""
        result: Array = self.density.score_samples(self.scaling.forth(X)) - self.scaling.log_scale
        return result

    def sample(self, n: int = 1, random_state: int = 0) -> Array:
        """Return random rows ``(n, d)``."""
        return self.scaling.back(self.density.sample(n, random_state=random_state))


@dataclass(frozen=True, eq=False)
class Scaling:
    """Standardised columns, with periodic ones cut at ``cuts``."""

    centre: Array
    scale: Array
    periods: Periods
    cuts: Mapping[int, float]

    @classmethod
    def of(cls, X: Array, periods: Periods | None) -> Scaling:  # noqa: N803
        """Return the standardisation of rows."""
        periods = periods or {}
        cuts = {j: _widest_gap(X[:, j], period) for j, period in periods.items()}
        cut = cls(np.zeros(X.shape[1]), np.ones(X.shape[1]), periods, cuts).forth(X)
        scale = cut.std(axis=0)
        size = np.abs(cut).max(axis=0)
        scale = np.where(scale > 1e-13 * size, scale, np.where(size > 0, size, 1.0))
        return cls(cut.mean(axis=0), scale, periods, cuts)

    @property
    def log_scale(self) -> float:
        """Σ log s."""
        return float(np.log(self.scale).sum())

    @property
    def scaled_periods(self) -> dict[int, float]:
        """The periods in standardised columns."""
        return {j: period / float(self.scale[j]) for j, period in self.periods.items()}

    def forth(self, X: Array) -> Array:  # noqa: N803
        """Return rows in standardised columns."""
        x = np.array(X, dtype=np.float64)
        for j, period in self.periods.items():
            x[:, j] = np.remainder(x[:, j] - self.cuts[j], period)
        result: Array = (x - self.centre) / self.scale
        return result

    def back(self, Z: Array) -> Array:  # noqa: N803
        """Return standardised rows in the units of the data; periodic ones from 0 to P."""
        x: Array = Z * self.scale + self.centre
        for j, period in self.periods.items():
            x[:, j] = np.remainder(x[:, j] + self.cuts[j], period)
        return x


def _widest_gap(values: Array, period: float) -> float:
    """Return the middle of the widest gap between values on a circle."""
    turned = np.sort(np.remainder(values, period))
    gaps = np.diff(turned, append=turned[0] + period)
    widest = int(np.argmax(gaps))
    return float(np.remainder(turned[widest] + 0.5 * gaps[widest], period))


def fit_kde(X: Array, periodic: Periods | None = None, seed: int = 0) -> Standardised:  # noqa: N803
    """Return a kernel density estimate whose width is the most likely by cross-validation.

    Where all columns are periodic the uniform distribution is mixed in, with the weight 1/(n + 1).
    """

    def fit(Z: Array, scaling: Scaling) -> KDE:  # noqa: N803
        periods = scaling.scaled_periods
        return KDE(
            periodic=periods,
            background=len(periods) == Z.shape[1],
            widest=1.5,
            octaves=14,
            folds=min(5, len(Z)),
            judged=JUDGED,
            random_state=seed,
        ).fit(Z)

    return _fitted(fit, X, periodic)


def fit_mixture_by_bic(X: Array, seed: int = 0, periodic: Periods | None = None) -> Standardised:  # noqa: N803
    """Return scikit-learn's mixture of Gaussians with full covariances, their number by BIC."""

    def fit(Z: Array, scaling: Scaling) -> Mixture:  # noqa: N803, ARG001
        best: tuple[float, GaussianMixture] | None = None
        rises = 0
        for count in [k for k in COUNTS if k <= len(Z)]:
            mixture = GaussianMixture(count, n_init=STARTS, max_iter=300, random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # of k-means on equal rows
                mixture.fit(Z)
            criterion = float(mixture.bic(Z))
            if best is None or criterion < best[0]:
                best, rises = (criterion, mixture), 0
            elif (rises := rises + 1) == RISES:
                break
        assert best is not None  # one Gaussian is always tried
        return Mixture(best[1])

    return _fitted(fit, X, periodic)


def fit_flow(
    X: Array,  # noqa: N803
    seconds: float = 180.0,
    seed: int = 0,
    periodic: Periods | None = None,
) -> Standardised:
    """Return a neural spline flow of zuko, trained until held-out rows stop to gain.

    ``seconds`` is the longest time of the training.
    """

    def fit(Z: Array, scaling: Scaling) -> SplineFlow:  # noqa: N803
        periods = scaling.scaled_periods
        return SplineFlow(
            seconds=seconds,
            periodic=periods if len(periods) == Z.shape[1] else None,
            patience=PATIENCE,
            random_state=seed,
        ).fit(Z)

    return _fitted(fit, X, periodic)


def _fitted(
    fit: Callable[[Array, Scaling], Any],
    X: Array,  # noqa: N803
    periodic: Periods | None,
) -> Standardised:
    """Return a method fitted to standardised columns."""
    start = time.perf_counter()
    rows = np.asarray(X, dtype=np.float64)
    scaling = Scaling.of(rows, periodic)
    density = fit(scaling.forth(rows), scaling)
    return Standardised(density, scaling, density.notes_, time.perf_counter() - start)


@dataclass(frozen=True, eq=False)
class Mixture:
    """A fitted mixture of scikit-learn."""

    mixture: GaussianMixture

    @property
    def notes_(self) -> dict[str, float]:
        """The number of components."""
        return {"components": self.mixture.n_components}

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return log-densities."""
        log: Array = self.mixture.score_samples(X)
        return log

    def sample(self, n: int = 1, random_state: int = 0) -> Array:
        """Return random rows ``(n, d)``, not ordered by component."""
        rows: Array = self.mixture.set_params(random_state=random_state).sample(n)[0]
        return np.random.default_rng(random_state).permutation(rows)


def spline_flow(dim: int, *, circular: bool) -> Any:  # noqa: ANN401
    """Return a flow of three autoregressive transforms by splines of 16 bins, networks of 2 × 64.

    With 8 bins, zuko's default, the rings were 0.1 nats worse after a minute. (Bins, rate,
    transforms, and width were tried on rings with a seed that no table uses; the rate, with 16
    bins, on moons and checkerboard too.)
    """
    flows = require("zuko.flows", "flows", purpose="a spline flow")
    kind = flows.NCSF if circular else flows.NSF
    return kind(features=dim, transforms=3, hidden_features=(64, 64), bins=16)


class SplineFlow:
    """A neural spline flow of zuko, trained for a given time.

    Data are standardised, or periodic columns wrapped into [-π, π). Adam at 5e-3, decayed to zero
    along a cosine over the time; minibatches of 512; a tenth of the data is held out, and the
    weights of the epoch with the lowest loss on it are used.

    Parameters
    ----------
    seconds
        The time of training.
    periodic
        The periods: of all columns, or none.
    patience
        After so many epochs without a lower held-out loss, training returns to the best weights
        with a third of the rate; the third time, it ends. Without it all of the time is used.
    random_state
        The seed of the weights, the order and the choice of the held-out points.
    """

    epochs_: int
    steps_: int
    best_epoch_: int

    def __init__(
        self,
        *,
        seconds: float = 60.0,
        periodic: Periods | None = None,
        patience: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.seconds = seconds
        self.periodic = periodic
        self.patience = patience
        self.random_state = random_state

    def _scaled(self, x: Array) -> Tensor:
        z = (x - self._shift) / self._scale
        if self.periodic:
            z = np.remainder(z + math.pi, 2 * math.pi) - math.pi
        return torch.from_numpy(z).float()

    def fit(self, X: Array) -> Self:  # noqa: N803
        """Train, and return the estimator."""
        start, dim = time.perf_counter(), X.shape[1]
        if self.periodic and set(self.periodic) != set(range(dim)):
            raise ValueError(f"periodic must name all {dim} columns or none, got {self.periodic}")
        self._shift, self._scale = X.mean(axis=0), X.std(axis=0)
        if self.periodic:
            periods = np.array([self.periodic[i] for i in range(dim)])
            self._shift, self._scale = np.zeros(dim), periods / (2 * math.pi)
        z = self._scaled(X)
        with torch.random.fork_rng():
            torch.manual_seed(self.random_state)
            self._flow = spline_flow(dim, circular=bool(self.periodic))
            z = z[torch.randperm(len(z))]
            held = max(1, len(z) // 10)
            self._train(z[held:], z[:held], start)
        return self

    def _train(self, train: Tensor, valid: Tensor, start: float) -> None:
        optimiser = torch.optim.Adam(self._flow.parameters(), lr=RATE)
        best, kept = math.inf, self._flow.state_dict()
        self.epochs_, self.steps_, self.best_epoch_ = 0, 0, 0
        passed, drops, last = 0.0, 0, 0  # the last epoch with a lower loss, or a lower rate
        while passed < 1 and drops < DROPS:
            for some in torch.split(train[torch.randperm(len(train))], BATCH):
                passed = min(1.0, (time.perf_counter() - start) / self.seconds)
                for group in optimiser.param_groups:
                    group["lr"] = RATE / 2 * (1 + math.cos(math.pi * passed)) / DROPS**drops
                optimiser.zero_grad()
                (-self._flow().log_prob(some).mean()).backward()
                optimiser.step()
                self.steps_ += 1
            self.epochs_ += 1
            with torch.no_grad():
                loss = -float(self._flow().log_prob(valid).mean())
            if loss < best:
                best, self.best_epoch_, last = loss, self.epochs_, self.epochs_
                kept = {name: value.clone() for name, value in self._flow.state_dict().items()}
            elif self.patience is not None and self.epochs_ - last >= self.patience:
                drops, last = drops + 1, self.epochs_
                self._flow.load_state_dict(kept)
        self._flow.load_state_dict(kept)

    @property
    def notes_(self) -> dict[str, float]:
        """The numbers of steps and epochs, and the best epoch."""
        return {"steps": self.steps_, "epochs": self.epochs_, "best epoch": self.best_epoch_}

    @torch.no_grad()
    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return log-densities in the units of the data."""
        log = self._flow().log_prob(self._scaled(X)).double().numpy()
        scaled: Array = log - np.log(self._scale).sum()
        return scaled

    @torch.no_grad()
    def sample(self, n: int = 1, random_state: int = 0) -> Array:
        """Return random rows ``(n, dim)``."""
        with torch.random.fork_rng():
            torch.manual_seed(random_state)
            z = self._flow().sample((n,)).double().numpy()
        x: Array = z * self._scale + self._shift
        return x
