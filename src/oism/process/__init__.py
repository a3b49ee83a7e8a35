"""Markov noising processes: what diffuses.

`Brownian` and `OrnsteinUhlenbeck` live on ℝ^d, `Torus` on [-π, π)^d; `Linear` is any linear SDE,
and `CriticallyDamped` the one that carries velocities along. Each states its drift, noise,
transition law and invariant measure; `Process` is the contract for a new one.
"""

from oism.process.base import Process, Transition
from oism.process.brownian import Brownian
from oism.process.correlated import CorrelatedGaussian, LinearTransition
from oism.process.critically_damped import CriticallyDamped
from oism.process.domain import Domain, Euclidean, FlatTorus
from oism.process.isotropic import Isotropic, IsotropicTransition
from oism.process.linear import Linear
from oism.process.measure import Gaussian, Lebesgue, Measure, NotAProbabilityError, Uniform
from oism.process.ornstein_uhlenbeck import OrnsteinUhlenbeck
from oism.process.phase_space import PhaseSpace
from oism.process.torus import Torus
from oism.process.whitening import Whitening

__all__ = [
    "Brownian",
    "CorrelatedGaussian",
    "CriticallyDamped",
    "Domain",
    "Euclidean",
    "FlatTorus",
    "Gaussian",
    "Isotropic",
    "IsotropicTransition",
    "Lebesgue",
    "Linear",
    "LinearTransition",
    "Measure",
    "NotAProbabilityError",
    "OrnsteinUhlenbeck",
    "PhaseSpace",
    "Process",
    "Torus",
    "Transition",
    "Uniform",
    "Whitening",
]
