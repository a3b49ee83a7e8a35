"""Eigenfunctions of the processes: Hermite for Ornstein-Uhlenbeck, Fourier for Brownian motion.

`WhitenedHermite` are those of any symmetric linear process.
"""

from oism.basis.base import Basis, Jet
from oism.basis.fourier import Fourier, half_lattice
from oism.basis.frame import (
    CosineFrame,
    Frame,
    IdentityFrame,
    OrthogonalFrame,
    TransformFrame,
)
from oism.basis.hermite import Hermite, TensorHermite, product_coefficients
from oism.basis.scattered import NUFFT_DIM, ScatteredSeries
from oism.basis.whitened import WhitenedHermite

__all__ = [
    "NUFFT_DIM",
    "Basis",
    "CosineFrame",
    "Fourier",
    "Frame",
    "Hermite",
    "IdentityFrame",
    "Jet",
    "OrthogonalFrame",
    "ScatteredSeries",
    "TensorHermite",
    "TransformFrame",
    "WhitenedHermite",
    "half_lattice",
    "product_coefficients",
]
