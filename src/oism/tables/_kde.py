"""Kernel density estimates with a cross-validated width: the baseline that `OISM` is compared with.

A kernel is exp(-κ‖e(x) - e(y)‖²/2) up to a constant, with the precision κ = 1/h² and an embedding e
that is the identity on ordinary columns and maps a column of period P onto a circle of
circumference P. An ordinary column has a normal kernel with standard deviation h, a periodic one a
von Mises kernel with concentration κ(P/2π)², whose width is h as well. Sums over all points are
exact; scikit-learn's tree has large errors at isolated points and no periodic kernels.

One width is used for all columns, the most likely by five-fold cross-validation among h₀·2^{-k/6}.
Three consecutive widths need an exponential each; all others follow from these by squaring, because
halving h² squares the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

import numpy as np
import scipy.special
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism._core.transforms import in_parallel, threads_apart

Array = NDArray[np.float64]

PER_OCTAVE = 3  # precisions between κ and 2κ
BLOCK = 2**17  # entries of a table of kernels: 1 MB, which stays in the cache


def log_sums(x: Tensor, y: Tensor, precisions: Tensor, squarings: int) -> Tensor:
    """Return log Σ_j exp(-κ‖x_i - y_j‖²/2) for every κ 2^s, s ≤ squarings: ``(s, κ, i)``."""
    result = torch.empty(squarings + 1, len(precisions), len(x), dtype=torch.float64)
    rows = max(1, BLOCK // len(y))
    half = y.square().sum(dim=1) / 2

    def fill(start: int) -> None:
        some = x[start : start + rows]
        kernel = torch.empty(len(some), len(y), dtype=torch.float64)
        gaps = (half + some.square().sum(dim=1, keepdim=True) / 2 - some @ y.mT).clamp_(min=0)
        nearest = gaps.amin(dim=1, keepdim=True)
        gaps -= nearest  # so that the largest kernel is 1 even at isolated points
        for i, precision in enumerate(precisions.tolist()):
            torch.mul(gaps, -precision, out=kernel).exp_()
            for s in range(squarings + 1):
                if s:
                    kernel.mul_(kernel)
                shift = -precision * 2**s * nearest[:, 0]
                result[s, i, start : start + rows] = kernel.sum(dim=1).log() + shift

    with threads_apart():
        in_parallel(fill, range(0, len(x), rows))
    return result


class KDE:
    """A kernel density estimate with a cross-validated width and exact sums.

    Parameters
    ----------
    periodic
        The periods of columns.
    background
        Mix in the uniform distribution with the weight 1/(n + 1); all columns must be periodic.
        Without it a single isolated test point can cost hundreds of nats, with it about log n.
    widest
        The largest width tried; by default 0.5 or, where all columns are periodic, a tenth of the
        mean period.
    octaves
        How often the square of the width is halved: 3(octaves + 1) widths are tried.
    folds
        The number of folds.
    judged
        The number of held-out points that choose the width; all by default.
    random_state
        The seed of the folds.
    """

    bandwidth_: float
    widths_: Array
    likelihoods_: Array

    def __init__(  # noqa: PLR0913
        self,
        *,
        periodic: Mapping[int, float] | None = None,
        background: bool = False,
        widest: float | None = None,
        octaves: int = 9,
        folds: int = 5,
        judged: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.periodic = periodic
        self.background = background
        self.widest = widest
        self.octaves = octaves
        self.folds = folds
        self.judged = judged
        self.random_state = random_state

    def _embed(self, x: Array) -> Tensor:
        columns = []
        for i, column in enumerate(x.T):
            if (period := (self.periodic or {}).get(i)) is None:
                columns.append(column)
            else:
                radius = period / (2 * math.pi)
                columns += [radius * np.cos(column / radius), radius * np.sin(column / radius)]
        return torch.from_numpy(np.stack(columns, axis=1))

    def _log_mass(self, precisions: Array, dim: int) -> Array:
        """Return the logarithm of the integral of exp(-κ‖e(x) - e(y)‖²/2)."""
        log = np.zeros_like(precisions)
        for i in range(dim):
            if (period := (self.periodic or {}).get(i)) is None:
                log += 0.5 * np.log(2 * math.pi / precisions)
            else:
                bessel = scipy.special.ive(0, precisions * (period / (2 * math.pi)) ** 2)
                log += np.log(period * bessel)
        return log

    def _widest(self, dim: int) -> float:
        if self.widest is not None:
            return self.widest
        periods = list((self.periodic or {}).values())
        return 0.1 * sum(periods) / dim if len(periods) == dim else 0.5

    def fit(self, X: Array) -> Self:  # noqa: N803
        """Choose the width, store the points, and return the estimate."""
        dim = X.shape[1]
        base = self._widest(dim) ** -2 * np.exp2(np.arange(PER_OCTAVE) / PER_OCTAVE)
        precisions: Array = np.outer(np.exp2(np.arange(self.octaves + 1)), base).reshape(-1)
        points = self._embed(X)
        order = np.random.default_rng(self.random_state).permutation(len(X))
        total = np.zeros(len(precisions))
        few = None if self.judged is None else max(1, self.judged // self.folds)
        count = 0
        for fold in np.array_split(order, self.folds):
            rest, held = np.setdiff1d(order, fold), fold[:few]
            count += len(held)
            sums = log_sums(points[held], points[rest], torch.from_numpy(base), self.octaves)
            mass = self._log_mass(precisions, dim) + math.log(len(rest))
            logs = sums.reshape(len(precisions), -1).numpy() - mass[:, None]
            total += self._mixed(logs, len(rest), dim).sum(axis=1)
        self.widths_ = precisions**-0.5
        self.likelihoods_ = total / count
        self.bandwidth_ = float(self.widths_[np.argmax(total)])
        self._data, self._points = X, points
        return self

    def _mixed(self, logs: Array, n: int, dim: int) -> Array:
        """Return log-densities of n kernels, mixed with the background if there is one."""
        if not self.background:
            return logs
        periods = self.periodic or {}
        if set(periods) != set(range(dim)):
            raise ValueError(
                f"background=True needs periods for all {dim} columns, got periodic={periods}"
            )
        uniform = -sum(map(math.log, periods.values())) - math.log(n)
        mixed: Array = np.logaddexp(logs, uniform) - math.log1p(1 / n)
        return mixed

    @property
    def notes_(self) -> dict[str, float]:
        """The width, and whether it is the narrowest or widest that was tried."""
        ends = int(np.argmax(self.likelihoods_)) in (0, len(self.likelihoods_) - 1)
        return {"width": self.bandwidth_, "at an end": float(ends)}

    def score_samples(self, X: Array) -> Array:  # noqa: N803
        """Return log-densities."""
        precision = np.array([self.bandwidth_**-2])
        sums = log_sums(self._embed(X), self._points, torch.from_numpy(precision), 0)[0, 0]
        mass = self._log_mass(precision, X.shape[1])[0] + math.log(len(self._points))
        return self._mixed(sums.numpy() - mass, len(self._points), X.shape[1])

    def sample(self, n: int = 1, random_state: int = 0) -> Array:
        """Return rows ``(n, dim)``: random data points, each shifted by a draw from the kernel."""
        rng = np.random.default_rng(random_state)
        x: Array = self._data[rng.integers(len(self._data), size=n)].copy()
        for i in range(x.shape[1]):
            if (period := (self.periodic or {}).get(i)) is None:
                x[:, i] += self.bandwidth_ * rng.normal(size=n)
            else:
                radius = period / (2 * math.pi)
                x[:, i] += radius * rng.vonmises(0, (radius / self.bandwidth_) ** 2, size=n)
        if self.background and self.periodic:
            uniform = rng.random(n) * (len(self._data) + 1) < 1
            periods = np.array([self.periodic[i] for i in range(x.shape[1])])
            x[uniform] = rng.random((int(uniform.sum()), x.shape[1])) * periods
        return x
