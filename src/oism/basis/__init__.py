"""Eigenfunctions of the processes: Hermite for Ornstein-Uhlenbeck, Fourier for Brownian motion.

`WhitenedHermite` are those of any symmetric linear process. `Polynomials` are not eigenfunctions,
but their span is invariant under every linear process, symmetric or not.
"""

from oism.basis._averages import Averages, Standardised
from oism.basis._base import Basis, Functions, Jet
from oism.basis._fourier import Fourier, half_lattice, product_lattice
from oism.basis._frame import CosineFrame, Frame, IdentityFrame, OrthogonalFrame, TransformFrame
from oism.basis._grid import TorusGrid
from oism.basis._hermite import (
    Hermite,
    HermiteFamily,
    TensorHermite,
    product_coefficients,
    recurrence,
)
from oism.basis._ladder import Ladder
from oism.basis._polynomials import Polynomials
from oism.basis._scattered import NUFFT_DIM, ScatteredSeries
from oism.basis._whitened import WhitenedHermite

__all__ = [
    "NUFFT_DIM",
    "Averages",
    "Basis",
    "CosineFrame",
    "Fourier",
    "Frame",
    "Functions",
    "Hermite",
    "HermiteFamily",
    "IdentityFrame",
    "Jet",
    "Ladder",
    "OrthogonalFrame",
    "Polynomials",
    "ScatteredSeries",
    "Standardised",
    "TensorHermite",
    "TorusGrid",
    "TransformFrame",
    "WhitenedHermite",
    "half_lattice",
    "product_coefficients",
    "product_lattice",
    "recurrence",
]
