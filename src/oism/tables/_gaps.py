"""Rows with gaps: entries that are missing, and written as NaN.

The log-density of a row with gaps is that of its other entries, log ∫ p(x) dx over the columns that
are missing: the model's marginal. Rows are taken together by the columns that they have. A row
without entries has the log-density 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor


class Density(Protocol):
    """What a density of rows ``(n, d)`` offers."""

    def log_density(self, x: Tensor) -> Tensor:
        """Return log p at rows: ``(n,)``."""
        ...


class Marginals(Density, Protocol):
    """A density with those of some of its columns."""

    def marginal(self, columns: Sequence[int]) -> Density:
        """Return the density of some columns alone."""
        ...


def patterns(rows: Tensor) -> Iterator[tuple[list[int], Tensor]]:
    """Yield columns and the indices of the rows that have entries in just these columns.

    >>> nan = torch.nan
    >>> for columns, index in patterns(torch.tensor([[1.0, 2.0], [nan, 3.0], [4.0, 5.0]])):
    ...     print(columns, index.tolist())
    [1] [1]
    [0, 1] [0, 2]
    """
    known = ~rows.isnan()
    if bool(known.all()):
        yield list(range(rows.shape[1])), torch.arange(len(rows))
        return
    found, place = torch.unique(known, dim=0, return_inverse=True)
    for k, pattern in enumerate(found):
        yield pattern.nonzero()[:, 0].tolist(), (place == k).nonzero()[:, 0]


def log_density(model: Marginals, rows: Tensor) -> Tensor:
    """Return the log-densities of the entries that rows ``(n, d)`` have: ``(n,)``."""
    result = rows.new_zeros(len(rows))
    for columns, index in patterns(rows):
        if not columns:
            continue
        density: Density = model
        if len(columns) < rows.shape[1]:
            density = model.marginal(columns)
        result[index] = density.log_density(rows[index][:, columns])
    return result
