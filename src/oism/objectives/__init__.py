"""Objectives: what a network is trained to minimise, and on which noise levels."""

from oism.objectives.denoising import (
    DenoisingScoreMatching,
    LikelihoodWeighting,
    NoiseWeighting,
    UniformWeighting,
    Weighting,
)
from oism.objectives.levels import NoiseLevels, UniformLogSNR, UniformTime, low_discrepancy

__all__ = [
    "DenoisingScoreMatching",
    "LikelihoodWeighting",
    "NoiseLevels",
    "NoiseWeighting",
    "UniformLogSNR",
    "UniformTime",
    "UniformWeighting",
    "Weighting",
    "low_discrepancy",
]
