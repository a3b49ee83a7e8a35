"""Flows: the contract of fitted models, the probability flow, the reverse SDE, and likelihoods."""

from oism.flow._flow import CHUNK, Flow, Score, ScoreModel
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
    Adaptive,
    EulerMaruyama,
    FixedStep,
    Heun,
    OrdinaryMethod,
    RungeKutta4,
    StochasticHeun,
    StochasticMethod,
)
from oism.flow._model import FittedModel

__all__ = [
    "CHUNK",
    "Adaptive",
    "ClosedForm",
    "DiffusedScore",
    "Divergence",
    "DivergentScore",
    "EulerMaruyama",
    "ExactTrace",
    "FittedModel",
    "FixedStep",
    "Flow",
    "Heun",
    "Hutchinson",
    "OrdinaryMethod",
    "RungeKutta4",
    "Score",
    "ScoreModel",
    "StochasticHeun",
    "StochasticMethod",
    "log_density",
    "position_log_density",
    "sample_with_log_density",
]
