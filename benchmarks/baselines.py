"""The methods that a density estimate is compared with: KDE and spline flows, of `oism.tables`."""

from __future__ import annotations

import importlib.util

import numpy as np
from numpy.typing import NDArray

from oism.tables import KDE
from oism.tables import SplineFlow as Flow

__all__ = ["KDE", "Array", "Flow", "check_zuko"]

Array = NDArray[np.float64]


def check_zuko() -> None:
    """Exit with a message if zuko, whose flows are used, is not installed."""
    if importlib.util.find_spec("zuko") is None:
        raise SystemExit(
            "the flows are those of zuko, which is not installed: "
            "`pip install zuko`, or omit them with --no-flow"
        )
