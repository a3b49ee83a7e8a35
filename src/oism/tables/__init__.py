"""Densities in the data's units: charts, the defence, the fitted model and what is asked of it."""

from oism.tables._background import Defence, Spread
from oism.tables._chart import BoxChart, Chart, WhiteChart
from oism.tables._columns import Columns
from oism.tables._conditional import sample_given
from oism.tables._copies import CopyCheck, nearest_neighbour_check
from oism.tables._estimator import OISM
from oism.tables._kde import KDE
from oism.tables._model import DensityModel, settled_steps
from oism.tables._summary import describe, facts

__all__ = [
    "KDE",
    "OISM",
    "BoxChart",
    "Chart",
    "Columns",
    "CopyCheck",
    "Defence",
    "DensityModel",
    "Spread",
    "WhiteChart",
    "describe",
    "facts",
    "nearest_neighbour_check",
    "sample_given",
    "settled_steps",
]
