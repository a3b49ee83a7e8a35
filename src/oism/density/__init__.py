"""Densities in the data's units: charts, the defence, the fitted model and what is asked of it."""

from oism.density import plan, storage
from oism.density.chart import BoxChart, Chart, WhiteChart
from oism.density.columns import Columns
from oism.density.conditional import sample_given
from oism.density.copies import CopyCheck, nearest_neighbour_check
from oism.density.defence import Defence, Spread
from oism.density.model import DensityModel, settled_steps
from oism.density.summary import describe, facts

__all__ = [
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
    "plan",
    "sample_given",
    "settled_steps",
    "storage",
]
