"""Eigenfunctions of the processes: Hermite for Ornstein-Uhlenbeck, Fourier for Brownian motion."""

from oism.basis.base import Basis, Jet
from oism.basis.fourier import Fourier, half_lattice
from oism.basis.frame import Frame, IdentityFrame, OrthogonalFrame
from oism.basis.hermite import Hermite, TensorHermite, product_coefficients

__all__ = [
    "Basis",
    "Fourier",
    "Frame",
    "Hermite",
    "IdentityFrame",
    "Jet",
    "OrthogonalFrame",
    "TensorHermite",
    "half_lattice",
    "product_coefficients",
]
