"""Linear systems for the tests of linear processes."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from oism import CriticallyDamped, Linear


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def stable(size: int, seed: int) -> Linear:
    """A random Hurwitz F, not normal, with a slowest rate in [0.1, 1], and random noise."""
    drift, noise = normal(size, size, seed=seed), normal(size, size, seed=seed + 10_000)
    fastest_growth = float(torch.linalg.eigvals(drift).real.max())
    rate = 0.1 + 0.9 * (seed % 7) / 6
    return Linear(drift - (fastest_growth + rate) * torch.eye(size), noise)


hurwitz = st.builds(stable, st.integers(1, 5), st.integers(0, 1000))

UNDER, CRITICAL, OVER = CriticallyDamped(1, c=0.5), CriticallyDamped(1), CriticallyDamped(1, c=5.0)
SWIRL = Linear(matrix([-1.0, -1.5], [1.5, -1.0]), 2**0.5 * torch.eye(2).double())
STABLE: dict[str, Linear] = {
    "under-damped": UNDER,
    "critically damped": CRITICAL,
    "over-damped": OVER,
    "swirl": SWIRL,
    "sheared, three noises": Linear(
        matrix([-1.0, 2.0], [0.0, -0.5]), matrix([1.0, 0.0, 0.3], [0.4, 0.8, -1.0])
    ),
    "random, three entries": stable(3, 5),
}
UNSTABLE: dict[str, Linear] = {
    "growing": Linear(matrix([0.6, 0.2], [-0.3, -1.0]), torch.eye(2)),
    "turning": Linear(matrix([0.0, -2.0], [2.0, 0.0]), torch.eye(2)),
    "integrator": Linear(matrix([0.0, 1.0], [0.0, 0.0]), matrix([0.0], [1.0])),
}
ALL = STABLE | UNSTABLE
