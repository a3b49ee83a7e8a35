"""Tables: `OISM`, the scikit-learn estimator, and its parts.

A `TabularModel` is a fitted density in the units of the data. A `TableModel` is made of the scores
of all noise levels, a `Chart` to the coordinates of their process, and a `Background`; a
`JointModel` is a pool of mixtures in several coordinates. A family makes the choices for one kind
of model: see `oism.tables._family`.
"""

from oism._core.batches import Batch
from oism.tables._background import Background, Spread
from oism.tables._baselines import SplineFlow, fit_flow, fit_kde, fit_mixture_by_bic
from oism.tables._chart import BoxChart, Chart, WhiteChart
from oism.tables._column import Column
from oism.tables._columns import Columns
from oism.tables._comparison import Comparison, compare_with_baselines
from oism.tables._conditional import GridModel, sample_given
from oism.tables._contract import TabularModel
from oism.tables._copies import CopyCheck, nearest_neighbour_check
from oism.tables._discrete import DiscreteConditional, DiscreteModel
from oism.tables._distribution import TableDistribution
from oism.tables._estimator import OISM
from oism.tables._joint import JointModel
from oism.tables._kde import KDE
from oism.tables._margin import Margin
from oism.tables._margin_fit import fit_margin
from oism.tables._mixture import MixtureModel
from oism.tables._mixture_fit import fit_mixtures
from oism.tables._model import TableModel, converged_steps
from oism.tables._outliers import OutlierDetector
from oism.tables._rotations import RotationModel, fit_rotations
from oism.tables._sphere import SphereModel
from oism.tables._sphere_table import SphereTable
from oism.tables._stack import StackedTable
from oism.tables._streaming import PASSES

__all__ = [
    "KDE",
    "OISM",
    "PASSES",
    "Background",
    "Batch",
    "BoxChart",
    "Chart",
    "Column",
    "Columns",
    "Comparison",
    "CopyCheck",
    "DiscreteConditional",
    "DiscreteModel",
    "GridModel",
    "JointModel",
    "Margin",
    "MixtureModel",
    "OutlierDetector",
    "RotationModel",
    "SphereModel",
    "SphereTable",
    "SplineFlow",
    "Spread",
    "StackedTable",
    "TableDistribution",
    "TableModel",
    "TabularModel",
    "WhiteChart",
    "compare_with_baselines",
    "converged_steps",
    "fit_flow",
    "fit_kde",
    "fit_margin",
    "fit_mixture_by_bic",
    "fit_mixtures",
    "fit_rotations",
    "nearest_neighbour_check",
    "sample_given",
]
