"""Scores at scattered points: products of waves compared with FINUFFT, and the library's choice.

A torus score with its divergence at n points with one common time, in one to three dimensions,
float64, one thread, by both methods of `ScatteredSeries`. The one that `FourierScore` chooses is
marked; it leaves out waves that have decayed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
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


def direct(basis: Fourier, x: Tensor, alpha: Tensor) -> Tensor:
    """Return Σ α_k ∇φ_k and Σ α_k Δφ_k from one table of cosines and sines: ``(n, dim + 1)``."""
    phase = x @ basis.frequencies.mT
    cos, sin = phase.cos(), phase.sin()
    a, b = math.sqrt(2) * alpha.reshape(-1, 2).mT
    gradient = (b * cos - a * sin) @ basis.frequencies
    laplacian = (a * cos + b * sin) @ basis.eigenvalues[::2]
    return torch.cat((gradient, laplacian[:, None]), dim=1)


def spectra(basis: Fourier, alpha: Tensor) -> Tensor:
    """Return the spectra of the gradient and the Laplacian."""
    xi, parts = basis.frequencies, alpha.reshape(-1, 2)
    slopes = torch.cat((1j * xi.mT, -xi.square().sum(dim=1)[None].to(torch.complex128)))
    return slopes * torch.complex(parts[:, 0], -parts[:, 1]) / math.sqrt(2)


class Counted:
    """Counts the transforms by FINUFFT."""

    def __init__(self) -> None:
        self.count, self._own = 0, ScatteredSeries.__call__

    def __call__(self, series: ScatteredSeries, x: Tensor, waves: Tensor) -> Tensor:
        """Return the fields."""
        self.count += 1
        return self._own(series, x, waves)


def main(sizes: Sizes) -> None:
    torch.set_num_threads(1)
    print("ms: products / FINUFFT, * marks the library's choice")
    counted = Counted()

    def call(series: ScatteredSeries, x: Tensor, waves: Tensor) -> Tensor:
        return counted(series, x, waves)

    ScatteredSeries.__call__ = call  # type: ignore[method-assign, assignment]
    print(f"{'dim':>3} {'size':>7}" + "".join(f"{n:>18,}" for n in sizes.points))
    worst = 1.0
    for dim, bound in sizes.bounds:
        basis = Fourier.lattice(dim, bound)
        some = torch.randn(200, dim, generator=torch.Generator().manual_seed(0))
        score = fit(some, basis, ridge=1.0, clock=VarianceExploding(0.1, 5.0), progress=False)
        series, alpha, line = ScatteredSeries(basis.frequencies), score.coefficients(0.1), ""
        for n in sizes.points:
            x = torch.rand(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
            waves = spectra(basis, alpha)
            plain = fastest(lambda: series.products(x, waves), sizes.repeats)  # noqa: B023
            quick = fastest(lambda: series(x, waves), sizes.repeats)  # noqa: B023
            exact = direct(basis, x, alpha)
            for fields in (series.products(x, waves), series(x, waves)):
                torch.testing.assert_close(fields.mT, exact, rtol=1e-5, atol=1e-5)
            before = counted.count
            score.score_and_divergence(x, 0.1)
            chosen = counted.count > before
            worst = max(worst, (quick if chosen else plain) / min(plain, quick))
            marks = ("", "*") if chosen else ("*", "")
            line += f"{plain:>9.2f}{marks[0]:<1}/{quick:>6.2f}{marks[1]:<1}"
        print(f"{dim:>3} {basis.size:>7,}" + line)
    print(f"the chosen method took at most {worst:.2f} times as long as the faster one")


if __name__ == "__main__":
    main(tyro.cli(Sizes))
