"""What is judged of the model of a table.

error      nothing raises: all tables are valid
warning    all warnings are the library's own
finite     log-densities of training and new rows, and samples, are finite
range      samples are within bounds, among the levels, and as far out as rows are
frame      samples are a table of the kind that was fitted, with its names and dtypes
mass       the density integrates to one, by importance sampling with its error: that of all
           columns, or where there are more than three of two of them
gaussian   new rows are at most 0.5 nats below a Gaussian with the moments of the rows
chain      log p(x) = log p(x_A) + log p(x_B | x_A) for a column A and all others B
repeated   the same calls return the same numbers
file       a model that was saved and loaded returns the same bits
pickled    so does one that was pickled
text       summary, facts and HTML exist
mistake    wrong arguments raise a ValueError or TypeError that names the argument (`mistakes`)
"""

from __future__ import annotations

import json
import math
import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import scipy.special
import scipy.stats

from campaign import mistakes
from campaign.columns import CONFINED, LEVELS, SINGULAR, Array, unframed
from oism import OISM, load

if TYPE_CHECKING:
    from campaign.tables import Case

WORSE = 0.5
"""By how many nats a model may be below a Gaussian."""

SAMPLES = 200
"""The number of samples."""

DRAWS = 2000
"""The number of points at which the mass is estimated."""

UNLIKELY = 1e-3
"""The probability below which rows are no uniform ones."""

CHECKS = (
    "finite", "range", "frame", "mass", "gaussian", "chain", "repeated", "file", "pickled", "text",
    "mistake",
)  # fmt: skip


def judge(case: Case, record: dict[str, Any], rng: np.random.Generator) -> None:
    """Fit a model, and add to a record what fails."""
    name = "fit"
    try:
        trial = Trial(case, record, rng)
        for name in CHECKS:
            if not getattr(trial, name)():
                record["failed"].append(name)
    except Exception as error:  # whatever it is, it is a failure
        record["failed"].append("error")
        record["error"] = f"{name}: {type(error).__name__}: {error}"[:300]


