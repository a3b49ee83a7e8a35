"""Solving: small systems in batches, conjugate gradients, ridge and truncation over time."""

from oism.solve.base import RIDGES, Losses, Solved, System
from oism.solve.choice import Schedule, choose
from oism.solve.hermite import HermiteSystem, TensorHermiteSystem
from oism.solve.linear import LinearSystem
from oism.solve.torus import TorusSystem

__all__ = [
    "RIDGES",
    "HermiteSystem",
    "LinearSystem",
    "Losses",
    "Schedule",
    "Solved",
    "System",
    "TensorHermiteSystem",
    "TorusSystem",
    "choose",
]
