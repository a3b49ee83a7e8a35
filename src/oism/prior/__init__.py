"""Priors: the laws of images, and of all their noised versions, in closed form."""

from oism.prior.base import Prior
from oism.prior.convolution import ConvolutionalPrior, add_local_terms
from oism.prior.fitting import fit_mixture, fit_prior, learn_law, prior_of
from oism.prior.gate import ByError, Gate, Open
from oism.prior.hermite import HermitePrior
from oism.prior.mixture import MixturePrior
from oism.prior.passes import PCA, Law
from oism.prior.pixels import Pixels

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
