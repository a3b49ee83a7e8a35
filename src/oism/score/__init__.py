"""Fitted scores of all noise levels, as torch modules, and the contract of their systems."""

from oism.score._base import RIDGES, Advance, Losses, OperatorScore, Solved, System, ignore
from oism.score._coordinates import FLOOR, Coordinates
from oism.score._features import FeatureScore
from oism.score._fourier import FourierScore
from oism.score._hermite import HermiteScore, TensorHermiteScore, soft_clamp
from oism.score._interpolation import Curve, SpectralModule
from oism.score._linear import LinearScore
from oism.score._linear_law import SINGULAR, LinearLaw, Metric
from oism.score._reversible import ReversibleScore
from oism.score._scattered import ScatteredScore
from oism.score._series import SeriesScore
from oism.score._table import Diagnostics, Schedule, Table

__all__ = [
    "FLOOR",
    "RIDGES",
    "SINGULAR",
    "Advance",
    "Coordinates",
    "Curve",
    "Diagnostics",
    "FeatureScore",
    "FourierScore",
    "HermiteScore",
    "LinearLaw",
    "LinearScore",
    "Losses",
    "Metric",
    "OperatorScore",
    "ReversibleScore",
    "ScatteredScore",
    "Schedule",
    "SeriesScore",
    "Solved",
    "SpectralModule",
    "System",
    "Table",
    "TensorHermiteScore",
    "ignore",
    "soft_clamp",
]
