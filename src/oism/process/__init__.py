"""Markov noising processes, the clocks of their noise levels, and the operators of a process.

`Brownian` and `OrnsteinUhlenbeck` are processes on ℝ^d, `Torus` on [-π, π)^d; `Linear` is any
linear SDE, and `CriticallyDamped` the one with velocities. Each defines its drift, noise,
transition distribution and invariant measure; `Process` is the contract for a new one.
"""

from oism.process._base import Process, Transition
from oism.process._brownian import Brownian
from oism.process._clock import (
    Clock,
    IdentityClock,
    Logarithmic,
    Noising,
    VarianceExploding,
    VariancePreserving,
    first_time,
)
from oism.process._correlated import CorrelatedGaussian, LinearTransition
from oism.process._critically_damped import CriticallyDamped
from oism.process._domain import Domain, Euclidean, FlatTorus, wrapped
from oism.process._expectation import Function, MonteCarlo, Quadrature, Rule
from oism.process._isotropic import Isotropic, IsotropicTransition
from oism.process._linear import Linear
from oism.process._measure import Gaussian, Lebesgue, Measure, NotAProbabilityError, Uniform
from oism.process._operators import (
    AdjointGenerator,
    CarreDuChamp,
    DirichletForm,
    InfinitesimalGenerator,
    Semigroup,
    SymmetricPart,
)
from oism.process._ornstein_uhlenbeck import OrnsteinUhlenbeck
from oism.process._phase_space import PhaseSpace
from oism.process._torus import Torus
from oism.process._whitening import Whitening

__all__ = [
    "AdjointGenerator",
    "Brownian",
    "CarreDuChamp",
    "Clock",
    "CorrelatedGaussian",
    "CriticallyDamped",
    "DirichletForm",
    "Domain",
    "Euclidean",
    "FlatTorus",
    "Function",
    "Gaussian",
    "IdentityClock",
    "InfinitesimalGenerator",
    "Isotropic",
    "IsotropicTransition",
    "Lebesgue",
    "Linear",
    "LinearTransition",
    "Logarithmic",
    "Measure",
    "MonteCarlo",
    "Noising",
    "NotAProbabilityError",
    "OrnsteinUhlenbeck",
    "PhaseSpace",
    "Process",
    "Quadrature",
    "Rule",
    "Semigroup",
    "SymmetricPart",
    "Torus",
    "Transition",
    "Uniform",
    "VarianceExploding",
    "VariancePreserving",
    "Whitening",
    "first_time",
    "wrapped",
]
