"""Priors: distributions of images, and of all their noised versions, in closed form."""

from oism.images._base import Prior
from oism.images._classes import ClassPrior
from oism.images._convolution import ConvolutionalPrior, add_local_terms
from oism.images._display import as_images, image_shape
from oism.images._evaluation import Evaluation, LevelError, evaluate
from oism.images._fitting import (
    CHOICES,
    MOST_ORDER,
    fit_mixture,
    fit_prior,
    image_statistics,
    prior_from_statistics,
)
from oism.images._framed import Directions
from oism.images._gate import DEFAULT_GATE, ByError, Gate, Open
from oism.images._gaussian import GaussianPart
from oism.images._hermite import HermitePrior
from oism.images._mixture import MixturePrior
from oism.images._statistics import PCA, ImageStatistics

__all__ = [
    "CHOICES",
    "DEFAULT_GATE",
    "MOST_ORDER",
    "PCA",
    "ByError",
    "ClassPrior",
    "ConvolutionalPrior",
    "Directions",
    "Evaluation",
    "Gate",
    "GaussianPart",
    "HermitePrior",
    "ImageStatistics",
    "LevelError",
    "MixturePrior",
    "Open",
    "Prior",
    "add_local_terms",
    "as_images",
    "evaluate",
    "fit_mixture",
    "fit_prior",
    "image_shape",
    "image_statistics",
    "prior_from_statistics",
]
