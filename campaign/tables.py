"""Random tables through the estimator; `trial` has what is judged of their models.

A table has 1 to 12 columns of random kinds, units and offsets, and 1 to 1,000 rows, as an array, a
list or a frame. Some rows may be equal, one may be an outlier, entries may be missing, rows may
have weights.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from campaign.columns import (
    CONFINED,
    FRAMES,
    FREE,
    KINDS,
    LEVELS,
    SHARES,
    Array,
    column,
    framed,
)
from campaign.trial import judge

NEW = 200
"""The number of new rows, and of samples."""

EXTRAS: tuple[dict[str, Any], ...] = (
    {"cv": 3},
    {"shrinkage": "james-stein"},
    {"shrinkage": "modulation"},
    {"ridge": 1e-3},
    {"flow_steps": 32},
    {"max_eigenvalue": 100.0},
)
"""Settings other than the defaults."""


@dataclass(frozen=True)
class Case:
    """A table with new rows of the same distribution, and what is known of its columns."""

    rows: pd.DataFrame
    new: pd.DataFrame
    kinds: tuple[str, ...]
    form: str = "pandas"
    settings: dict[str, Any] = field(default_factory=dict)
    weights: Array | None = None
    outlier: bool = False
    gaps: bool = False
    batches: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.rows)

    def key(self, j: int) -> str | int:
        """Return how column j is called: tables without names have numbers."""
        return self.names[j] if self.form in ("pandas", "polars", "pyarrow") else j

    def table(self, frame: pd.DataFrame) -> Any:  # noqa: ANN401
        """Return rows in the form of this case."""
        return framed(frame, self.form)

    @property
    def continuous(self) -> list[int]:
        """The columns that have densities."""
        return [j for j, kind in enumerate(self.kinds) if kind in FREE or kind in CONFINED]

    @property
    def has_marginals(self) -> bool:
        """Whether the model has marginals and conditionals: polynomials do not."""
        return self.settings.get("process") != "ou"

    @property
    def is_plain(self) -> bool:
        """Whether a Gaussian of the rows is a fair comparison."""
        whole = len(self.continuous) == len(self.kinds) and not self.gaps and not self.outlier
        extra = set(self.settings) - {"periodic", "bounds"}
        return whole and not extra and len(self.rows) >= 10 * len(self.kinds)


def drawn(seed: int) -> Case:
    """Return the case of a seed."""
    rng = np.random.default_rng(seed)
    n = round(10 ** rng.uniform(0, 3))
    dim = int(rng.choice([1, 2, 3, 4, 5, 6, 8, 12], p=[0.2, 0.2, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03]))
    kinds = tuple(str(one) for one in rng.choice(KINDS, p=np.array(SHARES) / sum(SHARES), size=dim))
    kinds = kinds if not set(kinds) <= set(LEVELS) else ("normal", *kinds[1:])  # refused otherwise
    kinds = (kinds[0] if kinds[0] != "copy" else "normal", *kinds[1:])
    frame = _frame(kinds, n + NEW, rng)
    rows, new = frame[:n].reset_index(drop=True), frame[n:].reset_index(drop=True)
    if n > 10 and rng.random() < 0.2:  # equal rows
        rows = rows.iloc[rng.integers(0, n // 2, size=n)].reset_index(drop=True)
    outlier = bool(n > 10 and set(kinds) & set(FREE) and rng.random() < 0.2)
    if outlier:
        rows = _with_outlier(rows, kinds, rng)
    levels = [f"c{j}" for j, kind in enumerate(kinds) if kind in LEVELS]
    gaps = bool(n > 10 and (dim > 3 or levels) and rng.random() < 0.2)
    if gaps:
        rows = rows.astype({name: float for name in rows if rows[name].dtype.kind in "iu"})
        for name in rows:
            if rows[name].dtype.kind == "f":
                rows.loc[rng.random(n) < 0.05, name] = np.nan
        rows = rows[rows.notna().sum(axis=1) > len(levels)].reset_index(drop=True)
    for name in levels:  # a level that was not fitted is an error
        new = new[new[name].isin(set(rows[name]))].reset_index(drop=True)
    form = str(rng.choice(FRAMES))
    form = "pandas" if levels and form not in ("polars", "pyarrow") else form
    weights = None
    if rng.random() < 0.25:
        weights = rng.uniform(0.5, 2, size=len(rows))
        weights[rng.random(len(rows)) < rng.choice([0.0, 0.1])] = 0
        weights[0] = 1
    case = Case(rows, new, kinds, form, {}, weights, outlier, gaps)
    return _with_settings(case, rng)


def _frame(kinds: tuple[str, ...], n: int, rng: np.random.Generator) -> pd.DataFrame:
    dim = len(kinds)
    mixing = np.eye(dim) + rng.normal(size=(dim, dim)) * rng.choice([0.0, 0.5])
    z = rng.normal(size=(n, dim)) @ mixing / np.linalg.norm(mixing, axis=0)
    found: dict[str, Any] = {}
    for j, kind in enumerate(kinds):
        first = found.get("c0") if kinds[0] not in LEVELS else None
        found[f"c{j}"] = column(kind, z[:, j], first, rng)
    return pd.DataFrame(found)


def _with_outlier(
    rows: pd.DataFrame, kinds: tuple[str, ...], rng: np.random.Generator
) -> pd.DataFrame:
    rows, far = rows.copy(), 10 ** rng.uniform(1, 6)
    for j, kind in enumerate(kinds):
        if kind in FREE:
            values = rows[f"c{j}"].to_numpy().copy()
            values[0] += np.asarray(far * (float(values.std()) or 1.0), dtype=values.dtype)
            rows[f"c{j}"] = values
    return rows


def _with_settings(case: Case, rng: np.random.Generator) -> Case:
    keys = [case.key(j) for j in range(len(case.kinds))]
    at = {kind: [keys[j] for j, one in enumerate(case.kinds) if one == kind] for kind in CONFINED}
    bounds: dict[str | int, Any] = dict.fromkeys(at["share"], (0.0, 1.0))
    bounds |= dict.fromkeys(at["positive"], (0.0, None))
    settings: dict[str, Any] = {}
    if at["angle"]:
        settings["periodic"] = dict.fromkeys(at["angle"], 360.0)
    if bounds:
        settings["bounds"] = bounds
    if rng.random() < 0.2:
        settings |= EXTRAS[rng.integers(len(EXTRAS))]
    if set(case.kinds) <= set(FREE) and not case.gaps and rng.random() < 0.1:
        settings["process"] = str(rng.choice(["mixture", "ou"]))
    batches = set(case.kinds) <= {*FREE, *CONFINED} and case.weights is None and not case.gaps
    batches = bool(batches and "cv" not in settings and rng.random() < 0.1)
    return replace(case, settings=settings, batches=batches)


def judged(seed: int) -> dict[str, Any]:
    """Return the record of a case: its form, and what failed."""
    case = drawn(seed)
    record: dict[str, Any] = {
        "rows": len(case.rows),
        "kinds": list(case.kinds),
        "form": case.form,
        "settings": repr(case.settings),
        "outlier": case.outlier,
        "failed": [],
    }
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        judge(case, record, np.random.default_rng(seed + 1))
    record["warnings"] = sorted({str(one.message)[:80] for one in found})
    strange = [one for one in found if not issubclass(one.category, UserWarning)]
    if strange:
        record["failed"].append("warning")
        one = strange[0]
        record["strange"] = f"{one.category.__name__}: {one.message} ({one.filename})"[:300]
    return record
