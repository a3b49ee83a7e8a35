"""Sampling with the linear part exact: multistep methods in a prior's standardised coordinates."""

from oism.sampling._coordinates import alpha_sigma
from oism.sampling._measurement import LEVELS, PATHS, best_method, measure_residual
from oism.sampling._method import SamplingMethod
from oism.sampling._plan import Denoiser, History, Plan, Span, Step
from oism.sampling._polynomial import Polynomial, start_level
from oism.sampling._prediction import Prediction
from oism.sampling._statistics import ResidualStatistics

__all__ = [
    "LEVELS",
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
    "best_method",
    "measure_residual",
    "start_level",
]
