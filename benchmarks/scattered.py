"""Scores at scattered points: matrix products compared with FINUFFT, and the library's choice.

A torus score with its divergence at n points with one common time, in one to three dimensions,
float64, one thread. The method that `FourierScore` chooses is marked: it is FINUFFT if the score
equals that of `ScatteredSeries` bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import torch
import tyro
from torch import Tensor

from oism.basis import Fourier, ScatteredSeries
from oism.estimation import fit
from oism.process import VarianceExploding


@dataclass(frozen=True)
class Sizes:
    """The sizes of the benchmark."""

    points: tuple[int, ...] = (10, 30, 100, 300, 1000, 5000)
    bounds: tuple[tuple[int, float], ...] = (
        (1, 625),
        (1, 1e4),
        (2, 125),
        (2, 500),
        (3, 30),
        (3, 100),
    )
    """Pairs of dimension and bound on the eigenvalues."""
    repeats: int = 7


def fastest(work: Callable[[], object], repeats: int) -> float:
    """Return the least time in milliseconds."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return 1e3 * min(times)


def by_products(basis: Fourier, x: Tensor, alpha: Tensor) -> Tensor:
    """Return Σ α_k ∇φ_k and Σ α_k Δφ_k from one table of cosines and sines: ``(n, dim + 1)``."""
    phase = x @ basis.frequencies.mT
    cos, sin = phase.cos(), phase.sin()
    a, b = math.sqrt(2) * alpha.reshape(-1, 2).mT
    gradient = (b * cos - a * sin) @ basis.frequencies
    laplacian = (a * cos + b * sin) @ basis.eigenvalues[::2]
    return torch.cat((gradient, laplacian[:, None]), dim=1)


def by_transform(series: ScatteredSeries, basis: Fourier, x: Tensor, alpha: Tensor) -> Tensor:
    """Return the same by FINUFFT."""
    xi, parts = basis.frequencies, alpha.reshape(-1, 2)
    slopes = torch.cat((1j * xi.mT, -xi.square().sum(dim=1)[None].to(torch.complex128)))
    spectrum = torch.complex(parts[:, 0], -parts[:, 1]) / math.sqrt(2)
    return series(x, slopes * spectrum).mT


def main(sizes: Sizes) -> None:
    torch.set_num_threads(1)
    print("ms: matrix products / FINUFFT, * marks the library's choice")
    print(f"{'dim':>3} {'size':>7}" + "".join(f"{n:>18,}" for n in sizes.points))
    worst = 1.0
    for dim, bound in sizes.bounds:
        basis = Fourier.lattice(dim, bound)
        some = torch.randn(200, dim, generator=torch.Generator().manual_seed(0))
        score = fit(some, basis, ridge=1.0, clock=VarianceExploding(0.1, 5.0), progress=False)
        series, alpha, line = ScatteredSeries(basis.frequencies), score.coefficients(0.1), ""
        for n in sizes.points:
            x = torch.rand(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
            plain = fastest(partial(by_products, basis, x, alpha), sizes.repeats)
            quick = fastest(partial(by_transform, series, basis, x, alpha), sizes.repeats)
            fields, products = by_transform(series, basis, x, alpha), by_products(basis, x, alpha)
            torch.testing.assert_close(fields, products, rtol=1e-6, atol=1e-6)
            chosen = torch.equal(score.score(x, 0.1), fields[:, :-1])
            worst = max(worst, (quick if chosen else plain) / min(plain, quick))
            marks = ("", "*") if chosen else ("*", "")
            line += f"{plain:>9.2f}{marks[0]:<1}/{quick:>6.2f}{marks[1]:<1}"
        print(f"{dim:>3} {basis.size:>7,}" + line)
    print(f"the chosen method took at most {worst:.2f} times as long as the faster one")


if __name__ == "__main__":
    main(tyro.cli(Sizes))
