"""Eigenfunctions of the processes: Hermite for Ornstein-Uhlenbeck, Fourier for Brownian motion.

`WhitenedHermite` are those of any symmetric linear process. `Polynomials` are not eigenfunctions,
but their span is invariant under every linear process, symmetric or not.
"""

from oism.basis._averages import Averages, Standardised
from oism.basis._base import Basis, Functions, Jet
from oism.basis._eigenfunctions import Eigenfunctions
from oism.basis._features import Features
from oism.basis._fourier import Fourier, half_lattice, product_lattice
from oism.basis._frame import CosineFrame, Frame, IdentityFrame, OrthogonalFrame, TransformFrame
from oism.basis._grid import TorusGrid, TorusTransform
from oism.basis._hermite import (
    Hermite,
    HermiteFamily,
    TensorHermite,
    product_coefficients,
    recurrence,
)
from oism.basis._jacobi import JacobiPolynomials
from oism.basis._ladder import Ladder
from oism.basis._laguerre import LaguerrePolynomials
from oism.basis._pearson import PolynomialEigenfunctions
from oism.basis._polynomials import Polynomials
from oism.basis._scattered import NUFFT_DIM, ScatteredSeries
from oism.basis._sphere import SphericalHarmonics
from oism.basis._transform import Transform
from oism.basis._whitened import WhitenedHermite
from oism.basis._wigner import Hyperspherical, QuaternionBasis, Wigner

__all__ = [
    "NUFFT_DIM",
    "Averages",
    "Basis",
    "CosineFrame",
    "Eigenfunctions",
    "Features",
    "Fourier",
    "Frame",
    "Functions",
    "Hermite",
    "HermiteFamily",
    "Hyperspherical",
    "IdentityFrame",
    "JacobiPolynomials",
    "Jet",
    "Ladder",
    "LaguerrePolynomials",
    "OrthogonalFrame",
    "PolynomialEigenfunctions",
    "Polynomials",
    "QuaternionBasis",
    "ScatteredSeries",
    "SphericalHarmonics",
    "Standardised",
    "TensorHermite",
    "TorusGrid",
    "TorusTransform",
    "Transform",
    "TransformFrame",
    "WhitenedHermite",
    "Wigner",
    "half_lattice",
    "product_coefficients",
    "product_lattice",
    "recurrence",
]
