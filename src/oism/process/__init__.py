"""Markov noising processes: what diffuses.

`Brownian` and `OrnsteinUhlenbeck` live on ℝ^d, `Torus` on [-π, π)^d. Each states its drift, noise,
transition law and invariant measure; `Process` is the contract for a new one.
"""

from oism.process.base import Process, Transition
from oism.process.brownian import Brownian
from oism.process.domain import Domain, Euclidean, FlatTorus
from oism.process.isotropic import Isotropic, IsotropicTransition
from oism.process.measure import Gaussian, Lebesgue, Measure, NotAProbabilityError, Uniform
from oism.process.ornstein_uhlenbeck import OrnsteinUhlenbeck
from oism.process.torus import Torus

__all__ = [
    "Brownian",
    "Domain",
    "Euclidean",
    "FlatTorus",
    "Gaussian",
    "Isotropic",
    "IsotropicTransition",
    "Lebesgue",
    "Measure",
    "NotAProbabilityError",
    "OrnsteinUhlenbeck",
    "Process",
    "Torus",
    "Transition",
    "Uniform",
]
