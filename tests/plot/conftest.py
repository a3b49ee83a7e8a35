"""Small models: angles in degrees and radians, the plane, a line, bounds, many columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from oism import OISM

Array = NDArray[np.float64]
SMALL: dict[str, Any] = {"max_eigenvalue": 25, "flow_steps": 16}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def angle_rows(n: int, seed: int) -> Array:
    """Two angles in degrees, from 0 to 360: two clusters that wrapping does not swap."""
    r = rng(seed)
    first = r.uniform(size=n) < 0.7
    x = np.where(first, 60 + 25 * r.normal(size=n), 200 + 30 * r.normal(size=n))
    y = np.where(first, 320 + 30 * r.normal(size=n), 100 + 20 * r.normal(size=n))
    angles: Array = np.remainder(np.stack([x, y], axis=1), 360)
    return angles


@pytest.fixture(scope="session")
def draw_angles() -> Callable[[int, int], Array]:
    """Draw rows of the distribution of ``angles``: their number, and a seed."""
    return angle_rows


@pytest.fixture(scope="session")
def angles() -> pd.DataFrame:
    return pd.DataFrame(angle_rows(400, 0), columns=["phi", "psi"])


@pytest.fixture(scope="session")
def torus(angles: pd.DataFrame) -> OISM:
    """Fitted to a frame: scikit-learn warns where its column names are lost."""
    model: OISM = OISM(**SMALL, periodic={"phi": 360, "psi": 360}).fit(angles)
    return model


@pytest.fixture(scope="session")
def radians() -> OISM:
    model: OISM = OISM(**SMALL, box=(-math.pi, math.pi)).fit(rng(1).vonmises(0, 2, (300, 2)))
    return model


@pytest.fixture(scope="session")
def rows() -> Array:
    """The plane, asymmetric in every way: means, deviations, skew."""
    r = rng(2)
    return np.stack([r.normal(3, 2, 400), r.gamma(2, 0.2, 400)], axis=1)


@pytest.fixture(scope="session")
def plane(rows: Array) -> OISM:
    model: OISM = OISM(**SMALL).fit(rows)
    return model


@pytest.fixture(scope="session")
def line() -> OISM:
    model: OISM = OISM(**SMALL).fit(pd.DataFrame({"length": rng(3).gamma(2, 1, 400)}))
    return model


@pytest.fixture(scope="session")
def mixed() -> OISM:
    """A periodic, a bounded and a free column."""
    r = rng(4)
    columns = (r.normal(0, 40, 300), r.beta(2, 1, 300), r.normal(5, 2, 300))
    return _mixed(np.stack(columns, axis=1))


def _mixed(x: Array) -> OISM:
    model: OISM = OISM(max_eigenvalue=9, flow_steps=16, periodic={0: 360}, bounds={1: (0, 1)}).fit(
        x
    )
    return model


@pytest.fixture(scope="session")
def five_rows() -> pd.DataFrame:
    x = rng(5).normal(size=(300, 5)) @ np.triu(np.ones((5, 5))) * [1, 2, 3, 4, 5]
    return pd.DataFrame(x, columns=list("abcde"))


@pytest.fixture(scope="session")
def five(five_rows: pd.DataFrame) -> OISM:
    model: OISM = OISM(process="ou", order=3, flow_steps=16).fit(five_rows)
    return model
