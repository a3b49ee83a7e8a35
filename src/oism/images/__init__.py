"""Priors: the laws of images, and of all their noised versions, in closed form."""

from oism.images._base import Prior
from oism.images._convolution import ConvolutionalPrior, add_local_terms
from oism.images._fitting import fit_mixture, fit_prior, learn_law, prior_of
from oism.images._gate import ByError, Gate, Open
from oism.images._hermite import HermitePrior
from oism.images._mixture import MixturePrior
from oism.images._pixels import Pixels
from oism.images._statistics import PCA, Law

__all__ = [
    "PCA",
    "ByError",
    "ConvolutionalPrior",
    "Gate",
    "HermitePrior",
    "Law",
    "MixturePrior",
    "Open",
    "Pixels",
    "Prior",
    "add_local_terms",
    "fit_mixture",
    "fit_prior",
    "learn_law",
    "prior_of",
]
