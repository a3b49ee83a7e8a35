"""Eigenfunctions of the processes: Hermite for Ornstein-Uhlenbeck, Fourier for Brownian motion."""

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
    "half_lattice",
    "product_coefficients",
]
