"""Rows of a table with given values, and with the index of the rows they were made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oism.tables._contract import Density


def rows_given(
    model: Density, given: Mapping[int, float], n: int, dim: int, generator: torch.Generator
) -> Tensor:
    """Return n rows of ``dim`` columns with the given values, by the index of their column."""
    drawn = model.conditional(given).sample(n, generator).cpu()
    rows = torch.empty(n, dim, dtype=torch.float64)
    rows[:, [j for j in range(dim) if j not in given]] = drawn.double()
    for j, value in given.items():
        rows[:, j] = value
    return rows


def with_index_of(table: Any, filled: Any) -> Any:  # noqa: ANN401 (frames of any library)
    """Return filled rows with the index of the rows they were made from, where pandas has one."""
    if hasattr(filled, "set_axis") and hasattr(table, "set_axis"):
        return filled.set_axis(table.index, axis=0)
    return filled
