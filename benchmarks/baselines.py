"""The methods that a density estimate is compared with: KDE and spline flows.

Both have the methods of scikit-learn's estimators, ``fit(X)``, ``score_samples(X)``, ``sample(n,
random_state)``, and take ``periodic``, a map from columns to periods, as `OISM` does. The kernel
density estimate is `oism.tables.KDE`, with a cross-validated width; flows are neural spline flows
of zuko, with its circular splines where all columns are periodic.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism.tables import KDE

__all__ = ["KDE", "Array", "Flow", "spline_flow", "zuko_flows"]

Array = NDArray[np.float64]

RATE = 5e-3


def spline_flow(dim: int, *, circular: bool) -> Any:  # noqa: ANN401
    """Return a flow of three autoregressive transforms by splines of 16 bins, networks of 2 × 64.

    With 8 bins, zuko's default, the rings were 0.1 nats worse after a minute. (Bins, rate,
    transforms, and width were tried on rings with a seed that no table uses; the rate, with 16
    bins, on moons and checkerboard too.)
    """
    flows = zuko_flows()
    kind = flows.NCSF if circular else flows.NSF
    return kind(features=dim, transforms=3, hidden_features=(64, 64), bins=16)


def zuko_flows() -> Any:  # noqa: ANN401
    """Return ``zuko.flows``, or exit with a message if zuko is not installed."""
    try:
        return importlib.import_module("zuko.flows")
    except ModuleNotFoundError:
        raise SystemExit(
            "the flows are those of zuko, which is not installed: "
            "`pip install zuko`, or omit them with --no-flow"
        ) from None


class Flow:
    """A neural spline flow, trained for a given time.

    Data are standardised, or periodic columns wrapped into [-π, π). Adam at 5e-3, decayed to zero
    along a cosine over the time; minibatches of 512; a tenth of the data is held out, and the
    weights of the epoch with the lowest loss on it are used.

    Parameters
    ----------
    seconds
        The time of training.
    periodic
        The periods: of all columns, or none.
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
        periodic: Mapping[int, float] | None = None,
        random_state: int = 0,
    ) -> None:
        self.seconds = seconds
        self.periodic = periodic
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
            self._train(z[len(z) // 10 :], z[: len(z) // 10], start)
        return self

    def _train(self, train: Tensor, valid: Tensor, start: float) -> None:
        optimiser = torch.optim.Adam(self._flow.parameters(), lr=RATE)
        best, kept = math.inf, self._flow.state_dict()
        self.epochs_, self.steps_, self.best_epoch_ = 0, 0, 0
        passed = 0.0
        while passed < 1:
            for some in torch.split(train[torch.randperm(len(train))], 512):
                passed = min(1.0, (time.perf_counter() - start) / self.seconds)
                for group in optimiser.param_groups:
                    group["lr"] = RATE / 2 * (1 + math.cos(math.pi * passed))
                optimiser.zero_grad()
                (-self._flow().log_prob(some).mean()).backward()
                optimiser.step()
                self.steps_ += 1
            self.epochs_ += 1
            with torch.no_grad():
                loss = -float(self._flow().log_prob(valid).mean())
            if loss < best:
                best, self.best_epoch_ = loss, self.epochs_
                kept = {name: value.clone() for name, value in self._flow.state_dict().items()}
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
