"""Precision and recall of samples, and the nearest of other images, in any features.

The *manifold* of a set of features is the union of balls around its members, each with the distance
to its k-th nearest other member as radius (Kynkäänniemi et al., 2019). Then

    precision   the share of samples inside the manifold of images: how many are realistic
    recall      the share of images inside the manifold of samples: how much of the variety is there

Distances are computed for a bounded number of rows at a time, in float32 of centred features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks

ENTRIES = 2**24
"""The number of distances that are held at a time."""

NEIGHBOURS = 3
"""The number of the neighbour whose distance is the radius of a ball."""


@dataclass(frozen=True)
class PrecisionRecall:
    """Precision and recall of samples, and the number of the neighbour that they are for."""

    precision: float
    recall: float
    neighbours: int


@torch.no_grad()
def precision_recall(
    images: Tensor, samples: Tensor, neighbours: int = NEIGHBOURS
) -> PrecisionRecall:
    """Return precision and recall from features ``(n, dim)`` of images and ``(m, dim)`` of samples.

    >>> line = torch.linspace(0, 1, 11)[:, None]
    >>> precision_recall(line, line[:6])  # samples cover one half
    PrecisionRecall(precision=1.0, recall=0.818..., neighbours=3)
    """
    k = checks.integer(neighbours, "neighbours", minimum=1)
    for name, rows in (("images", images), ("samples", samples)):
        checks.points(rows, name)
        if len(rows) <= k:
            raise ValueError(f"{name} must have more than neighbours = {k} rows, got {len(rows)}")
    first, second = _alike(images, samples)
    precision, recall = _inside(second, first, k), _inside(first, second, k)
    return PrecisionRecall(precision, recall, k)


@torch.no_grad()
def nearest_rows(rows: Tensor, others: Tensor, count: int = 1) -> tuple[Tensor, Tensor]:
    """Return the distances and numbers of the nearest of others ``(m, dim)``: ``(n, count)`` each.

    >>> nearest_rows(torch.tensor([[0.2], [2.9]]), torch.tensor([[0.0], [1.0], [3.0]]))
    (tensor([[0.2000],
            [0.1000]]), tensor([[0],
            [2]]))
    """
    count = checks.integer(count, "count", minimum=1)
    if count > len(others):
        raise ValueError(f"count must be at most the {len(others)} rows of others, got {count}")
    first, second = _alike(rows, others)
    found = [part.topk(count, largest=False) for part in _distances(first, second)]
    return torch.cat([one.values for one in found]), torch.cat([one.indices for one in found])


def _alike(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows in float32 about a common centre: large means would cost digits."""
    if first.ndim != 2 or second.shape[1:] != first.shape[1:]:
        raise ValueError(
            f"rows must have one number of features, got {tuple(first.shape)} and "
            f"{tuple(second.shape)}"
        )
    centre = first.double().mean(dim=0)
    moved = ((rows.double() - centre.to(rows.device)).float() for rows in (first, second))
    one, other = moved
    return one, other.to(one.device)


def _distances(first: Tensor, second: Tensor) -> Iterator[Tensor]:
    """Yield the distances of rows to all of others, some rows at a time: ``(r, m)``."""
    for part in torch.split(first, max(1, ENTRIES // len(second))):
        # Differences, not products: the distance of equal rows is zero.
        yield torch.cdist(part, second, compute_mode="donot_use_mm_for_euclid_dist")


def _inside(rows: Tensor, manifold: Tensor, k: int) -> float:
    """Return the share of rows inside the manifold of others."""
    radius = torch.cat(
        [part.kthvalue(k + 1, dim=1).values for part in _distances(manifold, manifold)]
    )
    inside = [(part <= radius).any(dim=1) for part in _distances(rows, manifold)]
    return float(torch.cat(inside).double().mean())
