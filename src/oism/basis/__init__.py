"""Eigenfunctions of the processes: Hermite for Ornstein-Uhlenbeck, Fourier for Brownian motion.

`WhitenedHermite` are those of any symmetric linear process. `Polynomials` are not eigenfunctions,
but their span is invariant under every linear process, symmetric or not.
"""

from oism.basis._averages import Averages, Standardised
from oism.basis._base import Basis, Functions, Jet
from oism.basis._fourier import Fourier, half_lattice, leading, product_lattice
from oism.basis._frame import (
    CosineFrame,
    Frame,
    IdentityFrame,
    OrthogonalFrame,
    TransformFrame,
    power_sums,
)
from oism.basis._grid import TorusGrid
from oism.basis._hermite import (
    Hermite,
    HermiteFamily,
    TensorGram,
    TensorHermite,
    affine,
    gram,
    lowered,
    product_coefficients,
    products,
    recurrence,
    series,
    with_constant,
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
    "TensorGram",
    "TensorHermite",
    "TorusGrid",
    "TransformFrame",
    "WhitenedHermite",
    "affine",
    "gram",
    "half_lattice",
    "leading",
    "lowered",
    "power_sums",
    "product_coefficients",
    "product_lattice",
    "products",
    "recurrence",
    "series",
    "with_constant",
]
