"""Fitted scores of all noise levels, as torch modules."""

from oism.score.base import Diagnostics, OperatorScore
from oism.score.fourier import FourierScore
from oism.score.hermite import HermiteScore, TensorHermiteScore, soft_clamp
from oism.score.interpolation import Curve, place_knots
from oism.score.linear import LinearScore

__all__ = [
    "Curve",
    "Diagnostics",
    "FourierScore",
    "HermiteScore",
    "LinearScore",
    "OperatorScore",
    "TensorHermiteScore",
    "place_knots",
    "soft_clamp",
]
