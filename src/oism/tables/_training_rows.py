"""The rows that all candidates of a `JointModel` are fitted to, and the rows of each problem.

A *problem* is a fit to all rows but those of one fold, which are held out; the last problem has all
rows. Up to 3,000 rows, each of some folds is held out in turn; above, one fold.

Systems of coordinates: *plain* leaves free columns as they are, and maps an interval or a turn to
ℝ by y = Φ⁻¹ of the share of its length; *warped* maps every column by its fitted margin, y =
Φ⁻¹(F(x)), so that only the dependence between columns is left to model. Turns are cut where the
margin has its least density. Margins are fitted without the held-out rows too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oism.estimation import fold_of
from oism.tables._column import Column
from oism.tables._margin import Margin
from oism.tables._margin_fit import fit_margins
from oism.tables._part import Coordinate, Identity, Warp

VERY_FEW_ROWS, FEW_ROWS = 300, 3000
FOLDS, FEWER_FOLDS = 5, 3
"""Up to 3,000 rows, each of three folds is held out in turn, of five up to 300; above, one fold."""

HELD_OUT = 2500
"""About the largest number of rows that are held out."""


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows of a table without gaps: what all candidates are fitted to.

    ``x`` ``(n, d)`` are continuous columns, ``columns`` their records; ``codes`` ``(n, c)`` are
    those of categorical columns with ``counts`` levels; ``weights`` ``(n,)`` sum to the effective
    number of rows; ``train`` ``(p, n)`` marks the rows of each problem: the last has all of them.
    """

    x: Tensor
    codes: Tensor
    weights: Tensor
    columns: tuple[Column, ...]
    counts: tuple[int, ...]
    train: Tensor
    _margins: dict[int, list[Margin]] = field(default_factory=dict)

    @property
    def indicators(self) -> Tensor:
        """One column for each level of each categorical column: ``(n, l)``."""
        parts = [
            torch.nn.functional.one_hot(self.codes[:, c], count)
            for c, count in enumerate(self.counts)
        ]
        return torch.cat((self.x.new_zeros(len(self.x), 0), *parts), dim=1).double()

    @property
    def few(self) -> bool:
        """Whether each fold is held out in turn."""
        return len(self.x) <= FEW_ROWS

    def margin(self, column: int, problem: int) -> Margin:
        """Return the margin of a column, fitted to the rows of a problem."""
        if column not in self._margins:
            one = self.columns[column]
            self._margins[column] = fit_margins(
                self.x[:, column],
                self.weights,
                self.train,
                period=one.period,
                bounds=(_finite(one.low), _finite(one.high)),
            )
        return self._margins[column][problem]

    def plain(self, column: int, problem: int) -> Coordinate:
        """Return the coordinate of a column in the plain system."""
        one = self.columns[column]
        if one.period is not None:
            start = self.margin(column, problem).start
            return Warp(_uniform(start, start + one.period, periodic=True))
        if math.isfinite(one.low) and math.isfinite(one.high):
            return Warp(_uniform(one.low, one.high))
        return Warp(self.margin(column, problem)) if one.is_bounded else Identity()

    def plain_system(self, problem: int) -> tuple[Coordinate, ...]:
        """Return the coordinates of all columns, with turns cut at one place in all problems."""
        last = len(self.train) - 1
        return tuple(
            self.plain(j, problem if one.period is None else last)
            for j, one in enumerate(self.columns)
        )

    def warped(self, column: int, problem: int) -> Coordinate:
        """Return the coordinate of a column in the warped system."""
        return Warp(self.margin(column, problem))


def _finite(end: float) -> float | None:
    return end if math.isfinite(end) else None


def _uniform(low: float, high: float, *, periodic: bool = False) -> Margin:
    ends = torch.tensor([low, high], dtype=torch.float64)
    return Margin.of(ends, torch.zeros_like(ends), periodic=periodic)


def problems_of(cells: Tensor, folds: tuple[int, int] | None = None) -> Tensor:
    """Return the rows of each problem, ``(p, n)``: without one fold each, and all of them.

    ``cells`` ``(n, d)`` are the cells of the rows, see `oism.tables._folds`. ``folds`` are the
    number of folds, and of those that are held out; by default they follow from that of the rows.
    """
    n = len(cells)
    if folds is None:
        few = FOLDS if n <= VERY_FEW_ROWS else FEWER_FOLDS
        folds = (few, few) if n <= FEW_ROWS else (max(FOLDS, round(n / HELD_OUT)), 1)
    fold = fold_of(cells, folds[0])
    held = [fold == one for one in range(folds[1])]
    held = [one for one in held if bool(one.any()) and not bool(one.all())]
    return torch.stack([*(~one for one in held), torch.ones_like(fold, dtype=torch.bool)])
