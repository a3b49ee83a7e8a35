"""The torus system: matrix-free compared with dense, and growth with the number of functions.

Two dimensions, 20,000 points on a ring, 41 times, five folds, all candidates of ridge and cutoff.
"choosing" is the cross-validation; a whole fit is moments, choice, and coefficients at enough knots
for a relative interpolation error of 1e-3. The dense method is the same cross-validation with one
`eigh` per time, fold and cutoff; at 1,580 functions both run at every tenth time only. ``--space``
adds three dimensions with 10,000 functions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
import tyro
from torch import Tensor

from oism.basis import Fourier
from oism.estimation import FourierMoments, TorusSystem, fit_moments
from oism.process import VarianceExploding

TIMES = 41


def ring(n: int, dim: int) -> Tensor:
    """Return points around a circle of radius 1.5, with noise of 0.1."""
    generator = torch.Generator().manual_seed(0)
    angle = 2 * math.pi * torch.rand(n, generator=generator, dtype=torch.float64)
    centre = torch.zeros(n, dim, dtype=torch.float64)
    centre[:, 0], centre[:, 1] = 1.5 * angle.cos(), 1.5 * angle.sin()
    return centre + 0.1 * torch.randn(n, dim, generator=generator, dtype=torch.float64)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def choose(moments: FourierMoments, t: Tensor, *, dense: bool) -> float:
    system = TorusSystem(moments.basis, moments.frequencies, moments.averages(), dense=dense)
    return seconds(lambda: system.losses(t))


def compare(x: Tensor, bound: float, t: Tensor, rounds: int) -> None:
    """Print the times of both methods, rounds interleaved, the fastest of each."""
    basis = Fourier.lattice(2, bound)
    moments = FourierMoments(basis).update(x)
    pairs = [[choose(moments, t, dense=dense) for dense in (False, True)] for _ in range(rounds)]
    free, dense = (min(column) for column in zip(*pairs, strict=True))
    print(f"{basis.size:>10,}{len(t):>8}{free:>14.2f}{dense:>12.2f}{dense / free:>14.1f}")


def grow(x: Tensor, bounds: list[float]) -> None:
    """Print the time of a whole fit against the number of functions."""
    before: tuple[int, float] | None = None
    for bound in bounds:
        basis = Fourier.lattice(x.shape[1], bound)
        moments = FourierMoments(basis)
        gathering = seconds(lambda moments=moments: moments.update(x))  # type: ignore[misc]
        fitting = seconds(lambda moments=moments: fit_moments(moments, progress=False))  # type: ignore[misc]
        total = gathering + fitting
        growth = (
            ""
            if before is None
            else f"{math.log(total / before[1]) / math.log(basis.size / before[0]):.2f}"
        )
        print(f"{basis.size:>10,}{gathering:>14.2f}{total:>12.2f}{growth:>14}", flush=True)
        before = (basis.size, total)


def main(
    points: int = 20_000, largest: float = 8000.0, rounds: int = 3, space: bool = False
) -> None:
    """Run the comparisons.

    Parameters
    ----------
    points
        The number of points.
    largest
        The largest bound on the eigenvalues: 125, 500, 2000, 8000 give 400 to 25,136 functions.
    rounds
        The number of repetitions of the comparison with dense algebra; the fastest counts.
    space
        Add three dimensions.
    """
    t = VarianceExploding().time(torch.linspace(0, 1, TIMES, dtype=torch.float64))
    x = ring(points, 2)
    bounds = [bound for bound in (30.0, 125.0, 500.0, 2000.0, 8000.0) if bound <= largest][-4:]
    print("choosing ridge and cutoff: seconds")
    print(f"{'functions':>10}{'times':>8}{'matrix-free':>14}{'dense':>12}{'dense/free':>14}")
    for bound in sorted({30.0, 50.0, min(bounds)}):  # around the size at which the choice changes
        compare(x, bound, t, rounds)
    if largest >= 500:
        compare(x, 500.0, t[::10], 1)
    print("\na whole fit: seconds, and the exponent of its growth")
    print(f"{'functions':>10}{'moments':>14}{'fit':>12}{'growth':>14}")
    grow(x, bounds)
    if space:
        print("\nthree dimensions")
        grow(ring(points, 3), [180.0])


if __name__ == "__main__":
    tyro.cli(main)
