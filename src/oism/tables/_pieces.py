"""Work on rows piece by piece, so that memory does not grow with the number of rows.

A piece has as many rows that all arrays made from it have together no more than `ENTRIES` entries.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ENTRIES = 2**22
"""The number of entries of all arrays that are held at a time: 32 MiB in float64."""


def step_of(entries: int) -> int:
    """Return the number of rows of a piece, from the number of entries for each row."""
    return max(1, ENTRIES // max(1, entries))


def density_entries(dim: int, components: int) -> int:
    """Return the number of entries for each row, of the log-densities of Gaussians.

    They are a product with a table of 1, z_i and z_iz_j. While the table is made there are also z
    and products of one column; the sum over components has a copy of its terms.
    """
    return 1 + 3 * dim + dim * (dim + 1) // 2 + 2 * components


def score_entries(dim: int, components: int) -> int:
    """Return the number of entries for each row, of the scores of Gaussians.

    Differences, coordinates along eigenvectors, their squares, variances, quotients and the scores
    of all components are held at the same time.
    """
    return 6 * dim * components


def in_pieces(work: Callable[..., Tensor], entries: int, *rows: Tensor) -> Tensor:
    """Return the results of work on pieces of rows; single numbers are given to every piece."""
    step = step_of(entries)
    pieces = [
        work(*(one if one.ndim == 0 else one[k : k + step] for one in rows))
        for k in range(0, max(1, len(rows[0])), step)
    ]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def multiplied(matrices: Tensor, which: Tensor, x: Tensor) -> Tensor:
    """Return M_k x for every row x ``(n, c)`` and its k ``(n,)``, of matrices ``(m, r, c)``."""

    def work(own: Tensor, piece: Tensor) -> Tensor:
        return (matrices[own] @ piece[..., None])[..., 0]

    return in_pieces(work, matrices[0].numel(), which, x)
