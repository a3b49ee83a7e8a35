"""oism: operator-informed score matching, the library that fits a diffusion model in closed form.

The rooms of the house, each knowing only those before it: `oism.process` (what diffuses),
`oism.clock` (how fast), `oism.expectation` (E[f(X)]), `oism.operators` (L, L*, Γ, P_t) and
`oism.basis` (the eigenfunctions).
"""

from oism.basis import Basis, Fourier, Hermite, IdentityFrame, OrthogonalFrame, TensorHermite
from oism.clock import Clock, IdentityClock, Noising, VarianceExploding, VariancePreserving
from oism.expectation import MonteCarlo, Quadrature
from oism.operators import (
    AdjointGenerator,
    CarreDuChamp,
    DirichletForm,
    InfinitesimalGenerator,
    Semigroup,
)
from oism.process import Brownian, OrnsteinUhlenbeck, Process, Torus

__version__ = "0.1.0"

__all__ = [
    "AdjointGenerator",
    "Basis",
    "Brownian",
    "CarreDuChamp",
    "Clock",
    "DirichletForm",
    "Fourier",
    "Hermite",
    "IdentityClock",
    "IdentityFrame",
    "InfinitesimalGenerator",
    "MonteCarlo",
    "Noising",
    "OrnsteinUhlenbeck",
    "OrthogonalFrame",
    "Process",
    "Quadrature",
    "Semigroup",
    "TensorHermite",
    "Torus",
    "VarianceExploding",
    "VariancePreserving",
]
