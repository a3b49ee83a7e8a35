"""Random tables through the estimator: fit, densities, samples, marginals, file.

A table has 1 to 6 columns of random kinds, units and offsets, and 2 to 1,000 rows, of which some
may be equal and one may be an outlier. What is judged of its model:

    error      nothing raises: all tables are valid
    finite     log-densities of training and new rows, and samples, are finite
    range      samples are within bounds, among the levels, and as far out as rows are
    mass       the density integrates to one, by importance sampling with its error
    gaussian   new rows are at most 0.5 nats below a Gaussian with the moments of the rows
    file       a model that was saved and loaded returns the same numbers
"""

from __future__ import annotations

import math
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.special
import scipy.stats
from numpy.typing import ArrayLike, NDArray

from oism import OISM, load

Array = NDArray[np.float64]

KINDS = ("normal", "lognormal", "uniform", "bimodal", "heavy", "angle", "share", "count", "level")
NEW = 200
"""The number of new rows, and of samples."""

WORSE = 0.5
"""By how many nats a model may be below a Gaussian."""

DRAWS = 2000
"""The number of points at which the mass is estimated."""


@dataclass(frozen=True)
class Case:
    """A table with new rows of the same distribution, and what is known of its columns."""

    rows: Any
    new: Any
    settings: dict[str, Any]
    weights: Array | None
    kinds: tuple[str, ...]
    outlier: bool

    @property
    def is_continuous(self) -> bool:
        """Whether all columns have densities."""
        return not {"count", "level"} & set(self.kinds)


