"""Networks that predict noise, and those that start from a prior."""

from oism.nn.combined import Combined
from oism.nn.ddpmpp import DDPMpp
from oism.nn.informed import Informed, OperatorInformed
from oism.nn.mlp import MLP
from oism.nn.model import Diffusion
from oism.nn.score import NoisePredictor, NoiseScore
from oism.nn.sizes import unet_for
from oism.nn.velocity import VelocityScore

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
