"""Damped positions and velocities: noise acts on velocities, and through them on positions.

    dX = V dt,    dV = -X dt - cV dt + √(2c) dW,    π = N(0, I).

Each coordinate is an oscillator with the eigenvalues -c/2 ± √(c²/4 - 1): a complex pair below
c = 2 (under-damped), one defective eigenvalue -1 at c = 2 (critically damped, the fastest decay
without oscillation), two real ones above (over-damped). The process is never symmetric; reversed in
time, the velocities have the opposite sign. Given its start, the position has the variance
(2c/3)t³ + O(t⁴).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oism._core import checks
from oism.process._linear import Linear
from oism.process._propagator import Propagator
from oism.storage import storable


@storable
@dataclass(frozen=True, eq=False)
class CriticallyDamped(Linear):
    """F = (0 I; -I -cI), L = (0; √(2c) I) on points of 2·dim entries, positions before velocities.

    Points are ``(n, 2·dim)``, or of any shape whose first half of entries are positions.

    >>> CriticallyDamped(dim=3).transition(1e-4).covariance(6).diagonal()
    tensor([1.3331e-12, 1.3331e-12, 1.3331e-12, 3.9992e-04, 3.9992e-04, 3.9992e-04],
           dtype=torch.float64)
    """

    drift_matrix: Tensor = field(init=False, repr=False)
    noise_matrix: Tensor = field(init=False, repr=False)
    copies: int = field(init=False, repr=False)
    _propagator: Propagator = field(init=False, repr=False)
    dim: int
    c: float = 2.0

    def __post_init__(self) -> None:
        c, dim = checks.positive(self.c, "c"), checks.integer(self.dim, "dim", minimum=1)
        drift = torch.tensor([[0.0, 1.0], [-1.0, -c]], dtype=torch.float64)
        noise = torch.tensor([[0.0], [math.sqrt(2 * c)]], dtype=torch.float64)
        checks.assign(self, dim=dim, c=c, drift_matrix=drift, noise_matrix=noise, copies=dim)
        super().__post_init__()

    def width_hint(self, columns: int) -> str:
        """Return a hint for an error message about data with another number of columns."""
        if columns == self.dim:
            return ": for positions without velocities give PhaseSpace(process)"
        return ""
