"""Training of noise predictors, and what is measured of them."""

from oism.training.bits import bits_per_dim
from oism.training.checkpoint import CheckpointError
from oism.training.data import Rows
from oism.training.evaluation import errors_by_level
from oism.training.folder import model_of
from oism.training.loop import DivergedError
from oism.training.run import Run
from oism.training.settings import Training

__all__ = [
    "CheckpointError",
    "DivergedError",
    "Rows",
    "Run",
    "Training",
    "bits_per_dim",
    "errors_by_level",
    "model_of",
]
