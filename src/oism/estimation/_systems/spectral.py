"""Smooth truncation of a spectrum: what matrix-free systems of ordered eigenfunctions share.

In preconditioned coordinates Λ^{½}α, where A_t tends to the identity as t grows, the penalty is
diagonal and grows with the eigenvalue,

    ε P,    P = |λ| (1 + (|λ|/c²)⁶),

so ε|λ| penalises second derivatives of the score's potential, and the cutoff c truncates the
spectrum smoothly: beyond it the penalty grows like the twelfth power of the frequency √|λ|. With
D = (ΛP)^{-½} the scaled system is (D A D + εI) y = -D b, α = D y, and all ridges share one Krylov
space.

A cutoff has no effect at scales that diffusion has smoothed: c is a candidate only if c²t ≤ 0.3.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

from torch import Tensor

from oism.basis import Basis
from oism.estimation._systems.conjugate import Operator
from oism.score import System

SMALLEST_CUTOFF = 3.0
SMOOTHED = 0.3
"""The largest c²t of a candidate cutoff c."""

UNSOLVED = 1e-5
"""The relative residual above which there is a warning."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """y ↦ D A D y."""

    operator: Operator
    scale: Tensor

    def __call__(self, y: Tensor) -> Tensor:
        """Return the product."""
        return self.scale * self.operator(self.scale * y)


def warn_of_residuals(residual: Tensor, t: Tensor) -> None:
    """Warn if the equations of some time were not solved."""
    residual = residual.nan_to_num(nan=0.0)  # direct solutions have none
    if float(residual.max()) > UNSOLVED:
        worst = int(residual.argmax())
        warnings.warn(
            f"conjugate gradients stopped at a residual of {float(residual[worst]):.1e} at "
            f"t = {float(t[worst]):.3g}: the ridge is too small, or the moments are not those "
            "of a density",
            RuntimeWarning,
            stacklevel=4,
        )


class SpectralSystem(System):
    """A system whose levels are cutoffs of the frequency √|λ|, two per octave."""

    basis: Basis
    untruncated = -32.0
    radius: float

    def __init__(self, basis: Basis) -> None:
        self.basis = basis
        self.radius = math.sqrt(-float(basis.eigenvalues[-1]))
        self.levels = 1 + max(0, math.floor(2 * math.log2(self.radius / SMALLEST_CUTOFF) + 1e-9))

    def cutoff(self, level: Tensor) -> Tensor:
        """Return c = r·2^{-level/2} for real-valued levels; at level 0 it has almost no effect."""
        return self.radius * 2 ** (-level / 2)

    def penalty(self, level: Tensor, eigenvalues: Tensor) -> Tensor:
        """Return P for levels ``(S,)``: ``(S, size)``."""
        return -eigenvalues * (1 + (-eigenvalues / self.cutoff(level).square()[:, None]) ** 6)
