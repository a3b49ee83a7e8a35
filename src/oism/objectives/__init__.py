"""Objectives for training a network, a score or an energy, and the noise levels they are taken at.

For a noise predictor, through a clock: `DenoisingScoreMatching`, with weights and distributions of
noise levels, and `OutputMatching` for networks that predict something else. For energies
f = log(ρ_t/π), scores ∇log ρ_t and time scores ∂_t log ρ_t of any process: `ImplicitScoreMatching`,
`GeneralisedScoreMatching`, `SlicedScoreMatching`, `TransitionScoreMatching` (denoising) and
`TimeScoreMatching`. `FokkerPlanckResidual` measures whether the noise levels agree, and can be
added to any of them. `errors_by_level` measures a fitted model on data.
"""

from oism.objectives._base import Objective
from oism.objectives._denoising import (
    DenoisingScoreMatching,
    LikelihoodWeighting,
    NoiseWeighting,
    OutputMatching,
    Outputs,
    UniformWeighting,
    Weighting,
)
from oism.objectives._evaluation import IntervalError, errors_by_level
from oism.objectives._fokker_planck import FokkerPlanckResidual
from oism.objectives._hybrid import FIRST_WITH_VELOCITIES, HybridScoreMatching
from oism.objectives._implicit import GeneralisedScoreMatching, ImplicitScoreMatching
from oism.objectives._levels import (
    MixedLevels,
    NoiseLevels,
    NormalLogSNR,
    UniformLogSNR,
    UniformTime,
    low_discrepancy,
)
from oism.objectives._models import Model, gradient, score_of, time_score_of
from oism.objectives._sliced import Probes, SlicedScoreMatching
from oism.objectives._time import TimeScoreMatching
from oism.objectives._transitions import TransitionScoreMatching

__all__ = [
    "FIRST_WITH_VELOCITIES",
    "DenoisingScoreMatching",
    "FokkerPlanckResidual",
    "GeneralisedScoreMatching",
    "HybridScoreMatching",
    "ImplicitScoreMatching",
    "IntervalError",
    "LikelihoodWeighting",
    "MixedLevels",
    "Model",
    "NoiseLevels",
    "NoiseWeighting",
    "NormalLogSNR",
    "Objective",
    "OutputMatching",
    "Outputs",
    "Probes",
    "SlicedScoreMatching",
    "TimeScoreMatching",
    "TransitionScoreMatching",
    "UniformLogSNR",
    "UniformTime",
    "UniformWeighting",
    "Weighting",
    "errors_by_level",
    "gradient",
    "low_discrepancy",
    "score_of",
    "time_score_of",
]
