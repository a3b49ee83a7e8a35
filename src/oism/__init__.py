"""oism: operator-informed score matching, the library that fits a diffusion model in closed form.

The rooms of the house, each knowing only those before it: `oism.process` (what diffuses),
`oism.clock` (how fast), `oism.expectation` (E[f(X)]), `oism.operators` (L, L*, Γ, P_t) and
`oism.basis` (the eigenfunctions).
"""

from oism.basis import Basis, Fourier, Hermite, IdentityFrame, OrthogonalFrame, TensorHermite
from oism.clock import Clock, IdentityClock, Noising, VarianceExploding, VariancePreserving
from oism.estimation import CrossValidation, EvenKnots, PlacedKnots, fit, fit_moments
from oism.expectation import MonteCarlo, Quadrature
from oism.moments import Moments, principal_frame
from oism.operators import (
    AdjointGenerator,
    CarreDuChamp,
    DirichletForm,
    InfinitesimalGenerator,
    Semigroup,
)
from oism.process import Brownian, OrnsteinUhlenbeck, Process, Torus
from oism.score import OperatorScore
from oism.shrinkage import JamesStein, Modulation, Monotone, SampleMeans

__version__ = "0.1.0"

__all__ = [
    "AdjointGenerator",
    "Basis",
    "Brownian",
    "CarreDuChamp",
    "Clock",
    "CrossValidation",
    "DirichletForm",
    "EvenKnots",
    "Fourier",
    "Hermite",
    "IdentityClock",
    "IdentityFrame",
    "InfinitesimalGenerator",
    "JamesStein",
    "Modulation",
    "Moments",
    "Monotone",
    "MonteCarlo",
    "Noising",
    "OperatorScore",
    "OrnsteinUhlenbeck",
    "OrthogonalFrame",
    "PlacedKnots",
    "Process",
    "Quadrature",
    "SampleMeans",
    "Semigroup",
    "TensorHermite",
    "Torus",
    "VarianceExploding",
    "VariancePreserving",
    "fit",
    "fit_moments",
    "principal_frame",
]