def drawn(seed: int) -> Case:
    """Return the case of a seed."""
    rng = np.random.default_rng(seed)
    n, dim = round(10 ** rng.uniform(0.3, 3)), int(rng.integers(1, 7))
    kinds = tuple(rng.choice(KINDS, p=[0.2, 0.12, 0.12, 0.12, 0.1, 0.1, 0.1, 0.08, 0.06], size=dim))
    kinds = kinds if set(kinds) != {"level"} else ("normal", *kinds[1:])  # levels alone are refused
    mixing = np.eye(dim) + rng.normal(size=(dim, dim)) * rng.choice([0.0, 0.5])
    z = rng.normal(size=(n + NEW, dim)) @ mixing / np.linalg.norm(mixing, axis=0)
    frame = pd.DataFrame({f"c{j}": _column(kind, z[:, j], rng) for j, kind in enumerate(kinds)})
    rows, new = frame[:n].reset_index(drop=True), frame[n:]
    if n > 10 and rng.random() < 0.2:  # equal rows
        rows = rows.iloc[rng.integers(0, n // 2, size=n)].reset_index(drop=True)
    free = [f"c{j}" for j, kind in enumerate(kinds) if kind in KINDS[:5]]
    outlier = bool(n > 10 and free and rng.random() < 0.2)
    if outlier:
        for name in free:
            values = rows[name].to_numpy().copy()
            values[0] += 10 ** rng.uniform(1, 6) * (values.std() or 1.0)
            rows[name] = values
    for j, kind in enumerate(kinds):  # a level that was not fitted is an error
        if kind == "level":
            new = new[new[f"c{j}"].isin(set(rows[f"c{j}"]))]
    weights = rng.uniform(0.5, 2, size=n) if rng.random() < 0.2 else None
    named = "level" in kinds or rng.random() < 0.6
    keys: dict[int, Any] = {j: f"c{j}" if named else j for j in range(dim)}
    settings: dict[str, Any] = {
        "periodic": {keys[j]: 360.0 for j in range(dim) if kinds[j] == "angle"} or None,
        "bounds": {keys[j]: (0.0, 1.0) for j in range(dim) if kinds[j] == "share"} or None,
    }
    table = rows if named else rows.to_numpy()
    fresh = new.reset_index(drop=True) if named else new.to_numpy()
    return Case(table, fresh, settings, weights, kinds, outlier)


def _column(kind: str, z: Array, rng: np.random.Generator) -> NDArray[Any]:
    """Return a column of a kind from normal values, in a random unit and with a random offset."""
    unit = 10.0 ** rng.uniform(-8, 8)
    offset = unit * 10.0 ** rng.uniform(-2, 4) * rng.choice([-1, 0, 1])
    u: Array = scipy.stats.norm.cdf(z)
    levels = np.array(["red", "green", "blue"])[(3 * u).astype(int).clip(max=2)]
    fixed: dict[str, NDArray[Any]] = {
        "angle": 360 * u,
        "share": u**2,
        "count": scipy.stats.poisson(3).ppf(u),
        "level": levels,
    }
    return fixed[kind] if kind in fixed else offset + unit * shaped(kind, z, u)


def shaped(kind: str, z: Array, u: Array) -> Array:
    """Return values of a kind from normal ones and their quantiles."""
    values: dict[str, Array] = {
        "normal": z,
        "lognormal": np.exp(z),
        "uniform": u,
        "bimodal": z + 4 * (u > 0.3),
        "heavy": scipy.stats.t(2).ppf(u.clip(1e-12, 1 - 1e-12)),
    }
    return values[kind]


def judged(seed: int) -> dict[str, Any]:
    """Return the record of a case: its form, and what failed."""
    case = drawn(seed)
    record: dict[str, Any] = {
        "rows": len(case.rows),
        "kinds": list(case.kinds),
        "outlier": case.outlier,
        "failed": [],
    }
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            _judge(case, record, np.random.default_rng(seed + 1))
        record["warnings"] = sorted({str(one.message)[:80] for one in found})
    except Exception as error:  # whatever it is, it is a failure
        record["failed"].append("error")
        record["error"] = f"{type(error).__name__}: {error}"[:300]
    return record


def _judge(case: Case, record: dict[str, Any], rng: np.random.Generator) -> None:
    model = OISM(**case.settings).fit(case.rows, sample_weight=case.weights)
    own, new = model.score_samples(case.rows), model.score_samples(case.new)
    samples = pd.DataFrame(model.sample(NEW, random_state=0))
    rows = pd.DataFrame(case.rows)
    failed = record["failed"]
    if not (np.isfinite(own).all() and np.isfinite(new).all()):
        failed.append("finite")
    if not _in_range(case, rows, samples):
        failed.append("range")
    if case.is_continuous and len(case.kinds) <= 3:
        mass, error = mass_of(model, case, rows.to_numpy(), rng)
        record["mass"] = [mass, error]
        if abs(mass - 1) > 0.05 + 4 * error:
            failed.append("mass")
    if case.is_continuous and not case.outlier and len(rows) >= 10 * len(case.kinds):
        x, y = (np.asarray(one, dtype=np.float64) for one in (case.rows, case.new))
        unit = x.std(axis=0)
        moments = (x / unit).mean(axis=0), np.atleast_2d(np.cov((x / unit).T)) + 1e-9
        normal = scipy.stats.multivariate_normal(*moments, allow_singular=True)
        gap = float(new.mean() - (normal.logpdf(y / unit).mean() - np.log(unit).sum()))
        record["gain"] = gap
        if gap < -WORSE:
            failed.append("gaussian")
    if not _same_from_file(model, case.new, new):
        failed.append("file")


def _in_range(case: Case, rows: pd.DataFrame, samples: pd.DataFrame) -> bool:
    for j, kind in enumerate(case.kinds):
        found, known = samples.iloc[:, j], rows.iloc[:, j]
        if kind == "level":
            if not set(found) <= set(known):
                return False
            continue
        x, y = found.to_numpy(dtype=np.float64), known.to_numpy(dtype=np.float64)
        if not np.isfinite(x).all():
            return False
        if kind in ("angle", "share"):
            high = 360 if kind == "angle" else 1
            if x.min() < 0 or x.max() > high:
                return False
        # The middle of samples lies within the rows, and spreads as they do.
        spread = y.max() - y.min() or abs(y[0]) or 1.0
        if not y.min() - spread <= np.median(x) <= y.max() + spread:
            return False
        if np.percentile(x, 75) - np.percentile(x, 25) > 3 * spread:
            return False
    return True


def mass_of(model: OISM, case: Case, rows: Array, rng: np.random.Generator) -> tuple[float, float]:
    """Return the integral of a density by importance sampling, and its standard error.

    Points are rows with Student noise of two degrees of freedom, of several widths; in angles and
    shares they are uniform.
    """
    rows = np.asarray(rows, dtype=np.float64)
    n, dim = rows.shape
    centre = np.median(rows, axis=0)
    unit = np.maximum(np.percentile(np.abs(rows - centre), 80, axis=0), 1e-9 * np.abs(centre))
    unit = np.where(unit > 0, unit, 1e-9)
    widths, law = np.array([0.05, 0.5, 5.0]), scipy.stats.t(2)
    chosen, scale = rng.integers(n, size=DRAWS), rng.choice(widths, size=DRAWS)
    points = rows[chosen] + scale[:, None] * unit * law.rvs((DRAWS, dim), random_state=rng)
    gaps = (points[:, None] - rows[None, :, :]) / unit
    logs = np.stack([(law.logpdf(gaps / w) - np.log(w * unit)) for w in widths])
    for j, kind in enumerate(case.kinds):
        if kind in ("angle", "share"):
            high = 360.0 if kind == "angle" else 1.0
            points[:, j] = rng.uniform(0, high, size=DRAWS)
            logs[..., j] = -math.log(high)
    proposal = scipy.special.logsumexp(logs.sum(axis=-1), axis=(0, 2)) - math.log(len(widths) * n)
    columns = list(model.feature_names_in_) if hasattr(model, "feature_names_in_") else None
    table = points if columns is None else pd.DataFrame(points, columns=columns)
    ratio = np.exp(model.score_samples(table) - proposal)
    return float(ratio.mean()), float(ratio.std() / math.sqrt(DRAWS))


def _same_from_file(model: OISM, rows: ArrayLike, expected: Array) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        return bool(np.array_equal(load(path).score_samples(rows), expected))
