"""Eigenfunctions of the processes: Hermite for Ornstein-Uhlenbeck, Fourier for Brownian motion.

`WhitenedHermite` are those of any symmetric linear process. `Polynomials` are no eigenfunctions:
their span is kept by every linear process, symmetric or not.
"""

from oism.basis.base import Basis, Functions, Jet
from oism.basis.fourier import Fourier, half_lattice
from oism.basis.frame import (
    CosineFrame,
    Frame,
    IdentityFrame,
    OrthogonalFrame,
    TransformFrame,
)
from oism.basis.hermite import Hermite, TensorHermite, product_coefficients
from oism.basis.ladder import Ladder
from oism.basis.polynomials import Polynomials
from oism.basis.scattered import NUFFT_DIM, ScatteredSeries
from oism.basis.whitened import WhitenedHermite

__all__ = [
    "NUFFT_DIM",
    "Basis",
    "CosineFrame",
    "Fourier",
    "Frame",
    "Functions",
    "Hermite",
    "IdentityFrame",
    "Jet",
    "Ladder",
    "OrthogonalFrame",
    "Polynomials",
    "ScatteredSeries",
    "TensorHermite",
    "TransformFrame",
    "WhitenedHermite",
    "half_lattice",
    "product_coefficients",
]
