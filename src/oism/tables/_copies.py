"""A test whether samples are copies of the data, by nearest neighbours.

If samples were new draws from the distribution of the data, the distance from a sample to its
nearest row would be distributed as the distance from a row to the nearest *other* row. Samples of a
model that has memorised its rows are much nearer. The test compares the two sets of distances by
the ratio of their medians, by the share of samples that are nearer than the nearest one per cent of
the rows are to each other, and by the p-value of a one-sided Mann-Whitney test. Samples count as
copies if the ratio is below 0.5 *and* p is below 0.001. A small p alone does not: with many samples
it also shows that a density is a little too narrow, or has a little too much mass near the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.spatial
import scipy.stats
from numpy.typing import NDArray

NEAR = 0.01
"""The share of the rows whose distances to each other count as very near."""

SUSPICIOUS, SIGNIFICANT = 0.5, 1e-3
"""Samples count as copies if the ratio of the medians and the p-value are below these."""


@dataclass(frozen=True)
class CopyCheck:
    """The result of `nearest_neighbour_check`.

    ``median_ratio`` is near 1 for new draws and 0 for copies; ``near_share`` is near 0.01 for new
    draws and 1 for copies.
    """

    median_ratio: float
    near_share: float
    p_value: float

    @property
    def are_copies(self) -> bool:
        """Whether the samples count as copies."""
        return self.median_ratio < SUSPICIOUS and self.p_value < SIGNIFICANT

    def __str__(self) -> str:
        found = "samples look like COPIES of the data" if self.are_copies else "no copies"
        return (
            f"{found}: median distance to the nearest row {self.median_ratio:.2f} of that "
            f"between rows, p = {self.p_value:.2g} (copies: below {SUSPICIOUS:g} and below "
            f"{SIGNIFICANT:g}); {self.near_share:.1%} very near ({NEAR:.0%} expected)"
        )


def nearest_neighbour_check(
    samples: NDArray[np.float64],
    data: NDArray[np.float64],
    *,
    periods: NDArray[np.float64] | None = None,
) -> CopyCheck:
    """Return how distances from samples to rows compare with distances between rows.

    Distances are in units of the columns' standard deviations. ``periods`` has one entry per
    column, 0 for those that are not periodic. Repeated rows are counted once.

    >>> rng = np.random.default_rng(0)
    >>> data = rng.normal(size=(500, 2))
    >>> nearest_neighbour_check(rng.normal(size=(500, 2)), data).are_copies
    False
    >>> nearest_neighbour_check(data[:100] + 1e-4, data).are_copies
    True
    """
    data = np.unique(np.asarray(data, dtype=np.float64), axis=0)
    samples = np.asarray(samples, dtype=np.float64)
    if len(data) < 3 or not len(samples):
        raise ValueError(
            f"data must hold at least three different rows and samples at least one, got "
            f"{len(data)} and {len(samples)}"
        )
    spread = data.std(axis=0)
    spread[spread == 0] = 1.0
    box = None
    if periods is not None:
        box = np.where(periods > 0, periods / spread, 0.0)
    data, samples = (_folded(x / spread, box) for x in (data, samples))
    tree = scipy.spatial.cKDTree(data, boxsize=box)
    between = tree.query(data, k=2)[0][:, 1]
    to_data = tree.query(samples)[0]
    test = scipy.stats.mannwhitneyu(to_data, between, alternative="less")
    return CopyCheck(
        median_ratio=float(np.median(to_data) / np.median(between)),
        near_share=float((to_data < np.quantile(between, NEAR)).mean()),
        p_value=float(test.pvalue),
    )


def _folded(x: NDArray[np.float64], box: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return points within [0, box) where a column has one."""
    if box is None:
        return x
    folded = np.where(box > 0, x % np.where(box > 0, box, 1.0), x)
    return np.where((box > 0) & (folded >= box), 0.0, folded)  # a remainder may round up
