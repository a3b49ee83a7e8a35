"""Missing entries of rows, drawn given the entries that are there.

Let a row have entries x_S and gaps in the columns T. A filled row has x_T ~ p(x_T | x_S) by the
model, so filled rows are distributed like complete ones, if the model is right and gaps do not
depend on the missing values. Rows with the same entries share one conditional density.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oism.tables._contract import Density
from oism.tables._gaps import patterns


def filled(model: Density, rows: Tensor, generator: torch.Generator) -> Tensor:
    """Return rows ``(n, d)`` without gaps; entries that are there are kept as they are."""
    result = rows.clone()
    for columns, index in patterns(rows):
        gaps = [j for j in range(rows.shape[1]) if j not in columns]
        if not columns:
            result[index] = model.sample(len(index), generator).to(rows)
        elif gaps:
            distinct, place = torch.unique(rows[index][:, columns], dim=0, return_inverse=True)
            for k, values in enumerate(distinct.tolist()):
                own = index[place == k]
                density = model.conditional(dict(zip(columns, values, strict=True)))
                result[own[:, None], torch.tensor(gaps)] = density.sample(len(own), generator).to(
                    rows
                )
    return result


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
