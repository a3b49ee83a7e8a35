"""The equations A_t α = -b_t of every noise level, from averages over the clean data."""

from oism.equations.fourier import FourierEquations, GalerkinOperator
from oism.equations.hermite import Coordinates, HermiteEquations, TensorHermiteEquations

__all__ = [
    "Coordinates",
    "FourierEquations",
    "GalerkinOperator",
    "HermiteEquations",
    "TensorHermiteEquations",
]
