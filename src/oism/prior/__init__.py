"""Priors: the laws of images, and of all their noised versions, in closed form."""

from oism.prior.base import Prior
from oism.prior.fitting import PCA, fit_mixture, fit_prior
from oism.prior.hermite import HermitePrior
from oism.prior.mixture import MixturePrior
from oism.prior.pixels import Pixels

__all__ = [
    "PCA",
    "HermitePrior",
    "MixturePrior",
    "Pixels",
    "Prior",
    "fit_mixture",
    "fit_prior",
]
