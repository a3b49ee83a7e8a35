"""Mixtures of Gaussians of the mixed table after transforms made by hand.

Positive columns are replaced by their logarithms, humidity by its logit. Direction is cut at its
emptiest place; the density of an angle is the sum over whole turns, so nothing is lost at the cut.
Counts and coded levels become continuous by uniform noise, v + u, counts also as log(v + u + ½).
The probability of a value is the integral over its cell, by Gauss-Legendre quadrature. Levels may
instead have a mixture each. BIC, of all columns in the units of the data, chooses the number of
Gaussians, the scale of the counts, and which levels have their own mixtures.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from mixed_table import LEVELS, Array
from scipy import special

from oism.tables import fit_mixture_by_bic

OWN_MIXTURES = (("site", "open"), ("site",), ())
SCALES = ("log", "raw")
NODES = {1: 12, 2: 8, 3: 6}  # for each noisy column, by their number
FEWEST = 30  # rows for a mixture of their own
PIECE = 200_000  # rows with their nodes and turns at a time


class Coordinates(NamedTuple):
    """The continuous coordinates of rows, and the log of |dy/dx|."""

    y: Array
    log_slope: Array


@dataclass(frozen=True)
class Form:
    """One choice of transforms: where the angle is cut, the counts' scale, the noisy levels."""

    cut: float
    scale: str
    noisy: tuple[str, ...]  # levels that are coded and made continuous

    @property
    def cells(self) -> int:
        """The number of noisy columns."""
        return 1 + len(self.noisy)

    def coordinates(self, table: pd.DataFrame, noise: Array) -> Coordinates:
        """Return the coordinates of rows for the given noise ``(n, cells)`` in [0, 1)."""
        share = table["humidity"].to_numpy() / 100
        rain, duration = table["rain"].to_numpy(), table["duration"].to_numpy()
        count = table["visitors"].to_numpy() + noise[:, 0]
        codes = [
            np.array([LEVELS[name].index(value) for value in table[name]]) + noise[:, 1 + place]
            for place, name in enumerate(self.noisy)
        ]
        columns = [
            np.remainder(table["direction"].to_numpy() - self.cut, 360.0),
            special.logit(share),
            np.log(rain),
            np.log(duration),
            table["temperature"].to_numpy(),
            np.log(count + 0.5) if self.scale == "log" else count,
            *codes,
        ]
        slope = -np.log(100 * share * (1 - share)) - np.log(rain) - np.log(duration)
        if self.scale == "log":
            slope = slope - np.log(count + 0.5)
        return Coordinates(np.stack(columns, axis=1), slope)


def emptiest(angles: Array) -> float:
    """Return the middle of the emptiest of 72 overlapping windows of 15 degrees."""
    centres = np.arange(0.0, 360.0, 5.0)
    gaps = np.abs(np.remainder(angles[:, None] - centres + 180, 360) - 180)
    return float(centres[np.argmin((gaps < 7.5).sum(axis=0))])


def parameters(components: float, dim: int) -> float:
    """Return the number of parameters of a mixture with full covariances."""
    return components * (1 + dim + dim * (dim + 1) / 2) - 1


def groups(
    table: pd.DataFrame, names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    """Yield every combination of levels that occurs, with its rows."""
    for levels in itertools.product(*(LEVELS[name] for name in names)):
        chosen = np.ones(len(table), dtype=bool)
        for name, level in zip(names, levels, strict=True):
            chosen &= (table[name] == level).to_numpy()
        if chosen.any():
            yield levels, table[chosen]


class Candidate:
    """Mixtures in one form: one for each combination of the levels in ``own``."""

    def __init__(self, table: pd.DataFrame, form: Form, own: tuple[str, ...], seed: int) -> None:
        self.form, self.own = form, own
        rng = np.random.default_rng(seed)
        self.mixtures: dict[tuple[str, ...], Any] = {}
        self.shares: dict[tuple[str, ...], float] = {}
        log_likelihood, count, combinations = 0.0, 0.0, 0
        for levels, rows in groups(table, own):
            combinations += 1
            self.shares[levels] = (len(rows) + 0.5) / len(table)
            noise = rng.random((len(rows), form.cells))
            y, slope = form.coordinates(rows, noise)
            mixture = fit_mixture_by_bic(y, seed=seed)
            self.mixtures[levels] = mixture
            log_likelihood += float((mixture.score_samples(y) + slope).sum())
            log_likelihood += len(rows) * np.log(self.shares[levels])
            count += parameters(mixture.notes["components"], y.shape[1])
        total = sum(self.shares.values())
        self.shares = {levels: share / total for levels, share in self.shares.items()}
        self.bic = (count + combinations - 1) * np.log(len(table)) - 2 * log_likelihood

    def score_samples(self, table: pd.DataFrame) -> Array:
        """Return log-densities: integrals over cells, and sums over whole turns."""
        node, weight = np.polynomial.legendre.leggauss(NODES[self.form.cells])
        grid = np.array(list(itertools.product(0.5 + 0.5 * node, repeat=self.form.cells)))
        products = itertools.product(0.5 * weight, repeat=self.form.cells)
        log_weights = np.log([np.prod(parts) for parts in products])
        result = pd.Series(np.full(len(table), -np.inf), index=table.index)
        for levels, rows in groups(table, self.own):
            step = max(1, PIECE // (3 * len(grid)))
            for start in range(0, len(rows), step):
                some = rows.iloc[start : start + step]
                logs = self._cells(some, self.mixtures[levels], grid)
                mass = special.logsumexp(logs + log_weights[:, None], axis=0)
                result[some.index] = mass + np.log(self.shares[levels])
        values: Array = result.to_numpy()
        return values

    def _cells(self, rows: pd.DataFrame, mixture: Any, grid: Array) -> Array:  # noqa: ANN401
        """Return the log-densities at the nodes of the cells: ``(nodes, n)``."""
        repeated = rows.iloc[np.tile(np.arange(len(rows)), len(grid))]
        y, slope = self.form.coordinates(repeated, np.repeat(grid, len(rows), axis=0))
        turns = []
        for turn in (-360.0, 0.0, 360.0):
            turned = y.copy()
            turned[:, 0] += turn
            turns.append(mixture.score_samples(turned))
        logs: Array = special.logsumexp(turns, axis=0) + slope
        return logs.reshape(len(grid), len(rows))


def fit_by_hand(table: pd.DataFrame, seed: int = 0) -> Candidate:
    """Return the mixtures with the lowest BIC of all forms with enough rows for each mixture."""
    cut = emptiest(table["direction"].to_numpy())
    candidates = []
    for own, scale in itertools.product(OWN_MIXTURES, SCALES):
        if min(len(rows) for _, rows in groups(table, own)) >= FEWEST:
            noisy = tuple(name for name in LEVELS if name not in own)
            candidates.append(Candidate(table, Form(cut, scale, noisy), own, seed))
    return min(candidates, key=lambda candidate: candidate.bic)
