"""Markov noising processes, the clocks of their noise levels, and the operators of a process.

`Brownian` and `OrnsteinUhlenbeck` are processes on ℝ^d, `Torus` on [-π, π)^d; `Linear` is any
linear SDE, and `CriticallyDamped` the one with velocities; the noise of a `Reversible` diffusion
depends on the point. Each defines its drift, noise,
transition distribution and invariant measure; `Process` is the contract for a new one.
"""

from oism.process._base import Process, Transition
from oism.process._box import Box
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
from oism.process._jacobi import Beta, Jacobi
from oism.process._laguerre import Gamma, Laguerre
from oism.process._langevin import Langevin
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
from oism.process._pearson import Interval, Pearson, PolynomialMeasure
from oism.process._phase_space import PhaseSpace
from oism.process._reversible import Reversible, ReversibleTransition
from oism.process._rotations import RotationGroup, Rotations
from oism.process._simulated import SimulatedTransition
from oism.process._sphere import Sphere, UnitSphere
from oism.process._three_sphere import (
    ThreeSphere,
    UniformQuaternions,
    UnitQuaternions,
    left_invariant_frame,
)
from oism.process._torus import Torus
from oism.process._whitening import Whitening

__all__ = [
    "AdjointGenerator",
    "Beta",
    "Box",
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
    "Gamma",
    "Gaussian",
    "IdentityClock",
    "InfinitesimalGenerator",
    "Interval",
    "Isotropic",
    "IsotropicTransition",
    "Jacobi",
    "Laguerre",
    "Langevin",
    "Lebesgue",
    "Linear",
    "LinearTransition",
    "Logarithmic",
    "Measure",
    "MonteCarlo",
    "Noising",
    "NotAProbabilityError",
    "OrnsteinUhlenbeck",
    "Pearson",
    "PhaseSpace",
    "PolynomialMeasure",
    "Process",
    "Quadrature",
    "Reversible",
    "ReversibleTransition",
    "RotationGroup",
    "Rotations",
    "Rule",
    "Semigroup",
    "SimulatedTransition",
    "Sphere",
    "SymmetricPart",
    "ThreeSphere",
    "Torus",
    "Transition",
    "Uniform",
    "UniformQuaternions",
    "UnitQuaternions",
    "UnitSphere",
    "VarianceExploding",
    "VariancePreserving",
    "Whitening",
    "first_time",
    "left_invariant_frame",
    "wrapped",
]
