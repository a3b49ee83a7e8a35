"""Networks that predict noise, and those that start from a prior."""

from oism.nn._combined import Combined
from oism.nn._ddpmpp import DDPMpp
from oism.nn._informed import Informed, OperatorInformed
from oism.nn._mlp import MLP
from oism.nn._model import Diffusion
from oism.nn._score import NoisePredictor, NoiseScore
from oism.nn._sizes import unet_for
from oism.nn._velocity import VelocityScore

__all__ = [
    "MLP",
    "Combined",
    "DDPMpp",
    "Diffusion",
    "Informed",
    "NoisePredictor",
    "NoiseScore",
    "OperatorInformed",
    "VelocityScore",
    "unet_for",
]
