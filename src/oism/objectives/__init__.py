"""Objectives: what a network, a score or an energy is trained to minimise, and where.

Of a noise predictor, through a clock: `DenoisingScoreMatching`, with weights and laws of noise
levels. Of energies f = log(ρ_t/π), scores ∇log ρ_t and time scores ∂_t log ρ_t of any process:
`ImplicitScoreMatching`, `GeneralisedScoreMatching`, `SlicedScoreMatching`,
`TransitionScoreMatching` (denoising) and `TimeScoreMatching`. `FokkerPlanckResidual` is what all
noise levels owe each other, to be measured or added to any of them.
"""

from oism.objectives._base import Objective
from oism.objectives._denoising import (
    DenoisingScoreMatching,
    LikelihoodWeighting,
    NoiseWeighting,
    UniformWeighting,
    Weighting,
)
from oism.objectives._fokker_planck import FokkerPlanckResidual
from oism.objectives._hybrid import HybridScoreMatching
from oism.objectives._implicit import GeneralisedScoreMatching, ImplicitScoreMatching
from oism.objectives._levels import NoiseLevels, UniformLogSNR, UniformTime, low_discrepancy
from oism.objectives._models import Model, score_of, time_score_of
from oism.objectives._sliced import Probes, SlicedScoreMatching
from oism.objectives._time import TimeScoreMatching
from oism.objectives._transitions import TransitionScoreMatching

__all__ = [
    "DenoisingScoreMatching",
    "FokkerPlanckResidual",
    "GeneralisedScoreMatching",
    "HybridScoreMatching",
    "ImplicitScoreMatching",
    "LikelihoodWeighting",
    "Model",
    "NoiseLevels",
    "NoiseWeighting",
    "Objective",
    "Probes",
    "SlicedScoreMatching",
    "TimeScoreMatching",
    "TransitionScoreMatching",
    "UniformLogSNR",
    "UniformTime",
    "UniformWeighting",
    "Weighting",
    "low_discrepancy",
    "score_of",
    "time_score_of",
]
