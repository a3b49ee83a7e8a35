"""Training of noise predictors, and what is measured of them."""

from oism.training._bits import bits_per_dim
from oism.training._checkpoint import CheckpointError
from oism.training._data import Rows
from oism.training._evaluation import errors_by_level
from oism.training._folder import model_of
from oism.training._loop import DivergedError
from oism.training._run import Run
from oism.training._settings import Training

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
