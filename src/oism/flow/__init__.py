"""Flows: the contract of fitted models, the probability flow, the reverse SDE, and likelihoods."""

from oism.flow._evaluation import Estimate, RunningMean
from oism.flow._flow import CHUNK, Flow, RelativeModel, Score, ScoreModel
from oism.flow._likelihood import (
    ClosedForm,
    DiffusedScore,
    Divergence,
    DivergentScore,
    ExactTrace,
    Hutchinson,
    log_density,
    position_log_density,
    sample_with_log_density,
)
from oism.flow._methods import (
    Adams,
    Adams4,
    Adaptive,
    EulerMaruyama,
    FixedStep,
    Heun,
    OrdinaryMethod,
    RecordedRungeKutta4,
    RungeKutta4,
    State,
    StochasticHeun,
    StochasticMethod,
)
from oism.flow._model import FittedModel
from oism.flow._noise import NoisePredictor, NoiseScore, noise_errors, noised
from oism.flow._tensors import FIRST, Pixels, TensorModel, TensorSpec, checked_clock

__all__ = [
    "CHUNK",
    "FIRST",
    "Adams",
    "Adams4",
    "Adaptive",
    "ClosedForm",
    "DiffusedScore",
    "Divergence",
    "DivergentScore",
    "Estimate",
    "EulerMaruyama",
    "ExactTrace",
    "FittedModel",
    "FixedStep",
    "Flow",
    "Heun",
    "Hutchinson",
    "NoisePredictor",
    "NoiseScore",
    "OrdinaryMethod",
    "Pixels",
    "RecordedRungeKutta4",
    "RelativeModel",
    "RungeKutta4",
    "RunningMean",
    "Score",
    "ScoreModel",
    "State",
    "StochasticHeun",
    "StochasticMethod",
    "TensorModel",
    "TensorSpec",
    "checked_clock",
    "log_density",
    "noise_errors",
    "noised",
    "position_log_density",
    "sample_with_log_density",
]
