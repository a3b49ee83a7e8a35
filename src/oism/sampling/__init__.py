"""Sampling with the linear part exact: multistep methods in a prior's standardised coordinates."""

from oism.sampling._coordinates import alpha_sigma
from oism.sampling._method import SamplingMethod
from oism.sampling._plan import Denoiser, History, Plan, Span, Step
from oism.sampling._polynomial import Polynomial, start_level
from oism.sampling._prediction import MOST_PREDICTED, Prediction
from oism.sampling._statistics import LEVELS, PATHS, ResidualStatistics, measure_residual

__all__ = [
    "LEVELS",
    "MOST_PREDICTED",
    "PATHS",
    "Denoiser",
    "History",
    "Plan",
    "Polynomial",
    "Prediction",
    "ResidualStatistics",
    "SamplingMethod",
    "Span",
    "Step",
    "alpha_sigma",
    "measure_residual",
    "start_level",
]
