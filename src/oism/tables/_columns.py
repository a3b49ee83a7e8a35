"""The columns of a table: what a user declares, what the rows show, and the chart to the torus."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oism._core import checks
from oism.storage import storable
from oism.tables._box import bounded_box, covered, margin
from oism.tables._chart import BoxChart, constant_scale, is_constant
from oism.tables._column import Column, turn_start
from oism.tables._declared import by_index, ends_of, interval
from oism.tables._folds import ranges_of, sorted_cells

UNSEEN = 1e-3
"""The probability of a new level beyond a closed end, in that of the outer level."""

STORED = str | bool | int | float
"""The types of levels, and of names, that a file holds."""


@storable
@dataclass(frozen=True)
class Columns:
    """One `Column` for each column; ``frame`` is the library of the table, "pandas" or "polars".

    >>> columns = Columns.of(2, ["phi", "size"], {"phi": 360.0}, {"size": (0, None)}, None)
    >>> columns.kinds
    ('periodic', 'bounded')
    >>> columns[1].low, columns[1].high
    (0.0, inf)
    """

    items: tuple[Column, ...]
    frame: str | None = None

    @classmethod
    def of(
        cls,
        count: int,
        names: Sequence[Hashable] | None,
        periodic: Mapping[Any, float] | float | None,
        bounds: Mapping[Any, tuple[float | None, float | None]] | None,
        box: Sequence[float] | None,
    ) -> Columns:
        """Return the declarations of a user, columns by name or by index.

        ``periodic`` may be one period for all columns. Raises where declarations are wrong.
        """
        labels = [None] * count if names is None else [_label(name) for name in names]
        shared: float | None = None
        if isinstance(periodic, int | float | Real):
            shared, periodic = checks.positive(periodic, "periodic"), None
        if box is not None and (shared or periodic or bounds):
            raise ValueError("box must be None where periodic or bounds are given: it sets both")
        if box is not None:
            low, high = interval(box, "box")
            return cls(tuple(Column(name, period=high - low, start=low) for name in labels))
        found = [Column(name, period=shared) for name in labels]
        for column, key, period in by_index(periodic or {}, count, names, "periodic"):
            found[column] = replace(
                found[column], period=checks.positive(period, f"periodic[{key!r}]")
            )
        for column, key, pair in by_index(bounds or {}, count, names, "bounds"):
            low, high = ends_of(pair, f"bounds[{key!r}]")
            found[column] = replace(found[column], low=low, high=high)
        both = [_shown(j, one) for j, one in enumerate(found) if one.period and one.is_bounded]
        if both:
            raise ValueError(
                f"a column is either periodic or bounded, but {', '.join(both)} are both: leave "
                "each out of periodic or out of bounds"
            )
        return cls(tuple(found))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, j: int) -> Column:
        return self.items[j]

    def __iter__(self) -> Iterator[Column]:
        return iter(self.items)

    @property
    def count(self) -> int:
        """The number of columns."""
        return len(self.items)

    @property
    def names(self) -> tuple[Hashable, ...] | None:
        """The names of the columns, of any kind, or None where not all have names."""
        names = tuple(column.name for column in self.items)
        return None if not names or None in names else names

    @property
    def texts(self) -> NDArray[np.object_] | None:
        """The names of the columns as scikit-learn has them; None where not all are text."""
        names = self.names
        if names is None or not all(isinstance(name, str) for name in names):
            return None
        return np.array(names, dtype=object)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each column, see `Column`."""
        return tuple(column.kind for column in self.items)

    def of_kind(self, kind: str) -> tuple[int, ...]:
        """Return the indices of the columns of a kind."""
        return tuple(j for j, found in enumerate(self.kinds) if found == kind)

    @property
    def categorical(self) -> tuple[int, ...]:
        """The indices of categorical columns."""
        return self.of_kind("categorical")

    @property
    def discrete(self) -> tuple[int, ...]:
        """The indices of discrete columns."""
        return self.of_kind("discrete")

    def levels(self, j: int) -> tuple[Any, ...]:
        """Return the levels of a column, () if it is neither discrete nor categorical."""
        return self.items[j].levels

    @property
    def periods(self) -> dict[int, float]:
        """The periods of the columns that have one."""
        return {j: one.period for j, one in enumerate(self.items) if one.period is not None}

    @property
    def bounds(self) -> dict[int, tuple[float, float]]:
        """The bounds of the columns that have some; one end may be infinite."""
        return {j: (one.low, one.high) for j, one in enumerate(self.items) if one.is_bounded}

    @property
    def are_free(self) -> bool:
        """Whether no column is periodic, bounded or categorical."""
        return not self.periods and not self.bounds and not self.categorical

    @property
    def have_levels(self) -> bool:
        """Whether all columns are discrete or categorical."""
        return all(column.levels for column in self.items)

    @property
    def continuous(self) -> Columns:
        """The columns of rows whose discrete values are spread over their cells."""
        return Columns(tuple(column.continuous for column in self.items), self.frame)

    def select(self, columns: Sequence[int]) -> Columns:
        """Return some of the columns, in the order given."""
        return Columns(tuple(self.items[j] for j in columns), self.frame)

    def check_storable(self) -> None:
        """Raise if a file cannot hold a level or a name: only text, numbers, True and False."""
        for j, column in enumerate(self.items):
            bad = [level for level in column.levels if not isinstance(level, STORED)]
            if bad:
                raise TypeError(
                    f"column {self.label(j)} has the level {bad[0]!r}, a {type(bad[0]).__name__}, "
                    "which cannot be saved: convert the column to text before the fit, as by "
                    "X[column].astype(str)"
                )
            names = column.name if isinstance(column.name, tuple) else (column.name,)
            if not all(name is None or isinstance(name, STORED) for name in names):
                raise TypeError(
                    f"the name of column {self.label(j)} cannot be saved: give the column a name "
                    "that is text before the fit"
                )

    def label(self, j: int) -> str:
        """Return what messages call a column: its name in quotes, or its index."""
        return _shown(j, self.items[j])

    def dequantised(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Return rows ``(n, d)`` with discrete values spread uniformly over their cells.

        The numbers are drawn in the lexicographic order of the rows, so that the order of the rows
        does not matter. Gaps, which are NaN, stay gaps.
        """
        discrete = list(self.discrete)
        if not discrete or not len(rows):
            return rows
        order = torch.arange(len(rows))
        for j in range(rows.shape[1]):  # the sorts are stable
            order = order[rows[order, j].argsort(stable=True)]
        share = torch.empty(len(rows), len(discrete), dtype=torch.float64)
        share[order] = torch.empty_like(share).uniform_(generator=generator)
        return self.within_cells(rows, share)

    def within_cells(self, rows: Tensor, share: Tensor) -> Tensor:
        """Return rows with the k discrete values at these shares ``(n, k)`` of their cells' widths.

        Gaps stay gaps.
        """
        discrete = list(self.discrete)
        low, width = self.cells(rows)
        result = rows.clone()
        gaps = rows[:, discrete].isnan()
        result[:, discrete] = torch.where(gaps, math.nan, low + width * share)
        return result

    def cells(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return where the cells of the k discrete columns begin, and their widths: ``(n, k)``.

        A value that is no level has the cell that it lies in; beyond the outer edges it has a cell
        of no width, which is itself.
        """
        starts, widths = [rows.new_empty(len(rows), 0)], [rows.new_empty(len(rows), 0)]
        for j in self.discrete:
            column, values = self.items[j], self.items[j].reduced(rows[:, j])
            index, edges = column.level_index(values), column.edges.to(rows)
            outside = (values < edges[0]) | (values > edges[-1])
            starts.append(torch.where(outside, values, edges[index])[:, None])
            widths.append(torch.where(outside, 0.0, edges[index + 1] - edges[index])[:, None])
        return torch.cat(starts, dim=1), torch.cat(widths, dim=1)

    def quantised(self, rows: Tensor, *, outside: bool = True) -> Tensor:
        """Return rows ``(n, d)`` with discrete values replaced by the levels of their cells.

        Values beyond the outer edges become the outer levels, or stay if ``outside`` is false.
        """
        result = rows.clone()
        for j in self.discrete:
            column, values = self.items[j], self.items[j].reduced(rows[:, j])
            levels = torch.tensor(column.levels, dtype=torch.float64).to(rows)
            beyond = (values < column.edges[0]) | (values > column.edges[-1])
            kept = values.isnan() | (beyond & (not outside))
            result[:, j] = torch.where(kept, values, levels[column.level_index(values)])
        return result

    def enclosed(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows with values beyond closed ends moved to the outer level, and log-penalties.

        A value at r widths of the outer cell beyond a closed end has the density of the outer level
        times 10⁻³ · 2^{-r}: finite, and of a mass that is small beside that of the level.
        """
        result, penalty = rows.clone(), rows.new_zeros(len(rows))
        for j in self.discrete:
            column, values = self.items[j], rows[:, j]
            edges = column.edges.to(rows)
            if column.period is not None:
                continue
            for k, sign in ((0, -1), (-1, 1)):
                width = edges[1] - edges[0] if k == 0 else edges[-1] - edges[-2]
                beyond = sign * (values - edges[k]) / width
                moved = (beyond > 0) & column.closed[k]
                result[:, j] = torch.where(moved, float(column.levels[k]), result[:, j])
                penalty += torch.where(moved, math.log(UNSEEN) - math.log(2) * beyond, 0.0)
        return result, penalty

    def check_bounds(self, x: Tensor) -> None:
        """Raise unless rows ``(m, count)`` are within the bounds; gaps are allowed."""
        for column, (least, most) in self.bounds.items():
            values = x[:, column]
            values = values[~values.isnan()]
            if not len(values):
                continue
            low, high = (float(end) for end in values.aminmax())
            if low < least or high > most:
                raise ValueError(
                    f"bounds of column {self.label(column)} are ({least:g}, {most:g}), but the "
                    f"data reach from {low:g} to {high:g}"
                )

    def allows(self, x: Tensor) -> Tensor:
        """Return which rows are within the bounds, gaps included: ``(n,)``."""
        inside = torch.ones(len(x), dtype=torch.bool, device=x.device)
        for column, (least, most) in self.bounds.items():
            inside &= ~((x[:, column] < least) | (x[:, column] > most))
        return inside

    def cells_of(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return the cells that determine the folds of rows ``(m, count)`` without gaps."""
        chart = self.chart(x, float(weights.sum()), weights)
        return sorted_cells(x, *ranges_of(chart))

    def chart(self, x: Tensor, n: float, weights: Tensor | None = None) -> BoxChart:
        """Return the chart that maps rows ``(m, count)``, effectively n of them, into the box."""
        weights = x.new_ones(len(x)) if weights is None else weights
        self.check_bounds(x)
        low, high = x.amin(dim=0), x.amax(dim=0)
        near, far = covered(x, weights, n)
        centre, half = 0.5 * (near + far), 0.5 * (far - near)
        half = torch.where(is_constant(near, far), constant_scale(centre), half)
        scale = math.pi / (half * (1 + margin(n)))
        start, opening = torch.zeros_like(centre), torch.zeros_like(centre)
        periodic, bounded = (torch.zeros(self.count, dtype=torch.bool) for _ in range(2))
        for column, period in self.periods.items():
            origin = self.items[column].start
            periodic[column] = True
            centre[column], scale[column] = 0.0, 2 * math.pi / period
            ends = float(low[column]), float(high[column])
            start[column] = turn_start(*ends, period) if origin is None else origin
        for column, (first, last) in self.bounds.items():
            bounded[column] = True
            end, width, opening[column] = bounded_box(
                first, last, float(near[column]), float(far[column]), n
            )
            centre[column], scale[column] = end, math.pi / width
        return BoxChart(centre, scale, start, periodic, bounded, opening)


def _label(name: Hashable) -> Hashable:
    """Return a name as it is stored: those of NumPy as Python's."""
    return name.item() if isinstance(name, np.generic) else name


def _shown(j: int, column: Column) -> str:
    return str(j) if column.name is None or isinstance(column.name, int) else repr(column.name)
