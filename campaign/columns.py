"""Columns of random tables: kinds, units and offsets, and the frames that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.stats
from numpy.typing import NDArray

Array = NDArray[np.float64]

FREE = ("normal", "lognormal", "uniform", "bimodal", "heavy", "float32")
"""Kinds of columns that have a density on the line, in any unit."""

CONFINED = {"angle": (0.0, 360.0), "share": (0.0, 1.0), "positive": (0.0, np.inf)}
"""Kinds with a density on an interval."""

DISCRETE = ("count", "rounded", "level", "flag")
"""Kinds whose values repeat."""

SINGULAR = ("constant", "narrow", "copy")
"""Kinds without a density of their own: one value, almost one, a multiple of the first column."""

KINDS = (*FREE, *CONFINED, *DISCRETE, *SINGULAR)
SHARES = (
    0.2,
    0.1,
    0.1,
    0.1,
    0.08,
    0.04,
    0.08,
    0.06,
    0.05,
    0.05,
    0.04,
    0.04,
    0.02,
    0.02,
    0.01,
    0.01,
)
LEVELS = ("level", "flag")
FRAMES = ("array", "fortran", "read-only", "list", "pandas", "polars", "pyarrow")


def column(kind: str, z: Array, first: NDArray[Any] | None, rng: np.random.Generator) -> Any:  # noqa: ANN401
    """Return a column of a kind from normal values ``z``, in a random unit, with an offset.

    ``first`` is the first column of the table, if it has numbers.
    """
    unit = 10.0 ** rng.uniform(-8, 8)
    offset = unit * 10.0 ** rng.uniform(-2, 4) * rng.choice([-1, 0, 1])
    u: Array = scipy.stats.norm.cdf(z)
    if kind == "copy" and first is not None:
        return rng.choice([-2.0, 0.5]) * np.asarray(first, dtype=np.float64)
    values = {
        "angle": 360 * u,
        "share": u**2,
        "positive": unit * np.exp(z),
        "count": scipy.stats.poisson(3).ppf(u).astype(np.int64),
        "rounded": z.round(1),
        "level": np.array(["red", "green", "blue"], dtype=object)[(3 * u).astype(int).clip(max=2)],
        "flag": u > 0.3,
        "constant": np.full_like(z, offset),
        "narrow": unit * (1 + 1e-13 * z),
        "float32": (unit * z).astype(np.float32),
    }
    return values[kind] if kind in values else offset + unit * shaped(kind, z, u)


def shaped(kind: str, z: Array, u: Array) -> Array:
    """Return values of a kind from normal ones and their quantiles."""
    values: dict[str, Array] = {
        "normal": z,
        "copy": z,
        "lognormal": np.exp(z),
        "uniform": u,
        "bimodal": z + 4 * (u > 0.3),
        "heavy": scipy.stats.t(2).ppf(u.clip(1e-12, 1 - 1e-12)),
    }
    return values[kind]


def framed(frame: pd.DataFrame, form: str) -> Any:  # noqa: ANN401
    """Return a table in one of `FRAMES`."""
    if form == "pandas":
        return frame
    if form == "polars":
        return pl.DataFrame({name: frame[name].to_numpy() for name in frame})
    if form == "pyarrow":
        return pa.table({name: frame[name].to_numpy() for name in frame})
    array = frame.to_numpy()
    if form == "list":
        return array.tolist()
    if form == "fortran":
        return np.asfortranarray(array)
    if form == "read-only":
        array = array.copy()
        array.flags.writeable = False
    return array


def unframed(table: Any, names: Sequence[str]) -> pd.DataFrame:  # noqa: ANN401
    """Return any table as a frame of pandas."""
    if hasattr(table, "to_pandas"):
        found: pd.DataFrame = table.to_pandas()
        return found
    if isinstance(table, pd.DataFrame):
        return table.reset_index(drop=True)
    return pd.DataFrame(table, columns=list(names)).infer_objects()
