"""Moments in one pass: Hermite averages of many coordinates, and Fourier sums by FINUFFT.

The first table has the time and the memory in addition to the data for averages of Heₙ of
50,000 × 3,072 values (float32) in five folds, compared with reading the data once and with the
recurrence alone, without sums. The second compares FINUFFT with sums of exponentials.
"""

from __future__ import annotations

import resource
import time
from collections import deque
from collections.abc import Callable

import torch
import tyro
from torch import Tensor

from oism.basis import Fourier, Hermite, recurrence
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


def exponentials(x: Tensor, frequencies: Tensor, fold: Tensor) -> Tensor:
    """Return Σ e^{-iζ·x} over the rows of each of five folds, in blocks of rows."""
    weights = torch.nn.functional.one_hot(fold, 5).double().mT
    total = torch.zeros(5, len(frequencies), dtype=torch.complex128)
    step = max(1, 2**19 // len(frequencies))
    for start in range(0, len(x), step):
        phase = x[start : start + step] @ frequencies.mT
        own = weights[:, start : start + step]
        total += torch.complex(own @ phase.cos(), -(own @ phase.sin()))
    return total


def main(rows: int = 50_000, columns: int = 3072, order: int = 10, points: int = 20_000) -> None:
    """Run both tables.

    Parameters
    ----------
    rows, columns
        The size of the data.
    order
        The highest degree of the averages, which must be even; that of the basis is order/2 + 1.
    points
        The number of points of the Fourier sums.
    """
    x = torch.rand(rows, columns, generator=torch.Generator().manual_seed(0))
    read = seconds(x.sum)
    plain = seconds(lambda: recurrence_only(x, order))
    before = peak()
    ours = seconds(lambda: HermiteMoments(Hermite(columns, order // 2 + 1)).update(x))
    print(f"Hermite averages to degree {order}, {rows:,} × {columns:,} values, five folds")
    print(f"{'':<28}{'seconds':>10}{'times oism':>12}")
    for name, value in (("oism", ours), ("the recurrence alone", plain), ("reading once", read)):
        print(f"{name:<28}{value:>10.2f}{value / ours:>12.2f}")
    print(f"memory in addition to the data: {peak() - before:.2f} GB\n")

    y = torch.randn(points, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    basis, fold = Fourier.lattice(2, 500), torch.arange(points) % 5
    fast = min(seconds(lambda: FourierMoments(basis).update(y, fold=fold)) for _ in range(5))
    moments = FourierMoments(basis).update(y, fold=fold)
    slow = seconds(lambda: exponentials(y, moments.frequencies, fold))
    exact = exponentials(y, moments.frequencies, fold).sum(dim=0) / points
    gap = float((moments.averages().total - exact).abs().max())
    print(f"{len(moments.frequencies):,} Fourier sums of {points:,} points in 2-D, five folds")
    print(f"{'FINUFFT':<28}{fast:>10.3f}{1:>12.2f}")
    print(f"{'exponentials':<28}{slow:>10.3f}{slow / fast:>12.1f}")
    print(f"largest difference of averages: {gap:.1e}")


if __name__ == "__main__":
    tyro.cli(main)
