"""Conversion to JSON values: no arrays, no NaN, no infinity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any, digits: int | None = None) -> Any:  # noqa: ANN401
    """Return lists for arrays, None for numbers that are not finite, strings for other objects.

    Floats keep all their digits, or ``digits`` significant ones.

    >>> plain({"a": (1, "x", float("inf")), 2: 1.23456}, digits=3)
    {'a': [1, 'x', None], '2': 1.23}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry, digits) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, digits) for entry in value]
    if hasattr(value, "tolist"):  # arrays and numbers of NumPy, tensors
        return plain(value.tolist(), digits)
    if isinstance(value, float):
        rounded = value if digits is None else float(f"{value:.{digits}g}")
        return rounded if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else str(value)
