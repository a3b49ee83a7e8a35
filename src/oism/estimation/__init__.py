"""Fitting: from data to the scores of every noise level, with no training."""

from oism.estimation.fitting import fit, fit_moments, fit_standardised
from oism.estimation.linear import fit_linear
from oism.estimation.tables import CrossValidation, EvenKnots, PlacedKnots

__all__ = [
    "CrossValidation",
    "EvenKnots",
    "PlacedKnots",
    "fit",
    "fit_linear",
    "fit_moments",
    "fit_standardised",
]
