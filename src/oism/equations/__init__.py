"""The equations A_t α = -b_t of every noise level, from averages over the clean data.

`ProductEquations` are those of time scores as well, M_t a = b_t.
"""

from oism.equations.fourier import FourierEquations, GalerkinOperator
from oism.equations.hermite import Coordinates, HermiteEquations, TensorHermiteEquations
from oism.equations.linear import LinearEquations, LinearLaw, Metric, start
from oism.equations.products import ProductEquations

__all__ = [
    "Coordinates",
    "FourierEquations",
    "GalerkinOperator",
    "HermiteEquations",
    "LinearEquations",
    "LinearLaw",
    "Metric",
    "ProductEquations",
    "TensorHermiteEquations",
    "start",
]
