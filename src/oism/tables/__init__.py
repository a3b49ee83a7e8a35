"""Tables: `OISM`, the scikit-learn estimator, and its parts.

A `TableModel` is a fitted density in the units of the data. It is made of the scores of all noise
levels, a `Chart` to the coordinates of their process, and a `Background`. A family makes the
choices for one kind of process: see `oism.tables._family`.
"""

from oism.tables._background import Background, Spread
from oism.tables._chart import BoxChart, Chart, WhiteChart
from oism.tables._columns import Columns
from oism.tables._conditional import sample_given
from oism.tables._copies import CopyCheck, nearest_neighbour_check
from oism.tables._estimator import OISM
from oism.tables._kde import KDE
from oism.tables._mixture import MixtureModel
from oism.tables._mixture_fit import fit_mixtures
from oism.tables._model import TableModel, converged_steps
from oism.tables._summary import describe

__all__ = [
    "KDE",
    "OISM",
    "Background",
    "BoxChart",
    "Chart",
    "Columns",
    "CopyCheck",
    "MixtureModel",
    "Spread",
    "TableModel",
    "WhiteChart",
    "converged_steps",
    "describe",
    "fit_mixtures",
    "nearest_neighbour_check",
    "sample_given",
]
