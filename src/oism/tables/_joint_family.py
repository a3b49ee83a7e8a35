"""Tables of any columns: pools of mixtures in several coordinates, see `JointModel`.

Mixtures have the scores of all noise levels under the Ornstein-Uhlenbeck process in closed form, in
one system of coordinates; a pool of several has densities, samples, marginals and conditionals, but
no single noising process. So `MixtureFamily` uses the plain system only, for free columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from oism.process import OrnsteinUhlenbeck
from oism.tables._collector import Settings
from oism.tables._columns import Columns
from oism.tables._family import Family
from oism.tables._rows import MixtureCollector, RowCollector


@dataclass(frozen=True)
class JointFamily(Family[OrnsteinUhlenbeck]):
    """Mixtures and local Gaussians in plain and in warped columns, of any kind."""

    name = "joint"
    example = "'joint'"
    process_type = OrnsteinUhlenbeck
    allows_gaps = True
    resolves_peaks = True
    allows_network = True

    systems: ClassVar[tuple[str, ...]] = ("plain", "warped")
    """The systems of coordinates, see `oism.tables._training_rows`."""

    trial_rows: ClassVar[int] = 300
    """The largest number of rows that are fitted without a trial, see `TorusOrMixtureFamily`."""

    def check(self, columns: Columns) -> None:
        """Raise unless a column is numeric."""
        if len(columns.categorical) == columns.count:
            raise ValueError(
                "all columns are categorical: a density needs a numeric column; for levels alone "
                "count their combinations, as pandas.DataFrame.value_counts does"
            )

    def collector(
        self,
        columns: Columns,
        rows: Tensor,  # noqa: ARG002 (nothing depends on the first rows)
        weights: Tensor,  # noqa: ARG002
        settings: Settings,
    ) -> RowCollector:
        """Return a collector that keeps rows."""
        return RowCollector(columns, settings, self.systems)


@dataclass(frozen=True)
class MixtureFamily(JointFamily):
    """Mixtures of free columns, with the scores of all noise levels in closed form."""

    name = "mixture"
    example = "'mixture'"
    allows_network = False
    systems = ("plain",)
    trial_rows = 1500

    def check(self, columns: Columns) -> None:
        """Raise unless all columns are free."""
        other = [j for j, one in enumerate(columns) if one.kind != "free"]
        if other:
            raise ValueError(
                "process='mixture' needs columns that are neither periodic, bounded nor "
                f"categorical, and column {columns.label(other[0])} is {columns[other[0]].kind}: "
                "process='joint' serves any columns"
            )

    def collector(
        self,
        columns: Columns,
        rows: Tensor,  # noqa: ARG002
        weights: Tensor,  # noqa: ARG002
        settings: Settings,
    ) -> MixtureCollector:
        """Return a collector that keeps rows."""
        return MixtureCollector(columns, settings, self.systems)
