"""oism: operator-informed score matching, the library that fits a diffusion model in closed form.

The rooms of the house, each knowing only those before it: `oism.process` (what diffuses),
`oism.clock` (how fast), `oism.expectation` (E[f(X)]), `oism.operators` (L, L*, Γ, P_t) and
`oism.basis` (the eigenfunctions).
"""

from oism.basis import Basis, Fourier, Hermite, IdentityFrame, OrthogonalFrame, TensorHermite
from oism.clock import Clock, IdentityClock, Noising, VarianceExploding, VariancePreserving
from oism.estimation import CrossValidation, EvenKnots, PlacedKnots, fit, fit_moments
from oism.estimator import OISM
from oism.expectation import MonteCarlo, Quadrature
from oism.flow import Adaptive, EulerMaruyama, Flow, Heun, RungeKutta4, StochasticHeun
from oism.likelihood import ExactTrace, Hutchinson, log_density, sample_with_log_density
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
    "OISM",
    "Adaptive",
    "AdjointGenerator",
    "Basis",
    "Brownian",
    "CarreDuChamp",
    "Clock",
    "CrossValidation",
    "DirichletForm",
    "EulerMaruyama",
    "EvenKnots",
    "ExactTrace",
    "Flow",
    "Fourier",
    "Hermite",
    "Heun",
    "Hutchinson",
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
    "RungeKutta4",
    "SampleMeans",
    "Semigroup",
    "StochasticHeun",
    "TensorHermite",
    "Torus",
    "VarianceExploding",
    "VariancePreserving",
    "fit",
    "fit_moments",
    "log_density",
    "principal_frame",
    "sample_with_log_density",
]
