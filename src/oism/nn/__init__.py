"""Networks that predict noise, and the one that starts from a prior."""

from oism.nn.ddpmpp import DDPMpp
from oism.nn.informed import OperatorInformed
from oism.nn.mlp import MLP
from oism.nn.model import Diffusion
from oism.nn.score import NoisePredictor, NoiseScore
from oism.nn.sizes import unet_for

__all__ = [
    "MLP",
    "DDPMpp",
    "Diffusion",
    "NoisePredictor",
    "NoiseScore",
    "OperatorInformed",
    "unet_for",
]
