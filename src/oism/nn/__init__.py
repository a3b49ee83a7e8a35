"""Networks that predict noise, alone or together with a prior, and trained models."""

from oism.nn._combined import Combined
from oism.nn._contexts import eval_mode, full_precision, half_precision
from oism.nn._ddpmpp import DDPMpp, compile_blocks
from oism.nn._informed import Informed, OperatorInformed, as_informed, trained_network
from oism.nn._mlp import MLP
from oism.nn._model import Diffusion
from oism.nn._parametrisation import (
    EDM,
    PREDICTIONS,
    Clean,
    GaussianSkip,
    Noise,
    OperatorPreconditioning,
    Parametrisation,
    Parametrised,
    Velocity,
    predicting,
)
from oism.nn._row_network import RowNetwork
from oism.nn._sizes import unet_for
from oism.nn._velocity import VelocityScore

__all__ = [
    "EDM",
    "MLP",
    "PREDICTIONS",
    "Clean",
    "Combined",
    "DDPMpp",
    "Diffusion",
    "GaussianSkip",
    "Informed",
    "Noise",
    "OperatorInformed",
    "OperatorPreconditioning",
    "Parametrisation",
    "Parametrised",
    "RowNetwork",
    "Velocity",
    "VelocityScore",
    "as_informed",
    "compile_blocks",
    "eval_mode",
    "full_precision",
    "half_precision",
    "predicting",
    "trained_network",
    "unet_for",
]
