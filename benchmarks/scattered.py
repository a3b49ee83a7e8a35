"""Scores at scattered points: plain products against FINUFFT, and which of them is chosen.

A torus score with its divergence at n points that share one time, in one to three dimensions,
float64, one thread. The chosen side is marked; the rule is in `oism.score._fourier`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import torch
import tyro

from oism.basis import Fourier
from oism.estimation import fit
from oism.process import VarianceExploding
from oism.score import FourierScore


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

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


def main(sizes: Sizes) -> None:
    torch.set_num_threads(1)
    print("ms: plain products / FINUFFT, * where that is chosen")
    print(f"{'dim':>3} {'waves':>7}" + "".join(f"{n:>18,}" for n in sizes.points))
    worst = 1.0
    for dim, bound in sizes.bounds:
        basis = Fourier.lattice(dim, bound)
        some = torch.randn(200, dim, generator=torch.Generator().manual_seed(0))
        score = fit(some, basis, ridge=1.0, clock=VarianceExploding(0.1, 5.0), progress=False)
        assert isinstance(score, FourierScore)
        alpha, line = score.coefficients(0.1), ""
        for n in sizes.points:
            x = torch.rand(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
            plain = fastest(partial(basis._gradient_and_laplacian, x, alpha), sizes.repeats)
            quick = fastest(partial(score._fields, x, alpha, score._slopes), sizes.repeats)
            chosen = score._transform_pays(n)
            worst = max(worst, (quick if chosen else plain) / min(plain, quick))
            marks = ("", "*") if chosen else ("*", "")
            line += f"{plain:>9.2f}{marks[0]:<1}/{quick:>6.2f}{marks[1]:<1}"
        print(f"{dim:>3} {basis.size:>7,}" + line)
    print(f"the chosen side took at most {worst:.2f} times the faster one")


if __name__ == "__main__":
    main(tyro.cli(Sizes))
