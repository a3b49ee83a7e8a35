"""Moments in one pass: Hermite averages of many coordinates, and waves through FINUFFT.

The first table has the time and the memory beyond the data for averages of Heₙ of 50,000 × 3,072
values (float32) in five folds, next to one reading of the data and to a plain pass of the
recurrence that keeps nothing. The second compares FINUFFT with sums of exponentials.
"""

from __future__ import annotations

import resource
import time
from collections import deque
from collections.abc import Callable

import torch
import tyro
from torch import Tensor

from oism import Fourier, Hermite
from oism.basis import recurrence
from oism.estimation import FourierMoments, HermiteMoments


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak() -> float:
    """Return the largest resident memory so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def recurrence_only(x: Tensor, order: int) -> None:
    for block in torch.split(x, max(1, 2**17 // x.shape[1])):
        deque(recurrence(block.double(), order), maxlen=0)


def main(rows: int = 50_000, columns: int = 3072, order: int = 10, points: int = 20_000) -> None:
    """Run both tables.

    Parameters
    ----------
    rows, columns
        The size of the data.
    order
        The highest degree averaged; it must be even, order/2 + 1 is that of the basis.
    points
        The number of points for waves.
    """
    x = torch.rand(rows, columns, generator=torch.Generator().manual_seed(0))
    read = seconds(x.sum)
    plain = seconds(lambda: recurrence_only(x, order))
    before = peak()
    ours = seconds(lambda: HermiteMoments(Hermite(columns, order // 2 + 1)).update(x))
    print(f"Hermite averages to degree {order}, {rows:,} × {columns:,} values, five folds")
    print(f"{'':<28}{'seconds':>10}{'times ours':>12}")
    for name, value in (("oism", ours), ("the recurrence alone", plain), ("one reading", read)):
        print(f"{name:<28}{value:>10.2f}{value / ours:>12.2f}")
    print(f"memory beyond the data: {peak() - before:.2f} GB\n")

    y = torch.randn(points, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    moments = FourierMoments(Fourier.lattice(2, 500))
    weights = torch.ones(5, points, dtype=torch.float64) / 5
    fast = min(seconds(lambda: moments._nufft(y, weights)) for _ in range(5))
    slow = seconds(lambda: moments._exponentials(y, weights))
    gap = float((moments._nufft(y, weights) - moments._exponentials(y, weights)).abs().max())
    print(f"{len(moments.frequencies):,} waves of {points:,} points of the plane, five folds")
    print(f"{'FINUFFT':<28}{fast:>10.3f}{1:>12.2f}")
    print(f"{'exponentials':<28}{slow:>10.3f}{slow / fast:>12.1f}")
    print(f"largest difference of averages: {gap / points:.1e}")


if __name__ == "__main__":
    tyro.cli(main)
