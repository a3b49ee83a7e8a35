"""Networks that predict noise, and the one that starts from a prior."""

from oism.nn.ddpmpp import DDPMpp
from oism.nn.informed import OperatorInformed
from oism.nn.mlp import MLP
from oism.nn.model import Diffusion
from oism.nn.score import NoisePredictor, NoiseScore

__all__ = ["MLP", "DDPMpp", "Diffusion", "NoisePredictor", "NoiseScore", "OperatorInformed"]
