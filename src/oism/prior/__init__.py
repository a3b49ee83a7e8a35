"""Priors: the laws of images and other tensors, and of all their noised versions, in closed form."""

from oism.prior.base import Prior
from oism.prior.fitting import PCA, fit_prior
from oism.prior.hermite import HermitePrior
from oism.prior.pixels import Pixels

__all__ = ["PCA", "HermitePrior", "Pixels", "Prior", "fit_prior"]