class Trial:
    """A model of a case, with its densities and samples; methods return whether checks pass."""

    def __init__(self, case: Case, record: dict[str, Any], rng: np.random.Generator) -> None:
        self.case, self.record, self.rng = case, record, rng
        self.model = fitted(case)
        self.new = self.model.score_samples(case.table(case.new))
        self.samples = self.model.sample(SAMPLES, random_state=0)

    def finite(self) -> bool:
        """Return whether log-densities of training and new rows are finite."""
        own = self.model.score_samples(self.case.table(self.case.rows))
        return bool(np.isfinite(own).all() and np.isfinite(self.new).all())

    def range(self) -> bool:
        """Return whether samples are in range."""
        return in_range(self.case, unframed(self.samples, self.case.names))

    def frame(self) -> bool:
        """Return whether samples are a table of the kind that was fitted."""
        if self.case.form not in ("pandas", "polars"):
            shape = SAMPLES, len(self.case.kinds)
            return isinstance(self.samples, np.ndarray) and self.samples.shape == shape
        table = self.case.table(self.case.rows)
        expected = list(table.columns), list(table.dtypes)
        return (list(self.samples.columns), list(self.samples.dtypes)) == expected

    def mass(self) -> bool:
        """Return whether a density of one to three columns integrates to one."""
        free, dim = self.case.continuous, len(self.case.kinds)
        chosen = free
        if dim > 3 and len(free) > 2:
            chosen = sorted(int(j) for j in self.rng.choice(free, size=2, replace=False))
        if not chosen or (dim <= 3 and len(free) < dim):
            return True
        if len(chosen) < dim and not self.case.has_marginals:
            return True
        if len(self.case.rows) < 10 * len(chosen):  # the points would miss a density on a line
            return True
        density: Density = self.model
        if len(chosen) < dim:
            density = self.model.marginal([self.case.key(j) for j in chosen])
        mass, error = mass_of(density, self.case, chosen, self.rng)
        self.record["mass"] = [mass, error]
        return abs(mass - 1) <= 0.05 + 4 * error

    def gaussian(self) -> bool:
        """Return whether new rows are at most half a nat below a Gaussian."""
        if not self.case.is_plain:
            return True
        self.record["gain"] = gain(self.case, self.new)
        return bool(self.record["gain"] >= -WORSE)

    def chain(self) -> bool:
        """Return whether marginals and conditionals multiply to the density."""
        dim = len(self.case.kinds)
        if dim == 1 or not self.case.has_marginals or not len(self.new):
            return True
        gap = chain_gap(self.model, self.case, int(self.rng.integers(dim)), self.new)
        self.record["chain"] = gap
        return gap < 1e-4

    def repeated(self) -> bool:
        """Return whether the same calls return the same numbers."""
        return self.is_same(self.model)

    def file(self) -> bool:
        """Return whether a file holds the same model."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            self.model.save(path)
            return self.is_same(load(path))

    def pickled(self) -> bool:
        """Return whether pickling keeps the model."""
        return self.is_same(pickle.loads(pickle.dumps(self.model)))

    def text(self) -> bool:
        """Return whether the model can be described."""
        json.dumps(self.model.facts(), allow_nan=False)
        return bool(self.model.summary()) and "<" in self.model._repr_html_inner()

    def mistake(self) -> bool:
        """Return whether wrong arguments get clear errors."""
        self.record["mistakes"] = dict(mistakes.judged(self.model, self.case, self.rng))
        return not self.record["mistakes"]

    def is_same(self, model: OISM) -> bool:
        """Return whether a model returns the same bits as that of the case."""
        names = self.case.names
        drawn = (unframed(one, names) for one in (model.sample(SAMPLES, 0), self.samples))
        densities = model.score_samples(self.case.table(self.case.new))
        return np.array_equal(densities, self.new) and next(drawn).equals(next(drawn))


def fitted(case: Case) -> OISM:
    """Return the model of a case."""
    model = OISM(**case.settings)
    if case.batches:
        parts = [part for part in (case.rows[:100], case.rows[100:]) if len(part)]
        model.fit_batches(lambda: [case.table(part) for part in parts])
    else:
        model.fit(case.table(case.rows), sample_weight=case.weights)
    return model


def in_range(case: Case, samples: pd.DataFrame) -> bool:
    """Return whether samples are possible values, and spread as the rows do."""
    for name, kind in zip(case.names, case.kinds, strict=True):
        known = case.rows[name].dropna()
        if kind in LEVELS:
            if not set(samples[name]) <= set(known):
                return False
            continue
        x, y = (one.to_numpy(dtype=np.float64) for one in (samples[name], known))
        if not np.isfinite(x).all():
            return False
        low, high = CONFINED.get(kind, (-np.inf, np.inf))
        if x.min() < low or x.max() > high:
            return False
        # The middle of samples lies within the rows, and spreads as they do.
        spread = scale_of(y, kind)
        if not y.min() - spread <= np.median(x) <= y.max() + spread:
            return False
        if np.percentile(x, 75) - np.percentile(x, 25) > 3 * spread:
            return False
    return True


def scale_of(y: Array, kind: str) -> float:
    """Return the scale that the values of a column show.

    A column that is constant up to rounding stays within rounding of its value.
    """
    spread, size = float(y.max() - y.min()), float(np.abs(y).max())
    spread = spread if spread > 1e-13 * size else 1e-6 * size or 1e-6
    spread = max(spread, 1e-12 * size)
    if len(y) == 1 and kind not in SINGULAR:
        spread = max(spread, size, 1.0)  # one row says nothing of its unit
    low, high = CONFINED.get(kind, (-np.inf, np.inf))
    if math.isfinite(low):
        width = (high if math.isfinite(high) else float(y.max())) - low
        if may_be_uniform(y, width):
            spread = max(spread, width)
    return spread


def may_be_uniform(values: Array, width: float) -> bool:
    """Return whether few values may be uniform on an interval: then so may be samples.

    n uniform values lie within a share r of the interval with probability n rⁿ⁻¹ - (n - 1) rⁿ.
    """
    found = np.unique(values)
    n, share = len(found), float(found[-1] - found[0]) / width
    return bool(n * share ** (n - 1) - (n - 1) * share**n > UNLIKELY)


def gain(case: Case, new: Array) -> float:
    """Return by how many nats new rows are above a Gaussian with the moments of weighted rows."""
    x, y = (one.to_numpy(dtype=np.float64) for one in (case.rows, case.new))
    unit = x.std(axis=0)
    mean = np.average(x / unit, axis=0, weights=case.weights)
    covariance = np.atleast_2d(np.cov((x / unit).T, aweights=case.weights)) + 1e-9
    normal = scipy.stats.multivariate_normal(mean, covariance, allow_singular=True)
    return float(new.mean() - (normal.logpdf(y / unit).mean() - np.log(unit).sum()))


def chain_gap(model: OISM, case: Case, j: int, new: Array) -> float:
    """Return |log p(x) - log p(x_j) - log p(others | x_j)| at a new row, relative where large."""
    row, expected = case.new[:1], float(new[0])
    name, value = case.names[j], case.new.iloc[0, j]
    others = case.table(row.drop(columns=name))
    marginal = model.marginal([case.key(j)]).score_samples(case.table(row[[name]]))
    conditional = model.conditional({case.key(j): value}).score_samples(others)
    return abs(float(marginal[0] + conditional[0]) - expected) / max(1.0, abs(expected))


class Density(Protocol):
    """What has a density: a model, or a marginal of it."""

    def score_samples(self, X: Any) -> Array:  # noqa: ANN401, N803
        """Return log-densities."""
        ...


def mass_of(
    density: Density, case: Case, columns: list[int], rng: np.random.Generator
) -> tuple[float, float]:
    """Return the integral of a density by importance sampling, and its standard error.

    Points are rows with Student noise of two degrees of freedom, of several widths; in angles and
    shares they are uniform.
    """
    names = [case.names[j] for j in columns]
    rows: Array = case.rows[names].dropna().to_numpy(dtype=np.float64)
    n, dim = rows.shape
    centre = np.median(rows, axis=0)
    unit = np.maximum(np.percentile(np.abs(rows - centre), 80, axis=0), 1e-9 * np.abs(centre))
    unit = np.where(unit > 0, unit, 1e-9)
    widths, law = np.array([0.05, 0.5, 5.0]), scipy.stats.t(2)
    chosen, scale = rng.integers(n, size=DRAWS), rng.choice(widths, size=DRAWS)
    points = rows[chosen] + scale[:, None] * unit * law.rvs((DRAWS, dim), random_state=rng)
    gaps = (points[:, None] - rows[None, :, :]) / unit
    logs = np.stack([(law.logpdf(gaps / w) - np.log(w * unit)) for w in widths])
    inside = np.full(DRAWS, fill_value=True)
    for i, kind in enumerate(case.kinds[j] for j in columns):
        low, high = CONFINED.get(kind, (-np.inf, np.inf))
        if math.isfinite(high):
            points[:, i] = rng.uniform(low, high, size=DRAWS)
            logs[..., i] = -math.log(high)
        inside &= (points[:, i] > low) & (points[:, i] < high)
    proposal = scipy.special.logsumexp(logs.sum(axis=-1), axis=(0, 2)) - math.log(len(widths) * n)
    ratio = np.zeros(DRAWS)
    table = case.table(pd.DataFrame(points[inside], columns=names))
    ratio[inside] = np.exp(density.score_samples(table) - proposal[inside])
    return float(ratio.mean()), float(ratio.std() / math.sqrt(DRAWS))
